"""`Suppress`: spans of a text that later tokens (or all) can no longer attend to; a special case of `Cut`.

In the chosen layers the columns of a span are masked before the softmax, in all heads: in the rows
after the span (`after`), or in every row (`all`, the reference code). A row whose only keys are
masked gets an attention output of zero; the reference code lets it attend to later tokens.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from icl_mech.checking import Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import Intervention
from icl_mech.interventions.cut import Cut, NamedCut
from icl_mech.interventions.token_sets import Interval, TokenSet
from icl_mech.prompts import PromptBatch

Rows = Literal["after", "all"]


@dataclass(frozen=True, eq=False, repr=False)
class Suppress(NamedCut, Intervention):
    """Hide spans from attention.

    Attributes:
        spans: Indices of the spans of every text that are hidden, see `texts`.
        rows: Rows they are hidden from: those `after` a span, or `all`, including its own.
        layers: Blocks in which they are hidden; None: all.
        positions: Given intervals of tokens instead, a list of (start, stop) for each prompt.
    """

    spans: Sequence[Natural] | None = None
    rows: Rows = "after"
    layers: Sequence[Natural] | None = None
    positions: Sequence[Sequence[Interval]] | None = None

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice; neither spans nor positions, or both; no layers.
        """
        super().__post_init__()
        if (self.spans is None) == (self.positions is None) or self.spans == ():
            raise RunError(
                "Suppress takes either spans to hide in every text (Suppress([3])) or token "
                "intervals for each prompt (Suppress(positions=[[(4, 9)], ...])); give exactly "
                "one of them."
            )
        if self.layers is not None and not self.layers:
            raise RunError(
                "Suppress needs at least one layer. To run without suppression, omit the "
                "intervention."
            )
        _ = self.cut

    @cached_property
    def cut(self) -> Cut:
        """The `Cut` of the spans from the rows after each, or from all rows."""
        columns = TokenSet("spans", units=self.spans, positions=self.positions)
        layers = None if self.layers is None else tuple(sorted(set(self.layers)))
        return Cut(columns, self.rows, layers=layers, itself=self.rows == "all")

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject spans that a prompt does not have.

        Raises:
            PromptError: names the span and the prompt.
            RunError: positions that do not match the prompts.
        """
        for index, prompt in enumerate(prompts):
            missing = [number for number in self.spans or () if number >= len(prompt.text_spans)]
            if missing:
                has = f"has {len(prompt.text_spans)} spans"
                has = has if prompt.text_spans else "has no spans; build prompts with texts()"
                raise PromptError(f"Suppress hides span {missing[0]}, but prompt {index} {has}.")
        super().check_prompts(prompts)
