"""The default study: predictions and information flow in one pass, maps of the first prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icl_mech.checking import Natural, check_fields
from icl_mech.engine import Loss
from icl_mech.errors import IclMechError
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.identity import Identity
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.maps import Saliency
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.measurements.saliency.scores import FlowScores
from icl_mech.prompts import PromptBatch
from icl_mech.studies.bench import Bench
from icl_mech.studies.untrained import UntrainedFlow, untrained_flow, usual_nulls

GIVEN = "All prompts share their demonstrations; intervals hold given these."


@dataclass(frozen=True)
class FlowStudy:
    """What is measured when no study is named.

    Attributes:
        maps: Number of prompts whose whole saliency maps are kept (0: none).
        reduction: See `flow_scores`.
        loss: See `flow_scores`.
    """

    maps: Natural = 1
    reduction: Reduction = "sum_then_abs"
    loss: Loss | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types.

        Raises:
            RunError: names the field and what it may be.
        """
        check_fields(self)

    def measurements(self) -> Sequence[AnyMeasurement[Any, Any]]:
        """In reading order."""
        chosen: list[AnyMeasurement[Any, Any]] = [Predict(), Flow(self.loss, self.reduction)]
        if self.maps:
            chosen.append(Saliency(self.loss, self.reduction, self.maps))
        return chosen


def add_untrained(bench: Bench, prompts: PromptBatch, study: FlowStudy, nulls: int | None) -> None:
    """Put the flow of untrained networks beside that of the model, or a note why there is none."""
    own = next((found for found in bench.results.values() if isinstance(found, FlowScores)), None)
    count = usual_nulls(bench.model) if nulls is None else nulls
    if own is None or "untrained" in bench.results:
        return
    if not count:
        bench.notes.append(
            "No untrained networks were measured, so no claim about the flow can be judged; nulls=3 does."
        )
        return
    flow = Flow(study.loss, study.reduction)
    kept = bench.kept("untrained", UntrainedFlow)
    same = kept is not None and not Identity.recorded(own.provenance).differences(
        Identity.recorded(kept.provenance)
    )
    if kept is not None and same and len(kept.networks) == count:
        bench.results["untrained"] = kept
        return
    try:
        found = untrained_flow(bench.model, prompts, own, flow, count, bench.options)
    except IclMechError as error:
        if nulls is not None:
            raise
        bench.notes.append(f"Untrained networks left out: {error}")
        return
    bench.keep("untrained", found)
