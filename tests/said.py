"""Sentences that tests expect stand apart from the tests: in `tests/words`, one text file for each module.

A test names a sentence and the facts it must hold; how they are put, an editor may change:

    WORDS = Words(__file__)

    def test_a_layer_that_was_not_read(scores):
        with WORDS.raises(ResultError, "not_read", 5, [4, 7]):
            scores.at(layer=5)

and `tests/words/.../test_scores.txt` has

    == not_read
    Layer 5 was not read; there are [4, 7]

An ellipsis stands for anything, `{}` for the next fact, white space for one blank. `make words` puts what the package says
now in the place of what it says no longer; what came of it is read as text: `git diff tests/words`.
"""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
RENEW = "TEST_WORDS"
"""Environment variable: "renew" writes sentences anew."""

HEADER = re.compile(r"^== (.+)$", re.MULTILINE)
ALIKE = 0.3
"""Share of the words of an old sentence that the one in its place has at least."""
AROUND = 8
"""How many signs beside an ellipsis tell where it stands in a new sentence."""
NUMBER = re.compile(r"[+−-]?\d+(?:[.,]\d+)*(?:e[+−-]?\d+)?")


def file_of(module: str | Path) -> Path:
    """The file with the sentences of a module of tests."""
    return (HERE / "words" / Path(module).resolve().relative_to(HERE)).with_suffix(".txt")


def read(path: Path) -> dict[str, str]:
    """Sentences of a file by name."""
    _, *parts = HEADER.split(path.read_text(encoding="utf-8")) if path.exists() else [""]
    return {key: text.strip() for key, text in zip(parts[::2], parts[1::2], strict=True)}


def write(path: Path, sentences: dict[str, str]) -> None:
    """The opposite of `read`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join(f"== {key}\n{sentence}" for key, sentence in sentences.items())
    path.write_text(text + "\n", encoding="utf-8")


class Words:
    """Sentences of one module; calling it asserts that a text holds one of them."""

    def __init__(self, module: str | Path) -> None:
        self.path = file_of(module)

    def __call__(self, text: Any, key: str, *facts: Any) -> None:
        """A sentence stands in a text (or: is one of several), with its facts."""
        __tracebackhide__ = True
        self._check(text, key, facts, "", "")

    def starts(self, text: str, key: str, *facts: Any) -> None:
        """A text begins with a sentence."""
        __tracebackhide__ = True
        self._check(text, key, facts, r"\A\s*", "")

    def ends(self, text: str, key: str, *facts: Any) -> None:
        """A text ends with a sentence."""
        __tracebackhide__ = True
        self._check(text, key, facts, "", r"\s*\Z")

    def exactly(self, text: str, key: str, *facts: Any) -> None:
        """A text is a sentence, no more and no less."""
        __tracebackhide__ = True
        self._check(text, key, facts, r"\A\s*", r"\s*\Z")

    def only_if(self, condition: bool, text: Any, key: str, *facts: Any) -> None:
        """A sentence stands in a text where a condition holds, and nowhere else."""
        __tracebackhide__ = True
        if condition:
            self._check(text, key, facts, "", "")
        elif matches(filled(read(self.path).get(key, ""), list(map(str, facts))), joined(text)):
            pytest.fail(f"[{key}] stands in what should not hold it:\n{joined(text)}")

    @contextmanager
    def raises(self, error: Any, key: str, *facts: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
        """As `pytest.raises`: the message holds a sentence."""
        __tracebackhide__ = True
        with pytest.raises(error) as caught:
            yield caught
        self(str(caught.value), key, *facts)

    @contextmanager
    def warns(
        self, category: type[Warning], key: str, *facts: Any
    ) -> Iterator[pytest.WarningsRecorder]:
        """As `pytest.warns`: one of the warnings holds a sentence."""
        __tracebackhide__ = True
        with pytest.warns(category) as caught:
            yield caught
        texts = [str(own.message) for own in caught if issubclass(own.category, category)]
        self("\n".join(texts), key, *facts)

    def _check(self, text: Any, key: str, facts: tuple[Any, ...], first: str, last: str) -> None:
        __tracebackhide__ = True
        text = joined(text)
        sentences = read(self.path)
        wanted = [plain(str(fact)) for fact in facts]
        sentence = sentences.get(key, "")
        expected = filled(sentence, wanted)
        stands = bool(expected) and matches(expected, text, first, last)
        place = self.path.relative_to(HERE.parent)
        if not stands and os.environ.get(RENEW) != "renew":
            said = f"“{expected}”" if expected else "nothing yet"
            pytest.fail(f"{place} [{key}] expects {said}, the text is (make words):\n{text}")
        if not stands:
            whole = bool(first and last)
            found = masked(text) if whole else closest(text, expected, wanted, first, last)
            if not found:
                pytest.fail(f"{place} [{key}]: no sentence is like the old one in:\n{text}")
            new = opened(expected, found)
            expected = loosened(expected, new, wanted) if expected and not whole else new
        lacking = [fact for fact in wanted if fact not in plain(expected)]
        if lacking:
            pytest.fail(f"{place} [{key}]: “{expected}” lacks {', '.join(lacking)}")
        if not stands:
            write(self.path, {**sentences, key: emptied(expected, wanted[: sentence.count("{}")])})


def joined(text: Any) -> str:
    """A text, or several as one with a line each."""
    return text if isinstance(text, str) else "\n".join(map(str, text))


def plain(text: str) -> str:
    """A text with single blanks."""
    return " ".join(text.split())


def filled(sentence: str, facts: list[str]) -> str:
    """A sentence with facts in its slots; where there are no more facts, `{}` stands for itself."""
    first, *parts = sentence.split("{}")
    own = [*facts, *["{}"] * len(parts)]
    return first + "".join(map("".join, zip(own, parts, strict=False)))


def emptied(sentence: str, facts: list[str]) -> str:
    """The opposite of `filled`."""
    done = ""
    for fact in facts:
        before, _, sentence = sentence.partition(fact)
        done += before + "{}"
    return done + sentence


def matches(sentence: str, text: str, first: str = "", last: str = "") -> bool:
    """Whether a sentence stands in a text; an ellipsis stands for anything."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in sentence.split("…")]
    return re.search(first + ".*?".join(parts) + last, text, re.DOTALL) is not None


