"""Attribution: TransformerLens' numbers, identities, and exact patching."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import Prompt, PromptBatch, attribution_patching, build_prompt_pairs
from icl_mech.engine import Work
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.causal.answers import contrast
from icl_mech.measurements.causal.tracing import batch_scores, reader_names, writer_names
from icl_mech.metrics import rank_agreement
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.engine.test_paths import TASK
from tests.golden_data import arrays, golden_model
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

PAIRS = ("unnatural_0", "sst2_0", "sst2_1", "sst2_2", "unnatural_half_0", "unnatural_half_1")
FAMILIES = ("gpt2", "neox", "llama")


def as_pair(golden, name):
    right, wrong = golden[f"{name}_right_wrong_ids"].tolist()
    return tuple(
        PromptBatch(
            (
                Prompt.from_positions(
                    golden[f"{name}_{side}_ids"].tolist(),
                    label_positions=[],
                    label_classes=[],
                    label_tokens=[right, wrong],
                    answer=0,
                ),
            )
        )
        for side in ("clean", "corrupt")
    )


@pytest.fixture(scope="module")
def golden():
    return arrays("causal_heads", "transformer_lens.npz")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PAIRS)
def test_nodes_of_transformer_lens(golden, name):
    name = f"attr_{name}"
    found = attribution_patching(golden_model("overthinking", "tiny_gpt2"), *as_pair(golden, name))
    layers, heads = found.shape
    own = found.by_position[0]
    assert np.abs(own[0].numpy() - golden[f"{name}_embed"]).max() <= 5e-5
    rest = own[1:].reshape(layers, heads + 1, -1).numpy()
    assert np.abs(rest[:, :heads] - golden[f"{name}_heads"]).max() <= 5e-5
    assert np.abs(rest[:, heads] - golden[f"{name}_mlp"]).max() <= 5e-5
    assert np.abs(found.exact[0].numpy() - golden[f"{name}_exact_head_all_positions"]).max() <= 5e-5
    assert abs(float(found.clean) - golden[f"{name}_metric_clean"]) <= 5e-5
    assert abs(float(found.corrupt) - golden[f"{name}_metric_corrupt"]) <= 5e-5


def scored(model, clean, corrupt, **how):
    own = adapt(model)
    segments = [Segment.whole(own, side) for side in (clean, corrupt)]

    def metric(residual, segment):
        return contrast(own.label_logits(residual, segment.label_tokens), corrupt)

    return batch_scores(
        Work([], (), False), *segments, metric, **{"steps": 0, "edges": True, **how}
    )


def test_edges_of_transformer_lens(golden):
    model = golden_model("overthinking", "tiny_gpt2")
    found = scored(model, *as_pair(golden, "edge"))
    info = adapt(model).info
    writers, readers = writer_names(info), reader_names(info)
    compared = 0
    for row, expected in zip(golden["edge_index"].tolist(), golden["edge_score"], strict=True):
        (kind, layer, head, position), (to, to_layer, to_head, at) = row[:4], row[4:]
        writer = {0: "embed", 1: f"{layer}.{head}", 2: f"mlp {layer}"}[kind]
        letter = {3: "q", 4: "k", 5: "v"}.get(to)
        reader = (
            f"{to_layer}.{to_head} {letter}"
            if letter
            else f"mlp {to_layer}"
            if to == 6
            else "logits"
        )
        place = position if at < 0 else at
        assert place == position
        own = found.edges[0, place, writers.index(writer), readers.index(reader)]
        assert abs(float(own) - expected) <= 5e-5, (writer, reader)
        compared += 1
    assert compared == 3353


@pytest.mark.parametrize("family", FAMILIES)
def test_edges_of_a_writer_add_up_to_its_node(family):
    model = tiny_model(family)
    pair = build_prompt_pairs(TASK, model, shots=1, n=4)
    found = scored(model, *pair)
    assert_close(
        found.edges.sum(-1).transpose(1, 2), found.nodes, atol=2e-4, rtol=1e-3, check_dtype=False
    )
    assert float(found.nodes.abs().max()) > 1e-2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_path_between_embeddings_is_complete(family):
    model = tiny_model(family)
    pair = build_prompt_pairs(TASK, model, shots=1, n=4)
    found = attribution_patching(model, *pair, steps=64, exact=False)
    assert float(found.missed.abs().max()) <= 1e-3 * max(1.0, float(found.gap.abs().max()))
    WORDS(found.summary(), "path_between_embeddings_complete", "64")
    assert "With 64 integration steps" in found.figures()[0].answer
    plain = attribution_patching(model, *pair, exact=False)
    assert float(plain.missed.abs().max()) > 1e-2
    small = attribution_patching(model, *pair, exact=False, batch_size=1)
    assert_close(small.nodes, plain.nodes, atol=1e-4, rtol=1e-3)


def test_exact_patching_by_hand():
    model = tiny_model("gpt2")
    true, false = build_prompt_pairs(TASK, model, shots=1, n=4)
    found = attribution_patching(model, true, false)
    assert found.agreement.shape == (4,)
    by_hand = icl.predict(
        model, false, interventions=[icl.Patch("z", [(1, 2)], at="all", source=true)]
    )
    plain = icl.predict(model, false)
    change = contrast(by_hand.label_logits, false) - contrast(plain.label_logits, false)
    assert_close(found.exact[:, 1, 2], change.double(), atol=1e-4, rtol=1e-3)


def test_rank_agreement_by_hand():
    one = torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    other = torch.tensor([[1.0, 2.0, 4.0, 3.0], [3.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
    found = rank_agreement(one, other)
    assert float(found[0]) == pytest.approx(0.8)
    assert float(found[1]) == pytest.approx(-1.0)
    assert bool(found[2].isnan())


def test_shown_saved_and_read(tmp_path):
    model = tiny_model("llama")
    pair = build_prompt_pairs(TASK, model, shots=1, n=6)
    found = attribution_patching(model, *pair, edges=True)
    found.save(tmp_path / "own")
    again = type(found).load(tmp_path / "own")
    assert again.summary() == found.summary()
    assert "rank agreement" in found.summary()
    for show in found.shows:
        assert found.plot(show).data
    assert {"label_word", "target"} <= set(found.by_role())
    assert_close(sum(found.by_role().values()), found.nodes.double().mean(0), atol=1e-5, rtol=1e-5)
    writer, reader, score = found.top_edges(3)[0]
    assert float(found.interval("edges", node=writer, reader=reader).value) == pytest.approx(score)
    assert len(found.figures()) == 2
    assert len(found.to_pandas()) == 12


def test_refusals():
    model = tiny_model("gpt2")
    true, false = build_prompt_pairs(TASK, model, shots=1, n=4)
    with pytest.raises(PromptError, match="pairs"):
        attribution_patching(model, true[:3], false)
    with WORDS.raises(RunError, "refusals"):
        attribution_patching(
            model, true, false, interventions=[icl.Patch("z", [(0, 0)], source=true)]
        )
    gemma = tiny_model("gemma3")
    pair = build_prompt_pairs(TASK, gemma, shots=1, n=4)
    with WORDS.raises(RunError, "refusals_2"):
        attribution_patching(gemma, *pair, edges=True)
