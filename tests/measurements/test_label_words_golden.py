"""Saliency and flow on a tiny GPT-2, against numbers of the paper's own code.

Tolerances: the folder's README, from the noise between float32 and float64.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import icl_mech as icl
from icl_mech.prompts import Prompt, PromptBatch
from tests.margins import assert_top

FOLDER = Path(__file__).parent.parent / "golden" / "label_words"
SETS = ("sst2_s1", "sst2_s2", "agnews_s1", "agnews_s2")

pytestmark = pytest.mark.tl3
each_set = pytest.mark.parametrize("name", SETS)


@pytest.fixture(scope="module", params=["bridge", pytest.param("hooked", marks=pytest.mark.hooked)])
def model(request):
    folder = FOLDER / "tiny_gpt2"
    return icl.load_model(str(folder)) if request.param == "bridge" else hooked_model(folder)


def hooked_model(folder):
    """A `HookedTransformer` with unprocessed weights."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

    hf_model = AutoModelForCausalLM.from_pretrained(folder).eval()
    sizes = hf_model.config
    config = HookedTransformerConfig(
        n_layers=sizes.n_layer,
        d_model=sizes.n_embd,
        d_head=sizes.n_embd // sizes.n_head,
        n_heads=sizes.n_head,
        d_mlp=4 * sizes.n_embd,
        n_ctx=sizes.n_positions,
        d_vocab=sizes.vocab_size,
        act_fn="gelu_new",
        normalization_type="LN",
        model_name="tiny_gpt2",
        default_prepend_bos=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # announces TransformerLens 4
        hooked = HookedTransformer(config, tokenizer=AutoTokenizer.from_pretrained(folder))
    hooked.load_state_dict(convert_gpt2_weights(hf_model, config), strict=False)
    return hooked.eval()


@pytest.fixture(scope="module")
def golden():
    with np.load(FOLDER / "saliency.npz") as arrays:
        return {key: torch.from_numpy(np.asarray(arrays[key])) for key in arrays.files}


@pytest.fixture(scope="module")
def data():
    return json.loads((FOLDER / "data.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def prompts(data):
    return {name: batch_of(data, name) for name in SETS}


def batch_of(data, name):
    task = data["tasks"][name.split("_")[0]]
    rows = data["prompt_sets"][f"saliency/{name}"]
    return PromptBatch(tuple(prompt_of(row, task) for row in rows), {"task": {"name": name}})


def prompt_of(row, task):
    """Class order in the file, prompt order in the prompt."""
    found = sorted(
        (position, label)
        for label, positions in enumerate(row["class_pos"])
        for position in positions
    )
    return Prompt.from_positions(
        row["input_ids"],
        label_positions=[position for position, _ in found],
        label_classes=[label for _, label in found],
        label_tokens=task["label_token_ids"],
        answer=row["label"],
        target=row["final_pos"],
    )


@pytest.fixture(scope="module")
def flows(model, prompts):
    return {name: icl.flow_scores(model, prompts[name]) for name in SETS}


@each_set
def test_scores(flows, golden, name):
    found, expected = flows[name].per_prompt, golden[f"{name}_S"].double()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-7)


@each_set
def test_normalised_curve(flows, golden, name):
    expected = golden[f"{name}_S_normalized"].double()
    torch.testing.assert_close(flows[name].values, expected, rtol=0, atol=1e-5)


@each_set
def test_nothing_flows_to_label_words_in_the_last_layer(flows, name):
    assert float(flows[name].per_prompt[:, 0, -1].abs().max()) == 0.0


@each_set
def test_maps(model, prompts, golden, name):
    count = 2 if name.endswith("_s1") else 1
    maps = icl.saliency_maps(model, prompts[name][:count])
    for i, values in enumerate(maps.values):
        expected = golden[f"{name}_I_{i}"].float()
        torch.testing.assert_close(values, expected, rtol=0, atol=2e-5)


@each_set
def test_class_logits(model, prompts, golden, name):
    found = icl.predict(model, prompts[name])
    expected = golden[f"{name}_class_logits"].float()
    torch.testing.assert_close(found.label_logits, expected, rtol=0, atol=5e-5)
    assert_top(found.predicted[:, None], expected)


@each_set
def test_the_other_reduction_is_another_number(model, prompts, flows, name):
    """The published code sums over heads first; the paper's formula would differ visibly."""
    batch = prompts[name][:4]
    other = icl.flow_scores(model, batch, reduction="abs_then_sum").per_prompt
    scores = flows[name].per_prompt[:4]
    ratio = (other / scores)[scores > 0]
    assert float(ratio.min()) > 1 - 1e-4
    assert float(ratio.mean()) > 1.05


@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_own_prompts_have_the_positions_of_the_published_code(model, data, task):
    described = data["tasks"][task]
    row = data["prompt_sets"][f"saliency/{task}_s1"][0]
    (built,) = icl.prompts_from_text(
        [row["prompt"]], described["label_words"], model, [row["label"]], bos=False
    )
    assert built.tokens == tuple(row["input_ids"])
    assert built.target == row["final_pos"]
    by_class = sorted(zip(built.label_classes, built.label_positions, strict=True))
    assert [[position] for _, position in by_class] == row["class_pos"]
    assert list(built.label_tokens) == described["label_token_ids"]
