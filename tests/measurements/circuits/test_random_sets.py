"""Random sets of the size of a circuit: those of edges are connected."""

import time

import pytest
import torch

import icl_mech as icl
from icl_mech import circuit_faithfulness
from icl_mech.errors import RunError
from icl_mech.measurements.circuits.graph import Circuit, Components
from icl_mech.measurements.circuits.random_sets import random_sets
from icl_mech.measurements.circuits.runs import Sets
from icl_mech.models import ModelInfo, adapt
from icl_mech.results.words import Words as File
from tests.measurements.circuits.test_circuit_faithfulness import pair_of
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


def answer(result, show="circuit"):
    return File("circuit_faithfulness").say(f"{show}_answer", result=result)


@pytest.mark.parametrize(
    ("family", "parallel"), [("gpt2", False), ("llama", False), ("neox", True)]
)
def test_random_edges_are_connected(family, parallel):
    info = adapt(tiny_model(family)).info
    parts = Components.of(info, "edges", parallel=parallel)
    total = len(parts)
    for count in (0, 1, 2, 3, 4, 7, 20, total // 10, total // 2, total - 1, total):
        drawn = random_sets(parts, info, count, draws=5, seed=3)
        for chosen in drawn:
            assert int(chosen.sum()) == count
            assert torch.equal(parts.connected(chosen, info), chosen)
        again = random_sets(parts, info, count, draws=5, seed=3)
        assert all(torch.equal(a, b) for a, b in zip(drawn, again, strict=True))
        if 1 < count < total:
            assert len({tuple(chosen.tolist()) for chosen in drawn}) > 1


def test_every_edge_can_be_drawn():
    info = adapt(tiny_model("llama")).info
    parts = Components.of(info, "edges")
    drawn = torch.stack(random_sets(parts, info, 20, draws=1000, seed=0))
    assert bool(drawn.any(0).all())


def test_random_nodes_are_drawn_uniformly():
    info = adapt(tiny_model("llama")).info
    parts = Components.of(info, "heads")
    (chosen,) = random_sets(parts, info, 3, draws=1, seed=5)
    generator = torch.Generator().manual_seed(5 + 104729 * 3)
    order = torch.randperm(12, generator=generator)
    assert sorted(order[:3].tolist()) == chosen.nonzero().flatten().tolist()


def test_sets_of_a_large_model_take_little_time():
    tiny = adapt(tiny_model("gpt2")).info
    info = ModelInfo(**{**vars(tiny), "n_layers": 12, "n_heads": 12, "n_kv_heads": 12})
    parts = Components.of(info, "edges")
    assert len(parts) == 32491
    started = time.process_time()
    for fraction in (0.001, 0.01, 0.1, 0.5):
        count = int(fraction * len(parts))
        (chosen,) = random_sets(parts, info, count, draws=1, seed=0)
        assert int(parts.connected(chosen, info).sum()) == count
    assert time.process_time() - started < 5


def test_sets_have_as_many_edges_as_are_left_of_the_circuit():
    info = adapt(tiny_model("gpt2")).info
    parts = Components.of(info, "edges")
    scores = torch.rand(parts.mask.shape, generator=torch.Generator().manual_seed(0))
    sets = Sets.of(
        parts,
        Circuit("edges", scores),
        info,
        fraction=0.3,
        fractions=(0.05, 0.2, 0.3, 1.0),
        ranking="signed",
        draws=3,
        seed=0,
    )
    assert 0 < int(sets.circuit.sum()) < sets.before_pruning == int(0.3 * len(parts))
    for chosen, drawn in (
        (sets.circuit, sets.random),
        *zip(sets.curve, sets.random_curve, strict=True),
    ):
        left = parts.connected(chosen, info)
        assert torch.equal(left, chosen)
        assert [int(parts.connected(one, info).sum()) for one in drawn] == [int(left.sum())] * 3
    assert sets.acting[-1] == sets.sizes[-1] == len(parts)


def test_random_edges_change_the_answer():
    model = tiny_model("gpt2")
    result = circuit_faithfulness(
        model, *pair_of(model), granularity="edges", fraction=0.05, fractions=(0.05,), draws=6
    )
    total = len(result.components)
    assert 0 < len(result.chosen) < result.before_pruning == int(0.05 * total)
    assert result.acting == (len(result.chosen),)
    assert len(result.overlap) == 6
    for metric in (result.random_alone, result.random[:, 0]):
        moved = (metric - result.empty[:, None]).abs().amax(0)
        assert float(moved.min()) > 1e-5
    assert float(result.random_alone.double().mean(0).std()) > 0


def test_only_edges_on_a_path_are_listed():
    model = tiny_model("gpt2")
    pair, info = pair_of(model), adapt(model).info
    parts = Components.of(info, "edges")
    path = ("embed > 0.1 v", "0.1 > mlp 1", "mlp 1 > logits")
    dead = ("embed > mlp 0", "mlp 2 > logits")
    kept = parts.laid(torch.tensor([name in (*path, *dead) for name in parts.names]))
    result = circuit_faithfulness(
        model, *pair, circuit=Circuit("edges", kept=kept), granularity="edges", draws=2
    )
    assert set(result.chosen) == set(path)
    assert result.before_pruning == 5
    WORDS(answer(result), "pruned", 2)
    kept = parts.laid(torch.tensor([name in dead for name in parts.names]))
    with WORDS.raises(RunError, "empty", 2):
        circuit_faithfulness(
            model, *pair, circuit=Circuit("edges", kept=kept), granularity="edges", draws=2
        )


def test_scores_of_unconnected_edges_cannot_be_judged():
    model = icl.planted_model(circuit="heads")
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    parts = Components.of(adapt(model).info, "edges")
    scores = torch.zeros(parts.mask.shape)
    scores[1, -2] = 1.0
    result = circuit_faithfulness(
        model,
        *pair,
        circuit=Circuit("edges", scores),
        granularity="edges",
        fraction=1e-6,
        fractions=(),
        draws=2,
    )
    assert result.chosen == ()
    assert result.status == result.cut_status == "cannot be judged"
    WORDS(answer(result), "no_path")


@pytest.mark.parametrize("granularity", ["heads", "edges"])
def test_the_whole_model_is_not_compared_with_itself(granularity):
    model = icl.planted_model(circuit="heads")
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    result = circuit_faithfulness(
        model, *pair, fraction=1.0, fractions=(), granularity=granularity, draws=2
    )
    assert result.has_gap
    assert result.status == result.cut_status == "cannot be judged"
    WORDS(answer(result), "itself")
