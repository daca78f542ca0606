"""Average indirect effects of heads, and the mean outputs they were patched with.

The effect of a head on one prompt is the change, when its output at the last token is replaced by its
mean over prompts with true labels, of

* the probability of the right label word over the vocabulary (the published measure), and
* its logit minus the mean logit of the other label words.

Source: Todd et al. 2024, *Function vectors in large language models*, §2.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.causal.definitions import DIFFERENCE, FAMILY, INDIRECT
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    clear_heads,
    head_map,
    intervals_of,
    ordered,
    table_of,
)
from icl_mech.measurements.causal.mediation_texts import mediating
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.shapes import Grid, Grids

if TYPE_CHECKING:
    import pandas as pd

Measure = Literal["probability", "difference"]
MeanOver = Literal["all", "class"]

UNITS = {
    "probability": "change of the right answer's probability",
    "difference": "change of the right answer's logit above the others",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class HeadMediation(Result):
    """Effect of every head on every prompt with shuffled labels.

    Attributes:
        probability: Change of the right label word's probability.
        difference: Change of its logit minus the mean of the other label words'.
        plain_probability: The probability without any patch.
        plain_difference: The logit difference without any patch.
        means: Mean output `z` of every head at the last token of the true prompts.
        mean: What was patched in: the mean over `all` true prompts, or over others of the query's
            `class`.
    """

    title: ClassVar[str] = "Heads that carry the task"
    shows: ClassVar[tuple[str, ...]] = ("maps", *UNITS)
    definitions: ClassVar[tuple[Definition, ...]] = (INDIRECT, DIFFERENCE, FAMILY)

    probability: Float[Tensor, "batch layer head"]
    difference: Float[Tensor, "batch layer head"]
    plain_probability: Float[Tensor, " batch"]
    plain_difference: Float[Tensor, " batch"]
    means: Float[Tensor, "layer head d_head"]
    mean: MeanOver = "all"

    def quantities(self) -> dict[str, Quantity]:
        """Mean effects in both measures, and what both are without a patch."""
        dims = ("layer", "head")
        return {
            "probability": Quantity(dims, self.probability, unit=UNITS["probability"]),
            "difference": Quantity(dims, self.difference, unit=UNITS["difference"]),
            "plain_probability": Quantity((), self.plain_probability, unit="probability"),
            "plain_difference": Quantity((), self.plain_difference, unit="logits"),
        }

    @checked(ResultError)
    def effect(self, by: Measure = "probability") -> Float[Tensor, "layer head"]:
        """Mean over prompts: the average indirect effect."""
        return self.quantities()[by].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED, by: Measure = "probability") -> tuple[tuple[int, int], ...]:
        """The k heads with the largest mean effect (signed), largest first."""
        return ordered(self.effect(by), k)

    @checked(ResultError)
    def clear(
        self, by: Measure = "difference", *, below: bool = False
    ) -> tuple[tuple[int, int], ...]:
        """Heads whose effect lies above 0 (`below`: below 0), corrected for looking at all heads."""
        return clear_heads(getattr(self, by), below=below)

    def drawing(self, show: str = "maps") -> Grids | Grid:
        """Maps of the effects, layers across and heads down.

        Args:
            show: `maps` (both measures) or one measure.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        if show != "maps":
            return self._map(show, f"{basis(self)}; framed: the {FRAMED} largest effects")
        return Grids("Effect of single heads", tuple(map(self._map, UNITS)), basis(self))

    def _map(self, by: str, note: str = "") -> Grid:
        found = self.quantities()[by]
        quantity = "probability" if by == "probability" else "logits"
        title = f"{UNITS[by][0].upper()}{UNITS[by][1:]}"
        framed = ordered(found.value(), FRAMED)
        return head_map(title, found, framed, quantity=quantity, signed=True, note=note)

    def figures(self) -> list[Figure]:
        """Which heads raise the right answer, and which lower it."""
        top = self.top(FRAMED, "difference")
        return [
            mediating(
                intervals_of(self.quantities()["difference"], top),
                self.clear(),
                self.clear(below=True),
                heads=self.means[..., 0].numel(),
                prompts=len(self.difference),
                plain=self.interval("plain_probability"),
                by_class=self.mean == "class",
                given=given(self),
            )
        ]

    def summary(self) -> str:
        """The heads with the largest effects."""
        found = self.quantities()
        parts = [
            f"{name}: {value} ({found['probability'].value()[head]:+.2g} in probability)"
            for head, (name, value) in zip(
                self.top(3, "difference"),
                intervals_of(found["difference"], self.top(3, "difference")).items(),
                strict=True,
            )
        ]
        return "largest effects on the logit difference (layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, largest effect on the logit difference first."""
        import pandas as pd

        found = self.quantities()
        heads = self.top(self.difference[0].numel(), "difference")
        return pd.DataFrame(table_of({name: found[name] for name in UNITS}, heads))
