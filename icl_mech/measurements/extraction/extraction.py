"""Extraction: does the attention from the target to label words determine the prediction?

`A_l(q, c) = sum_h sum_{p of class c} A[l, h, q, p]`: attention of the target `q` to the label
words of class c, summed over heads.

* `auc`: ROC-AUC of layer l with `A_l(q, .)` as score and the model's prediction as truth.
  Classes never predicted lose their column; rows are then normalised to sum 1, a row of zeros
  becomes uniform; macro one-vs-one. 0.5 is chance.
* `cumulative`: `R_l = sum_{i<=l} (AUC_i - 0.5) / sum_i (AUC_i - 0.5)`; entry l counts all blocks
  up to l, l included. R ends at 1 and may leave [0, 1]; it is undefined where the denominator
  is not clearly above 0.

With two classes left, `normalised` keeps this formula; `reference` takes the raw score of the
later class alone, as the reference code does.

Over several tasks AUC is averaged first: R is `metrics.cumulative_share` of the values of
`sweep.average("extraction.auc", over="task", fixed="task")`.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import AnyReading, Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.windows import without_edges, without_label_words
from icl_mech.metrics import Interval, above_together, cumulative_share, mean_ends
from icl_mech.metrics.auc import (
    TwoClasses,
    auc_statistic,
    clearly_positive,
    curve_fields,
    empty_layers,
    resampled,
)
from icl_mech.metrics.intervals import RESAMPLES
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Required, Status, combined, judged, required
from icl_mech.results.wording import said
from icl_mech.segments import Segment

Truth = Literal["prediction", "gold"]

SOURCE = "Wang et al. 2023, Label Words are Anchors, §2.3"

DEFINITIONS = (
    Definition(
        "attention to a class",
        r"A_l(q, c) = \sum_h \sum_{p \in c} A_{l,h}[q, p]",
        "Attention of the target q to the first tokens p of the label words that display class c, "
        "summed over the heads h of layer l.",
        SOURCE,
    ),
    Definition(
        "AUC of a layer",
        r"\text{AUC}_l = \frac{2}{C (C-1)} \sum_{a < b} \text{ROC-AUC}_{a,b}\left("
        r"\frac{A_l(q, \cdot)}{\sum_c A_l(q, c)}, \hat{y}\right)",
        "How well attention predicts the predicted class ŷ: rows normalised to sum 1, one-vs-one "
        "ROC-AUC averaged over pairs of classes. 0.5 is chance; 1 means that the predicted class "
        "always receives more attention. Classes that are never predicted are excluded.",
        SOURCE,
    ),
    Definition(
        "cumulative share R",
        r"R_l = \frac{\sum_{i \le l} (\text{AUC}_i - 0.5)}{\sum_i (\text{AUC}_i - 0.5)}",
        "Fraction of the total contributed by the layers up to and including l. R ends at 1 and "
        "may leave [0, 1]; it is undefined unless the denominator is clearly above 0.",
        SOURCE,
    ),
)

AUC, SHARE = "AUCROC of attention to label words", "R: fraction of its sum up to this layer"

FEW = 5
"""Classes with fewer prompts are named: resampling them cannot show their uncertainty."""


class LargestGap(NamedTuple):
    """The layer where the target attends most to the label words of its prompt's class, compared with the others.

    Attributes:
        layer: Selected as the layer with the largest difference.
        difference: Attention to those label words minus the mean of the others, not corrected for the selection.
        clear: Number of layers in which the difference lies above 0, corrected over layers (max-T).
        status: Status of the claim that there is such a layer.
    """

    layer: int
    difference: Interval
    clear: int
    status: Status


@dataclass(frozen=True, eq=False, kw_only=True)
class ExtractionResult(Result):
    """Attention to label words by class, its AUC and R by layer; ends are of 95 % intervals over prompts.

    Attributes:
        auc: AUC of each layer; not-a-number if fewer than two classes are left, and in layers whose attention
            window reaches no label word.
        auc_low, auc_high: Ends of its intervals.
        cumulative: R after each layer; a number even where R is undefined.
        cumulative_low, cumulative_high: Ends of its intervals; not-a-number where R is undefined.
        sums: Rows: denominator of R, mean AUC of the first and of the last third of the
            layers, last minus first. Columns: value and ends.
        notes: Omissions and undefined values, with their reasons.
        attention: `A_l(q, c)` of every prompt, in class order.
        truth_classes: Class each prompt counts as: predicted, or true with `truth="gold"`.
        classes: Classes that occur among them; the others are left out of the AUC.
        labels: Names of all classes.
        two_classes: Scoring with two classes.
        redrawn: Bootstrap resamples drawn again because they lost a class.
    """

    shows: ClassVar[tuple[str, ...]] = ("auc", "attention")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"label": "labels"}

    auc: Float[Tensor, " layer"]
    auc_low: Float[Tensor, " layer"]
    auc_high: Float[Tensor, " layer"]
    cumulative: Float[Tensor, " layer"]
    cumulative_low: Float[Tensor, " layer"]
    cumulative_high: Float[Tensor, " layer"]
    sums: Float[Tensor, "4 3"]
    notes: tuple[str, ...] = ()
    attention: Float[Tensor, "batch layer label"]
    truth_classes: Int[Tensor, " batch"]
    classes: tuple[int, ...]
    labels: tuple[str, ...]
    two_classes: TwoClasses = "normalised"
    redrawn: int = 0

    @property
    def defined(self) -> bool:
        """False if fewer than two classes were left."""
        return bool(self.auc.isfinite().any())

    @property
    def cumulative_defined(self) -> bool:
        """True if the denominator of R is positive and its interval excludes 0."""
        return clearly_positive(self.sums[0])

    @property
    def denominator(self) -> Interval:
        """Denominator of R, `sum_l (AUC_l - 0.5)`."""
        return Interval(*self.sums[0].tolist())

    @property
    def first_third(self) -> Interval:
        """Mean AUC of the first third of the layers."""
        return Interval(*self.sums[1].tolist())

    @property
    def last_third(self) -> Interval:
        """Mean AUC of the last third of the layers."""
        return Interval(*self.sums[2].tolist())

    @property
    def rise(self) -> Interval:
        """Mean AUC of the last third minus that of the first, paired over prompts."""
        return Interval(*self.sums[3].tolist())

    @property
    def half_layer(self) -> int:
        """The first layer after which R is at least one half."""
        return int((self.cumulative >= 0.5).int().argmax())

    def more_columns(self) -> Mapping[str, Any]:
        """Whether R is defined."""
        return {"cumulative_defined": self.cumulative_defined}

    @property
    def status(self) -> Status:
        """Status of the claim that the prediction is read from label words in late layers.

        AUC in the last third of the layers must lie above chance, and above that in the first. The test
        leaves out classes with too few prompts to be resampled; where fewer than two others are
        left, a positive finding does not count.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same status as a measure that a claim requires, with its p-value."""
        last, change, prompts = self.judged_on
        late = required("attention", last, null=0.5, prompts=prompts)
        both = combined("attention", [late, required("attention", change, prompts=prompts)])
        few = self.rare and not self.left_out and both.status in ("supported", "opposite")
        return both._replace(status="cannot be judged") if few else both

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
            "attention": Quantity(("layer", "label"), self.attention, unit=unit, kind="amount"),
        }

    # --- facts for summary and figures ---

    @property
    def matching_and_others(
        self,
    ) -> tuple[Float[Tensor, "batch layer"], Float[Tensor, "batch layer"]]:
        """Attention to the label words of the class each prompt counts as, and the mean of the others."""
        attention = self.attention.double()
        place = self.truth_classes[:, None, None].expand(-1, attention.shape[1], 1)
        matching = attention.gather(-1, place)[..., 0]
        return matching, (attention.sum(-1) - matching) / max(1, attention.shape[-1] - 1)

    @property
    def largest_gap(self) -> LargestGap:
        """The layer with the largest difference between these two."""
        matching, others = self.matching_and_others
        gaps = matching - others
        low, high = mean_ends(gaps)
        layer = int(gaps.mean(0).nan_to_num(-torch.inf).argmax())
        difference = Interval(float(gaps[:, layer].mean()), float(low[layer]), float(high[layer]))
        clear = int(above_together(gaps).sum())
        status: Status = "supported" if clear else "not shown"
        if self.count < FEWEST_PROMPTS:
            status = "cannot be judged"
        return LargestGap(layer, difference, clear, status)

    @property
    def status_of_last_third(self) -> Status:
        """Status of the claim that the last third lies above chance, whatever the number of prompts."""
        return judged(self.last_third, null=0.5)

    @property
    def status_of_rise(self) -> Status:
        """Status of the claim that AUC rises, likewise."""
        return judged(self.rise)

    def on_page(self) -> tuple[str, ...]:
        """AUC, and the attention behind it."""
        return self.shows

    def is_drawn(self, show: str) -> bool:
        """True for the attention; for AUC, true where it is defined."""
        return show != "auc" or self.defined

    @property
    def truth(self) -> str:
        """Class that each prompt counts as: `predicted` or `true`."""
        gold = self.provenance.get("variants", {}).get("truth") == "gold"
        return "true" if gold else "predicted"

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.truth_classes)

    @property
    def rare(self) -> tuple[str, ...]:
        """Classes with fewer than `FEW` prompts."""
        sizes = self.truth_classes.bincount(minlength=len(self.labels))
        return tuple(self.labels[c] for c in self.classes if int(sizes[c]) < FEW)

    @cached_property
    def judged_on(self) -> tuple[Interval, Interval, int]:
        """Last third, rise and number of prompts over classes with at least `FEW` prompts.

        All classes where none is rare; where fewer than two are left, the values of all classes.
        """
        usual = (self.last_third, self.rise, self.count)
        if not self.rare or len(self.rare) > len(self.classes) - 2:
            return usual
        keep = self.truth_classes.bincount(minlength=len(self.labels))[self.truth_classes] >= FEW
        truth = self.truth_classes[keep]
        auc, drawn, _ = resampled(self.attention[keep], truth, self.two_classes)
        sums = curve_fields(auc, drawn, len(truth))["sums"]
        return Interval(*sums[2].tolist()), Interval(*sums[3].tolist()), len(truth)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Rare classes that the test leaves out; none where too few others are left."""
        return self.rare if self.judged_on[2] < self.count else ()


