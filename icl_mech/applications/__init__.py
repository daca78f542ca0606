"""What the anchors are good for: one file per method."""

from icl_mech.applications.compressed_context import (
    CompressedContext,
    compress_context,
    load_compressed_context,
)
from icl_mech.applications.compression import CompressionResult, compress_demonstrations
from icl_mech.applications.compression_table import CompressionTable, compare_compression
from icl_mech.applications.diagnosis import ConfusionDiagnosis, diagnose_confusion
from icl_mech.applications.false_induction import (
    FalseInductionHeads,
    find_false_induction_heads,
    rank_heads,
)
from icl_mech.applications.reweighting import (
    ReweightingResult,
    evaluate_reweighting,
    fit_reweighting,
)

__all__ = [
    "CompressedContext",
    "CompressionResult",
    "CompressionTable",
    "ConfusionDiagnosis",
    "FalseInductionHeads",
    "ReweightingResult",
    "compare_compression",
    "compress_context",
    "compress_demonstrations",
    "diagnose_confusion",
    "evaluate_reweighting",
    "find_false_induction_heads",
    "fit_reweighting",
    "load_compressed_context",
    "rank_heads",
]
