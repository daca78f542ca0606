"""Interventions against the numbers of the two papers' reference code."""

from collections.abc import Sequence

import pytest
import torch
from torch.testing import assert_close

from icl_mech.engine import Kept, Reading, prepare, run
from icl_mech.engine.readings import target_loss
from icl_mech.interventions import Isolate, Reweight, ZeroHeads, ZeroLayers
from icl_mech.measurements.predictions import predict
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.segments import Segment
from tests.golden_data import (
    arrays,
    document,
    golden_model,
    label_words_prompts,
    overthinking_prompts,
)
from tests.margins import VocabularyReading, apart

pytestmark = pytest.mark.tl3

LOGITS = {"atol": 5e-5, "rtol": 0.0}
WINDOWS = {"first1": [0], "first2": [0, 1], "last1": [3], "last2": [2, 3]}


def same(actual: torch.Tensor, golden, **tolerance: float) -> None:
    assert_close(actual.double(), torch.from_numpy(golden).double(), **tolerance)


@pytest.mark.parametrize("prompt_set", ["sst2_s1", "sst2_s2", "agnews_s1", "agnews_s2"])
@pytest.mark.parametrize("window", WINDOWS)
def test_isolation(prompt_set, window):
    prompts = label_words_prompts(f"icl/{prompt_set}")
    golden = arrays("label_words", "shallow.npz")
    model = golden_model("label_words", "tiny_gpt2")
    isolated = predict(model, prompts, interventions=[Isolate(WINDOWS[window])])
    same(isolated.label_logits, golden[f"{prompt_set}_{window}_class_logits"], **LOGITS)
    plain = predict(model, prompts)
    same(plain.label_logits, golden[f"{prompt_set}_none_class_logits"], **LOGITS)
    assert bool((apart(isolated.label_logits) & apart(plain.label_logits)).all())
    loyalty = (isolated.predicted == plain.predicted).double().mean()
    assert float(loyalty) == pytest.approx(golden[f"{prompt_set}_{window}_label_loyalty"])


@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_isolation_of_given_tokens(task):
    golden = arrays("label_words", "shallow.npz")
    positions = golden[f"{task}_s1_nonlabel_first2_positions"]
    cuts = [Isolate([layer], positions=positions[:, layer].tolist()) for layer in range(2)]
    read = predict(
        golden_model("label_words", "tiny_gpt2"),
        label_words_prompts(f"nonlabel/{task}_s1"),
        interventions=cuts,
    )
    same(read.label_logits, golden[f"{task}_s1_nonlabel_first2_class_logits"], **LOGITS)


@pytest.mark.parametrize("task", ["sst2", "agnews"])
@pytest.mark.parametrize("prepared", [False, True])
def test_reweighting_logits(task, prepared):
    golden = arrays("label_words", "reweight.npz")
    prompts = label_words_prompts(f"icl/{task}_s1")
    model = golden_model("label_words", "tiny_gpt2")
    beta = torch.from_numpy(golden[f"{task}_beta_given"])
    work = prepare(model, prompts) if prepared else prompts
    (logits,) = run(model, work, [VocabularyReading()], [Reweight(beta)])
    labels = logits[:, prompts.label_tokens]
    same(labels, golden[f"{task}_given_class_logits"], **LOGITS)
    same(logits[:4], golden[f"{task}_given_logits4"], **LOGITS)


@pytest.mark.parametrize("task", ["sst2", "agnews"])
def test_reweighting_gradients(task):
    golden = arrays("label_words", "reweight.npz")
    prompts = label_words_prompts(f"icl/{task}_s1")[:4]
    model = adapt(golden_model("label_words", "tiny_gpt2"))
    prepared = prepare(model, prompts)
    for row in range(4):
        beta = torch.from_numpy(golden[f"{task}_beta_given"]).clone().requires_grad_()
        for segment in prepared.segments:
            if row not in segment.indices:
                continue
            with model.gradients():
                output = model.forward(
                    segment.tokens,
                    segment.mask,
                    segment.positions,
                    cache=segment.cache,
                    hooks=Reweight(beta).hooks(segment),
                )
                loss = target_loss(output.residual, segment, "label")
                loss[segment.indices.index(row)].backward()
        same(beta.grad, golden[f"{task}_given_beta_grad4"][row], atol=1e-5, rtol=0)


class ReferenceLens(Reading[torch.Tensor]):
    """Label probabilities as the reference reads them.

    The final norm is applied twice to the last entry and the unembedding's bias dropped.
    """

    target_only = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        return [Site("resid_pre", layer) for layer in range(info.n_layers)] + [
            Site("resid_post", info.n_layers - 1)
        ]

    def reduce(self, site: Site, activation: torch.Tensor, segment: Segment) -> torch.Tensor:
        wrapped = segment.model.wrapped
        residual = segment.at_target(activation)[:, None]
        normed = wrapped.ln_final(residual)
        if site.name == "resid_post":
            normed = wrapped.ln_final(normed)
        logits = wrapped.unembed(normed)[:, 0]
        bias = getattr(wrapped, "b_U", None)
        probs = (logits if bias is None else logits - bias).softmax(-1)
        return probs.gather(1, segment.label_tokens)

    def collect(self, kept: Kept) -> torch.Tensor:
        return kept.stacked()


def heads_of(table: dict[str, list[int]]) -> list[tuple[int, int]]:
    return [(int(layer), head) for layer, heads in table.items() for head in heads]


def golden_interventions(model: str, config: str, ablation: str):
    misc = document("overthinking", "misc.json")
    if ablation.startswith(("attention_from", "mlp_from")):
        part, start = ablation.split("_from")
        return [ZeroLayers(int(start), part=part, kind="reference")]
    if ablation in ("ext_heads_qkv", "ext_heads_z") and model == "gpt2":
        table = misc["false_induction_heads"]["unnatural.permuted_incorrect_labels"]["gpt2"]
    elif ablation == "heads_ours" or ablation == "ext_heads_z":
        table = misc["ablation_heads"][config]["ours"]
    else:
        return []
    kind = "zero_output" if ablation == "ext_heads_z" else "uniform_attention"
    return [ZeroHeads(heads_of(table), kind=kind)]


def golden_runs() -> list[str]:
    names = arrays("overthinking", "ablations.npz").files
    wanted = ("from", "heads_ours", "ext_heads", "none")
    found = {name.rsplit("/", 1)[0] for name in names if name.endswith("/probs")}
    return sorted(run for run in found if any(w in run for w in wanted))


@pytest.mark.parametrize("golden_run", golden_runs())
def test_ablations(golden_run):
    name, config, ablation = golden_run.split("/")
    model = golden_model("overthinking", {"gpt2": "tiny_gpt2", "gptj_small": "tiny_gptj"}[name])
    changes = golden_interventions(name, config, ablation)
    probs = arrays("overthinking", "ablations.npz")[f"{golden_run}/probs"]
    for side, kind in enumerate(("true", "false")):
        prompts = overthinking_prompts(config, kind)
        (read,) = run(model, prompts, [ReferenceLens()], changes)
        same(read, probs[side, :, :, -1], atol=1e-5, rtol=0)
        if changes:
            (single,) = run(model, prepare(model, prompts), [ReferenceLens()], changes)
            assert_close(single, read, atol=1e-5, rtol=0)