def closest(text: str, old: str, facts: list[str], first: str = "", last: str = "") -> str:
    """The sentence of a text that holds the facts and is most like another, or "".

    Paths become ellipses.
    """
    pieces = {plain(own) for own in [*text.splitlines(), *re.split(r"(?<=[.!?;:])\s+", text)]}
    among = [
        own
        for own in pieces
        if own and all(fact in own for fact in facts) and matches(own, text, first, last)
    ]
    rated = [(difflib.SequenceMatcher(None, old, own).ratio(), own) for own in among]
    best = max(rated, default=(0.0, ""))[1]
    there = [word in re.findall(r"\w+", best) for word in re.findall(r"\w+", old)]
    return "" if sum(there) < ALIKE * len(there) else masked(best)


def masked(text: str) -> str:
    """A text with single blanks, without paths and addresses of this machine."""
    return re.sub(r"(?<![…\w.~/:-])(?:/[\w.~-]+){2,}|\b0x[0-9a-f]{6,}\b", "…", plain(text))


def opened(old: str, new: str) -> str:
    """A new sentence with the ellipses of an old one, where what stands beside them is still there."""
    done, rest = "", new
    parts = plain(old).split("…")
    for before, after in pairwise(parts):
        first, last = before[-AROUND:], after[:AROUND]
        start = rest.find(first)
        stop = rest.find(last, start + len(first)) if last else len(rest)
        if first and 0 <= start <= stop:
            done, rest = done + rest[: start + len(first)] + "…", rest[stop:]
    return done + rest


def loosened(old: str, new: str, facts: list[str]) -> str:
    """A new sentence whose numbers are ellipses, but for facts and for what the old one held: a test asserts no more."""
    known = {*NUMBER.findall(old), *NUMBER.findall(" ".join(facts))}
    return NUMBER.sub(lambda own: own[0] if own[0] in known else "…", new)
