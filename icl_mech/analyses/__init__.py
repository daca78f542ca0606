"""What can be measured: one file per method."""

from icl_mech.analyses.flow import FlowScores, flow_scores
from icl_mech.analyses.predictions import Predictions, predict
from icl_mech.analyses.saliency import SaliencyMaps, saliency_maps

__all__ = [
    "FlowScores",
    "Predictions",
    "SaliencyMaps",
    "flow_scores",
    "predict",
    "saliency_maps",
]
