"""Pure statistics: tensors in, numbers and 95 % intervals out."""

from icl_mech.metrics.agreement import same_label, word_overlap
from icl_mech.metrics.auc import (
    class_resamples,
    class_scores,
    cumulative_share,
    empty_layers,
    macro_auc,
    resampled_auc,
)
from icl_mech.metrics.calibration import (
    IntervalKind,
    calibrated_scores,
    label_thresholds,
    normalised_probs,
    plain_scores,
    reachable_accuracy,
    score_interval,
    top_labels_match,
    top_one_scores,
)
from icl_mech.metrics.flow import flow_counts, flow_sums, normalised_flow
from icl_mech.metrics.heads import (
    attention_to_same,
    prefix_matching,
    same_share,
    shuffled_prefix_matching,
)
from icl_mech.metrics.intervals import (
    LEVEL,
    RESAMPLES,
    Interval,
    bootstrap_interval,
    mean_interval,
    resample_weights,
    wilson_ends,
    wilson_interval,
)
from icl_mech.metrics.layers import (
    Crossing,
    GapStatistic,
    critical_layer,
    early_exit_layer,
    gap_reduction,
    stratified_halves,
)

__all__ = [
    "LEVEL",
    "RESAMPLES",
    "Crossing",
    "GapStatistic",
    "Interval",
    "IntervalKind",
    "attention_to_same",
    "bootstrap_interval",
    "calibrated_scores",
    "class_resamples",
    "class_scores",
    "critical_layer",
    "cumulative_share",
    "early_exit_layer",
    "empty_layers",
    "flow_counts",
    "flow_sums",
    "gap_reduction",
    "label_thresholds",
    "macro_auc",
    "mean_interval",
    "normalised_flow",
    "normalised_probs",
    "plain_scores",
    "prefix_matching",
    "reachable_accuracy",
    "resample_weights",
    "resampled_auc",
    "same_label",
    "same_share",
    "score_interval",
    "shuffled_prefix_matching",
    "stratified_halves",
    "top_labels_match",
    "top_one_scores",
    "wilson_ends",
    "wilson_interval",
    "word_overlap",
]
