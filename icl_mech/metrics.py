"""Pure statistics: tensors in, numbers and 95 % intervals out.

Per-prompt values come in; the prompt axis is reduced here, last. Intervals are percentile
bootstrap over prompts (seeded), Wilson for 0/1 outcomes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from einops import einsum

from icl_mech._typing import Bool, Float, Int, Tensor

RESAMPLES = 10_000
"""Bootstrap resamples behind every interval."""

LEVEL = 0.95
"""Coverage of every interval."""


class Interval(NamedTuple):
    """A number with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        """E.g. `0.71 [0.62, 0.79]`."""
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def resample_weights(n: int, *, resamples: int = RESAMPLES, seed: int = 0) -> Float[Tensor, "r n"]:
    """How often each of `n` prompts is drawn in each bootstrap resample, divided by `n`.

    A mean over a resample is then a weighted mean: `weights @ per_prompt`.
    """
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    return torch.from_numpy(counts).double() / n


def bootstrap_interval(
    per_prompt: Float[Tensor, " batch *rest"],
    statistic: Callable[[Tensor], Tensor] | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Low and high ends of the percentile bootstrap interval of a function of the mean.

    Args:
        per_prompt: Values, prompt axis first.
        statistic: Applied to `[resample, *rest]` means; ratios are so recomputed in each
            resample. Default: the mean itself.
        resamples: Number of resamples.
        seed: Of the resampling.
    """
    n = per_prompt.shape[0]
    rest = per_prompt.shape[1:]
    weights = resample_weights(n, resamples=resamples, seed=seed)
    means = (weights @ per_prompt.double().reshape(n, -1)).reshape(resamples, *rest)
    values = means if statistic is None else statistic(means)
    tail = (1 - LEVEL) / 2
    ends = torch.from_numpy(np.nanquantile(values.numpy(), [tail, 1 - tail], axis=0))
    return ends[0], ends[1]


def mean_interval(per_prompt: Float[Tensor, " batch"], *, seed: int = 0) -> Interval:
    """Mean over prompts with its bootstrap interval."""
    low, high = bootstrap_interval(per_prompt, seed=seed)
    return Interval(float(per_prompt.double().mean()), float(low), float(high))


def wilson_interval(outcomes: Bool[Tensor, " batch"]) -> Interval:
    """Share of True with its Wilson score interval (no continuity correction)."""
    from scipy.stats import binomtest

    n, k = outcomes.numel(), int(outcomes.sum())
    ends = binomtest(k, n).proportion_ci(LEVEL, method="wilson")
    return Interval(k / n, float(ends.low), float(ends.high))


def flow_sums(
    saliency: Float[Tensor, "batch dest src"],
    label_dest: Bool[Tensor, "batch dest"],
    label_src: Bool[Tensor, "batch src"],
    target_row: Int[Tensor, " batch"],
) -> Float[Tensor, "batch 3"]:
    """Sums of saliency from texts to label words, label words to target, and the rest.

    Diagonal and everything above it are left out. Divided by `flow_counts` these are
    S_wp, S_pq and S_ww.
    """
    strict = saliency.tril(saliency.shape[2] - saliency.shape[1] - 1)
    to_labels = einsum(strict.sum(-1), label_dest.to(strict.dtype), "b dest, b dest -> b")
    rows = strict[torch.arange(len(strict), device=strict.device), target_row]
    to_target = einsum(rows, label_src.to(strict.dtype), "b src, b src -> b")
    rest = strict.sum((1, 2)) - to_labels - to_target
    return torch.stack([to_labels, to_target, rest], dim=1)


def flow_counts(
    label_positions: Int[Tensor, "batch demo"], targets: Int[Tensor, " batch"]
) -> Float[Tensor, "batch 3"]:
    """Numbers of (i, j) pairs behind S_wp, S_pq and S_ww.

    `sum p`, `#p` and `q (q + 1) / 2 - sum p - #p`; positions of -1, and those the target `q`
    does not see, do not count. Source: Wang et al. 2023, §2.1.
    """
    real = (label_positions >= 0) & (label_positions < targets[:, None])
    to_labels = (label_positions * real).sum(1)
    to_target = real.sum(1)
    pairs = targets * (targets + 1) // 2
    return torch.stack([to_labels, to_target, pairs - to_labels - to_target], dim=1).double()


def normalised_flow(
    mean_scores: Float[Tensor, "*r score layer"],
) -> Float[Tensor, "*r score layer"]:
    """Each layer's mean scores divided by their sum over the three kinds (0 where all are 0)."""
    total = mean_scores.sum(-2, keepdim=True)
    return torch.where(total > 0, mean_scores / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)
