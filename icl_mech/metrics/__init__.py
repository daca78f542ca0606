"""Pure statistics: tensors in, numbers and 95 % intervals out."""

from icl_mech.metrics.agreement import same_label, word_overlap
from icl_mech.metrics.flow import flow_counts, flow_sums, normalised_flow
from icl_mech.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Interval,
    bootstrap_interval,
    mean_interval,
    resample_weights,
    wilson_interval,
)

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "Interval",
    "bootstrap_interval",
    "flow_counts",
    "flow_sums",
    "mean_interval",
    "normalised_flow",
    "resample_weights",
    "same_label",
    "wilson_interval",
    "word_overlap",
]
