"""`Task`: examples, a template that turns them into text, and label words."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from string import Formatter
from typing import Any, Literal, NamedTuple

from icl_mech.errors import TaskError

PieceKind = Literal["format", "text", "rationale", "label"]

LITERAL = "literal"
"""Value of `spelling` in task records: every character of a template is literal."""


class Piece(NamedTuple):
    """A piece of a filled-in template: fixed format, a text, a rationale, or the label word."""

    kind: PieceKind
    text: str


@dataclass(frozen=True)
class Example:
    """One labelled text; `label` indexes the task's label words. Pair tasks have `text2`.

    Attributes:
        text: The text.
        label: Index of its class; 0 if the answer is free-form.
        text2: Second text of a pair.
        answers: All correct free-form answers; the first is displayed.
        other: Answer of another relation, for false demonstrations to display.
        rationale: Reasons for the answer, written between text and label.
    """

    text: str
    label: int = 0
    text2: str | None = None
    answers: tuple[str, ...] = ()
    other: str | None = None
    rationale: str | None = None

    def __post_init__(self) -> None:
        """Convert a NumPy label to int."""
        if type(self.label) is not int and is_index(self.label):
            object.__setattr__(self, "label", int(self.label))

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Normalised texts for comparison: composed (NFC), with runs of white space collapsed."""
        texts = (self.text,) if self.text2 is None else (self.text, self.text2)
        return tuple(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)


def is_index(value: object) -> bool:
    """True for whole numbers, including NumPy's, but not for True and False."""
    return type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))


def text_fault(text: object, *, blank: bool = False) -> str:
    """Reason why a value is not a valid text, phrased to follow its name; empty if it is valid.

    `blank` allows empty texts and white space.
    """
    if text is None or (not blank and isinstance(text, str) and not text.strip()):
        return "is empty"
    if not isinstance(text, str):
        return f"is a {type(text).__name__} ({str(text)[:40]}) instead of a string"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"contains half of a surrogate pair ({text[error.start]!a}, character {error.start}), "
            "which no tokenizer accepts; decode the text again from its source"
        )
    return ""


def first_unfit(texts: Sequence[Any]) -> tuple[int, str] | None:
    """Index and `text_fault` of the first invalid text; None if all are valid."""
    if all(isinstance(text, str) and text.strip() for text in texts):
        with suppress(UnicodeEncodeError):
            "".join(texts).encode()
            return None
    faults = ((number, text_fault(text)) for number, text in enumerate(texts))
    return next((numbered for numbered in faults if numbered[1]), None)


@dataclass(frozen=True)
class Template:
    r"""Pattern of one demonstration, e.g. `Review: {text}\nSentiment: {label}`.

    A pattern is literal: every character appears in the prompt, and no space is added or removed
    (`({label})`, `{{"label": "{label}"}}`, `答案：{label}`, a label on its own line). Text after
    `{label}` closes a demonstration and is left out of the query. Demonstrations are joined by
    `separator`; `narrative` opens the prompt. `{rationale}`, between the texts and `{label}`, shows an example's
    rationale.

    Raises:
        TaskError: a placeholder is missing, repeated or unknown, or there is no text before `{label}`.
    """

    pattern: str
    separator: str = "\n"
    narrative: str = ""

    def __post_init__(self) -> None:
        """Reject patterns that cannot be filled in."""
        for name in ("pattern", "separator", "narrative"):
            if fault := text_fault(getattr(self, name), blank=True):
                raise TaskError(f"The {name} of a template {fault}.")
        parsed = self._parsed()
        fields = [name for _, name, _, _ in parsed if name is not None]
        unknown = sorted(set(fields) - {"text", "text2", "rationale", "label"})
        if unknown:
            raise TaskError(
                f"Template {self.pattern!r} has the unknown placeholder {{{unknown[0]}}}; "
                "use only {text}, {text2} (pair tasks), {rationale} and {label}, and double any other "
                "braces."
            )
        if any(spec or conversion for _, _, spec, conversion in parsed):
            raise TaskError(
                f"Template {self.pattern!r} formats a placeholder with ':' or '!'; use the bare name."
            )
        optional = [name for name in ("text2", "rationale") if name in fields]
        for name in ("text", "label", *optional):
            if fields.count(name) != 1:
                raise TaskError(
                    f"Template {self.pattern!r} contains {{{name}}} {fields.count(name)} times; "
                    "it must contain it exactly once."
                )
        if fields[-1] != "label":
            raise TaskError(
                f"Template {self.pattern!r} has a text after {{label}}; put {{label}} after all texts."
            )
        if "rationale" in fields and fields[-2] != "rationale":
            raise TaskError(
                f"Template {self.pattern!r} has a text after {{rationale}}; put {{rationale}} after all texts, "
                "right before {label}."
            )
        if not self.label_context[0]:
            raise TaskError(
                f"Template {self.pattern!r} has no characters before {{label}}, where the prediction is "
                "read; give something like '{text}: {label}'."
            )

    @classmethod
    def recorded(cls, task: Mapping[str, Any]) -> "Template":
        """Template recorded by `Task.describe`; earlier versions omitted a space before `{label}`."""
        pattern = str(task["template"])
        if task.get("spelling") != LITERAL:
            pattern = pattern.replace("{label}", " {label}")
        return cls(pattern, task["separator"], task.get("narrative", ""))

    @property
    def label_context(self) -> tuple[str, str]:
        """Template text before a label word, from the last input text or rationale on, and after it."""
        before, after, seen = "", "", False
        for literal, placeholder, _, _ in self._parsed():
            if seen:
                after += literal
                continue
            before += literal
            seen = placeholder == "label"
            if placeholder and not seen:
                before = ""
        return before, after

    @property
    def closing(self) -> str:
        """Text after a label word in a prompt, up to the next input text.

        The last tokens of a label word can depend on all of it: `.` and line breaks may form one token.
        """
        begins = ""
        for literal, placeholder, _, _ in self._parsed():
            begins += literal
            if placeholder:
                break
        return self.label_context[1] + self.separator + begins

    def _parsed(self) -> list[tuple[str, str | None, str | None, str | None]]:
        try:
            return list(Formatter().parse(self.pattern))
        except ValueError as error:
            raise TaskError(
                f"Template {self.pattern!r} cannot be read: {str(error).removesuffix('.')}."
            ) from error

    @property
    def is_pair(self) -> bool:
        """True if the template shows two texts."""
        return any(name == "text2" for _, name, _, _ in self._parsed())

    @property
    def has_rationale(self) -> bool:
        """True if the template shows a rationale."""
        return any(name == "rationale" for _, name, _, _ in self._parsed())

    @property
    def texts(self) -> tuple[str, ...]:
        """Fields of an example that the template shows, besides its label."""
        return tuple(name for _, name, _, _ in self._parsed() if name not in (None, "label"))

    def pieces(self, example: Example, label_word: str | None) -> Iterator[Piece]:
        """Pieces of one demonstration, or of the query if `label_word` is None."""
        for literal, name, _, _ in self._parsed():
            if literal:
                yield Piece("format", literal)
            if name == "label":
                if label_word is None:
                    return
                yield Piece("label", label_word)
            elif name is not None:
                text = getattr(example, name)
                if text is None or not text.strip():
                    raise TaskError(
                        f"An example has an empty {name!r} (label {example.label}); "
                        f"every example needs a {name}. Drop it or fill in the {name}."
                    )
                yield Piece("rationale" if name == "rationale" else "text", text)


