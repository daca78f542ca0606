"""Losses at the target whose gradients are read.

Source of the first three: Wang et al. 2023, *Label Words are Anchors*, §2.1.
"""

from typing import Literal, get_args

import torch
from torch.nn.functional import cross_entropy

from icl_mech._typing import Float, Tensor
from icl_mech.errors import PromptError, RunError, near_matches
from icl_mech.models import at_least_float32
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Loss = Literal["label", "prediction", "vocab", "next", "rest"]

OF_CLASSES: tuple[Loss, ...] = ("label", "prediction", "vocab")
"""Losses that need label words."""


def check_loss(loss: str) -> None:
    """Refuse an unknown loss.

    Raises:
        RunError: lists the known ones.
    """
    if loss not in get_args(Loss):
        raise RunError(f"Unknown loss {loss!r}. {near_matches(loss, get_args(Loss))}")


def check_loss_of(prompts: PromptBatch, loss: Loss) -> None:
    """Refuse a loss that these prompts do not have.

    Raises:
        PromptError: no label words, no answers, or nothing behind a target.
    """
    if loss in OF_CLASSES and not prompts.has_classes:
        raise PromptError(
            f"loss={loss!r} is over label words, and these prompts are texts without classes. Take "
            "'next' (the token behind the target) or 'rest' (all tokens behind it)."
        )
    if loss in ("label", "vocab"):
        _ = prompts.answers
    without = [i for i, prompt in enumerate(prompts) if prompt.target + 1 == len(prompt)]
    if loss == "rest" and without:
        raise PromptError(
            f"loss='rest' needs tokens behind the target; prompt {without[0]} ends with its target. "
            "Build the prompts with continuation= or an earlier target=, or take loss='next'."
        )


def target_loss(
    residual: Float[Tensor, "batch dest d_model"], segment: Segment, loss: Loss
) -> Float[Tensor, " batch"]:
    """Cross-entropy of each prompt at its target, from the residuals of all rows.

    * `label`: over the label logits, true class;
    * `prediction`: over the label logits, predicted class;
    * `vocab`: over the whole vocabulary, first token of the true class;
    * `next`: over the whole vocabulary, the token behind the target; where there is none the
      likeliest one;
    * `rest`: the same, summed over all tokens behind the target.
    """
    if loss == "rest":
        return torch.stack([_rest(residual, segment, row) for row in range(len(residual))])
    at_target = segment.at_target(residual)
    if loss == "next":
        logits = at_least_float32(segment.model.logits(at_target))
        follow = [
            prompt.tokens[prompt.target + 1 : prompt.target + 2] for prompt in segment.prompts
        ]
        known = torch.tensor([own[0] if own else -1 for own in follow], device=logits.device)
        tokens = torch.where(known >= 0, known, logits.detach().argmax(-1))
        return cross_entropy(logits, tokens, reduction="none")
    if loss == "vocab":
        answers = segment.prompts.answers.to(residual.device)
        tokens = segment.label_tokens.gather(1, answers[:, None])[:, 0]
        return cross_entropy(
            at_least_float32(segment.model.logits(at_target)), tokens, reduction="none"
        )
    logits = at_least_float32(segment.model.label_logits(at_target, segment.label_tokens))
    if loss == "prediction":
        answers = logits.argmax(-1)
    else:
        answers = segment.prompts.answers.to(residual.device)
    return cross_entropy(logits, answers, reduction="none")


def _rest(residual: Float[Tensor, "batch dest d_model"], segment: Segment, row: int) -> Tensor:
    prompt, first = segment.prompts[row], int(segment.target_row[row])
    behind = torch.tensor(prompt.tokens[prompt.target + 1 :], device=residual.device)
    logits = at_least_float32(segment.model.logits(residual[row, first : first + len(behind)]))
    return cross_entropy(logits, behind, reduction="sum")
