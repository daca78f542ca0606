"""Pure statistics: tensors in, numbers and 95 % intervals out."""

from icl_mech.metrics.agreement import same_label, word_overlap
from icl_mech.metrics.auc import (
    FEWEST,
    auc_ends,
    class_resamples,
    class_scores,
    cumulative_share,
    empty_layers,
    macro_auc,
    resampled_auc,
)
from icl_mech.metrics.calibration import (
    IntervalKind,
    Ties,
    calibrated_scores,
    label_thresholds,
    near_ties,
    normalised_probs,
    plain_scores,
    reachable_accuracy,
    score_interval,
    top_labels_match,
    top_one_scores,
)
from icl_mech.metrics.ends import Kind, mean_ends, mean_interval
from icl_mech.metrics.family import ONE_SIDED, above_together, ends_together
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
    quantile_ends,
    resample_weights,
    wilson_ends,
    wilson_interval,
)
from icl_mech.metrics.kinds import KindsTest, kinds_test
from icl_mech.metrics.layers import (
    Crossing,
    GapStatistic,
    critical_layer,
    early_exit_layer,
    gap_reduction,
    reduction_interval,
    stratified_halves,
)
from icl_mech.metrics.masses import matched_means, nearby_medians
from icl_mech.metrics.means import one_more, student_ends
from icl_mech.metrics.nested import (
    FEW_GROUPS,
    Estimate,
    NestedInterval,
    nested_interval,
    over_units,
)
from icl_mech.metrics.outcomes import paired_ends, share_ends
from icl_mech.metrics.outliers import Outliers, standing_out, uniform_mass
from icl_mech.metrics.over_trust import (
    head_maximum,
    log_over_trust,
    over_trust_penalty,
    points_to,
)
from icl_mech.metrics.priors import BatchForm, CalibrationForm, calibrate_batch, calibrate_labels
from icl_mech.metrics.ranks import rank_agreement
from icl_mech.metrics.relabelling import Relabelling, relabelling
from icl_mech.metrics.repeats import (
    Pattern,
    attention_elsewhere,
    attention_to_match,
    detection_score,
    matched_columns,
    pattern_map,
)
from icl_mech.metrics.spans import Average, kurtosis, rank_correlation, span_sums, vertical_scores

__all__ = [
    "FEWEST",
    "FEW_GROUPS",
    "LEVEL",
    "ONE_SIDED",
    "RESAMPLES",
    "Average",
    "BatchForm",
    "CalibrationForm",
    "Crossing",
    "Estimate",
    "GapStatistic",
    "Interval",
    "IntervalKind",
    "Kind",
    "KindsTest",
    "NestedInterval",
    "Outliers",
    "Pattern",
    "Relabelling",
    "Ties",
    "above_together",
    "attention_elsewhere",
    "attention_to_match",
    "attention_to_same",
    "auc_ends",
    "bootstrap_interval",
    "calibrate_batch",
    "calibrate_labels",
    "calibrated_scores",
    "class_resamples",
    "class_scores",
    "critical_layer",
    "cumulative_share",
    "detection_score",
    "early_exit_layer",
    "empty_layers",
    "ends_together",
    "flow_counts",
    "flow_sums",
    "gap_reduction",
    "head_maximum",
    "kinds_test",
    "kurtosis",
    "label_thresholds",
    "log_over_trust",
    "macro_auc",
    "matched_columns",
    "matched_means",
    "mean_ends",
    "mean_interval",
    "near_ties",
    "nearby_medians",
    "nested_interval",
    "normalised_flow",
    "normalised_probs",
    "one_more",
    "over_trust_penalty",
    "over_units",
    "paired_ends",
    "pattern_map",
    "plain_scores",
    "points_to",
    "prefix_matching",
    "quantile_ends",
    "rank_agreement",
    "rank_correlation",
    "reachable_accuracy",
    "reduction_interval",
    "relabelling",
    "resample_weights",
    "resampled_auc",
    "same_label",
    "same_share",
    "score_interval",
    "share_ends",
    "shuffled_prefix_matching",
    "span_sums",
    "standing_out",
    "stratified_halves",
    "student_ends",
    "top_labels_match",
    "top_one_scores",
    "uniform_mass",
    "vertical_scores",
    "wilson_ends",
    "wilson_interval",
    "word_overlap",
]
