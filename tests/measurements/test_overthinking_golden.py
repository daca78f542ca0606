"""Lens metrics, attention scores and ablations against the paper's reference code."""

from functools import lru_cache

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads, ZeroLayers
from icl_mech.engine import run
from icl_mech.measurements.accuracy.context_accuracy import context_accuracy
from icl_mech.measurements.accuracy.layer_accuracy import layer_accuracy
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.lens.logit_lens import logit_lens
from icl_mech.metrics import normalised_probs, prefix_matching
from icl_mech.metrics.calibration import label_thresholds, score_interval
from icl_mech.metrics.heads import attention_to_same
from tests.golden_data import arrays, document, golden_model, overthinking_prompts
from tests.margins import MARGIN, assert_top
from tests.measurements.overthinking_cases import (
    DemonstrationAttentionReading,
    before_labels,
    ends_of,
    lens_logits,
    scores_of,
    settled_scores,
)

# The reference draws classes independently.
pytestmark = pytest.mark.filterwarnings("ignore:The true classes of the queries:UserWarning")

SETTINGS = ("permuted_incorrect_labels", "half_permuted_incorrect_labels", "random_labels")
CONFIGS = [f"{task}.{setting}" for task in ("unnatural", "sst2") for setting in SETTINGS]
KINDS = ("true", "false")
CLOSE = {"atol": 1e-5, "rtol": 0.0}
NAMES = {
    "calibrated": "cal_correct_over_incorrect",
    "permuted": "cal_permute",
    "plain": "correct_over_incorrect",
    "top_1": "top_1_acc",
    "top_labels": "top_num_labels_match",
    "label_space": "label_space_probs",
}


def golden(file: str, key: str) -> torch.Tensor:
    return torch.from_numpy(np.asarray(arrays("overthinking", file)[key]))


def pairs(config):
    return [overthinking_prompts(config, kind) for kind in KINDS]


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("side", [0, 1])
def test_lens(config, side):
    """`[N, entry, D, C]` there, `[N, D, entry, C]` here."""
    lens = logit_lens(
        golden_model("overthinking", "tiny_gpt2"),
        pairs(config)[side],
        at="demonstrations",
        variant="reference",
    )
    file = "logit_lens_gpt2.npz"
    probs = golden(file, f"{config}/probs")[side].transpose(1, 2).double()
    assert_close(lens.probs, probs, **CLOSE)
    norm = normalised_probs(lens.probs)
    expected = golden(file, f"{config}/norm_probs")[side].transpose(1, 2).double()
    assert_close(norm, expected, **CLOSE)
    quantiles = golden(file, f"{config}/quantiles")[side, 0].transpose(0, 1).double()
    assert_close(label_thresholds(norm), quantiles, **CLOSE)
    top = golden(file, f"{config}/top_num_labels_logits")[side].transpose(1, 2).long()
    for tokens in (lens.top_tokens, top):
        assert_top(tokens, vocabulary_logits(config)[side])


@lru_cache
def vocabulary_logits(config):
    """The reference's lens of every prompt alone, `[side, N, D, entry, vocabulary]`."""
    model = golden_model("overthinking", "tiny_gpt2")
    sides = [
        [lens_logits(model, prompt, before_labels(prompt), "reference") for prompt in prompts]
        for prompts in pairs(config)
    ]
    return torch.stack([torch.stack(rows) for rows in sides])


@lru_cache
def settled_by_demonstration(config):
    """Where a score does not hang on the last bits, `[side, metric, N, D, entry]`."""
    labels = pairs(config)[0][0].label_tokens
    norm = golden("logit_lens_gpt2.npz", f"{config}/norm_probs").transpose(2, 3)
    return torch.stack(
        [
            settled_scores(own, labels, not_tied(probs))
            for own, probs in zip(vocabulary_logits(config), norm, strict=True)
        ]
    )


def not_tied(norm_probs):
    """Exact ties hang on the last bits: no label's probability may be close to its threshold."""
    probs = norm_probs.double()
    return ((probs.log() - label_thresholds(probs).log()).abs() > MARGIN / 10).all(-1)


def assert_same_accuracy(found, expected, settled):
    """Mean, upper and lower end: equal where all `[N, *place]` scores are settled.

    Elsewhere the mean may differ by the others' share.
    """
    assert float(settled.all(0).double().mean()) > 0.5
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours[settled.all(0)], theirs[settled.all(0)], **CLOSE)
    assert bool(((found[0] - expected[0]).abs() <= (~settled).double().mean(0) + 1e-5).all())


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_by_demonstration(config, metric):
    """Mean, upper and lower end `[3, side, entry, D]`."""
    true, false = pairs(config)
    found = context_accuracy(
        golden_model("overthinking", "tiny_gpt2"),
        true,
        false,
        variant="reference",
        interval="reference",
    )
    expected = golden("logit_lens_gpt2.npz", f"{config}/{NAMES[metric]}").double()
    for side, kind in enumerate(KINDS):
        low, high = ends_of(found, kind, metric)
        mean = found.accuracy(kind, metric)
        ours = torch.stack([mean, high, low]).transpose(1, 2)
        settled = settled_by_demonstration(config)[side, METRICS.index(metric)]
        assert_same_accuracy(ours, expected[:, side], settled.transpose(1, 2))


