"""Pairs of true and false prompts for the planted model and for tiny random ones."""

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch.testing import assert_close

from icl_mech import Example, Task, Template, build_prompt_pairs
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.heads.label_attention import LabelAttentionReading
from icl_mech.metrics.calibration import label_thresholds
from tests import tiny
from tests.margins import MARGIN, apart
from tests.planted import planted_model, planted_task
from tests.tiny import tiny_model

FAMILIES = tuple(family for family in tiny.FAMILIES if family != "opt")
CLOSE = {"atol": 2e-5, "rtol": 1e-5}
N = 12

# Label words of one and of several tokens.
LABELS = ("World", "plant/vegetable", "Sports")
TEXTS = (
    "stocks fell", "green leaves", "the home team won", "a Business story", "wheat", "a match",
    "prices", "basil and thyme", "the final", "who wrote it?", "moss", "rowing",
)  # fmt: skip
TASK = Task(
    "tiny",
    Template("{text}: {label}.", separator="\n\n"),
    LABELS,
    tuple(Example(text, i % 3) for i, text in enumerate(TEXTS[:6])),
    tuple(Example(text, i % 3) for i, text in enumerate((*TEXTS, *reversed(TEXTS[6:])))),
)


@lru_cache
def tiny_case(family, false_labels="permuted"):
    """A tiny model with its (true, false) prompts: three classes, two demonstrations of each."""
    model = tiny_model(family)
    return model, *tiny_pairs(model, false_labels=false_labels)


def tiny_pairs(model, **options):
    settings = {"shots": 2, "n": N, "demonstrations": "per_prompt", **options}
    return build_prompt_pairs(TASK, model, **settings)


@lru_cache
def planted_case(false_labels="permuted"):
    """The planted model with its (true, false) prompts."""
    model = planted_model()
    return model, *planted_pairs(model, false_labels=false_labels)


def planted_pairs(model, **options):
    settings = {"shots": 1, "n": 30, "demonstrations": "per_prompt", **options}
    return build_prompt_pairs(planted_task(), model, **settings)


def settled(model, true, false):
    """Where a score does not hang on the last bits, `[metric, side, prompt, shown, entry]`.

    From logits of the whole vocabulary before every label and at the target, one prompt at a
    time: the axes are those of `context_accuracy`, whose last place is the target.
    """
    sides = []
    for prompts in (true, false):
        rows = [[*before_labels(prompt), prompt.target] for prompt in prompts]
        logits = torch.stack([lens_logits(model, *row) for row in zip(prompts, rows, strict=True)])
        probs = logits[..., list(prompts[0].label_tokens)].double().softmax(-1)
        sides.append(settled_scores(logits, prompts[0].label_tokens, settled_probs(probs)))
    return torch.stack(sides, dim=1)


def settled_scores(logits, label_tokens, calibrated):
    """`[metric, *place]` from logits of the vocabulary; calibrated scores as given."""
    labels = logits[..., list(label_tokens)]
    masks = {
        "calibrated": calibrated,
        "permuted": calibrated,
        "plain": apart(labels),
        "top_1": apart(logits),
        "top_labels": apart(logits, labels.shape[-1]),
        "label_space": torch.ones_like(calibrated),
    }
    return torch.stack([masks[metric] for metric in METRICS])


def settled_probs(probs):
    """Where no label's probability stands at the edge of a tie, from `[prompt, *entry, label]`."""
    distance = (probs.log() - label_thresholds(probs).log()).abs()
    return ((distance < MARGIN / 2) | (distance > 2 * MARGIN)).all(-1)


def before_labels(prompt):
    return [position - 1 for position in prompt.label_positions]


def lens_logits(model, prompt, rows, variant="sound"):
    """`[row, entry, vocabulary]` by TransformerLens' own cache and readout."""
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
        entries = [cache["blocks.0.hook_resid_pre"]]
        entries += [cache[f"blocks.{i}.hook_resid_post"] for i in range(model.cfg.n_layers)]
        normed = model.ln_final(torch.cat(entries)[:, rows])
        if variant == "reference":
            normed = torch.cat([normed[:-1], model.ln_final(normed[-1:])])
        return model.unembed(normed).transpose(0, 1)


def scores_of(result, side, metric="calibrated"):
    """Per-prompt scores of one side, by the result's own labels."""
    return torch.tensor(result.to_xarray()[metric].sel(side=side).values).double()


def ends_of(result, side, metric="calibrated"):
    """Low and high ends of the intervals of one side."""
    found = result.sel(metric, side=side)
    return found.low, found.high


def assert_same_scores(found, expected, settled):
    """Equal scores, but where they hang on the last bits; that must be rare."""
    assert float(settled.double().mean()) > 0.9
    both = (torch.where(settled, scores, 0.0) for scores in (found, expected))
    assert_close(*both, atol=2e-5, rtol=0)


@dataclass
class DemonstrationAttentionReading(LabelAttentionReading):
    """Attention from the token before each demonstration's label, as the reference reads it."""

    target_only: ClassVar[bool] = False

    def rows(self, prompts):
        return prompts.label_positions - 1
