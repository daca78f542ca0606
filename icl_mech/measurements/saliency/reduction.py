"""What all saliency analyses share: the reduction over heads, and the choice of variants.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, eq. 1.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Loss, check_loss_of
from icl_mech.measurements.base import Measurement
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result

R = TypeVar("R", bound=Result)

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


@dataclass(frozen=True)
class OfSaliency(Measurement[R]):
    """Variants of all measurements of saliency.

    Attributes:
        loss: `label`, `prediction` or `vocab`, of texts `next` or `rest`; None: `label` if the
            prompts have answers, else `prediction`, of texts `next`.
        reduction: Absolute value after (`sum_then_abs`) or before the sum over heads.
    """

    loss: Loss | None = None
    reduction: Reduction = "sum_then_abs"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "OfSaliency[R]":
        """With the loss these prompts can have."""
        return self if self.loss else replace(self, loss=default_loss(data))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse losses without the answers or label words they need.

        Raises:
            PromptError: prompts without answers, without classes or with nothing to predict.
        """
        assert self.loss is not None
        check_loss_of(data, self.loss)
        warn_if_processed(model)


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
    """`label` where answers are known, else `prediction`; of texts `next`."""
    if not prompts.has_classes:
        return "next"
    return "label" if prompts.has_answers else "prediction"
