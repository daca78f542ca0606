"""Label probabilities divided by a prior: what a model says whatever the text.

The prior is the mean of label probabilities over inputs without content (contextual calibration),
over random words of the domain (domain calibration) or over the batch itself (batch calibration).

Source: Zhao et al. 2021, *Calibrate Before Use*; Fei et al. 2023, *Mitigating Label Biases for
In-context Learning*; Zhou et al. 2024, *Batch Calibration*.
"""

from typing import Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError

CalibrationForm = Literal["paper", "staicc", "difference"]
BatchForm = Literal["ratio", "staicc", "log_mean"]

STAICC_FLOOR = 1e-5
"""What StaICC adds to the sum of the prior's rows, once."""


@checked(ResultError)
def calibrate_labels(
    probs: Float[Tensor, "batch label"],
    content_free: Float[Tensor, "*rows classes"],
    form: CalibrationForm = "paper",
) -> Float[Tensor, "batch label"]:
    """Label probabilities with the prior of inputs without content taken out.

    Args:
        probs: Probabilities of the labels of each prompt.
        content_free: Those of inputs without content, `[row, label]`, or of each prompt's own
            `[prompt, row, label]`; the prior is their mean over rows.
        form: `paper`: p / prior, normalised to sum 1 (Zhao et al.'s diagonal W, Fei et al.);
            `staicc`: softmax(p / prior) with 1e-5 added to the sum of the rows, as StaICC 0.1.1 has
            it, whose largest label is right and whose numbers are no probabilities;
            `difference`: p - prior (Zhao et al.'s identity W), scores for the largest label.

    Raises:
        ResultError: no rows, other labels, numbers that are no probabilities, or a prior of 0.
    """
    own, rows = _as_probs("probs", probs), _as_probs("content_free", content_free)
    if rows.ndim not in (2, 3) or rows.shape[-1] != own.shape[-1] or not rows.shape[-2]:
        raise ResultError(
            f"content_free has the shape {list(content_free.shape)}; expected rows of "
            f"{own.shape[-1]} label probabilities, or such rows for each of {len(own)} prompts."
        )
    if rows.ndim == 3 and len(rows) != len(own):
        raise ResultError(
            f"content_free holds rows for {len(rows)} prompts, probs {len(own)} prompts."
        )
    if form == "staicc":
        return (own / ((STAICC_FLOOR + rows.sum(-2)) / rows.shape[-2])).softmax(-1)
    prior = rows.mean(-2)
    if form == "difference":
        return own - prior
    return _divided(own, prior)


@checked(ResultError)
def calibrate_batch(
    probs: Float[Tensor, "batch label"],
    form: BatchForm = "ratio",
    batch_size: Count | None = None,
) -> Float[Tensor, "batch label"]:
    """Label probabilities with their mean over the batch taken out.

    Args:
        probs: Probabilities of the labels of each prompt.
        form: `ratio`: p / mean, normalised to sum 1; `staicc`: softmax(p - mean), as StaICC 0.1.1
            has it, which picks another label than the ratio in some prompts of three or more
            classes; `log_mean`: softmax(log p - mean log p).
        batch_size: Prompts that share a mean, in their order; None: all of them.

    Raises:
        ResultError: numbers that are no probabilities, or a mean of 0.
    """
    parts = _as_probs("probs", probs).split(batch_size or len(probs))
    if form == "staicc":
        found = [(own - own.mean(0)).softmax(-1) for own in parts]
    elif form == "log_mean":
        if bool((probs == 0).any()):
            raise ResultError("A probability is 0, so that its logarithm is not finite; use ratio.")
        found = [(own.log() - own.log().mean(0)).softmax(-1) for own in parts]
    else:
        found = [_divided(own, own.mean(0)) for own in parts]
    return torch.cat(found)


def _as_probs(name: str, values: Tensor) -> Tensor:
    wide = values.double()
    fits = bool(wide.isfinite().all()) and bool((wide >= 0).all())
    if not fits or not torch.allclose(wide.sum(-1), torch.ones(()).double(), atol=1e-4):
        raise ResultError(
            f"{name} are no probabilities of labels: expected rows of numbers from 0 on that add up "
            "to 1, such as label_logits.softmax(-1)."
        )
    return wide


def _divided(probs: Tensor, prior: Tensor) -> Tensor:
    if bool((prior <= 0).any()):
        raise ResultError("The prior of a label is 0, so that nothing can be divided by it.")
    ratio = probs / prior
    return ratio / ratio.sum(-1, keepdim=True)
