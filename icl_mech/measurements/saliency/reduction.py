"""What all saliency analyses share: the reduction over heads, and the choice of variants.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, eq. 1.
"""

import warnings
from typing import Literal, get_args

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Loss
from icl_mech.engine.losses import check_loss
from icl_mech.errors import RunError, near_matches
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

Reduction = Literal["sum_then_abs", "abs_then_sum"]

_CHUNK = 256
"""Rows of the pattern reduced at a time: bounds the temporary to heads x rows x columns."""


def head_sum(
    activation: Float[Tensor, "batch head dest src"],
    gradient: Float[Tensor, "batch head dest src"],
    reduction: Reduction,
) -> Float[Tensor, "batch dest src"]:
    """Saliency of one layer's pattern, reduced in chunks of rows."""
    dtype = torch.float64 if activation.dtype == torch.float64 else torch.float32
    chunks = []
    for value, slope in zip(activation.split(_CHUNK, 2), gradient.split(_CHUNK, 2), strict=True):
        product = value.to(dtype) * slope.to(dtype)
        chunks.append(product.sum(1).abs() if reduction == "sum_then_abs" else product.abs().sum(1))
    return torch.cat(chunks, dim=1)


def check_variants(loss: str, reduction: str, prompts: PromptBatch) -> None:
    """Refuse unknown variants, and label losses without answers, before anything runs.

    Raises:
        RunError: unknown loss or reduction.
        PromptError: prompts without answers.
    """
    check_loss(loss)
    if reduction not in get_args(Reduction):
        raise RunError(
            f"Unknown reduction {reduction!r}. {near_matches(reduction, get_args(Reduction))}"
        )
    if loss != "prediction":
        _ = prompts.answers


def warn_if_processed(model: LanguageModel) -> None:
    """Say that folded or centred weights change saliency, though they keep the logits.

    Moving value biases into the output bias changes the gradient at the pattern: on a tiny
    GPT-2 flow scores move by up to 40 %.
    """
    if model.info.processed_weights:
        warnings.warn(
            f"The weights of {model.info.name!r} are processed (norms folded or weights centred): "
            "its saliency differs from that of the checkpoint's own weights, though its logits do "
            "not. Load it with icl_mech.load_model, or with from_pretrained_no_processing.",
            stacklevel=3,
        )


def default_loss(prompts: PromptBatch) -> Loss:
    """`label` where answers are known, else `prediction`."""
    return "label" if prompts.has_answers else "prediction"
