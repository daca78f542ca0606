"""A text as the model's own tokenizer reads it: the tokens of one call, and the characters each of them holds.

Nothing is tokenised in pieces: tokens of pieces put together are other ones wherever a vocabulary merges
across an edge (`.` and a line break are one token of Qwen, Llama 3 and Mistral's Tekken).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from icl_mech.errors import PromptError

Interval = tuple[int, int]

_RARE = "𒐫 ꙮ ⵣ \U00100000"
"""Unknown to every tokenizer that has unknown characters."""

_ANCHORS = ("\n", ".", "|", "a", "1", "\n\n", "?")
"""Signs that tokenizers do not merge with what follows."""

SETTLED, BEFORE = 24, 8
"""Tokens of a text's end that are compared, and those read before them, when only its ending changes."""

SpecialTokens = Literal["text", "control", "refuse"]
"""What becomes of `</s>` and the like written in a text: its letters, the token, an error."""


class Encoded(NamedTuple):
    """Tokens of a text.

    Attributes:
        ids: Token ids, without those that the tokenizer puts before every text.
        offsets: Characters that each token holds, half-open. Tokens of parts of one character hold it all.
    """

    ids: tuple[int, ...]
    offsets: tuple[Interval, ...]

    def behind(self, token: int, shift: int) -> "Encoded":
        """The tokens from one on, with offsets in a text that begins `shift` characters earlier."""
        moved = tuple((start + shift, stop + shift) for start, stop in self.offsets[token:])
        return Encoded(self.ids[token:], moved)

    def token_at(self, character: int) -> int | None:
        """The token that begins at a character where the one before it ends; None if there is none."""
        token = next((t for t, (start, _) in enumerate(self.offsets) if start >= character), None)
        if token is None or self.offsets[token][0] != character:
            return None
        return token if not token or self.offsets[token - 1][1] <= character else None


