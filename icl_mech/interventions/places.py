"""Places of prompts that can be set side by side: tokens by role, demonstration or position.

Two prompts are *aligned* at a place if the tokens there have the same roles, in the same order and
number. What is read at one of them can then stand at the other.
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
    "target", "label_word", "demo_text", "query_text", "format", "narrative", "bos", "all"
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
        demo: Of this demonstration only, counted from 0; None: of all, and of the query.
    """

    at: Where = "target"
    demo: Natural | None = None

    def __post_init__(self) -> None:
        """Refuse a demonstration beside what has none.

        Raises:
            RunError: says what can be given.
        """
        if self.demo is not None and self.at not in ("label_word", "demo_text", "format", "all"):
            raise RunError(
                f"demo={self.demo} names a demonstration, but at={self.at!r} is none of its tokens; "
                "with demo= take at='label_word', 'demo_text', 'format' or 'all'."
            )
        if not isinstance(self.at, str) and (not self.at or len(set(self.at)) < len(self.at)):
            raise RunError(f"Positions must be named, each once; got {list(self.at)}.")

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
                f"Position {max(self.at)} is named, but a prompt has {len(prompt)} tokens."
            )
        return list(self.at)

    def rows(self, prompts: PromptBatch) -> Int[Tensor, "batch row"]:
        """The tokens of every prompt, -1 where one has fewer.

        Raises:
            PromptError: a prompt without such tokens, or positions after its end.
        """
        own = [self.positions(prompt) for prompt in prompts]
        for number, positions in enumerate(own):
            if not positions:
                raise PromptError(
                    f"Prompt {number} has no tokens {self}. Prompts made from bare positions have "
                    "label words and a target only."
                )
        table = torch.full((len(own), max(map(len, own))), NOWHERE)
        for row, positions in enumerate(own):
            table[row, : len(positions)] = torch.tensor(positions)
        return table

    def shape(self, prompt: Prompt) -> list[tuple[str, int | None, int]]:
        """Role, demonstration and number of tokens of each stretch at this place."""
        inside = set(self.positions(prompt))
        found = [
            (span.role, span.demo, len(inside.intersection(range(span.start, span.stop))))
            for span in prompt.spans
        ]
        return [stretch for stretch in found if stretch[-1]]

    def check_aligned(self, prompts: PromptBatch, source: PromptBatch, *, every: bool) -> None:
        """Refuse prompts that do not align here.

        Args:
            prompts: What is run.
            source: What values are taken from.
            every: All prompts of the source stand beside every prompt (a mean over them); else
                each beside the one of its number.

        Raises:
            PromptError: the first pair that does not, and why.
        """
        if not every and len(prompts) != len(source):
            raise PromptError(
                f"{len(source)} prompts to take values from, {len(prompts)} to run: each needs one of "
                "its own. Take as many, or mean=True for their mean."
            )
        if self.only_target:
            return
        first = self.shape(prompts[0])
        pairs = [(n, prompts[0], n, own) for n, own in enumerate(source)]
        if every:
            pairs += [(n, own, 0, source[0]) for n, own in enumerate(prompts)]
        else:
            pairs = [(n, prompts[n], n, own) for n, own in enumerate(source)]
        for number, prompt, other, own in pairs:
            expected, found = first if prompt is prompts[0] else self.shape(prompt), self.shape(own)
            if expected != found:
                raise PromptError(
                    f"Prompt {number} and prompt {other} of the source do not align {self}: "
                    f"{_difference(expected, found)}."
                )

    def __str__(self) -> str:
        """As a message says it."""
        name = repr(self.at) if isinstance(self.at, str) else f"positions {list(self.at)}"
        return f"at {name}" + (f" of demonstration {self.demo}" if self.demo is not None else "")


def _difference(
    expected: Sequence[tuple[str, int | None, int]], found: Sequence[tuple[str, int | None, int]]
) -> str:
    """What sets two shapes apart first."""
    for own, other in zip(expected, found, strict=False):
        if own != other:
            return f"{_stretch(own)} stands beside {_stretch(other)}"
    return f"{len(expected)} stretches of tokens stand beside {len(found)}"


def _stretch(stretch: tuple[str, int | None, int]) -> str:
    role, demo, count = stretch
    of = "" if demo is None else f" of demonstration {demo}"
    return f"{role!r}{of} ({count} token{'s' * (count != 1)})"
