"""How far a lens' readings are from the model's own answer, on residuals it was not fitted on."""

from dataclasses import replace
from typing import TypeVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.models import LanguageModel

Lens = TypeVar("Lens", bound=FittedLens)

_ROWS = 64
"""Rows unembedded to the whole vocabulary at a time."""


def kl(
    log_probs: Float[Tensor, "row vocab"], logits: Float[Tensor, "row vocab"]
) -> Float[Tensor, " row"]:
    """KL(p || q) in nats, from log p and the logits of q."""
    return (log_probs.exp() * (log_probs - logits.float().log_softmax(-1))).sum(-1)


@torch.no_grad()
def held_out_kl(
    lens: Lens, model: LanguageModel, residuals: Float[Tensor, "batch entry place d_model"]
) -> Lens:
    """The lens with its KL and the logit lens', means over the places of each prompt."""
    found = torch.zeros(len(residuals), 2, residuals.shape[1], dtype=torch.float64)
    for number, prompt in enumerate(residuals):
        for rows in prompt.to(model.device).split(_ROWS, dim=1):
            own = model.logits(rows[-1]).float().log_softmax(-1)
            for entry in range(lens.n_layers):
                for place, read in enumerate((lens.mapped(entry, rows[entry]), rows[entry])):
                    found[number, place, entry] += float(kl(own, model.logits(read)).double().sum())
    return replace(lens, held_out_kl=found / residuals.shape[2])
