"""Which of two numbers is larger is compared only where the last bits do not decide it.

The same run in other batches, by another path or on another processor differs in the last
bits (1e-5 at most in these models). Ranks, top tokens and calibrated scores may then differ
too, and rightly so, where two numbers are closer than `MARGIN`.
"""

from collections.abc import Sequence

import torch
from torch.testing import assert_close

from icl_mech.engine import Kept, Reading, run
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

MARGIN = 1e-4


class VocabularyReading(Reading[torch.Tensor]):
    """Logits of the whole vocabulary at the target."""

    target_only = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: torch.Tensor, segment: Segment) -> torch.Tensor:
        return segment.model.logits(segment.at_target(activation))

    def collect(self, kept: Kept) -> torch.Tensor:
        return kept.stacked()[:, 0]


def vocabulary(model, prompts, changes=()):
    """`[prompt, vocabulary]`, every position of every prompt computed."""
    (logits,) = run(model, prompts, [VocabularyReading()], changes, path="whole")
    return logits


def apart(scores, k=1):
    """Where the `k` highest scores of the last axis stand clear of all others."""
    values = scores.topk(k + 1).values
    return values[..., -2] - values[..., -1] > MARGIN


def assert_top(found, scores):
    """`found` holds the places of the highest scores, best first, but for near ties."""
    values = scores.gather(-1, found)
    assert_close(values, scores.topk(found.shape[-1]).values, atol=MARGIN, rtol=0)
    assert all(len(set(row)) == len(row) for row in found.flatten(0, -2).tolist())


def close_pairs(scores, positive, margin=MARGIN):
    """Share of pairs of a positive and a negative in either order: what an AUC may move by."""
    distance = (scores[positive][:, None] - scores[~positive]).abs()
    return float((distance < margin).double().mean())


def clear_prompts(model, prompts, variants=((),), top_k=5):
    """The prompts whose predicted class and top tokens are clear under all interventions.

    Draws may depend on a prompt's place, so what is left is looked at again.
    """
    n = len(prompts)
    while True:
        clear = torch.ones(len(prompts), dtype=torch.bool)
        for changes in variants:
            logits = vocabulary(model, prompts, changes)
            clear &= apart(logits, top_k) & apart(logits.gather(1, label_columns(prompts)))
        if bool(clear.all()):
            break
        prompts = prompts[clear.nonzero()[:, 0].tolist()]
    assert 2 * len(prompts) > n
    return prompts


def label_columns(prompts: PromptBatch):
    """First tokens of each prompt's label words, `[prompt, label]`."""
    return torch.tensor([prompt.label_tokens for prompt in prompts])