@pytest.mark.parametrize("config", CONFIGS)
def test_layer_accuracy_is_the_last_demonstration(config):
    true, false = pairs(config)
    found = layer_accuracy(
        golden_model("overthinking", "tiny_gpt2"),
        true,
        false,
        variant="reference",
        interval="reference",
    )
    expected = golden("logit_lens_gpt2.npz", f"{config}/cal_correct_over_incorrect").double()
    for side, kind in enumerate(KINDS):
        low, high = ends_of(found, kind)
        ours = torch.stack([found.accuracy(kind), high, low])
        settled = settled_by_demonstration(config)[side, METRICS.index("calibrated"), :, -1]
        assert_same_accuracy(ours, expected[:, side, :, -1], settled)


@pytest.mark.parametrize("name", ["gpt2", "gptj_small"])
@pytest.mark.parametrize("side", [0, 1])
def test_the_sound_lens_ends_in_the_models_own_logits(name, side):
    folder = "tiny_gpt2" if name == "gpt2" else "tiny_gptj"
    for config in ("unnatural.permuted_incorrect_labels", "sst2.permuted_incorrect_labels"):
        key = f"{name}/{config}/model_own_label_probs_last_demo"
        lens = logit_lens(golden_model("overthinking", folder), pairs(config)[side])
        expected = golden("ablations.npz", key)[side].double()
        assert_close(lens.probs[:, -1], expected, **CLOSE)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("side", [0, 1])
def test_attention_scores(config, side):
    """`[N, D, layer, head]` there; rows are the tokens before each label."""
    prompts = pairs(config)[side]
    model = golden_model("overthinking", "tiny_gpt2")
    classes = prompts.label_classes
    for over, name in (("labels", "lab"), ("before_labels", "prec_lab")):
        reading = DemonstrationAttentionReading(over)
        attention = run(model, prompts, [reading])[0].permute(0, 2, 1, 3, 4)
        total = attention.sum(-1)
        same = torch.stack(
            [
                attention_to_same(attention[:, row], classes, classes[:, row])
                for row in range(classes.shape[1])
            ],
            dim=1,
        )
        matching = prefix_matching(same, total, prompts.n_labels)
        file = "attention_gpt2.npz"
        for suffix, ours in (("", total), ("_same", same), ("_prime", matching)):
            expected = golden(file, f"{config}/cfs_{name}{suffix}")[side].float()
            assert_close(ours, expected, **CLOSE)
        ratio = golden(file, f"{config}/cfs_{name}_ratio")[side].float()
        seen = total > 1e-3
        assert_close((same / total)[seen], ratio[seen], atol=2e-3, rtol=0)


@pytest.mark.parametrize(
    "config", ["unnatural.permuted_incorrect_labels", "sst2.permuted_incorrect_labels"]
)
@pytest.mark.parametrize(
    ("name", "key", "change"),
    [
        ("gpt2", "attention_from2", ZeroLayers(2, part="attention", kind="reference")),
        ("gpt2", "mlp_from2", ZeroLayers(2, part="mlp", kind="reference")),
        ("gptj_small", "attention_from3", ZeroLayers(3, part="attention", kind="reference")),
        ("gptj_small", "mlp_from3", ZeroLayers(3, part="mlp", kind="reference")),
        ("gpt2", "ext_heads_z", "zero_output"),
        ("gptj_small", "heads_ours", "uniform_attention"),
    ],
)
def test_calibrated_accuracy_under_ablation(config, name, key, change):
    if isinstance(change, str):
        table = document("overthinking", "misc.json")["false_induction_heads"][
            "unnatural.permuted_incorrect_labels"
        ][name]
        if key == "heads_ours":
            table = document("overthinking", "misc.json")["ablation_heads"][config]["ours"]
        heads = [(int(layer), head) for layer, row in table.items() for head in row]
        change = ZeroHeads(heads, kind=change)
    true, false = pairs(config)
    folder = "tiny_gpt2" if name == "gpt2" else "tiny_gptj"
    found = layer_accuracy(
        golden_model("overthinking", folder),
        true,
        false,
        interventions=[change],
        variant="reference",
        interval="reference",
    )
    file_key = f"{name}/{config}/{key}/cal_correct_over_incorrect"
    expected = golden("ablations.npz", file_key).double()
    for side, kind in enumerate(KINDS):
        low, high = score_interval(scores_of(found, kind), "reference")
        ours = torch.stack([found.accuracy(kind), high, low])
        norm = golden("ablations.npz", f"{name}/{config}/{key}/norm_probs")[side, :, :, -1]
        assert_same_accuracy(ours, expected[:, side, :, -1], not_tied(norm))
