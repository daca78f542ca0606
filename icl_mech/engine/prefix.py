"""The beginning that prompts have in common, and whether it may be computed apart."""

from collections.abc import Sequence

import torch

from icl_mech.interventions import Intervention
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

WORTH_SHARING = 8
"""Shortest common beginning that is computed apart."""


def common_prefix(prompts: PromptBatch) -> int:
    """Length of the longest beginning all prompts share, their targets excluded.

    Shared are its tokens, their roles, the spans of a text, and which of them are label words of
    which class.
    """
    first, *others = (prompt.tokens for prompt in prompts)
    length = min(prompt.target for prompt in prompts)
    for tokens in others:
        while first[:length] != tokens[:length]:
            length = next(i for i in range(length) if first[i] != tokens[i])
    known = torch.stack([prompts.position_classes, prompts.position_roles, prompts.position_spans])
    known = known[..., :length]
    unlike = (known != known[:, :1]).any(0).any(0).nonzero()
    return int(unlike[0]) if len(unlike) else length


def can_share(
    model: LanguageModel, prompts: PromptBatch, interventions: Sequence[Intervention], apart: bool
) -> bool:
    """True if the shared path gives what the whole path gives, for less.

    Args:
        model: What runs; hooks of the caller's own may look at positions, which move.
        prompts: What is run.
        interventions: What is changed.
        apart: The common beginning can be computed apart, as far as the readings go.
    """
    if not apart or len(prompts) == 1 or not model.splits:
        return False
    length = common_prefix(prompts)
    return length >= WORTH_SHARING and all(i.shares(prompts, length) for i in interventions)
