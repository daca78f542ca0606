"""The default study: predictions and information flow in one pass, maps of the first prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from icl_mech.engine import Loss, run
from icl_mech.interventions import Intervention
from icl_mech.measurements.extraction.label_words import AttentionReading, extraction_result
from icl_mech.measurements.predictions import PredictionReading, prediction_result
from icl_mech.measurements.provenance import provenance
from icl_mech.measurements.saliency.flow import FlowReading, check_flow_prompts, flow_result
from icl_mech.measurements.saliency.maps import SaliencyReading, maps_result
from icl_mech.measurements.saliency.reduction import (
    Reduction,
    check_variants,
    default_loss,
    warn_if_processed,
)
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.tasks import Task


@dataclass(frozen=True)
class Options:
    """What all studies take; see `analyze`."""

    interventions: Sequence[Intervention] = ()
    maps: int = 1
    reduction: str = "sum_then_abs"
    loss: str | None = None
    batch_size: int | None = None
    progress: bool | None = None
    seed: int = 0
    heads_from: str | Task | PromptBatch | None = None


def flow_results(
    model: Any, prompts: PromptBatch, options: Options, *, attention: bool = False
) -> dict[str, Result]:
    """Predictions, flow and, if asked for, extraction from one pass; maps from another."""
    loss = options.loss or default_loss(prompts)
    check_variants(loss, options.reduction, prompts)
    chosen, reduction = cast(Loss, loss), cast(Reduction, options.reduction)
    check_flow_prompts(prompts)
    adapted = adapt(model)
    warn_if_processed(adapted)
    readings: list[Any] = [FlowReading(chosen, reduction), PredictionReading()]
    if attention:
        readings.append(AttentionReading(prompts.n_labels))
    sums, read, *attended = run(
        adapted, prompts, readings, options.interventions,
        batch_size=options.batch_size, progress=options.progress, title="analysis",
    )  # fmt: skip
    origin = provenance(adapted, prompts, options.interventions, loss=chosen, reduction=reduction)
    predictions = prediction_result(read, prompts, origin)
    results: dict[str, Result] = {
        "predictions": predictions,
        "flow": flow_result(sums, prompts, origin),
    }
    if options.maps:
        first = prompts[: min(options.maps, len(prompts))]
        (kept,) = run(
            adapted, first, [SaliencyReading(chosen, reduction)], options.interventions,
            batch_size=options.batch_size, progress=False,
        )  # fmt: skip
        results["saliency"] = maps_result(kept, first, origin)
    for values in attended:
        truth = provenance(
            adapted, prompts, options.interventions, truth="prediction", two_classes="normalised"
        )
        results["extraction"] = extraction_result(values, predictions.predicted, prompts, truth)
    return results


def title(model: LanguageModel, prompts: PromptBatch) -> str:
    """Model, task and number of prompts."""
    task = prompts.source.get("task", {}).get("name", "prompts")
    return f"{model.info.name} on {task} ({len(prompts)} prompts)"