@dataclass
class AttentionReading(OfPatterns, Reading[Tensor]):
    """Attention of the target to the label words of each class, summed over heads."""

    n_labels: int

    target_only: ClassVar[bool] = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Attention `[batch, label]`."""
        rows = activation[segment.rows, :, segment.target_row].float()
        classes = torch.arange(self.n_labels, device=rows.device)
        members = (segment.src_classes[..., None] == classes).float()
        return torch.einsum("bhs,bsl->bl", rows, members)


def extraction_result(
    attention: Float[Tensor, "batch layer label"],
    truth_classes: Int[Tensor, " batch"],
    labels: tuple[str, ...],
    two_classes: TwoClasses = "normalised",
) -> ExtractionResult:
    """The curves, from the attention that `AttentionReading` read and the class each prompt counts as."""
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
        truth: The model's `prediction`, or the `gold` class.
        two_classes: With two classes left, `normalised` scores or the `reference` scoring.

    Raises:
        RunError: unknown choice.
        PromptError: prompts without demonstrations, or without answers for `truth="gold"`.

    Source: Wang et al. 2023, §2.3.
    """

    truth: Truth = "prediction"
    two_classes: TwoClasses = "normalised"

    why_not = (
        "it tests whether attention to a class's label words predicts the answer, and here no "
        "demonstration shows the answer's class"
    )

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without label words to attend to, or without the truth asked for.

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
        unseen = without_label_words(data.label_positions, data.targets, model.windows)
        attention = attention.masked_fill(unseen.all(0)[:, None], torch.nan)
        result = extraction_result(attention, truth, data.labels, self.two_classes)
        what = "The target's attention to label words"
        return replace(result, notes=(*result.notes, *without_edges(what, unseen, model.windows)))


extraction = door(
    Extraction,
    "extraction",
    prompts="Prompts with at least one demonstration each.",
    interventions=(
        "Applied during the pass; attention and prediction are those of the modified model."
    ),
)


def share_note(fields: dict[str, Any]) -> tuple[str, ...]:
    """The reason why R is undefined, if it is."""
    denominator = Interval(*fields["sums"][0].tolist())
    if not fields["auc"].isfinite().any() or clearly_positive(fields["sums"][0]):
        return ()
    return (
        f"R undefined: its denominator, the sum of AUC − 0.5, is {said(denominator)}, not clearly "
        "above 0",
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
        notes.append(f"classes left out because no prompt has them: {', '.join(dropped)}")
    empty = empty_layers(attention[..., list(classes)].nan_to_num(1.0)).nonzero()[:, 0].tolist()
    if empty:
        layers = ", ".join(map(str, empty))
        notes.append(f"no attention to label words (AUC 0.5) in layer {layers}")
    if no_intervals:
        notes.append("no intervals: hardly any resample contains all classes")
    elif redrawn:
        notes.append(f"{redrawn} resamples without all classes were redrawn ({RESAMPLES} used)")
    return tuple(notes)
