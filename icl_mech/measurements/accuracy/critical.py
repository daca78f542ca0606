"""The gap between true and false demonstrations, and the layer from which a share of it is there.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.accuracy.scores import PAPER
from icl_mech.metrics import Interval, bootstrap_interval, critical_layer
from icl_mech.metrics.intervals import holding
from icl_mech.metrics.layers import HALF, Crossing
from icl_mech.results import Definition

GAP = Definition(
    "accuracy gap",
    r"g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "Calibrated accuracy with true minus with false demonstrations of the same queries.",
    f"{PAPER}, §4",
)

CRITICAL = Definition(
    "critical layer",
    r"\min\{\ell : g_{\ell'} \ge g_L / 2 \text{ for all } \ell' \ge \ell\}",
    "The first layer from which the gap stays at or above half its final value (`threshold`: another "
    "share of it). Not defined where "
    "the interval of the final gap includes 0.",
    f"{PAPER}, §4",
)


SHARES = {0.25: "a quarter of", HALF: "half", 0.75: "three quarters of"}


def said_share(threshold: float) -> str:
    """A share of the final gap in words: `half`, `a quarter of`."""
    return SHARES.get(threshold, f"{threshold:g} of")


def critical_interval(
    scores: Float[Tensor, "batch side entry"],
    gap: Float[Tensor, " entry"],
    crossing: Crossing,
    threshold: float,
) -> Interval:
    """The critical layer of a gap, with its bootstrap interval over paired scores."""

    def statistic(means: Tensor) -> Tensor:
        own = means[:, 0] - means[:, 1]
        layer = critical_layer(own, crossing, threshold).double()
        return torch.where(own[:, -1] > 0, layer, torch.nan)

    # Not a quantity: which layer is critical must not hang on how a mean is rounded.
    low, high = bootstrap_interval(scores, statistic)
    return holding(float(critical_layer(gap, crossing, threshold)), float(low), float(high))