@dataclass(frozen=True, repr=False)
class Task:
    """A classification task, or a task with free-form answers, which are words of the vocabulary.

    Attributes:
        name: Name in results and figures.
        template: Template of a demonstration.
        labels: Label words in class order, as the template's `{label}` shows them; empty: every
            example has its own answers.
        train: Examples from which demonstrations are drawn.
        test: Examples from which queries are drawn.
        source: Origin of the examples (for provenance).

    Raises:
        TaskError: labels repeat, an example's label is out of range, or a text is empty.
    """

    name: str
    template: Template
    labels: tuple[str, ...]
    train: tuple[Example, ...]
    test: tuple[Example, ...]
    source: str = "given in code"

    def __post_init__(self) -> None:
        """Check labels and examples once, so that building prompts need not."""
        if not isinstance(self.template, Template):
            raise TaskError(
                f"The template of task {self.name!r} is a {type(self.template).__name__}; "
                "give Template('Review: {text}\\nSentiment: {label}')."
            )
        names = label_names(self.labels, f"Task {self.name!r}") if self.labels != () else ()
        object.__setattr__(self, "labels", names)
        blank = self.template.label_context[0][-1:].isspace()
        twice = next((name for name in names if name[:1].isspace() and blank), None)
        if twice is not None:
            raise TaskError(
                f"Task {self.name!r}: the template has white space before {{label}}, and the label {twice!r} begins "
                f"with white space, so prompts would have both. Give {twice.strip()!r}."
            )
        for split in ("train", "test"):
            examples = getattr(self, split)
            if isinstance(examples, str | bytes) or not isinstance(examples, Iterable):
                raise TaskError(
                    f"Task {self.name!r}: {split} is a {type(examples).__name__}; give a sequence of Examples."
                )
            object.__setattr__(self, split, tuple(examples))
            self._check(split, getattr(self, split))

    def __repr__(self) -> str:
        """Name, label words, template, numbers of examples and source."""
        labels = shortened(", ".join(self.labels))
        answers = "free-form answers" if self.is_open else f"{len(self.labels)} classes: {labels}"
        return (
            f"Task({shortened(self.name)!r}, {answers}; template "
            f"{shortened(self.template.pattern)!r}; {len(self.train)} train and {len(self.test)} test "
            f"examples; {shortened(self.source)})"
        )

    def _repr_html_(self) -> str:
        from icl_mech.plots.prompt_view import task_html

        rows = []
        names = self.labels or ("open",)
        splits = zip(names, self.by_class("train"), self.by_class("test"), strict=True)
        for label, train, test in splits:
            first = next(iter((*train, *test)), None)
            word = first.answers[0] if first and first.answers else label
            pieces = self.template.pieces(first, word) if first else ()
            text = "".join(piece.text for piece in pieces)
            rows.append((label, f"{len(train)}, {len(test)}", text))
        return task_html(repr(self), rows)

    def _check(self, split: str, examples: Sequence[Example]) -> None:
        where = f"Task {self.name!r}, {split} example"
        for number, example in enumerate(examples):
            if not isinstance(example, Example):
                raise TaskError(
                    f"{where} {number} is a {type(example).__name__}; give Example('the text', 0)."
                )
            if fault := self.fault(example):
                raise TaskError(f"{where} {number} ({str(example.text)[:40]!r}): {fault}.")
        places: dict[str, Sequence[int]] = {"text": range(len(examples))}
        for name in ("text2", "rationale"):
            there = [n for n, example in enumerate(examples) if getattr(example, name) is not None]
            places[name] = there
        for name, numbers in places.items():
            if unfit := first_unfit([getattr(examples[n], name) for n in numbers]):
                number, fault = unfit
                raise TaskError(
                    f"{where} {numbers[number]}: its {name} {fault}; drop or correct the example."
                )

    def fault(self, example: Example) -> str:
        """Reason why label or answers do not fit this task, phrased to follow the example; empty if they fit."""
        if self.is_open:
            return answer_fault(example)
        if example.answers or example.other is not None:
            what = f"it has free-form answers ({example.answers!r}), which a task with classes does not have"
        elif is_index(example.label) and 0 <= example.label < len(self.labels):
            return ""
        else:
            what = f"it has the label {example.label!r}"
        there = f"labels of {self.name!r} are 0 to {len(self.labels) - 1}: {', '.join(self.labels)}"
        return f"{what}; {there}"

    @property
    def is_open(self) -> bool:
        """True if there are no classes: every example has its own answers."""
        return not self.labels

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the classes: label words without white space around them."""
        return tuple(label.strip() for label in self.labels)

    def by_class(self, split: Literal["train", "test"]) -> tuple[tuple[Example, ...], ...]:
        """The examples of one split, grouped by class."""
        return self._classes[split]

    @cached_property
    def _classes(self) -> dict[str, tuple[tuple[Example, ...], ...]]:
        n_classes = max(len(self.labels), 1)
        return {
            "train": tuple(map(tuple, grouped(self.train, n_classes))),
            "test": tuple(map(tuple, grouped(self.test, n_classes))),
        }

    def describe(self) -> dict[str, Any]:
        """Provenance record of the task."""
        return {
            "name": self.name,
            "source": self.source,
            "template": self.template.pattern,
            "spelling": LITERAL,
            "separator": self.template.separator,
            "narrative": self.template.narrative,
            "labels": list(self.labels),
        }


def grouped(examples: Iterable[Example], n_classes: int) -> list[list[Example]]:
    """The examples of each class, in their order."""
    groups: dict[int, list[Example]] = {label: [] for label in range(n_classes)}
    for example in examples:
        groups.setdefault(example.label, []).append(example)
    return [groups[label] for label in range(n_classes)]


def answer_fault(example: Example) -> str:
    """Reason why free-form answers are invalid, phrased to follow the example; empty if they are valid."""
    answers: Any = example.answers
    if not isinstance(answers, tuple) or not answers:
        return f"its answers are {answers!r}; give a tuple of at least one text, or give the task at least two labels"
    for answer in (*answers, *([] if example.other is None else [example.other])):
        if fault := text_fault(answer):
            return f"its answer {answer!r} {fault}"
    if example.other is not None and example.other.strip() in [
        answer.strip() for answer in answers
    ]:
        return (
            f"{example.other!r} is both a right answer and the answer of the other relation, so following "
            "false demonstrations could not be distinguished from answering correctly"
        )
    return ""


def shortened(text: str, most: int = 120) -> str:
    """The text, truncated to `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def label_names(labels: object, where: str) -> tuple[str, ...]:
    """Label words in class order, checked.

    Raises:
        TaskError: a set, which has no order; fewer than two labels, a repeated one (white space aside), or one that
            is not a text.
    """
    if isinstance(labels, Set) and not isinstance(labels, KeysView):
        shown = ", ".join(sorted(map(repr, labels)))
        raise TaskError(
            f"{where} has the labels {{{shown}}}, a {type(labels).__name__}, which has no order; give the label "
            f"words in class order, such as ({shown})."
        )
    if isinstance(labels, str | bytes | Mapping) or not isinstance(labels, Iterable):
        raise TaskError(
            f"{where} has the labels {labels!r}, a {type(labels).__name__}; "
            "give the label words in class order, such as ('Negative', 'Positive')."
        )
    names = tuple(labels)
    for name in names:
        if fault := text_fault(name):
            raise TaskError(
                f"{where} has the label {name!r}, which {fault}; give texts as label words."
            )
    if len(names) < 2:
        raise TaskError(f"{where} has only the labels {names}; give at least two.")
    for name, count in Counter(name.strip() for name in names).items():
        if count > 1:
            raise TaskError(
                f"{where} has the label {name!r} twice; give every class its own label."
            )
    return names
