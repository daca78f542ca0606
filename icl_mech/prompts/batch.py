"""`PromptBatch`: prompts of one study, with positions as tensors; indexed by numbers or a boolean mask."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from icl_mech._typing import Bool, Int, Tensor
from icl_mech.at_home import at_home
from icl_mech.checking import shown
from icl_mech.errors import PromptError, near_matches
from icl_mech.prompts.plain import from_values, to_values
from icl_mech.prompts.spans import ROLES, AnswerKind, Candidate, Prompt, Role, WordScore, usual_kind
from icl_mech.results import jsonable

Array = NDArray[Any]


def chosen_numbers(index: object, count: int) -> int | list[int]:
    """The prompt number or numbers that an index selects.

    Args:
        index: A whole number, several, or one boolean for each prompt, as list, array or tensor.
        count: Number of prompts.

    Raises:
        PromptError: names the invalid index.
    """
    given = index.detach().cpu().numpy() if isinstance(index, Tensor) else index
    if not isinstance(given, np.ndarray):
        try:
            given = np.asarray(list(given) if isinstance(given, range | Sequence) else given)
        except ValueError:  # lists of several lengths
            given = np.asarray(None)
    if not given.size and given.ndim == 1:
        given = given.astype(np.int64)
    if given.dtype == np.bool_ and given.ndim == 1:
        if len(given) != count:
            raise PromptError(
                f"The mask has {len(given)} booleans for {count} prompts; give one for each prompt."
            )
        return [int(number) for number in given.nonzero()[0]]
    if not np.issubdtype(given.dtype, np.integer) or given.ndim > 1:
        raise PromptError(
            f"Prompts cannot be indexed by {shown(index)}; give a number, a slice, a list of "
            "numbers, or a mask with one boolean for each prompt."
        )
    if given.ndim == 0:
        # An IndexError also ends Python's iteration by index.
        return _within(int(given), count)
    return [_within(int(number), count) for number in given]


class _NoSuchPromptError(PromptError, IndexError):
    """A prompt number out of range."""


def _within(number: int, count: int) -> int:
    if not -count <= number < count:
        raise _NoSuchPromptError(
            f"There is no prompt {number}: the batch has {count} prompts, numbered from 0."
        )
    return number


NOTHING = -1
"""Padding of positions and classes where a prompt has fewer."""


@at_home
@dataclass(frozen=True, eq=False)
class PromptBatch(Sequence[Prompt]):
    """Prompts with answers of one kind, in the order of results; all share the same classes.

    All positions count from the first token of each prompt; the engine handles padding.

    Attributes:
        prompts: The prompts.
        source: Provenance (task, shots, seed, ...), recorded in every result.
    """

    prompts: tuple[Prompt, ...]
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the prompts can be studied together.

        Raises:
            PromptError: no prompts, answers of different kinds, different label words where answers are
                classes, or different numbers of choices.
        """
        given: Any = self.prompts
        prompts = given if isinstance(given, Iterable) else (given,)
        object.__setattr__(self, "prompts", tuple(prompts))
        if not self.prompts:
            raise PromptError("A PromptBatch needs at least one prompt; none were given.")
        for number, prompt in enumerate(self.prompts):
            if not isinstance(prompt, Prompt):
                raise PromptError(
                    f"Prompt {number} of the batch is a {type(prompt).__name__}; make Prompts with "
                    "build_prompts, prompts_from_text or Prompt.from_positions."
                )
        first = self.prompts[0]
        for number, prompt in enumerate(self.prompts):
            if prompt.kind != first.kind:
                raise PromptError(
                    f"Prompt {number} has an answer of kind {prompt.kind!r}, prompt 0 of kind "
                    f"{first.kind!r}; put them into separate batches."
                )
            if prompt.score != first.score:
                raise PromptError(
                    f"The answers of prompt {number} are scored by {prompt.score!r}, those of "
                    f"prompt 0 by {first.score!r}; build them with the same score=."
                )
            if prompt.kind != "classes":
                if len(prompt.label_words) != len(first.label_words):
                    raise PromptError(
                        f"Prompt {number} has {len(prompt.label_words)} choices, prompt 0 has "
                        f"{len(first.label_words)}; give all prompts equally many."
                    )
            elif prompt.label_words != first.label_words:
                raise PromptError(
                    f"Prompt {number} has other label words ({prompt.labels}, tokens "
                    f"{prompt.label_words}) than prompt 0 ({first.labels}, {first.label_words}); "
                    "put them into separate batches, or let the template write something between "
                    "text and label."
                )

    def __len__(self) -> int:
        """Number of prompts."""
        return len(self.prompts)

    @overload
    def __getitem__(self, index: int) -> Prompt: ...
    @overload
    def __getitem__(
        self, index: slice | Sequence[int | bool] | Tensor | Array
    ) -> "PromptBatch": ...
    def __getitem__(
        self, index: int | slice | Sequence[int | bool] | Tensor | Array
    ) -> "Prompt | PromptBatch":
        """One prompt, or a smaller batch selected by a slice, numbers or a mask.

        Raises:
            PromptError: a number out of range, a mask of the wrong length, or an unsupported index.
        """
        if isinstance(index, slice):
            return PromptBatch(self.prompts[index], self.source)
        chosen = chosen_numbers(index, len(self))
        if isinstance(chosen, int):
            return self.prompts[chosen]
        return PromptBatch(tuple(self.prompts[number] for number in chosen), self.source)

    def __iter__(self) -> Iterator[Prompt]:
        """The prompts in order."""
        return iter(self.prompts)

    def __repr__(self) -> str:
        """Size, task and lengths."""
        lengths = [len(prompt) for prompt in self.prompts]
        task = self.source.get("task", {}).get("name", "prompts")
        if self.answer_kind == "vocabulary":
            counts = [len(prompt.text_spans) for prompt in self.prompts]
            return (
                f"PromptBatch({len(self)} x {task}, {min(counts)}-{max(counts)} spans, "
                f"{min(lengths)}-{max(lengths)} tokens, no classes)"
            )
        counts = [len(prompt.label_classes) for prompt in self.prompts]
        if self.answer_kind == "choices":
            answers = f"free-form answers among {self.n_labels} choices"
        else:
            answers = f"labels: {', '.join(self.labels)}"
        return (
            f"PromptBatch({len(self)} x {task}, {'-'.join(map(str, sorted({min(counts), max(counts)})))} demonstrations, "
            f"{min(lengths)}-{max(lengths)} tokens, {answers})"
        )

    def _repr_html_(self) -> str:
        from icl_mech.plots.prompt_view import batch_html

        return batch_html(self, repr(self))

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the prompts' content: tokens, roles, label words and answers, in order."""
        content = [
            (
                _plain(prompt.tokens),
                [(s.role, *_plain((s.demo, s.start, s.stop))) for s in prompt.spans],
                _plain(prompt.label_classes),
                tuple(map(_plain, prompt.label_words)),
                *_plain((prompt.answer, prompt.false_answer)),
                *((tuple(map(_plain, prompt.accepted)),) if prompt.accepted else ()),
                *(() if prompt.given_anchors is None else (_plain(prompt.given_anchors),)),
                *((prompt.score,) if prompt.score != "first" else ()),
                *((prompt.kind,) if prompt.kind != usual_kind(prompt.label_words) else ()),
            )
            for prompt in self.prompts
        ]
        return hashlib.sha256(repr(content).encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Everything the batch holds, as plain values for a JSON file; see `from_dict`.

        Raises:
            ResultError: a source that does not consist of plain values.
        """
        return {"source": jsonable(self.source), "digest": self.digest, **to_values(self.prompts)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PromptBatch":
        """The batch that `to_dict` wrote, with the same `digest`.

        Raises:
            PromptError: parts are missing, or the prompts differ from the saved ones.
        """
        given: Any = values
        source = given.get("source", {}) if isinstance(given, Mapping) else None
        if not isinstance(source, Mapping):
            raise PromptError(
                f"Prompts cannot be read from a {type(values).__name__}; give the result of "
                "PromptBatch.to_dict."
            )
        batch = cls(from_values(values), dict(source))
        if batch.digest != values.get("digest"):
            raise PromptError(
                "The prompts differ from those that were saved (their digests differ); restore "
                "the file from a copy, or build the prompts again."
            )
        return batch

    @property
    def answer_kind(self) -> AnswerKind:
        """Words that answers are scored against: `classes` of the batch, `choices` of each prompt, `vocabulary`."""
        kind = self.prompts[0].kind
        assert kind is not None
        return kind

    @property
    def score(self) -> WordScore:
        """Score of candidates with several tokens, see `build_prompts`."""
        return self.prompts[0].score

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Candidates of the classes, in class order: the text and tokens each label word adds to a prompt.

        Raises:
            PromptError: each prompt has its own candidates, see `Prompt.candidates`.
        """
        if not self.has_classes:
            raise PromptError(
                f"Answers of these prompts are scored against {self.answer_kind}, so every prompt "
                "has its own candidates: use prompt.candidates."
            )
        return self.prompts[0].candidates

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes; for choices, their status: `right`, `taught` (demonstrated), `other`."""
        first = self.prompts[0]
        if first.kind == "vocabulary":
            return ("next token", "its rival") if first.label_words else ()
        if first.kind == "classes":
            return first.labels
        taught = first.false_answer
        return tuple(
            "right" if c == first.answer else "taught" if c == taught else f"other {c}"
            for c in range(self.n_labels)
        )

    @property
    def n_labels(self) -> int:
        """Number of classes or choices; 0 for texts."""
        return len(self.prompts[0].label_words)

    @property
    def has_classes(self) -> bool:
        """True if the answers are classes, the same in all prompts."""
        return self.answer_kind == "classes"

    @cached_property
    def text_spans(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Token intervals of the spans of each text; none in prompts with demonstrations."""
        return tuple(prompt.text_spans for prompt in self.prompts)

    @property
    def n_demos(self) -> int:
        """Largest number of demonstrations of a prompt."""
        return max(len(prompt.label_classes) for prompt in self.prompts)

    @cached_property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Number of tokens of each prompt."""
        return torch.tensor([len(prompt) for prompt in self.prompts])

    @cached_property
    def targets(self) -> Int[Tensor, " batch"]:
        """Target position of each prompt."""
        return torch.tensor([prompt.target for prompt in self.prompts])

    @cached_property
    def label_tokens(self) -> Int[Tensor, " label"]:
        """First token id of each label word, in class order.

        Raises:
            PromptError: each prompt has its own choices, see `choice_tokens`.
        """
        if self.n_labels and not self.has_classes:
            raise PromptError(
                f"Answers of these prompts are scored against {self.answer_kind}, not against "
                "label words of the batch; use choice_tokens, the words of each prompt."
            )
        return self.choice_tokens[0]

    @cached_property
    def choice_tokens(self) -> Int[Tensor, "batch label"]:
        """First token id of each word a prompt's answer is scored against: label words or choices."""
        rows = [prompt.label_tokens for prompt in self.prompts]
        return torch.tensor(rows, dtype=torch.long).reshape(len(self), self.n_labels)

    @cached_property
    def label_positions(self) -> Int[Tensor, "batch demo"]:
        """First label token of each demonstration; -1 where a prompt has fewer."""
        return self._ragged([prompt.label_positions for prompt in self.prompts])

    @cached_property
    def label_classes(self) -> Int[Tensor, "batch demo"]:
        """Class each demonstration displays; -1 where a prompt has fewer."""
        return self._ragged([prompt.label_classes for prompt in self.prompts])

    @cached_property
    def position_classes(self) -> Int[Tensor, "batch pos"]:
        """Displayed class at first label tokens, -1 elsewhere."""
        classes = torch.full((len(self), int(self.lengths.max())), NOTHING)
        for row, prompt in enumerate(self.prompts):
            classes[row, list(prompt.label_positions)] = torch.tensor(
                prompt.label_classes, dtype=torch.long
            )
        return classes

    @cached_property
    def position_roles(self) -> Int[Tensor, "batch pos"]:
        """Index in `ROLES` of each token's role, -1 after a prompt's end."""
        places = torch.full((len(self), int(self.lengths.max())), NOTHING)
        for row, prompt in enumerate(self.prompts):
            for span in prompt.spans:
                places[row, span.start : span.stop] = ROLES.index(span.role)
        return places

    @cached_property
    def position_spans(self) -> Int[Tensor, "batch pos"]:
        """Index of the text span that contains each token, -1 outside all spans."""
        numbers = torch.full((len(self), int(self.lengths.max())), NOTHING)
        for row, spans in enumerate(self.text_spans):
            for number, (start, stop) in enumerate(spans):
                numbers[row, start:stop] = number
        return numbers

    @property
    def has_answers(self) -> bool:
        """True if the correct answer of every query is known; the model's own prediction does not count."""
        return all(
            prompt.answer is not None
            and (prompt.kind != "vocabulary" or prompt.target + 1 < len(prompt))
            for prompt in self.prompts
        )

    @cached_property
    def answers(self) -> Int[Tensor, " batch"]:
        """True class of each query.

        Raises:
            PromptError: a prompt has no answer.
        """
        answers = [prompt.answer for prompt in self.prompts]
        missing = sum(answer is None for answer in answers)
        if missing:
            raise PromptError(
                f"{missing} of {len(self)} prompts have no answer; give answers= when building "
                "them, or an option that needs none (loss='prediction')."
            )
        return torch.tensor(answers)

    def where(self, role: Role) -> Bool[Tensor, "batch pos"]:
        """True at tokens with this role.

        Raises:
            PromptError: unknown role, or a text role in prompts made from bare positions.
        """
        if role not in ROLES:
            raise PromptError(f"Unknown role {role!r}. {near_matches(role, ROLES)}")
        if role not in ("label_word", "target", "span") and not all(
            p.has_text_roles for p in self.prompts
        ):
            raise PromptError(
                f"These prompts were made from bare positions and have no {role!r} tokens; "
                "build them with build_prompts or prompts_from_text."
            )
        mask = torch.zeros(len(self), int(self.lengths.max()), dtype=torch.bool)
        for row, prompt in enumerate(self.prompts):
            for span in prompt.spans:
                if span.role == role:
                    mask[row, span.start : span.stop] = True
        return mask

    def _ragged(self, rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch demo"]:
        table = torch.full((len(rows), max(map(len, rows), default=0)), NOTHING)
        for number, row in enumerate(rows):
            table[number, : len(row)] = torch.tensor(row, dtype=torch.long)
        return table


def _plain(numbers: Sequence[int | None]) -> tuple[int | None, ...]:
    """NumPy and torch numbers as Python integers."""
    return tuple(None if number is None else int(number) for number in numbers)
