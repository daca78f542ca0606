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

Over several tasks AUC is averaged first (`averaged_extraction`).

Source: Wang et al. 2023, *Label Words are Anchors*, §2.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import torch
from einops import einsum

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements._old import provenance
from icl_mech.measurements.demonstrations import check_demonstrations, conditions
from icl_mech.measurements.extraction.curves import (
    AucCurves,
    TwoClasses,
    curve_fields,
    resampled,
    share_note,
)
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.metrics import RESAMPLES, empty_layers
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Truth = Literal["prediction", "gold"]

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

    attention: Float[Tensor, "batch layer label"]
    truth_classes: Int[Tensor, " batch"]
    classes: tuple[int, ...]
    labels: tuple[str, ...]
    two_classes: TwoClasses = "normalised"
    redrawn: int = 0

    def _basis(self) -> str:
        gold = self.provenance.get("variants", {}).get("truth") == "gold"
        truth = "true classes" if gold else "own predictions"
        return f"{conditions(len(self.attention), self.provenance)}; truth: {truth}"


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedExtraction(AucCurves):
    """AUC averaged over tasks, and R of the average.

    Attributes:
        per_task: AUC of each task.
        tasks: Their names.
    """

    per_task: Float[Tensor, "task layer"]
    tasks: tuple[str, ...]

    def _basis(self) -> str:
        return f"mean of {', '.join(self.tasks)}; 95 % intervals over the prompts of each"


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


def extraction(
    model: Any,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    truth: Truth = "prediction",
    two_classes: TwoClasses = "normalised",
    batch_size: int | None = None,
    progress: bool | None = None,
) -> ExtractionResult:
    """Attention from the target to the label words, its AUC and R by layer.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        interventions: Made during the pass; attention and prediction are those of the
            changed model.
        truth: The model's own `prediction`, or the `gold` class.
        two_classes: With two classes left, `normalised` scores or the `reference` reading.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Returns:
        The curves. If all prompts count as one class they are not-a-number and `notes` says so.

    Raises:
        RunError: unknown choice.
        PromptError: prompts without demonstrations, or without answers for `truth="gold"`.

    Source: Wang et al. 2023, §2.3.
    """
    for name, value, choices in (
        ("truth", truth, get_args(Truth)),
        ("two_classes", two_classes, get_args(TwoClasses)),
    ):
        if value not in choices:
            raise RunError(f"{name}={value!r}. {near_matches(value, choices)}")
    check_demonstrations(prompts, "extraction")
    gold = prompts.answers if truth == "gold" else None
    adapted = adapt(model)
    attention, (logits, *_) = run(
        adapted, prompts, [AttentionReading(prompts.n_labels), PredictionReading(1)],
        interventions, batch_size=batch_size, progress=progress, title="extraction",
    )  # fmt: skip
    return extraction_result(
        attention,
        logits.argmax(-1) if gold is None else gold,
        prompts,
        provenance(adapted, prompts, interventions, truth=truth, two_classes=two_classes),
        two_classes,
    )


def extraction_result(
    attention: Float[Tensor, "batch layer label"],
    truth_classes: Int[Tensor, " batch"],
    prompts: PromptBatch,
    origin: dict[str, Any],
    two_classes: TwoClasses = "normalised",
) -> ExtractionResult:
    """Curves from what `AttentionReading` read and the class each prompt counts as."""
    auc, drawn, redrawn = resampled(attention, truth_classes, two_classes)
    classes = tuple(int(c) for c in truth_classes.unique())
    fields = curve_fields(auc, drawn)
    notes = _notes(attention, truth_classes, classes, prompts.labels, redrawn, drawn is None)
    return ExtractionResult(
        **fields,
        notes=notes + share_note(fields),
        attention=attention,
        truth_classes=truth_classes,
        classes=classes,
        labels=prompts.labels,
        two_classes=two_classes,
        redrawn=redrawn,
        provenance=origin,
    )


def averaged_extraction(results: Sequence[ExtractionResult]) -> AveragedExtraction:
    """AUC averaged over tasks, and R of the averaged AUC.

    Prompts are resampled within each task, independently of the others; every resample gives
    one averaged curve and one R. Tasks with fewer than two classes are left out and noted.

    Raises:
        ResultError: nothing to average, or results of different depth.

    Source: Wang et al. 2023, §2.3.
    """
    names = [_task_name(result, number) for number, result in enumerate(results)]
    used = [(name, result) for name, result in zip(names, results, strict=True) if result.defined]
    if not used:
        raise ResultError(
            f"None of the {len(results)} results has a defined AUC (two classes or more), so there "
            "is nothing to average."
        )
    depths = sorted({len(result.auc) for _, result in used})
    if len(depths) > 1:
        raise ResultError(
            f"Results of models with {' and '.join(map(str, depths))} layers; average one depth only."
        )
    drawn = [
        resampled(result.attention, result.truth_classes, result.two_classes, seed=seed)[1]
        for seed, (_, result) in enumerate(used)
    ]
    whole = [values for values in drawn if values is not None]
    per_task = torch.stack([result.auc for _, result in used])
    mean = torch.stack(whole).mean(0) if len(whole) == len(used) else None
    fields = curve_fields(per_task.mean(0), mean)
    left_out = [name for name, result in zip(names, results, strict=True) if not result.defined]
    notes = (f"left out, one class only: {', '.join(left_out)}",) if left_out else ()
    return AveragedExtraction(
        **fields,
        notes=notes + share_note(fields),
        per_task=per_task,
        tasks=tuple(name for name, _ in used),
        provenance={"averaged": [result.provenance for _, result in used]},
    )


def _task_name(result: ExtractionResult, number: int) -> str:
    task = result.provenance.get("prompts", {}).get("task", {})
    return str(task.get("name", f"task {number}"))


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
