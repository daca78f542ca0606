"""The default study: predictions and information flow in one pass, maps of the first prompts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from icl_mech.checking import Natural, check_fields
from icl_mech.engine import Loss
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.maps import Saliency
from icl_mech.measurements.saliency.reduction import Reduction

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

    @property
    def flow(self) -> Flow:
        """What is measured of information flow."""
        return Flow(self.loss, self.reduction)

    def measurements(self) -> Sequence[AnyMeasurement[Any, Any]]:
        """In reading order."""
        chosen: list[AnyMeasurement[Any, Any]] = [Predict(), self.flow]
        if self.maps:
            chosen.append(Saliency(self.loss, self.reduction, self.maps))
        return chosen
