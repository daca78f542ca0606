"""Readout of logits at the target, and the answers they give."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import AtLast
from icl_mech.metrics.agreement import same_label
from icl_mech.models import Site, at_least_float32
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

ANOTHER = "another token"
"""Name of an answer to a text that is neither the followed token nor its rival."""


def answer_names(prompts: PromptBatch) -> tuple[str, ...]:
    """Names of the values of `predicted`: classes, choices, or for texts the followed token, its rival and others."""
    names = prompts.labels
    return (*names, ANOTHER) if prompts.answer_kind == "vocabulary" and names else names


Read = tuple[Tensor, Tensor, Tensor, Tensor]
"""Values of `PredictionReading`: label logits, their log-probabilities, the top tokens, their log-probabilities."""


@dataclass
class PredictionReading(AtLast, Reading[Read]):
    """Label logits and top tokens at the target, both with log-probabilities."""

    top_k: int = 5

    target_only: ClassVar[bool] = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return the values packed as `[batch, label | label | top_k | top_k]`."""
        logits = at_least_float32(segment.model.logits(segment.at_target(activation)))
        labels = logits.gather(1, segment.label_tokens)
        log_sum = logits.logsumexp(-1, keepdim=True)
        # Ids below 2^24 are exact in float32, and every vocabulary is smaller.
        top = logits.topk(self.top_k, dim=-1)
        parts = [labels, labels - log_sum, top.indices.float(), top.values - log_sum]
        return torch.cat(parts, dim=1)

    def collect(self, kept: Kept) -> Read:
        """Return `(label_logits, log_probs, top_tokens, top_log_probs)`."""
        packed = kept.stacked()[:, 0]
        n_labels, k = packed.shape[1] // 2 - self.top_k, self.top_k
        logits, log_probs, top, of_top = torch.split(packed, [n_labels, n_labels, k, k], dim=1)
        return logits, log_probs, top.long(), of_top


def same_answer(one: Read, other: Read, prompts: PromptBatch) -> Bool[Tensor, " batch"]:
    """True where two runs give the same answer: the same class or choice, for texts the same greedy token."""
    if prompts.answer_kind == "vocabulary":
        return one[2][:, 0] == other[2][:, 0]
    return same_label(*(predicted(read[0], read[2], prompts) for read in (one, other)))


def predicted(
    label_logits: Float[Tensor, "batch label"],
    top_tokens: Int[Tensor, "batch k"],
    prompts: PromptBatch,
) -> Int[Tensor, " batch"]:
    """The answer: the class or choice with the largest logit.

    For texts, the top token of the vocabulary: 0 the followed token, 1 its rival, 2 any other.
    """
    if prompts.answer_kind != "vocabulary":
        return label_logits.argmax(-1)
    same = top_tokens[:, :1] == prompts.choice_tokens
    another = torch.ones(len(same), 1, dtype=torch.bool)
    return torch.cat([same, another], dim=1).int().argmax(-1)
