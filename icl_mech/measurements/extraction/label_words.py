"""Extraction: does the attention from the target to label words decide the prediction?

`A_l(q, c) = sum_h sum_{p of class c} A[l, h, q, p]`: attention of the target `q` to the label
words of class c, summed over heads.

* `auc`: ROC-AUC of layer l with `A_l(q, .)` as score and the model's own prediction as truth.
  Classes never predicted lose their column; rows are then normalised to sum 1, a row of zeros
  becomes uniform; macro one-vs-one. 0.5 is chance.
* `cumulative`: `R_l = sum_{i<=l} (AUC_i - 0.5) / sum_i (AUC_i - 0.5)`; entry l counts all blocks
  up to l, l included. R ends at 1 and may leave [0, 1]; it is undefined where the denominator
  is not clearly above 0.

With two classes left, `normalised` keeps this formula; `reference` takes the raw score of the
later class alone, as the reference code does.

Over several tasks AUC is averaged first (`icl_mech.measurements.extraction.average`).

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from einops import einsum

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import AnyReading, Kept, Reading
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.extraction.curves import AucCurves, curve_figure
from icl_mech.measurements.extraction.statistics import (
    TwoClasses,
    auc_statistic,
    curve_fields,
    resampled,
    share_note,
)
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.metrics import (
    RESAMPLES,
    Interval,
    above_together,
    cumulative_share,
    empty_layers,
    mean_ends,
)
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Figure, Quantity, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.segments import Segment
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


Truth = Literal["prediction", "gold"]


@dataclass
class AttentionReading(Reading[Tensor]):
    """Attention of the target to the label words of each class, summed over heads."""

    n_labels: int

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, label]`."""
        rows = activation[segment.rows, :, segment.target_row].float()
        classes = torch.arange(self.n_labels, device=rows.device)
        members = (segment.src_classes[..., None] == classes).float()
        return einsum(rows, members, "b head src, b src label -> b label")

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, label]`."""
        return kept.stacked()


def extraction_result(
    attention: Float[Tensor, "batch layer label"],
    truth_classes: Int[Tensor, " batch"],
    labels: tuple[str, ...],
    two_classes: TwoClasses = "normalised",
) -> ExtractionResult:
    """Curves from what `AttentionReading` read and the class each prompt counts as."""
    auc, drawn, redrawn = resampled(attention, truth_classes, two_classes)
    classes = tuple(int(c) for c in truth_classes.unique())
    fields = curve_fields(auc, drawn, len(truth_classes))
    notes = _notes(attention, truth_classes, classes, labels, redrawn, drawn is None)
    return ExtractionResult(
        **fields,
        notes=notes + share_note(fields),
        attention=attention,
        truth_classes=truth_classes,
        classes=classes,
        labels=labels,
        two_classes=two_classes,
        redrawn=redrawn,
    )


@dataclass(frozen=True)
class Extraction(Measurement[ExtractionResult]):
    """Attention from the target to the label words, its AUC and R by layer.

    Attributes:
        truth: The model's own `prediction`, or the `gold` class.
        two_classes: With two classes left, `normalised` scores or the `reference` reading.

    Raises:
        RunError: unknown choice.
        PromptError: prompts without demonstrations, or without answers for `truth="gold"`.

    Source: Wang et al. 2023, §2.3.
    """

    truth: Truth = "prediction"
    two_classes: TwoClasses = "normalised"

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without what is attended to, or without the truth asked for.

        Raises:
            PromptError: no demonstrations, or no answers for `truth="gold"`.
        """
        check_demonstrations(data, "extraction")
        if self.truth == "gold":
            _ = data.answers

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One forward pass."""
        readings: list[AnyReading] = [AttentionReading(data.n_labels), PredictionReading(1)]
        return [Pass(data, readings, title="extraction")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ExtractionResult:
        """The curves, against predictions or true classes."""
        ((attention, (logits, *_)),) = read
        truth = data.answers if self.truth == "gold" else logits.argmax(-1)
        return extraction_result(attention, truth, data.labels, self.two_classes)


extraction = door(
    Extraction,
    "extraction",
    prompts="Prompts with at least one demonstration each.",
    interventions="Made during the pass; attention and prediction are those of the changed model.",
)


def _notes(
    attention: Tensor,
    truth: Tensor,
    classes: tuple[int, ...],
    labels: tuple[str, ...],
    redrawn: int,
    no_intervals: bool,
) -> tuple[str, ...]:
    if len(classes) == 1:
        return (f"AUC undefined: all {len(truth)} prompts count as {labels[classes[0]]}",)
    counts = ", ".join(f"{labels[c]} {int((truth == c).sum())}" for c in classes)
    notes = [f"prompts by class: {counts}"]
    few = [labels[c] for c in classes if int((truth == c).sum()) < FEW]
    if few:
        notes.append(f"fewer than {FEW} prompts of {', '.join(few)}: intervals are too narrow")
    dropped = [label for c, label in enumerate(labels) if c not in classes]
    if dropped:
        notes.append(f"left out, no prompt: {', '.join(dropped)}")
    empty = empty_layers(attention[..., list(classes)]).nonzero()[:, 0].tolist()
    if empty:
        layers = ", ".join(map(str, empty))
        notes.append(f"no attention to label words, so AUC 0.5, in layer {layers}")
    if no_intervals:
        notes.append("no intervals: hardly any resample holds all classes")
    elif redrawn:
        notes.append(f"{redrawn} resamples that lost a class redrawn ({RESAMPLES} used)")
    return tuple(notes)
