"""What can be measured: one value for each method, to give to `icl_mech.measure`.

A folder holds a family of methods: measurements, their readings and their results.
"""

from icl_mech.measurements.accuracy.context import AccuracyByDemonstrations
from icl_mech.measurements.accuracy.early_exit import LeavingEarly
from icl_mech.measurements.accuracy.layers import AccuracyByLayer
from icl_mech.measurements.alignment.semantic import Alignment
from icl_mech.measurements.anchors.agreement import AnchorAgreement
from icl_mech.measurements.anchors.spans import SpanFlow
from icl_mech.measurements.anchors.suppression import Suppression
from icl_mech.measurements.anchors.tokens import AnchorTokens
from icl_mech.measurements.base import (
    AnyMeasurement,
    Measurement,
    Options,
    Pair,
    PairMeasurement,
    Pass,
    Variants,
)
from icl_mech.measurements.by_demonstration.flow import FlowByDemonstration
from icl_mech.measurements.by_demonstration.left_out import LeaveOneOut
from icl_mech.measurements.calibration.label_prior import Calibration
from icl_mech.measurements.causal.attribution import AttributePatching
from icl_mech.measurements.causal.comparing import CompareHeads
from icl_mech.measurements.causal.induction import Induction
from icl_mech.measurements.causal.mediation import MediateHeads
from icl_mech.measurements.causal.saliency_check import CheckSaliency
from icl_mech.measurements.causal.steering import Steer
from icl_mech.measurements.causal.task_vectors import TakeTaskVector
from icl_mech.measurements.compression.compress_context import CompressContext
from icl_mech.measurements.compression.demonstrations import Compress
from icl_mech.measurements.compression.table import CompareCompression
from icl_mech.measurements.confusion.diagnosis import Confusion
from icl_mech.measurements.extraction.label_words import Extraction
from icl_mech.measurements.generation.generate import Generate
from icl_mech.measurements.heads.ablating import Ablate
from icl_mech.measurements.heads.by_layer import LayerMatching
from icl_mech.measurements.heads.false_induction import FindHeads
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.heads.tokens import AttentionOfHeads
from icl_mech.measurements.isolation.map import IsolationWindows
from icl_mech.measurements.isolation.windows import Isolation
from icl_mech.measurements.lens.compare import CompareLenses
from icl_mech.measurements.lens.logit_lens import Lens
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.reweighting.evaluation import EvaluateReweighting, Reweighting
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.measurements.saliency.maps import Saliency

__all__ = [
    "Ablate",
    "AccuracyByDemonstrations",
    "AccuracyByLayer",
    "Alignment",
    "AnchorAgreement",
    "AnchorTokens",
    "AnyMeasurement",
    "AttentionOfHeads",
    "AttributePatching",
    "Calibration",
    "CheckSaliency",
    "CompareCompression",
    "CompareHeads",
    "CompareLenses",
    "Compress",
    "CompressContext",
    "Confusion",
    "EvaluateReweighting",
    "Extraction",
    "FindHeads",
    "Flow",
    "FlowByDemonstration",
    "Generate",
    "HeadScoring",
    "Induction",
    "Isolation",
    "IsolationWindows",
    "LayerMatching",
    "LeaveOneOut",
    "LeavingEarly",
    "Lens",
    "Measurement",
    "MediateHeads",
    "Options",
    "Pair",
    "PairMeasurement",
    "Pass",
    "Predict",
    "Reweighting",
    "Saliency",
    "SpanFlow",
    "Steer",
    "Suppression",
    "TakeTaskVector",
    "Variants",
]
