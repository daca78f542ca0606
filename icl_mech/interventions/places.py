"""Places at which prompts can be aligned: tokens by role, demonstration or position.

Two prompts are *aligned* at a place if the tokens there have the same roles, in the same order and
number. Values read in one of them can then be patched into the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.prompts import Prompt, PromptBatch

Named = Literal[
    "target",
    "label_word",
    "demo_text",
    "query_text",
    "rationale",
    "format",
    "narrative",
    "bos",
    "all",
]
"""The target, all tokens of a role, or all tokens."""

Where = Named | Sequence[Natural]
"""The target, all tokens of a role, all tokens, or positions (the same in every prompt)."""

NOWHERE = -1
"""Fills rows of prompts with fewer tokens at a place."""


@dataclass(frozen=True)
class Place:
    """Some tokens of every prompt.

    Attributes:
        at: See `Where`.
        demo: Only tokens of this demonstration, counted from 0; None: of all, and of the query.
    """

    at: Where = "target"
    demo: Natural | None = None

    def __post_init__(self) -> None:
        """Reject a demonstration together with tokens that belong to none.

        Raises:
            RunError: says what can be given.
        """
        parts = ("label_word", "demo_text", "rationale", "format", "all")
        if self.demo is not None and self.at not in parts:
            raise RunError(
                f"demo={self.demo} selects a demonstration, but at={self.at!r} is not part of one; "
                "with demo= use at='label_word', 'demo_text', 'rationale', 'format' or 'all'."
            )
        if not isinstance(self.at, str) and (not self.at or len(set(self.at)) < len(self.at)):
            raise RunError(f"Give at least one position and no duplicates; got {list(self.at)}.")

    @property
    def only_target(self) -> bool:
        """True if nothing but the target is named."""
        return self.at == "target"

    def positions(self, prompt: Prompt) -> list[int]:
        """The tokens of one prompt, in order.

        Raises:
            PromptError: positions after its end.
        """
        if isinstance(self.at, str):
            return [
                position
                for span in prompt.spans
                if self.at in ("all", span.role) and self.demo in (None, span.demo)
                if span.start <= prompt.target or prompt.kind == "vocabulary"
                for position in range(span.start, span.stop)
            ]
        if max(self.at) >= len(prompt):
            raise PromptError(
                f"Position {max(self.at)} is out of range: a prompt has {len(prompt)} tokens."
            )
        return list(self.at)

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """The tokens of every prompt, -1 where one has fewer.

        Raises:
            PromptError: a prompt without such tokens, or positions after its end.
        """
        by_prompt = [self.positions(prompt) for prompt in prompts]
        for number, positions in enumerate(by_prompt):
            if not positions:
                raise PromptError(
                    f"Prompt {number} has no tokens {self}. Prompts built from bare positions have "
                    "only label words and a target."
                )
        table = torch.full((len(by_prompt), max(map(len, by_prompt))), NOWHERE)
        for row, positions in enumerate(by_prompt):
            table[row, : len(positions)] = torch.tensor(positions)
        return table

    def shape(self, prompt: Prompt) -> list[tuple[str, int | None, int]]:
        """Role, demonstration and number of tokens of each stretch at this place."""
        inside = set(self.positions(prompt))
        stretches = [
            (span.role, span.demo, len(inside.intersection(range(span.start, span.stop))))
            for span in prompt.spans
        ]
        return [stretch for stretch in stretches if stretch[-1]]

    def check_aligned(self, prompts: PromptBatch, source: PromptBatch, *, every: bool) -> None:
        """Reject prompts that do not align here.

        Args:
            prompts: Prompts of the run.
            source: Prompts that values are taken from.
            every: True if every prompt is paired with all prompts of the source (a mean over them);
                else each is paired with the source prompt of the same index.

        Raises:
            PromptError: names the first pair that does not align, and why.
        """
        if not every and len(prompts) != len(source):
            raise PromptError(
                f"There are {len(source)} source prompts for {len(prompts)} prompts to run. Give "
                "one source prompt for each prompt, or take their mean with mean=True."
            )
        if self.only_target:
            return
        first = self.shape(prompts[0])
        pairs = [(n, prompts[0], n, source_prompt) for n, source_prompt in enumerate(source)]
        if every:
            pairs += [(n, prompt, 0, source[0]) for n, prompt in enumerate(prompts)]
        else:
            pairs = [(n, prompts[n], n, source_prompt) for n, source_prompt in enumerate(source)]
        for number, prompt, source_number, source_prompt in pairs:
            expected, actual = (
                first if prompt is prompts[0] else self.shape(prompt),
                self.shape(source_prompt),
            )
            if expected != actual:
                raise PromptError(
                    f"Prompt {number} and prompt {source_number} of the source do not align "
                    f"{self}: {_difference(expected, actual)}."
                )

    def __str__(self) -> str:
        """The place in words, for messages."""
        name = repr(self.at) if isinstance(self.at, str) else f"positions {list(self.at)}"
        return f"at {name}" + (f" of demonstration {self.demo}" if self.demo is not None else "")


def _difference(
    expected: Sequence[tuple[str, int | None, int]], actual: Sequence[tuple[str, int | None, int]]
) -> str:
    """The first difference between two shapes, in words."""
    for left, right in zip(expected, actual, strict=False):
        if left != right:
            return f"{_stretch(left)} is matched with {_stretch(right)}"
    return f"{len(expected)} stretches of tokens are matched with {len(actual)}"


def _stretch(stretch: tuple[str, int | None, int]) -> str:
    role, demo, count = stretch
    of = "" if demo is None else f" of demonstration {demo}"
    return f"{role!r}{of} ({count} token{'s' * (count != 1)})"
