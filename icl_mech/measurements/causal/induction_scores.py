"""Induction scores of heads, with what looking back without matching would give.

* `sound`: mean attention from each repeated token to the token after its last earlier occurrence, over
  the rows whose token occurred before; its control is the mean attention of the same rows to one of the
  other tokens that rows are matched with;
* `mul`, `abs`: detection by a pattern over whole maps, as in TransformerLens.

Source: Olsson et al. 2022, *In-context learning and induction heads*.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.causal.definitions import DETECTED, FAMILY, INDUCTION, LEVEL
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    clear_heads,
    head_map,
    intervals_of,
    ordered,
    table_of,
)
from icl_mech.measurements.causal.mediation_texts import named
from icl_mech.metrics import Pattern
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, said
from icl_mech.shapes import Grid

if TYPE_CHECKING:
    import pandas as pd

InductionVariant = Literal["sound", "mul", "abs"]

ATTENDED = {
    "induction": "the token after its earlier occurrence",
    "duplicate": "its earlier occurrence",
    "previous": "the token before",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class InductionScores(Result):
    """Scores of every head on every sequence of random tokens repeated.

    Attributes:
        scores: Of each sequence.
        control: Attention per token to others that could be matched; None for `mul` and `abs`.
        variant: `sound`, `mul` or `abs`.
        pattern: `induction`, `duplicate` or `previous`.
    """

    title: ClassVar[str] = "Induction heads"
    definitions: ClassVar[tuple[Definition, ...]] = (INDUCTION, LEVEL, DETECTED, FAMILY)

    scores: Float[Tensor, "batch layer head"]
    control: Float[Tensor, "batch layer head"] | None
    variant: str
    pattern: Pattern

    def quantities(self) -> dict[str, Quantity]:
        """Scores and, of the sound ones, their control and what lies above it."""
        dims, unit = ("layer", "head"), "induction score"
        found = {"score": Quantity(dims, self.scores, unit=unit)}
        if self.control is not None:
            found["control"] = Quantity(dims, self.control, unit="attention to another token")
            above = self.scores - self.control
            found["above_control"] = Quantity(dims, above, unit="score above its control")
        return found

    @property
    def values(self) -> Float[Tensor, "layer head"]:
        """Mean over sequences."""
        return self.quantities()["score"].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED) -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, largest first."""
        return ordered(self.values, k)

    def clear(self) -> tuple[tuple[int, int], ...]:
        """Heads above their control, corrected for looking at all heads; none without a control."""
        return () if self.control is None else clear_heads(self.scores - self.control)

    def drawing(self) -> Grid:
        """Scores, layers across and heads down."""
        count = f"{len(self.scores)} sequences"
        note = f"{basis(self, count)}; framed: the {FRAMED} highest"
        found = self.quantities()["score"]
        name = f"Attention to {ATTENDED[self.pattern]}"
        title = name if self.variant == "sound" else f"{name}: {self.variant}"
        return head_map(title, found, self.top(), quantity="score", signed=False, note=note)

    def figures(self) -> list[Figure]:
        """Which heads match repeated tokens."""
        top, clear, count = self.top(), self.clear(), len(self.scores)
        found = intervals_of(self.quantities()["score"], top)
        best, score = next(iter(found.items()))
        heads, where = self.values.numel(), ATTENDED[self.pattern]
        if self.control is None:
            answer = (
                f"Highest score: {best} with {said(score)} (variant {self.variant}, no control)."
            )
        elif count < FEWEST_PROMPTS:
            answer = (
                f"Cannot be judged from {counted(count, 'sequence')}: the highest score is that of {best}, "
                f"{said(score)}."
            )
        elif clear:
            level = float(self.control.mean(0)[top[0]])
            answer = (
                f"Yes: {named(clear)} ({len(clear)} of {heads} heads) attend to it more than to other "
                f"tokens, corrected for looking at all heads; most of all {best}, with {said(score)} "
                f"against {level:.2g} for another token."
            )
        else:
            answer = f"Not shown: no head of {heads} does so clearly; the highest score is that of {best}, {said(score)}."
        return [
            Figure(
                "",
                f"Which heads attend from a token to {where}?",
                answer,
                f"**Attention of every head from tokens that occurred before to {where}**, in random tokens "
                f"that stand there twice; means over {counted(count, 'sequence')}. Framed: the highest "
                "(layer.head). Intervals (when pointing): 95 % over sequences, for each head alone.",
                "which heads match tokens, whatever they mean."
                if clear and count >= FEWEST_PROMPTS
                else "",
                "that these heads are used in prompts with demonstrations, or copy what they attend to: see "
                "the effects of heads and the ablation.",
                "Induction heads",
            )
        ]

    def summary(self) -> str:
        """The heads with the highest scores."""
        found = intervals_of(self.quantities()["score"], self.top(3))
        parts = [f"{name}: {value}" for name, value in found.items()]
        return f"highest induction scores ({self.variant}; layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, highest score first."""
        import pandas as pd

        return pd.DataFrame(table_of(self.quantities(), self.top(self.values.numel())))
