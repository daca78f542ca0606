"""The default study: predictions and information flow in one pass, maps of the first prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.checking import Natural
from icl_mech.engine import Loss
from icl_mech.measurements.accuracy.gain import Gain, GainResult
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.predictions import Predict, Predictions
from icl_mech.measurements.saliency.flow import Flow, FlowScores
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.measurements.saliency.saliency_maps import SaliencyMaps, SaliencyMapsResult
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Effect
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import PROMPTS, add_untrained, announce_untrained
from icl_mech.studies.study import DEFAULT, Study
from icl_mech.studies.untrained import UntrainedFlow

GIVEN = (
    "All prompts share the same demonstrations; intervals are conditional on these demonstrations."
)


def measurements(
    maps: Natural, reduction: Reduction, loss: Loss | None
) -> Sequence[AnyMeasurement[Any, Any]]:
    """Predictions, flow, and the full saliency maps of the first `maps` prompts, in reading order."""
    basic: list[AnyMeasurement[Any, Any]] = [Predict(), Flow(loss, reduction)]
    return [*basic, SaliencyMaps(loss, reduction, maps)] if maps else basic


def _steps(
    bench: Bench,
    prompts: PromptBatch,
    *,
    besides: Sequence[AnyMeasurement[Any, Any]] = (),
    maps: Natural = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    nulls: int | None = None,
) -> None:
    """Measure everything in one pass, and the flow of randomly initialised models."""
    bench.for_nulls = {"flow": (Flow(loss, reduction), PROMPTS)}
    announce_untrained(bench, prompts, nulls)
    bench.measure(prompts, *measurements(maps, reduction, loss), *besides, optional=[Gain()])
    add_untrained(bench, prompts, nulls)
    if prompts.source.get("demonstrations") == "shared":
        bench.notes.append(GIVEN)


def _headline(
    results: Mapping[str, Result], verdicts: Sequence[Verdict], model: str, task: str
) -> tuple[str, str]:
    """The question, and the answer that the flow figure gives."""
    flow = next((result for result in results.values() if isinstance(result, FlowScores)), None)
    if flow is None or not model:
        return "", ""
    answers = [figure.answer for figure in flow.figures() if figure.question]
    return f"How does information flow in {model} on {task}?", answers[0].partition(". ")[0].rstrip(
        "."
    ) + "." if answers else ""


FLOW = Study(
    DEFAULT,
    headline=_headline,
    steps=_steps,
    gives={
        "predictions": Predictions,
        "gain": GainResult,
        "flow": FlowScores,
        "untrained": UntrainedFlow,
        "saliency_maps": SaliencyMapsResult,
    },
    quantities=(
        Effect("early flow", lambda run: run["flow"].difference("first"), ends=DIFFERENCE),
        Effect("late flow", lambda run: run["flow"].difference("last"), ends=DIFFERENCE),
    ),
    known_by=lambda kinds: FlowScores in kinds,
)
