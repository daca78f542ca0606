"""`TextSet`: a named list of texts from which prompts are drawn by seed; and texts from files."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os.path import expanduser
from pathlib import Path
from typing import Any, get_args

import numpy as np

from icl_mech.checking import shown
from icl_mech.errors import PromptError, near_matches
from icl_mech.prompts.any_text import texts as texts_of
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.splitting import Interval, Unit, split_text
from icl_mech.tasks import Task
from icl_mech.tasks.types import text_fault

DIVIDER = "---"


@dataclass(frozen=True)
class TextSet:
    """Texts without classes, which sweeps accept instead of a task.

    Attributes:
        name: Name in tables.
        texts: All texts; a seed draws `n` of them.
        spans: Unit that texts are split into, or a list of character intervals for each text, see `texts`.
        anchors: Alternatively, a list of anchors for each text, see `texts`.

    Raises:
        PromptError: no name, no texts, an invalid or repeated text, or invalid spans.
    """

    name: str
    texts: Sequence[str]
    spans: Unit | Sequence[Sequence[Interval]] = "sentences"
    anchors: Sequence[Sequence[str | Interval]] | None = None

    def __post_init__(self) -> None:
        """Check name, texts, spans and anchors."""
        if fault := text_fault(self.name):
            raise PromptError(f"The name of a text set {fault}.")
        given: Any = self.texts
        if isinstance(given, str | bytes) or not isinstance(given, Sequence):
            raise PromptError(
                f"The texts of {self.name!r} are a {type(self.texts).__name__}; give a list of texts."
            )
        object.__setattr__(self, "texts", tuple(self.texts))
        for number, text in enumerate(self.texts):
            if fault := text_fault(text):
                raise PromptError(f"Text {number} of {self.name!r} {fault}.")
        if not self.texts:
            raise PromptError(f"The text set {self.name!r} is empty; give at least one text.")
        if len(set(self.texts)) < len(self.texts):
            raise PromptError(
                f"The text set {self.name!r} contains a text twice; give each text once."
            )
        if isinstance(self.spans, str):
            if self.spans not in get_args(Unit):
                near = near_matches(self.spans, get_args(Unit))
                raise PromptError(f"spans={self.spans!r} of {self.name!r}. {near}")
        elif len(self.spans) != len(self.texts):
            raise PromptError(
                f"The spans of {self.name!r} do not match its texts in number; give a list of "
                "intervals for each text."
            )
        if self.anchors is not None and len(self.anchors) != len(self.texts):
            raise PromptError(
                f"The anchors of {self.name!r} do not match its texts in number; give a list of "
                "anchors for each text."
            )

    @property
    def digest(self) -> str:
        """Fingerprint of texts, spans and anchors."""
        anchors = () if self.anchors is None else (self.anchors,)
        content = repr((self.texts, self.spans, *anchors))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def prompts(
        self, model_or_tokenizer: object, *, n: int | None = None, seed: int = 0
    ) -> PromptBatch:
        """Prompts of `n` texts, drawn by seed without replacement; None: of all texts, in order.

        Raises:
            PromptError: fewer texts than `n`, or texts that `texts` rejects.
        """
        order: list[int] = list(range(len(self.texts)))
        if n is not None:
            if n > len(order):
                raise PromptError(
                    f"The text set {self.name!r} has {len(order)} texts, fewer than the requested "
                    f"n={n}. Use a smaller n."
                )
            order = np.random.default_rng([seed]).permutation(len(order))[:n].tolist()
        spans: Any = self.spans if isinstance(self.spans, str) else [self.spans[i] for i in order]
        anchors = None if self.anchors is None else [self.anchors[i] for i in order]
        chosen = [self.texts[i] for i in order]
        batch = texts_of(chosen, model_or_tokenizer, spans=spans, anchors=anchors)
        drawn = {} if n is None else {"seed": seed, "pool": len(self.texts)}
        source = {**batch.source, "task": {"name": self.name, "digest": self.digest}, **drawn}
        return replace(batch, source=source)

    @classmethod
    def load(cls, path: str | Path, *, name: str = "", spans: Unit = "sentences") -> "TextSet":
        """Texts and anchors from a file, see `read_texts`; the default name is the file's.

        Raises:
            PromptError: a file that cannot be read, or has another format.
        """
        file = Path(expanduser(path))
        texts, anchors = read_texts(file)
        return cls(name or file.name, texts, spans, anchors)

    @classmethod
    def of_task(cls, task: Task, *, name: str = "", spans: Unit = "sentences") -> "TextSet":
        """Texts of a task's test examples that have at least two spans.

        Raises:
            PromptError: there is no such text.
        """
        every = dict.fromkeys(example.text for example in task.test)
        texts = [text for text in every if len(split_text(text, spans)) > 1]
        if not texts:
            raise PromptError(
                f"None of the {len(every)} test texts of task {task.name!r} has at least two "
                f"{spans}, which measurements of spans need; give longer texts, or other spans."
            )
        return cls(name or task.name, texts, spans)


def read_texts(file: Path) -> tuple[list[str], list[Any] | None]:
    """Texts of a .json list, of the lines of a .jsonl file (strings, or objects with `text`), or of
    any other file, divided by lines of `---`; and anchors, if objects have `anchors`.

    Raises:
        PromptError: a file that cannot be read, or has another format.
    """
    listed: Any
    try:
        content = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            listed = json.loads(content)
        elif file.suffix == ".jsonl":
            listed = [json.loads(line) for line in content.splitlines() if line.strip()]
        else:
            return _divided(content), None
    except (OSError, ValueError) as error:
        raise PromptError(
            f"The texts of {str(file)!r} cannot be read: {str(error).removesuffix('.')}."
        ) from error
    if not isinstance(listed, list):
        raise PromptError(
            f"The file of texts {str(file)!r} holds {shown(listed)}; expected a list of texts."
        )
    texts: list[Any] = [entry.get("text") if isinstance(entry, dict) else entry for entry in listed]
    anchors = [entry.get("anchors") if isinstance(entry, dict) else None for entry in listed]
    return texts, anchors if any(marks is not None for marks in anchors) else None


def _divided(content: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in content.splitlines():
        if line.strip() == DIVIDER:
            parts.append([])
        else:
            parts[-1].append(line)
    texts = ("\n".join(lines).strip() for lines in parts)
    return [text for text in texts if text]