@dataclass
class TextTokenizer:
    """A Hugging Face tokenizer and what it makes of special tokens that a text writes.

    Special tokens that a template writes always are the tokens themselves; `special_tokens` says
    what those in texts and label words are.
    """

    tokenizer: Any
    special_tokens: SpecialTokens = "text"

    def start_tokens(self, bos: bool | None) -> tuple[int, ...]:
        """Ids the tokenizer puts before a text; `bos` forces (True) or forbids (False) one.

        Raises:
            PromptError: `bos=True` with a tokenizer that has no BOS token.
        """
        if bos is False:
            return ()
        if bos and not self._usual_start:
            if self.tokenizer.bos_token_id is None:
                raise PromptError("bos=True, but the tokenizer has no BOS token; leave bos=None.")
            return (int(self.tokenizer.bos_token_id),)
        return self._usual_start

    @cached_property
    def _usual_start(self) -> tuple[int, ...]:
        with_special = [int(i) for i in self.tokenizer("a", add_special_tokens=True)["input_ids"]]
        plain = list(self._call("a").ids)
        for start in range(len(with_special) - len(plain) + 1):
            if with_special[start : start + len(plain)] == plain:
                return tuple(with_special[:start])
        return ()

    def encode(self, text: str, letters: Sequence[Interval] = ()) -> Encoded:
        """The tokens of a whole text.

        Args:
            text: All of it.
            letters: Characters, half-open, that are no template's: special tokens written there are what
                `special_tokens` says.

        Raises:
            PromptError: special tokens that are refused or cannot be written as text, or a tokenizer that
                does not say which characters its tokens hold.
        """
        whole = self._call(text)
        written = [] if self.special_tokens == "control" else self._written(whole, letters)
        if not written:
            return whole
        names = ", ".join(dict.fromkeys(self.tokenizer.convert_ids_to_tokens(written)))
        if self.special_tokens == "refuse":
            self._refuse(
                text,
                letters,
                names,
                "would steer the model (special_tokens='refuse'). Take special_tokens='text' to "
                "read their letters; prompts_from_text also takes 'control', for texts laid out "
                "by a chat template",
            )
        return self._as_letters(text, whole, letters, names)

    def endings(
        self, text: str, words: Sequence[str], after: str, letters: Sequence[Interval] = ()
    ) -> tuple[Encoded, int, list[Encoded]]:
        """How a text is tokenised that goes on with each of several words, and then alike.

        Returns:
            The text with the first word; how many of its first tokens all have in common at least; and
            behind these the tokens of the text with each word.

        Tokens depend on few of the characters around them. So where the end of the text alone, read from a
        token on, gives the first word the tokens that the whole gives it, only this end is read again for
        the others; else the whole text is.
        """

        def read(word: str, far: int = 0) -> Encoded:
            shifted = [(max(start - far, 0), stop - far) for start, stop in letters if stop > far]
            shifted.append((len(text) - far, len(text) - far + len(word)))
            return self.encode(text[far:] + word + after, shifted)

        first = read(words[0])
        end = next((t for t, (_, stop) in enumerate(first.offsets) if stop > len(text)), 0)
        start = end - SETTLED
        if start > BEFORE and first.token_at(first.offsets[start][0]) == start:
            far, near = first.offsets[start - BEFORE][0], first.offsets[start][0]
            tails = [read(word, far) for word in words]
            places = [tail.token_at(near - far) for tail in tails]
            rests = [t.behind(p, far) for t, p in zip(tails, places, strict=True) if p is not None]
            if len(rests) == len(tails) and rests[0] == first.behind(start, 0):
                return first, start, rests
        return first, 0, [first, *map(read, words[1:])]

    def words(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The text of each token, as it reads inside a text."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        decoded = (self.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)
        return tuple(
            f" {text}" if str(token).startswith("▁") and not text.startswith(" ") else text
            for token, text in zip(tokens, decoded, strict=True)
        )

    @cached_property
    def _control(self) -> frozenset[int]:
        """Ids of special tokens, without one that unknown characters become."""
        tokenizer = self.tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {}).items()
        control = {number for number, token in added if token.special}
        control |= set(getattr(tokenizer, "all_special_ids", ()))
        unknown = getattr(tokenizer, "unk_token_id", None)
        return frozenset(control - ({unknown} if unknown in self._call(_RARE).ids else set()))

    def _written(self, read: Encoded, letters: Sequence[Interval]) -> list[int]:
        """Special tokens that stand where no template writes."""
        if not letters or self._control.isdisjoint(read.ids):
            return []
        return [
            token
            for token, (start, _) in zip(read.ids, read.offsets, strict=True)
            if token in self._control and _inside(start, letters)
        ]

    def _as_letters(
        self, text: str, whole: Encoded, letters: Sequence[Interval], names: str
    ) -> Encoded:
        """The tokens where only special tokens of the template divide what is read at once."""
        control = [
            (token, interval)
            for token, interval in zip(whole.ids, whole.offsets, strict=True)
            if token in self._control and not _inside(interval[0], letters)
        ]
        ids: list[int] = []
        offsets: list[Interval] = []
        cuts = [(None, (0, 0)), *control, (None, (len(text), len(text)))]
        for (_, (_, start)), (token, (stop, end)) in pairwise(cuts):
            run = self._run(text, start, stop)
            if not self._control.isdisjoint(run.ids):
                self._refuse(text, letters, names, "cannot be written as text with this tokenizer")
            ids += run.ids
            offsets += run.offsets
            if token is not None:
                ids.append(token)
                offsets.append((stop, end))
        return Encoded(tuple(ids), tuple(offsets))

    def _run(self, text: str, start: int, stop: int) -> Encoded:
        """A part of a text without its special tokens; behind an anchor if something stands before it."""
        run = text[start:stop]
        if not start or not run:
            return self._call(run, split_special_tokens=True)
        for anchor in _ANCHORS:
            if anchor.isalnum() and run[:1].isalnum():
                continue  # they would be one word
            both = self._call(anchor + run, split_special_tokens=True)
            token = both.token_at(len(anchor))
            if token is not None:
                return both.behind(token, start - len(anchor))
        raise PromptError(f"The tokenizer merges {run!r} with every sign before it.")

    def _refuse(self, text: str, letters: Sequence[Interval], names: str, why: str) -> None:
        shown = next(
            (
                text[start:stop]
                for start, stop in letters
                if not self._control.isdisjoint(self._call(text[start:stop]).ids)
            ),
            text,
        )
        raise PromptError(
            f"The text {shown.strip()[:60]!r} holds special tokens of the model, {names}, which {why}."
        )

    def _call(self, text: str, **options: bool) -> Encoded:
        if not getattr(self.tokenizer, "is_fast", False):
            read = self.tokenizer(text, add_special_tokens=False, **options)
            ids = [int(i) for i in read["input_ids"]]
            return Encoded(tuple(ids), self._by_decoding(text, ids))
        read = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, **options
        )
        return Encoded(tuple(read["input_ids"]), _untrimmed(read["offset_mapping"]))

    def _by_decoding(self, text: str, ids: Sequence[int]) -> tuple[Interval, ...]:
        """Characters of each token of a tokenizer that does not say them: what tokens read as, in order.

        Raises:
            PromptError: tokens do not read as the text.
        """
        offsets: list[Interval] = []
        done, held = 0, 0
        for number in range(1, len(ids) + 1):
            read = self.tokenizer.decode(ids[held:number], clean_up_tokenization_spaces=False)
            start = done + len(text[done:]) - len(text[done:].lstrip())
            for place, words in ((done, read), (start, read.lstrip())):
                if words and "�" not in words and text.startswith(words, place):
                    offsets += [(place, place + len(words))] * (number - held)
                    done, held = place + len(words), number
                    break
        if held < len(ids):
            raise PromptError(
                f"The tokenizer ({type(self.tokenizer).__name__}) gives no character offsets, and its tokens "
                f"do not read as the text from {text[done:][:40]!r} on. Use the fast tokenizer of the model "
                "(a tokenizer.json, AutoTokenizer.from_pretrained(..., use_fast=True))."
            )
        return tuple(offsets)


def _untrimmed(offsets: Sequence[Interval]) -> tuple[Interval, ...]:
    """Offsets of which those without a character hold the white space that was trimmed from them."""
    widened: list[Interval] = []
    end = 0
    for start, stop in offsets:
        widened.append((min(start, end), stop) if start == stop else (start, stop))
        end = max(end, stop)
    return tuple(widened)


def _inside(character: int, intervals: Sequence[Interval]) -> bool:
    place = bisect_right(intervals, (character, float("inf"))) - 1
    return place >= 0 and intervals[place][0] <= character < intervals[place][1]
