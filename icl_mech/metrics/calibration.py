"""Accuracy of label probabilities against per-label thresholds.

A prompt counts as right if the normalised probability of its class is above that label's
`(C - 1) / C` quantile over the prompts: a model that always prefers one label word is not
punished for it. Source: Halawi et al. 2023, *Overthinking the Truth*, §2 and appendix.
"""

from typing import Literal

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.metrics.intervals import bootstrap_interval

FLOOR = 1e-14
TIE = 1e-6

IntervalKind = Literal["bootstrap", "reference"]


def normalised_probs(
    probs: Float[Tensor, "batch *entry label"],
) -> Float[Tensor, "batch *entry label"]:
    """`(p + 1e-14) / (sum p + C 1e-14)` of full-vocabulary probabilities of the label words."""
    probs = probs.double()
    n_labels = probs.shape[-1]
    return (probs + FLOOR) / (probs.sum(-1, keepdim=True) + n_labels * FLOOR)


def label_thresholds(
    norm_probs: Float[Tensor, "batch *entry label"],
) -> Float[Tensor, "*entry label"]:
    """The `(C - 1) / C` quantile over the prompts of each label's probability (linear)."""
    n_labels = norm_probs.shape[-1]
    ends = np.quantile(norm_probs.double().numpy(), (n_labels - 1) / n_labels, axis=0)
    return torch.from_numpy(np.asarray(ends))


def calibrated_scores(
    norm_probs: Float[Tensor, "batch *entry label"],
    classes: Int[Tensor, " batch *entry"],
    thresholds: Float[Tensor, "*entry label"] | None = None,
    *,
    exact_ties: bool = False,
) -> Float[Tensor, " batch *entry"]:
    """1 where the probability of the prompt's class is above its threshold, `1/C` at a tie.

    Args:
        norm_probs: See `normalised_probs`.
        classes: True class of each prompt and entry (or the permuted one: permuted score).
        thresholds: Per entry and label (default: from these prompts).
        exact_ties: Ties are equal numbers (the reference), not within 1e-6 relative.
    """
    if thresholds is None:
        thresholds = label_thresholds(norm_probs)
    index = classes[..., None]
    own = norm_probs.double().gather(-1, index)[..., 0]
    limit = thresholds.expand_as(norm_probs).gather(-1, index)[..., 0]
    tie = own == limit if exact_ties else (own - limit).abs() <= TIE * limit
    return torch.where(tie, 1 / norm_probs.shape[-1], (own > limit).double())


def reachable_accuracy(classes: Int[Tensor, " batch"], n_labels: int) -> float:
    """Calibrated accuracy of a perfect classifier: below 1 where the classes are unbalanced.

    `ceil((n - 1) / C)` prompts lie above each label's threshold. Where `C` divides `n - 1` one
    more lies on it.
    """
    above, left = divmod(len(classes) - 1, n_labels)
    most = above + (1.0 if left else 1 / n_labels)
    counts = torch.bincount(classes, minlength=n_labels).double()
    return float(counts.clamp(max=most).sum() / len(classes))


def plain_scores(
    label_logits: Float[Tensor, "batch *entry label"], classes: Int[Tensor, " batch *entry"]
) -> Float[Tensor, " batch *entry"]:
    """1 where no label word is likelier than the true one."""
    own = label_logits.gather(-1, classes[..., None])[..., 0]
    return (own >= label_logits.max(-1).values).double()


def top_one_scores(
    top_tokens: Int[Tensor, "batch *entry k"],
    label_tokens: Int[Tensor, " label"],
    classes: Int[Tensor, " batch *entry"],
) -> Float[Tensor, " batch *entry"]:
    """1 where the likeliest token of the vocabulary is the true label word."""
    return (top_tokens[..., 0] == label_tokens[classes]).double()


def top_labels_match(
    top_tokens: Int[Tensor, "batch *entry label"], label_tokens: Int[Tensor, " label"]
) -> Float[Tensor, " batch *entry"]:
    """1 where the C likeliest tokens are exactly the C label words."""
    found: Bool[Tensor, "batch *entry label"] = (top_tokens[..., None] == label_tokens).any(-1)
    return found.all(-1).double()


def score_interval(
    per_prompt: Float[Tensor, " batch *rest"], kind: IntervalKind = "bootstrap", seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Ends of the 95 % interval of the mean over prompts.

    `bootstrap`: percentile over prompts, thresholds fixed. `reference`: mean
    +- 1.96 sd / sqrt(N), not clipped to [0, 1].
    """
    if kind == "bootstrap":
        return bootstrap_interval(per_prompt, seed=seed)
    scores = per_prompt.double()
    half = 1.96 * scores.std(0, correction=1) / len(scores) ** 0.5
    return scores.mean(0) - half, scores.mean(0) + half
