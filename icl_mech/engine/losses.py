"""Losses at the target whose gradients are read.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1.
"""

from typing import Literal, get_args

from torch.nn.functional import cross_entropy

from icl_mech._typing import Float, Tensor
from icl_mech.errors import RunError, near_matches
from icl_mech.segments import Segment

Loss = Literal["label", "prediction", "vocab"]


def check_loss(loss: str) -> None:
    """Refuse an unknown loss.

    Raises:
        RunError: lists the known ones.
    """
    if loss not in get_args(Loss):
        raise RunError(f"Unknown loss {loss!r}. {near_matches(loss, get_args(Loss))}")


def target_loss(
    residual: Float[Tensor, "batch d_model"], segment: Segment, loss: Loss
) -> Float[Tensor, " batch"]:
    """Cross-entropy of each prompt at its target.

    * `label`: over the label logits, true class;
    * `prediction`: over the label logits, predicted class;
    * `vocab`: over the whole vocabulary, first token of the true class.
    """
    if loss == "vocab":
        answers = segment.prompts.answers.to(residual.device)
        tokens = segment.label_tokens.gather(1, answers[:, None])[:, 0]
        return cross_entropy(segment.model.logits(residual).float(), tokens, reduction="none")
    logits = segment.model.label_logits(residual, segment.label_tokens).float()
    if loss == "prediction":
        answers = logits.argmax(-1)
    else:
        answers = segment.prompts.answers.to(residual.device)
    return cross_entropy(logits, answers, reduction="none")
