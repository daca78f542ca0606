"""Label probabilities corrected for a model's label prior, with thresholds or by dividing by the prior.

*Thresholds.* A prompt counts as right if the normalised probability of its class is above that label's
`(C - 1) / C` quantile over the prompts: a model that always prefers one label word is not penalised for it.

*Priors.* Probabilities are divided by their mean over inputs without content (contextual calibration),
over random words of the domain (domain calibration) or over the batch itself (batch calibration).

Sources: Halawi et al. 2023, *Overthinking the Truth*, §2 and appendix; Zhao et al. 2021, *Calibrate Before
Use*; Fei et al. 2023, *Mitigating Label Biases for In-context Learning*; Zhou et al. 2024, *Batch
Calibration*.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.metrics.intervals import bootstrap_interval
from icl_mech.metrics.means import mean_ends, share_ends

FLOOR = 1e-14

TIE = 1e-4
"""How far `ln P` of a tie may lie from the logarithm of its threshold.

Ten times the differences in `ln P` between batch layouts or processors (1e-5): whether equal
prompts tie must not depend on either.
"""

NEAR = 3 * TIE
"""Scores closer than this to their threshold are counted, see `near_ties`."""

IntervalKind = Literal["score", "bootstrap", "reference"]


@checked(ResultError)
def normalised_probs(
    probs: Float[Tensor, "batch *entry label"],
) -> Float[Tensor, "batch *entry label"]:
    """`(p + 1e-14) / (sum p + C 1e-14)` of full-vocabulary probabilities of the label words."""
    probs = probs.double()
    n_labels = probs.shape[-1]
    return (probs + FLOOR) / (probs.sum(-1, keepdim=True) + n_labels * FLOOR)


@checked(ResultError)
def label_thresholds(
    norm_probs: Float[Tensor, "batch *entry label"],
) -> Float[Tensor, "*entry label"]:
    """The `(C - 1) / C` quantile over the prompts of each label's probability (linear)."""
    n_labels = norm_probs.shape[-1]
    ends = np.quantile(norm_probs.double().numpy(), (n_labels - 1) / n_labels, axis=0)
    return torch.from_numpy(np.asarray(ends))


@checked(ResultError)
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
        exact_ties: Ties are equal numbers (the reference), not `|ln P - ln threshold| <= TIE`.
    """
    probs, limit = _probs_and_thresholds(norm_probs, classes, thresholds)
    tie = _within(probs, limit, 0.0 if exact_ties else TIE)
    return torch.where(tie, 1 / norm_probs.shape[-1], (probs > limit).double())


@checked(ResultError)
def near_ties(
    norm_probs: Float[Tensor, "batch *entry label"],
    classes: Int[Tensor, " batch *entry"],
    thresholds: Float[Tensor, "*entry label"] | None = None,
    *,
    exact_ties: bool = False,
) -> Int[Tensor, " count *entry"]:
    """Number of prompts that tie, that nearly tie, and of all prompts, in this order.

    A near tie is no tie, but has `|ln P - ln threshold| <= NEAR`; another batch layout or
    processor may turn it into one. The arguments are those of `calibrated_scores`.
    """
    probs, limit = _probs_and_thresholds(norm_probs, classes, thresholds)
    tie = _within(probs, limit, 0.0 if exact_ties else TIE)
    near = _within(probs, limit, NEAR) & ~tie
    return torch.stack([tie, near, torch.ones_like(tie)]).sum(1)


class Ties(NamedTuple):
    """Numbers of tied, nearly tied and all calibrated scores (see `near_ties`)."""

    ties: int = 0
    near: int = 0
    scores: int = 0

    @classmethod
    def of(cls, counts: Int[Tensor, " count *entry"] | None) -> "Ties":
        """Counts summed over entries; all 0 for a result saved without them."""
        return cls() if counts is None else cls(*counts.flatten(1).sum(1).tolist())


def _probs_and_thresholds(
    norm_probs: Float[Tensor, "batch *entry label"],
    classes: Int[Tensor, " batch *entry"],
    thresholds: Float[Tensor, "*entry label"] | None,
) -> tuple[Float[Tensor, " batch *entry"], Float[Tensor, " batch *entry"]]:
    """The probability of each prompt's class, and that label's threshold."""
    if thresholds is None:
        thresholds = label_thresholds(norm_probs)
    index = classes[..., None]
    probs = norm_probs.double().gather(-1, index)[..., 0]
    limit = thresholds.double().expand_as(norm_probs).gather(-1, index)[..., 0]
    return probs, limit


def _within(
    probs: Float[Tensor, " *entry"], limit: Float[Tensor, " *entry"], tolerance: float
) -> Bool[Tensor, " *entry"]:
    """`|ln probs - ln limit| <= tolerance`; equal numbers always match, also two zeros."""
    equal = probs == limit
    return equal | ((probs.log() - limit.log()).abs() <= tolerance) if tolerance else equal


@checked(ResultError)
def reachable_accuracy(classes: Int[Tensor, " batch"], n_labels: Count) -> float:
    """Calibrated accuracy of a perfect classifier: below 1 where the classes are unbalanced.

    `ceil((n - 1) / C)` prompts lie above each label's threshold. Where `C` divides `n - 1` one
    more lies on it.
    """
    above, left = divmod(len(classes) - 1, n_labels)
    most = above + (1.0 if left else 1 / n_labels)
    counts = torch.bincount(classes, minlength=n_labels).double()
    return float(counts.clamp(max=most).sum() / len(classes))


@checked(ResultError)
def plain_scores(
    label_logits: Float[Tensor, "batch *entry label"], classes: Int[Tensor, " batch *entry"]
) -> Float[Tensor, " batch *entry"]:
    """1 where no label word is more likely than the true one."""
    true_logits = label_logits.gather(-1, classes[..., None])[..., 0]
    return (true_logits >= label_logits.max(-1).values).double()


@checked(ResultError)
def top_one_scores(
    top_tokens: Int[Tensor, "batch *entry k"],
    label_tokens: Int[Tensor, "*batch label"],
    classes: Int[Tensor, " batch *entry"],
) -> Float[Tensor, " batch *entry"]:
    """1 where the top token of the vocabulary is the true label word, or the right choice."""
    words = label_tokens.expand(len(classes), label_tokens.shape[-1])
    right = words.gather(1, classes.reshape(len(classes), -1)).reshape(classes.shape)
    return (top_tokens[..., 0] == right).double()


@checked(ResultError)
def top_labels_match(
    top_tokens: Int[Tensor, "batch *entry label"], label_tokens: Int[Tensor, "*batch label"]
) -> Float[Tensor, " batch *entry"]:
    """1 where the top C tokens are exactly the C label words."""
    words = label_tokens.expand(len(top_tokens), label_tokens.shape[-1])
    words = words.reshape(len(words), *(1,) * (top_tokens.dim() - 1), -1)
    matches: Bool[Tensor, "batch *entry label"] = (top_tokens[..., None] == words).any(-1)
    return matches.all(-1).double()


@checked(ResultError)
def score_interval(
    per_prompt: Float[Tensor, " batch *rest"],
    kind: IntervalKind = "score",
    seed: Natural = 0,
    *,
    n_labels: Count | None = None,
) -> tuple[Tensor, Tensor]:
    """Ends of the 95 % interval of the mean of scores over prompts.

    `score`: Wilson's with an effective n, see `mean_ends`. In simulations it keeps its coverage with
    thresholds from the same prompts, since moving a threshold shifts the scores of the two classes
    next to it in opposite directions. With two labels (`n_labels=2`) the scores of both classes move
    together, so means lie 2 / N apart: the ends are those of means 1 / N lower and higher; without
    this, coverage is .85 to .99, depending on where the true value lies between two such means.
    `bootstrap`: percentile over prompts, thresholds fixed, too narrow near 0 and 1. `reference`: mean +- 1.96 sd / sqrt(N), not clipped to [0, 1].
    """
    if kind == "score" and n_labels == 2:
        return share_ends(per_prompt, step=2 / max(len(per_prompt), 2))
    if kind == "score":
        return mean_ends(per_prompt, "outcome")
    if kind == "bootstrap":
        return bootstrap_interval(per_prompt, seed=seed)
    scores = per_prompt.double()
    half = 1.96 * scores.std(0, correction=1) / len(scores) ** 0.5
    return scores.mean(0) - half, scores.mean(0) + half


CalibrationForm = Literal["paper", "staicc", "difference"]
BatchForm = Literal["ratio", "staicc", "log_mean"]

STAICC_FLOOR = 1e-5
"""Added once by StaICC to the sum of the prior's rows."""


