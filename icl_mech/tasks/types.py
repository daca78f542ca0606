"""What a task is: examples, a template that turns them into text, and label words."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any, Literal, NamedTuple

from icl_mech.errors import TaskError

PieceKind = Literal["format", "text", "label"]


class Piece(NamedTuple):
    """A stretch of a filled-in template: fixed format, a text, or the label word."""

    kind: PieceKind
    text: str


@dataclass(frozen=True)
class Example:
    """One labelled text; `label` indexes the task's label words. Pair tasks have `text2`."""

    text: str
    label: int
    text2: str | None = None


@dataclass(frozen=True)
class Template:
    r"""How one demonstration is written, e.g. `Review: {text}\nSentiment:{label}`.

    Label words carry their own leading space, so nothing but a letter or sign may stand
    before `{label}`. What follows `{label}` closes a demonstration and is left out of
    the query. Demonstrations are joined by `separator`; `narrative` opens the prompt.

    Raises:
        TaskError: if a placeholder is missing, repeated or unknown, or a space stands
            before `{label}`.
    """

    pattern: str
    separator: str = "\n"
    narrative: str = ""

    def __post_init__(self) -> None:
        """Refuse patterns that cannot be filled in."""
        parsed = self._parsed()
        fields = [name for _, name, _, _ in parsed if name is not None]
        unknown = sorted(set(fields) - {"text", "text2", "label"})
        if unknown:
            raise TaskError(
                f"Template {self.pattern!r} has the placeholder {{{unknown[0]}}}; "
                "use {text}, {text2} (pair tasks) and {label} only, and double other braces."
            )
        if any(spec or conversion for _, _, spec, conversion in parsed):
            raise TaskError(
                f"Template {self.pattern!r} formats a placeholder with ':' or '!'; write its bare name."
            )
        for name in ("text", "label", *(["text2"] if "text2" in fields else [])):
            if fields.count(name) != 1:
                raise TaskError(
                    f"Template {self.pattern!r} holds {{{name}}} {fields.count(name)} times; "
                    "it must hold it exactly once."
                )
        if fields[-1] != "label":
            raise TaskError(
                f"Template {self.pattern!r} has text after {{label}}; put {{label}} last."
            )
        before = ""
        for literal, placeholder, _, _ in parsed:
            before += literal
            if placeholder == "label":
                break
            before = "" if placeholder else before
        if before.endswith((" ", "\t")):
            raise TaskError(
                f"Template {self.pattern!r} has a space before {{label}}; label words bring their "
                f"own leading space, so write {before.rstrip() + '{label}'!r}."
            )
        if not before:
            raise TaskError(
                f"Template {self.pattern!r} has no sign before {{label}}; the prediction is read "
                "there, so write something like '{text}:{label}'."
            )

    def _parsed(self) -> list[tuple[str, str | None, str | None, str | None]]:
        try:
            return list(Formatter().parse(self.pattern))
        except ValueError as error:
            raise TaskError(f"Template {self.pattern!r} cannot be read: {error}.") from error

    @property
    def is_pair(self) -> bool:
        """True if the template shows two texts."""
        return any(name == "text2" for _, name, _, _ in self._parsed())

    def pieces(self, example: Example, label_word: str | None) -> Iterator[Piece]:
        """The pieces of one demonstration, or of the query if `label_word` is None."""
        for literal, name, _, _ in self._parsed():
            if literal:
                yield Piece("format", literal)
            if name == "label":
                if label_word is None:
                    return
                yield Piece("label", label_word)
            elif name is not None:
                text = example.text if name == "text" else example.text2
                if text is None or not text.strip():
                    raise TaskError(
                        f"An example has an empty {name!r} (label {example.label}); "
                        "every example needs a text. Drop it or fill it in."
                    )
                yield Piece("text", text)


@dataclass(frozen=True)
class Task:
    """A classification task.

    Attributes:
        name: How results and figures call it.
        template: How a demonstration is written.
        labels: Label names in class order, without leading space.
        train: Examples demonstrations are drawn from.
        test: Examples queries are drawn from.
        source: Where the examples come from (for provenance).

    Raises:
        TaskError: if labels repeat, an example's label is out of range, or a text is empty.
    """

    name: str
    template: Template
    labels: tuple[str, ...]
    train: tuple[Example, ...]
    test: tuple[Example, ...]
    source: str = "given in code"

    def __post_init__(self) -> None:
        """Check labels and examples once, so that prompts need not."""
        object.__setattr__(self, "labels", tuple(label.strip() for label in self.labels))
        object.__setattr__(self, "train", tuple(self.train))
        object.__setattr__(self, "test", tuple(self.test))
        if len(self.labels) < 2:
            raise TaskError(
                f"Task {self.name!r} has the labels {self.labels}; it needs at least two."
            )
        repeated = [
            label for label, count in Counter(self.labels).items() if count > 1 or not label
        ]
        if repeated:
            raise TaskError(f"Task {self.name!r} has the label {repeated[0]!r} twice or empty.")
        for split, examples in (("train", self.train), ("test", self.test)):
            self._check(split, examples)

    def _check(self, split: str, examples: Sequence[Example]) -> None:
        for number, example in enumerate(examples):
            if not 0 <= example.label < len(self.labels):
                raise TaskError(
                    f"Task {self.name!r}, {split} example {number} has the label {example.label}; "
                    f"labels are 0 to {len(self.labels) - 1}: {', '.join(self.labels)}."
                )
            if not example.text.strip():
                raise TaskError(
                    f"Task {self.name!r}, {split} example {number} has an empty text; drop it or fill it in."
                )

    @property
    def label_words(self) -> tuple[str, ...]:
        """Label words as they stand in a prompt, with their leading space."""
        return tuple(f" {label}" for label in self.labels)

    def by_class(self, split: Literal["train", "test"]) -> tuple[tuple[Example, ...], ...]:
        """The examples of one split, grouped by class."""
        examples = self.train if split == "train" else self.test
        return tuple(
            tuple(example for example in examples if example.label == label)
            for label in range(len(self.labels))
        )

    def describe(self) -> dict[str, Any]:
        """What provenance records of the task."""
        return {
            "name": self.name,
            "source": self.source,
            "template": self.template.pattern,
            "separator": self.template.separator,
            "narrative": self.template.narrative,
            "labels": list(self.labels),
        }
