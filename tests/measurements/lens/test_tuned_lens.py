"""Tuned lenses: the reference's numbers, the logit lens as a special case, a rotated model."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech import build_prompt_pairs, early_exit, layer_accuracy, logit_lens, measure
from icl_mech.engine import run
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.lens.tuned import TunedLens
from icl_mech.models import adapt
from icl_mech.prompts import Prompt, PromptBatch
from tests.golden_data import arrays, golden_model

FAMILIES = {"gpt2": "tiny_gpt2", "gptj": "tiny_gptj"}


def golden_rows(numbers, name, key):
    """Prompts read at each of the stored positions, and where their rows stand."""
    ids = numbers[f"{name}_input_ids"]
    places = numbers[f"{name}_positions"]
    prompts = [
        Prompt.from_positions(
            row[: place + 1].tolist(), label_positions=[], label_classes=[],
            label_tokens=list(range(768)),
        )
        for row in ids
        for place in places
    ]  # fmt: skip
    wanted = torch.from_numpy(numbers[f"{name}_{key}"])  # prompt, layer, position, vocabulary
    return PromptBatch(tuple(prompts)), wanted.transpose(1, 2).flatten(0, 1)


def read(model, prompts, lens):
    """Logits of the whole vocabulary, which are the label words here: `[row, entry, vocab]`."""
    (found,) = run(model, prompts, [LayerLensReading(vocabulary=False, lens=lens)])
    return found.label_logits[:, 0]


@pytest.mark.parametrize("name", FAMILIES)
def test_the_references_logits(name):
    numbers, model = arrays("lenses", "tuned_lens.npz"), golden_model("overthinking", FAMILIES[name])
    lens = TunedLens.given(
        model,
        torch.from_numpy(numbers[f"{name}_translator_weight"]),
        torch.from_numpy(numbers[f"{name}_translator_bias"]),
    )
    prompts, wanted = golden_rows(numbers, name, "tuned_logits")
    found = read(model, prompts, lens)
    assert_close(found[:, :-1], wanted, atol=2e-5, rtol=0)
    _, log_probs = golden_rows(numbers, name, "tuned_log_probs")
    assert_close(found[:, :-1].log_softmax(-1), log_probs, atol=2e-5, rtol=0)
    own = torch.from_numpy(numbers[f"{name}_model_logits"]).flatten(0, 1)
    assert_close(found[:, -1], own, atol=2e-5, rtol=0)
    _, plain = golden_rows(numbers, name, "logit_lens_logits")
    assert_close(read(model, prompts, None)[:, :-1], plain, atol=2e-5, rtol=0)
