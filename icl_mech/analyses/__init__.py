"""What can be measured: one file per method."""

from icl_mech.analyses._random_heads import random_heads
from icl_mech.analyses.ablation import Ablation, ablation
from icl_mech.analyses.context_accuracy import ContextAccuracy, context_accuracy
from icl_mech.analyses.early_exit import EarlyExit, early_exit
from icl_mech.analyses.extraction import (
    AveragedExtraction,
    ExtractionResult,
    averaged_extraction,
    extraction,
)
from icl_mech.analyses.flow import FlowScores, flow_scores
from icl_mech.analyses.head_attention import HeadAttention, head_attention
from icl_mech.analyses.head_scores import HeadScores, head_scores
from icl_mech.analyses.isolation import IsolationResult, isolation
from icl_mech.analyses.isolation_map import IsolationMap, isolation_map
from icl_mech.analyses.layer_accuracy import LayerAccuracy, layer_accuracy
from icl_mech.analyses.logit_lens import ComponentLens, LogitLens, logit_lens
from icl_mech.analyses.matching_by_layer import MatchingByLayer, matching_by_layer
from icl_mech.analyses.predictions import Predictions, predict
from icl_mech.analyses.saliency import SaliencyMaps, saliency_maps

__all__ = [
    "Ablation",
    "AveragedExtraction",
    "ComponentLens",
    "ContextAccuracy",
    "EarlyExit",
    "ExtractionResult",
    "FlowScores",
    "HeadAttention",
    "HeadScores",
    "IsolationMap",
    "IsolationResult",
    "LayerAccuracy",
    "LogitLens",
    "MatchingByLayer",
    "Predictions",
    "SaliencyMaps",
    "ablation",
    "averaged_extraction",
    "context_accuracy",
    "early_exit",
    "extraction",
    "flow_scores",
    "head_attention",
    "head_scores",
    "isolation",
    "isolation_map",
    "layer_accuracy",
    "logit_lens",
    "matching_by_layer",
    "predict",
    "random_heads",
    "saliency_maps",
]
