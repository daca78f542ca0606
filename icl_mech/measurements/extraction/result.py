"""Extraction of one prompt set: attention, its AUC and R, their figures and what they say."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.extraction.curves import AucCurves, curve_figure
from icl_mech.measurements.extraction.statistics import (
    TwoClasses,
    auc_statistic,
    curve_fields,
    resampled,
)
from icl_mech.metrics import Interval, above_together, cumulative_share, mean_ends
from icl_mech.results import Figure, Quantity, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.shapes import LayerCurves

AUC, SHARE = "AUCROC of attention to label words", "R: share of its sum up to this layer"

FEW = 5
"""Classes of fewer prompts are named: resampling them cannot show how uncertain they are."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtractionResult(AucCurves):
    """Attention to label words by class, its AUC and R by layer.

    Attributes:
        attention: `A_l(q, c)` of every prompt, in class order.
        truth_classes: Class each prompt counts as: predicted, or true with `truth="gold"`.
        classes: Classes that occur among them; the others are left out of the AUC.
        labels: Names of all classes.
        two_classes: How two classes are scored.
        redrawn: Bootstrap resamples drawn again because they lost a class.
    """

    shows: ClassVar[tuple[str, ...]] = ("auc", "attention")

    attention: Float[Tensor, "batch layer label"]
    truth_classes: Int[Tensor, " batch"]
    classes: tuple[int, ...]
    labels: tuple[str, ...]
    two_classes: TwoClasses = "normalised"
    redrawn: int = 0

    def quantities(self) -> dict[str, Quantity]:
        """AUC and R by layer, and the attention they are computed from."""
        auc = auc_statistic(self.attention, self.truth_classes, self.two_classes)
        ends = (self.auc_low, self.auc_high), (self.cumulative_low, self.cumulative_high)

        def share(weights: Float[Tensor, "r batch"]) -> Float[Tensor, "r layer"]:
            return cumulative_share(auc(weights))

        unit = "attention, summed over heads"
        return {
            "auc": Quantity(("layer",), self.attention, auc, AUC, ends[0]),
            "cumulative": Quantity(("layer",), self.attention, share, SHARE, ends[1]),
            "attention": Quantity(("layer", "label"), self.attention, unit=unit),
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes."""
        return {"label": self.labels}

    def drawing(self, show: str = "auc") -> LayerCurves:
        """AUC and R by layer, or the attention they are computed from.

        Args:
            show: `auc` or `attention`.

        Raises:
            ResultError: unknown `show`.
        """
        if show != "attention":
            return super().drawing(show)
        own, others = self._own_and_others
        value = torch.stack([own.mean(0), others.mean(0)])
        low, high = mean_ends(torch.stack([own, others], dim=1))
        return LayerCurves(
            title="Attention from the target to label words",
            names=(
                f"its {self.truth} class",
                "the other class" if self.attention.shape[-1] == 2 else "other classes, mean",
            ),
            values=value,
            low=low,
            high=high,
            y_title="attention, summed over heads",
            note=basis(self),
            meanings=("label", "other"),
        )

    @property
    def _own_and_others(self) -> tuple[Float[Tensor, "batch layer"], Float[Tensor, "batch layer"]]:
        """Attention to the label words of the class each prompt counts as, and of the others."""
        attention = self.attention.double()
        place = self.truth_classes[:, None, None].expand(-1, attention.shape[1], 1)
        own = attention.gather(-1, place)[..., 0]
        return own, (attention.sum(-1) - own) / max(1, attention.shape[-1] - 1)

    def figures(self) -> list[Figure]:
        """AUC and R by layer, and the attention behind them."""
        truth = "the class the model predicts" if self.truth == "predicted" else "the true class"
        return [curve_figure(self, self.basis_words(), truth), self._attention_figure()]

    def _attention_figure(self) -> Figure:
        own, others = self._own_and_others
        gap = own - others
        low, high = mean_ends(gap)
        n, clear = len(gap), above_together(gap)
        best = int(gap.mean(0).argmax())
        found = Interval(float(gap[:, best].mean()), float(low[best]), float(high[best]))
        name = f"{self.truth} class"
        if n < FEWEST_PROMPTS:
            opening = f"Cannot be judged from {counted(n, 'prompt')}:"
        elif bool(clear.any()):
            opening = f"In {int(clear.sum())} of {counted(len(clear), 'layer')}:"
        else:
            opening = "Not shown in any layer:"
        return Figure(
            "attention",
            f"Does the target look more at the label words of its {name}?",
            f"{opening} the difference to the other classes is largest in layer {best}, "
            f"{said(found, sign=True)} (summed over heads; that layer was picked as the largest).",
            f"**Attention from the target to the label words**, summed over heads: those of the {name}, "
            f"and {_others(self.attention.shape[-1])}. "
            f"Bands: 95 % intervals over {self.basis_words()}, for each layer alone; the count of "
            "layers above is of all of them together (max-T).",
            limits="how much of a layer's attention goes elsewhere, nor what the heads pass on.",
            short="Attention to label words",
        )

    @property
    def truth(self) -> str:
        """`predicted` or `true`: which class each prompt counts as."""
        gold = self.provenance.get("variants", {}).get("truth") == "gold"
        return "true" if gold else "predicted"

    def note(self) -> str:
        """How many prompts there are, what is taken as given, and what counts as truth."""
        own = "true classes" if self.truth == "true" else "own predictions"
        return f"{basis(self)}; truth: {own}"

    def basis_words(self) -> str:
        """How many prompts there are, and what is taken as given."""
        return f"{counted(len(self.truth_classes), 'prompt')}{given(self)}"

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return len(self.truth_classes)

    @property
    def rare(self) -> tuple[str, ...]:
        """Classes of fewer than `FEW` prompts."""
        sizes = self.truth_classes.bincount(minlength=len(self.labels))
        return tuple(self.labels[c] for c in self.classes if int(sizes[c]) < FEW)

    @cached_property
    def judged_on(self) -> tuple[Interval, Interval, int]:
        """Last third, rise and number of prompts over classes of `FEW` prompts or more.

        All classes where none is rare; where fewer than two are left, those of all classes.
        """
        usual = (self.last_third, self.rise, self.prompts)
        if not self.rare or len(self.rare) > len(self.classes) - 2:
            return usual
        keep = self.truth_classes.bincount(minlength=len(self.labels))[self.truth_classes] >= FEW
        truth = self.truth_classes[keep]
        auc, drawn, _ = resampled(self.attention[keep], truth, self.two_classes)
        sums = curve_fields(auc, drawn, len(truth))["sums"]
        return Interval(*sums[2].tolist()), Interval(*sums[3].tolist()), len(truth)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rare classes without which it is judged; none where too few others are left."""
        return self.rare if self.judged_on[2] < self.prompts else ()


def _others(classes: int) -> str:
    return (
        "those of the other class"
        if classes == 2
        else f"the mean of the other {classes - 1} classes"
    )