def calibrate_labels(
    probs: Float[Tensor, "batch label"],
    content_free: Float[Tensor, "*rows label"],
    form: CalibrationForm = "paper",
) -> Float[Tensor, "batch label"]:
    """Label probabilities corrected for the prior estimated from content-free inputs.

    Args:
        probs: Probabilities of the labels of each prompt.
        content_free: Probabilities for content-free inputs, `[row, label]`, or for inputs of each
            prompt `[prompt, row, label]`; the prior is their mean over rows.
        form: `paper`: p / prior, normalised to sum 1 (Zhao et al.'s diagonal W, Fei et al.);
            `staicc`: softmax(p / prior) with 1e-5 added to the sum of the rows, as StaICC 0.1.1 has
            it, whose argmax is right but whose values are not probabilities;
            `difference`: p - prior (Zhao et al.'s identity W), scores for the largest label.

    Raises:
        ResultError: a prior of 0.
    """
    values, rows = probs.double(), content_free.double()
    if form == "staicc":
        return (values / ((STAICC_FLOOR + rows.sum(-2)) / rows.shape[-2])).softmax(-1)
    prior = rows.mean(-2)
    return values - prior if form == "difference" else _divided(values, prior)


def calibrate_batch(
    probs: Float[Tensor, "batch label"], form: BatchForm = "ratio", batch_size: int | None = None
) -> Float[Tensor, "batch label"]:
    """Label probabilities corrected for their mean over the batch.

    Args:
        probs: Probabilities of the labels of each prompt.
        form: `ratio`: p / mean, normalised to sum 1; `staicc`: softmax(p - mean), as StaICC 0.1.1
            has it, which predicts another label than the ratio for some prompts with three or more classes;
            `log_mean`: softmax(log p - mean log p).
        batch_size: Prompts that share a mean, in their order; None: all of them.

    Raises:
        ResultError: a mean of 0, or a probability of 0 whose logarithm is needed.
    """
    parts = probs.double().split(batch_size or len(probs))
    if form == "ratio":
        return torch.cat([_divided(part, part.mean(0)) for part in parts])
    if form == "log_mean" and bool((probs == 0).any()):
        raise ResultError("A probability is 0, so its logarithm is not finite; use form='ratio'.")
    values = parts if form == "staicc" else [part.log() for part in parts]
    return torch.cat([(part - part.mean(0)).softmax(-1) for part in values])


def _divided(probs: Tensor, prior: Tensor) -> Tensor:
    if bool((prior <= 0).any()):
        raise ResultError("The prior of a label is 0, so probabilities cannot be divided by it.")
    ratio = probs / prior
    return ratio / ratio.sum(-1, keepdim=True)
