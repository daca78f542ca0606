"""Measurements, one class for each method, to pass to `icl_mech.measure`.

Each folder holds a family of methods: measurements, their readings and their results.
"""

import sys
from typing import Any

from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracy
from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.gain import Gain
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExit
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracy
from icl_mech.measurements.alignment.alignment import Alignment
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreement
from icl_mech.measurements.anchors.anchor_tokens import AnchorTokens
from icl_mech.measurements.anchors.span_flow import SpanFlow
from icl_mech.measurements.anchors.suppression import Suppression
from icl_mech.measurements.base import (
    AnyMeasurement,
    Measurement,
    Options,
    Pair,
    PairMeasurement,
    Pass,
    Variants,
)
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstration
from icl_mech.measurements.by_demonstration.function_vector_by_demonstration import (
    FunctionVectorByDemonstration,
)
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOut
from icl_mech.measurements.by_demonstration.one_false_demonstration import OneFalseDemonstration
from icl_mech.measurements.calibration.calibration import Calibration
from icl_mech.measurements.causal.attribution_patching import AttributionPatching
from icl_mech.measurements.causal.compare_heads import CompareHeads
from icl_mech.measurements.causal.demonstration_steering import DemonstrationSteering
from icl_mech.measurements.causal.head_mediation import HeadMediation
from icl_mech.measurements.causal.induction_scores import InductionScores
from icl_mech.measurements.causal.saliency_check import SaliencyCheck
from icl_mech.measurements.causal.steer import Steer
from icl_mech.measurements.causal.task_vector import TaskVector
from icl_mech.measurements.causal.transplant import Transplant
from icl_mech.measurements.circuits.circuit_faithfulness import CircuitFaithfulness
from icl_mech.measurements.compression.compare_compression import CompareCompression
from icl_mech.measurements.compression.compress_context import CompressContext
from icl_mech.measurements.compression.compress_demonstrations import CompressDemonstrations
from icl_mech.measurements.confusion.confusion import Confusion
from icl_mech.measurements.extraction.extraction import Extraction
from icl_mech.measurements.generation.generate import Generate
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.false_induction import FalseInduction
from icl_mech.measurements.heads.head_attention import HeadAttention
from icl_mech.measurements.heads.head_scores import HeadScores
from icl_mech.measurements.heads.matching_by_layer import MatchingByLayer
from icl_mech.measurements.heads.task_heads import TaskHeads
from icl_mech.measurements.isolation.edge_cuts import EdgeCuts
from icl_mech.measurements.isolation.isolation import Isolation
from icl_mech.measurements.isolation.isolation_map import IsolationMap
from icl_mech.measurements.lens.compare_lenses import CompareLenses
from icl_mech.measurements.lens.lens_table import LensTable
from icl_mech.measurements.lens.logit_lens import LogitLens
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.rationales.rationale_answers import RationaleAnswers
from icl_mech.measurements.rationales.rationale_use import RationaleUse
from icl_mech.measurements.reweighting.evaluate_reweighting import EvaluateReweighting
from icl_mech.measurements.reweighting.reweighting import Reweighting
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.saliency_maps import SaliencyMaps
from icl_mech.measurements.stability.stability import Stability
from icl_mech.names import MEASUREMENTS

__all__ = [
    "Ablation",
    "Alignment",
    "AnchorAgreement",
    "AnchorTokens",
    "AnyMeasurement",
    "AttributionPatching",
    "Calibration",
    "CircuitFaithfulness",
    "CompareCompression",
    "CompareHeads",
    "CompareLenses",
    "CompressContext",
    "CompressDemonstrations",
    "Confusion",
    "ContextAccuracy",
    "DemonstrationSteering",
    "EarlyExit",
    "EdgeCuts",
    "EvaluateReweighting",
    "Extraction",
    "FalseInduction",
    "Flow",
    "FlowByDemonstration",
    "FunctionVectorByDemonstration",
    "Gain",
    "Generate",
    "GuaranteedExit",
    "HeadAttention",
    "HeadMediation",
    "HeadScores",
    "InductionScores",
    "Isolation",
    "IsolationMap",
    "LayerAccuracy",
    "LeaveOneOut",
    "LensTable",
    "LogitLens",
    "MatchingByLayer",
    "Measurement",
    "OneFalseDemonstration",
    "Options",
    "Pair",
    "PairMeasurement",
    "Pass",
    "Predict",
    "RationaleAnswers",
    "RationaleUse",
    "Reweighting",
    "SaliencyCheck",
    "SaliencyMaps",
    "SpanFlow",
    "Stability",
    "Steer",
    "Suppression",
    "TaskHeads",
    "TaskVector",
    "Transplant",
    "Variants",
]


def __getattr__(name: str) -> Any:
    """Return a measurement by its name in earlier versions."""
    if name in MEASUREMENTS:
        return getattr(sys.modules[__name__], MEASUREMENTS[name])
    raise AttributeError(f"module 'icl_mech.measurements' has no attribute {name!r}")
