"""`PromptBatch`: prompts of one study, with positions as tensors."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, overload

import torch

from icl_mech._typing import Bool, Int, Tensor
from icl_mech.at_home import at_home
from icl_mech.errors import PromptError, near_matches
from icl_mech.prompts.choosing import Array, chosen_numbers
from icl_mech.prompts.saving import from_values, to_values
from icl_mech.prompts.spans import ROLES, Prompt, Role
from icl_mech.results import jsonable

NOTHING = -1
"""Fills positions and classes where a prompt has none."""


@at_home
@dataclass(frozen=True, eq=False)
class PromptBatch(Sequence[Prompt]):
    """Prompts over the same label words, in the order results report them.

    All positions count from the first token of each prompt; padding is the engine's affair.

    Attributes:
        prompts: The prompts.
        source: Where they come from (task, shots, seed, ...), recorded in every result.
    """

    prompts: tuple[Prompt, ...]
    source: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that the prompts can be studied together.

        Raises:
            PromptError: no prompts, or prompts with different label words.
        """
        object.__setattr__(self, "prompts", tuple(self.prompts))
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
            if prompt.label_words != first.label_words:
                raise PromptError(
                    f"Prompt {number} has other label words ({prompt.labels}) than prompt 0 "
                    f"({first.labels}); study them in separate batches."
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
        """One prompt, or a smaller batch: of a slice, of numbers, or of a mask.

        Raises:
            PromptError: a number that no prompt has, a mask of another length, or something else.
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
        if not self.has_classes:
            counts = [len(prompt.text_spans) for prompt in self.prompts]
            return (
                f"PromptBatch({len(self)} x {task}, {min(counts)}-{max(counts)} spans, "
                f"{min(lengths)}-{max(lengths)} tokens, no classes)"
            )
        return (
            f"PromptBatch({len(self)} x {task}, {self.n_demos} demonstrations, "
            f"{min(lengths)}-{max(lengths)} tokens, labels: {', '.join(self.labels)})"
        )

    def _repr_html_(self) -> str:
        from icl_mech.plots.prompt_sets import batch_html

        return batch_html(self, repr(self))

    @cached_property
    def digest(self) -> str:
        """Recognises the prompts by content: tokens, roles, label words and answers, in order."""
        content = [
            (
                _plain(prompt.tokens),
                [(s.role, *_plain((s.demo, s.start, s.stop))) for s in prompt.spans],
                _plain(prompt.label_classes),
                tuple(map(_plain, prompt.label_words)),
                *_plain((prompt.answer, prompt.false_answer)),
            )
            for prompt in self.prompts
        ]
        return hashlib.sha256(repr(content).encode()).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Everything the batch holds, as plain values for a JSON file; see `from_dict`.

        Raises:
            ResultError: a source that is not plain values.
        """
        return {
            "source": jsonable(self.source), "digest": self.digest, **to_values(self.prompts),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "PromptBatch":
        """The batch that `to_dict` wrote, with the same `digest`.

        Raises:
            PromptError: parts are missing, or the prompts are not those that were written.
        """
        given: Any = values
        source = given.get("source", {}) if isinstance(given, Mapping) else None
        if not isinstance(source, Mapping):
            raise PromptError(
                f"Prompts cannot be read from a {type(values).__name__}; give what "
                "PromptBatch.to_dict returned."
            )
        batch = cls(from_values(values), dict(source))
        if batch.digest != values.get("digest"):
            raise PromptError(
                "The prompts are not those that were saved (their digest differs); take the file "
                "from a copy, or build the prompts again."
            )
        return batch

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.prompts[0].labels

    @property
    def n_labels(self) -> int:
        """Number of classes."""
        return len(self.prompts[0].label_words)

    @property
    def has_classes(self) -> bool:
        """False for texts, which have no label words."""
        return bool(self.prompts[0].label_words)

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
        """First token id of each label word, in class order."""
        return torch.tensor(self.prompts[0].label_tokens, dtype=torch.long)

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
        """Place in `ROLES` of each token's role, -1 behind a prompt's end."""
        places = torch.full((len(self), int(self.lengths.max())), NOTHING)
        for row, prompt in enumerate(self.prompts):
            for span in prompt.spans:
                places[row, span.start : span.stop] = ROLES.index(span.role)
        return places

    @cached_property
    def position_spans(self) -> Int[Tensor, "batch pos"]:
        """Number of the text span each token is in, -1 in none."""
        numbers = torch.full((len(self), int(self.lengths.max())), NOTHING)
        for row, spans in enumerate(self.text_spans):
            for number, (start, stop) in enumerate(spans):
                numbers[row, start:stop] = number
        return numbers

    @property
    def has_answers(self) -> bool:
        """True if the true class of every query is known."""
        return all(prompt.answer is not None for prompt in self.prompts)

    @cached_property
    def answers(self) -> Int[Tensor, " batch"]:
        """True class of each query.

        Raises:
            PromptError: if a prompt has none.
        """
        answers = [prompt.answer for prompt in self.prompts]
        missing = sum(answer is None for answer in answers)
        if missing:
            raise PromptError(
                f"{missing} of {len(self)} prompts have no answer; give answers= when building "
                "them, or use what needs none (loss='prediction')."
            )
        return torch.tensor(answers)

    def where(self, role: Role) -> Bool[Tensor, "batch pos"]:
        """True at tokens with this role.

        Raises:
            PromptError: unknown role, or a text role of prompts made from bare positions.
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
    """Numbers of NumPy and torch as the plain ones they are."""
    return tuple(None if number is None else int(number) for number in numbers)
