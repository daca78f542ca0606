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

Over several tasks AUC is averaged first: R is `metrics.cumulative_share` of the values of
`sweep.average("extraction.auc", over="task", fixed="task")`.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import AnyReading, Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.extraction.curves import FEW, ExtractionResult
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.windows import without_edges, without_label_words
from icl_mech.metrics import Interval
from icl_mech.metrics.auc import TwoClasses, clearly_positive, curve_fields, empty_layers, resampled
from icl_mech.metrics.intervals import RESAMPLES
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results.wording import said
from icl_mech.segments import Segment

Truth = Literal["prediction", "gold"]


@dataclass
class AttentionReading(OfPatterns, Reading[Tensor]):
    """Attention of the target to the label words of each class, summed over heads."""

    n_labels: int

    target_only: ClassVar[bool] = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, label]`."""
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

    why_not = "it asks whether attention to the label words of a class tells the answer, and here no demonstration shows the answer's class"

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

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
        unseen = without_label_words(data.label_positions, data.targets, model.windows)
        attention = attention.masked_fill(unseen.all(0)[:, None], torch.nan)
        found = extraction_result(attention, truth, data.labels, self.two_classes)
        what = "The target's attention to label words"
        return replace(found, notes=(*found.notes, *without_edges(what, unseen, model.windows)))


extraction = door(
    Extraction,
    "extraction",
    prompts="Prompts with at least one demonstration each.",
    interventions="Made during the pass; attention and prediction are those of the changed model.",
)


def share_note(fields: dict[str, Any]) -> tuple[str, ...]:
    """Says why R is undefined, if it is."""
    found = Interval(*fields["sums"][0].tolist())
    if not fields["auc"].isfinite().any() or clearly_positive(fields["sums"][0]):
        return ()
    return (
        f"R undefined: its denominator, the sum of AUC − 0.5, is {said(found)}, not clearly above 0",
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
    empty = empty_layers(attention[..., list(classes)].nan_to_num(1.0)).nonzero()[:, 0].tolist()
    if empty:
        layers = ", ".join(map(str, empty))
        notes.append(f"no attention to label words, so AUC 0.5, in layer {layers}")
    if no_intervals:
        notes.append("no intervals: hardly any resample holds all classes")
    elif redrawn:
        notes.append(f"{redrawn} resamples that lost a class redrawn ({RESAMPLES} used)")
    return tuple(notes)
