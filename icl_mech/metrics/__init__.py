"""Pure statistics: tensors in, numbers and 95 % intervals out.

Functions used outside this package are exported here; the rest stay in their modules.
"""

from icl_mech.metrics.agreement import rank_agreement, word_overlap
from icl_mech.metrics.auc import cumulative_share, macro_auc
from icl_mech.metrics.calibration import calibrated_scores, normalised_probs
from icl_mech.metrics.flow import flow_counts, flow_sums, kurtosis, normalised_flow, vertical_scores
from icl_mech.metrics.heads import prefix_matching
from icl_mech.metrics.intervals import (
    Interval,
    above_together,
    bootstrap_interval,
    ends_together,
    wilson_interval,
)
from icl_mech.metrics.layers import critical_layer, early_exit_layer
from icl_mech.metrics.means import mean_ends, mean_interval, one_more, prompts_needed
from icl_mech.metrics.nested import nested_interval, over_units
from icl_mech.metrics.outliers import standing_out
from icl_mech.metrics.over_trust import log_over_trust
from icl_mech.metrics.permutations import kinds_test

__all__ = [
    "Interval",
    "above_together",
    "bootstrap_interval",
    "calibrated_scores",
    "critical_layer",
    "cumulative_share",
    "early_exit_layer",
    "ends_together",
    "flow_counts",
    "flow_sums",
    "kinds_test",
    "kurtosis",
    "log_over_trust",
    "macro_auc",
    "mean_ends",
    "mean_interval",
    "nested_interval",
    "normalised_flow",
    "normalised_probs",
    "one_more",
    "over_units",
    "prefix_matching",
    "prompts_needed",
    "rank_agreement",
    "standing_out",
    "vertical_scores",
    "wilson_interval",
    "word_overlap",
]
