"""Files of circuits of other tools."""

import json
import pickle

import pytest
import torch
from torch.testing import assert_close

from icl_mech import read_circuit, write_circuit
from icl_mech.errors import IclMechError, RunError
from icl_mech.measurements.causal.tracing import reader_names, writer_names
from icl_mech.measurements.circuits.graph import Circuit, Components, top
from icl_mech.models import adapt
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def infos():
    return {family: adapt(tiny_model(family)).info for family in ("gpt2", "llama")}


def graph(info, parallel=False):
    """The names of EAP-IG's nodes and edges, by the rules of its graph."""
    edges, stream = [], ["input"]
    for layer in range(info.n_layers):
        heads = [f"a{layer}.h{head}" for head in range(info.n_heads)]
        edges += [f"{u}->{head}<{letter}>" for u in stream for head in heads for letter in "qkv"]
        before = stream if parallel else stream + heads
        edges += [f"{u}->m{layer}" for u in before]
        stream = [*stream, *heads, f"m{layer}"]
    edges += [f"{u}->logits" for u in stream]
    return {
        "cfg": {"n_layers": 3, "n_heads": 4, "parallel_attn_mlp": parallel, "d_model": 32},
        "nodes": {name: {"in_graph": False} for name in [*stream, "logits"]},
        "edges": {name: {"score": i / 7, "in_graph": i % 5 == 0} for i, name in enumerate(edges)},
    }


def place(info, writer, reader):
    return writer_names(info).index(writer), reader_names(info).index(reader)


def test_graphs_of_eap_ig(infos, tmp_path):
    path, info = tmp_path / "graph.json", infos["gpt2"]
    document = graph(info)
    path.write_text(json.dumps(document))
    circuit = read_circuit(path, info)
    parts = Components.of(info, "edges")
    assert len(parts) == len(document["edges"])
    assert bool((~circuit.scores.isnan() == parts.mask).all())
    for name, ours in (
        ("input->a0.h0<q>", ("embed", "0.0 q")),
        ("a1.h2->m2", ("1.2", "mlp 2")),
        ("m1->a2.h3<v>", ("mlp 1", "2.3 v")),
        ("a2.h3->logits", ("2.3", "logits")),
    ):
        assert float(circuit.scores[place(info, *ours)]) == document["edges"][name]["score"]
        assert bool(circuit.kept[place(info, *ours)]) == document["edges"][name]["in_graph"]
    again = write_circuit(circuit, tmp_path / "ours.json", info)
    written = json.loads(again.read_text())
    assert written["edges"].keys() == document["edges"].keys()
    assert written["nodes"].keys() == document["nodes"].keys()
    assert written["cfg"] == document["cfg"]
    second = read_circuit(again, info)
    assert torch.equal(second.kept, circuit.kept)
    assert_close(second.scores, circuit.scores, equal_nan=True)
    used = {name.split("->")[0] for name, edge in document["edges"].items() if edge["in_graph"]}
    assert {name for name, node in written["nodes"].items() if node["in_graph"]} == {
        *used,
        "logits",
    }


def test_shared_keys_and_values(infos, tmp_path):
    path, info = tmp_path / "graph.json", infos["llama"]
    document = graph(info)
    for edge in document["edges"].values():
        edge["in_graph"] = False
    document["edges"]["input->a1.h3<k>"]["in_graph"] = True
    path.write_text(json.dumps(document))
    circuit = read_circuit(path, info)
    ours = place(info, "embed", "1.1 k")
    both = [document["edges"][f"input->a1.h{head}<k>"]["score"] for head in (2, 3)]
    assert float(circuit.scores[ours]) == pytest.approx(sum(both))
    assert circuit.kept.nonzero().tolist() == [list(ours)]
    written = json.loads(write_circuit(circuit, tmp_path / "ours.json", info).read_text())
    assert {name for name, edge in written["edges"].items() if edge["in_graph"]} == {
        "input->a1.h2<k>",
        "input->a1.h3<k>",
    }
    assert_close(read_circuit(tmp_path / "ours.json", info).scores, circuit.scores, equal_nan=True)


def test_tensors_of_eap_ig(infos, tmp_path):
    info = infos["gpt2"]
    document = graph(info)
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(document))
    sources = [name for name in document["nodes"] if name != "logits"]
    readers = [
        name
        for layer in range(3)
        for name in [*(f"a{layer}.h{h}<{x}>" for x in "qkv" for h in range(4)), f"m{layer}"]
    ] + ["logits"]
    scores = torch.zeros(len(sources), len(readers))
    kept = torch.zeros(len(sources), len(readers), dtype=torch.bool)
    for name, edge in document["edges"].items():
        row, column = (
            where.index(x) for where, x in zip((sources, readers), name.split("->"), strict=True)
        )
        scores[row, column], kept[row, column] = edge["score"], edge["in_graph"]
    torch.save(
        {
            "cfg": document["cfg"],
            "src_nodes": sources,
            "dst_nodes": readers,
            "edges_scores": scores,
            "edges_in_graph": kept,
            "nodes_in_graph": torch.zeros(len(sources), dtype=torch.bool),
        },
        tmp_path / "graph.pt",
    )
    one, other = read_circuit(path, info), read_circuit(tmp_path / "graph.pt", info)
    assert torch.equal(one.kept, other.kept)
    assert_close(one.scores, other.scores, equal_nan=True, atol=1e-5, rtol=1e-5)


def test_nodes_with_scores(infos, tmp_path):
    info, path = infos["gpt2"], tmp_path / "nodes.json"
    document = graph(info)
    for number, node in enumerate(document["nodes"].values()):
        node["score"] = float(number)
    path.write_text(json.dumps(document))
    circuit = read_circuit(path, info)
    assert circuit.level == "nodes"
    assert circuit.scores.tolist() == list(map(float, range(16)))
    again = read_circuit(write_circuit(circuit, tmp_path / "ours.json", info), info)
    assert torch.equal(again.scores, circuit.scores)


@pytest.mark.parametrize(
    "document",
    [
        {
            "A0.1->MLP 2": 0.5,
            "Resid Start->A0.0.Q": -1.0,
            "MLP 1->A2.3.V": 2.0,
            "A2.3->Resid End": 0.0,
        },
        ["A0.1->MLP 2", "Resid Start->A0.0.Q", "MLP 1->A2.3.V", "A2.3->Resid End"],
        [
            [["blocks.2.hook_mlp_in", [None], "blocks.0.attn.hook_result", [None, None, 1]], 0.5],
            [["blocks.0.hook_q_input", [None, None, 0], "blocks.0.hook_resid_pre", [None]], -1.0],
            [["blocks.2.hook_v_input", [None, None, 3], "blocks.1.hook_mlp_out", [None]], 2.0],
            [
                ["blocks.2.hook_resid_post", [None], "blocks.2.attn.hook_result", [None, None, 3]],
                0.0,
            ],
            [
                ["blocks.0.attn.hook_q", [None, None, 0], "blocks.0.hook_q_input", [None, None, 0]],
                1.0,
            ],
        ],
    ],
)
def test_edges_of_other_tools(infos, tmp_path, document):
    info, path = infos["gpt2"], tmp_path / "edges.json"
    path.write_text(json.dumps(document))
    circuit = read_circuit(str(path), info)
    expected = {
        place(info, "0.1", "mlp 2"): 0.5,
        place(info, "embed", "0.0 q"): -1.0,
        place(info, "mlp 1", "2.3 v"): 2.0,
        place(info, "2.3", "logits"): 0.0,
    }
    tensor = circuit.kept if circuit.scores is None else ~circuit.scores.isnan()
    assert {tuple(pair) for pair in tensor.nonzero().tolist()} == set(expected)
    if circuit.scores is not None:
        assert {pair: float(circuit.scores[pair]) for pair in expected} == expected
    assert (circuit.kept is None) == isinstance(document, dict)


def test_refusals(infos, tmp_path):
    info, path = infos["gpt2"], tmp_path / "circuit.json"
    with WORDS.raises(RunError, "no_file"):
        read_circuit(tmp_path / "none.json", info)
    path.write_text("{")
    with WORDS.raises(RunError, "no_json"):
        read_circuit(path, info)
    whole = graph(info)
    wrong = {
        "sizes": {**whole, "cfg": {**whole["cfg"], "n_layers": 12}},
        "missing": {"cfg": whole["cfg"], "nodes": {}},
        "names": {**whole, "edges": {"a0.h1->attn": {"score": 1.0}}},
        "entry": {**whole, "edges": {"a0.h1->m2": 3}},
        "score": {**whole, "edges": {"a0.h1->m2": {"score": "high"}}},
        "head": {**whole, "edges": {"a0.h9->m2": {"score": 1.0}}},
        "neurons": {**whole, "edges": {"a0.h1->m2": {"score": 1.0, "neurons": [1]}}},
        "three": {**whole, "edges": {"input->m0->logits": {"score": 1.0}}},
        "edge_as_node": {**whole, "nodes": {"input->m0": {"score": 1.0}}},
        "node_as_edge": {**whole, "edges": {"m0": {"score": 1.0}}},
        "backwards": {**whole, "edges": {"m2->m0": {"score": 1.0}}},
        "same_layer": ["A1.0->A1.1.Q"],
        "parallel": {**graph(info, parallel=True), "edges": {"a1.h0->m1": {"in_graph": True}}},
        "nothing": {**whole, "nodes": {}, "edges": {}},
        "nan": {"A0.1->MLP 2": float("nan")},
        "infinite": {**whole, "edges": {"a0.h1->m2": {"score": float("inf")}}},
        "cfg": {**whole, "cfg": ["n_layers"]},
        "auto": {"A0.1": 3.0},
        "acdc": [[["blocks.2.hook_mlp_in"], 0.5]],
        "empty": [],
    }
    named = {"backwards": "m2->m0", "parallel": "a1.h0->m1", "three": "input->m0->logits"}
    for name, document in wrong.items():
        path.write_text(json.dumps(document))
        with WORDS.raises(RunError, name) as caught:
            read_circuit(path, info)
        assert named.get(name, "") in str(caught.value)
    pickled = tmp_path / "edges.pkl"
    pickled.write_bytes(pickle.dumps([]))
    with WORDS.raises(RunError, "pickle"):
        read_circuit(pickled, info)
    torch.save({"a": 1}, tmp_path / "bad.pt")
    with WORDS.raises(RunError, "tensors"):
        read_circuit(tmp_path / "bad.pt", info)
    with WORDS.raises(RunError, "folder"):
        read_circuit(tmp_path, info)
    with WORDS.raises(RunError, "no_path"):
        read_circuit(None, info)
    with WORDS.raises(RunError, "no_model"):
        read_circuit("circuit.json")
    with pytest.raises(IclMechError):
        read_circuit(path, None)


def tensors(info):
    """A small file of tensors that is right."""
    sources = [
        "input",
        *(f"a{layer}.h{h}" for layer in range(3) for h in range(4)),
        "m0",
        "m1",
        "m2",
    ]
    readers = [
        *(f"a{layer}.h{h}<q>" for layer in range(3) for h in range(4)),
        "m0",
        "m1",
        "m2",
        "logits",
    ]
    size = len(sources), len(readers)
    return {
        "cfg": graph(info)["cfg"],
        "src_nodes": sources,
        "dst_nodes": readers,
        "edges_scores": torch.ones(size),
        "edges_in_graph": torch.ones(size, dtype=torch.bool),
        "nodes_in_graph": torch.ones(len(sources), dtype=torch.bool),
    }


def test_damaged_tensors(infos, tmp_path):
    info, path = infos["gpt2"], tmp_path / "graph.pt"
    whole = tensors(info)
    torch.save(whole, path)
    assert int(read_circuit(path, info).kept.sum()) > 20
    wrong = {
        "pt_nodes": {"nodes_in_graph": torch.ones(5)},
        "pt_node_scores": {"nodes_scores": torch.ones(5)},
        "pt_edges": {"edges_scores": torch.ones(3, 3)},
        "pt_chosen": {"edges_in_graph": [True]},
        "pt_cfg": {"cfg": [1]},
        "pt_source": {"src_nodes": ["foo", *whole["src_nodes"][1:]]},
        "pt_reader": {"dst_nodes": [*whole["dst_nodes"][:-1], "foo"]},
        "pt_names": {"dst_nodes": 3},
        "pt_twice": {"src_nodes": [*whole["src_nodes"][:-1], "input"]},
    }
    for name, changed in wrong.items():
        torch.save({**whole, **changed}, path)
        with WORDS.raises(RunError, name):
            read_circuit(path, info)
    path.write_bytes(b"e")
    with WORDS.raises(RunError, "pt_bytes"):
        read_circuit(path, info)
    torch.save([1], path)
    with WORDS.raises(RunError, "pt_list"):
        read_circuit(path, info)


def test_nodes_without_a_score(infos, tmp_path):
    """EAP-IG writes NaN for nodes that it did not score."""
    info, path = infos["gpt2"], tmp_path / "nodes.json"
    document = graph(info)
    for node in document["nodes"].values():
        node["score"] = float("nan")
    path.write_text(json.dumps(document))
    assert read_circuit(path, info).level == "edges"
    document["nodes"]["m1"]["score"] = 2.0
    path.write_text(json.dumps(document))
    circuit = read_circuit(path, info)
    assert circuit.level == "nodes"
    assert int((~circuit.scores.isnan()).sum()) == 1


def test_refused_to_write(infos, tmp_path):
    info = infos["gpt2"]
    with WORDS.raises(RunError, "no_circuit"):
        write_circuit([(0, 1)], tmp_path / "ours.json", info)
    circuit = Circuit.of_heads([(0, 1)], info)
    with WORDS.raises(RunError, "not_written"):
        write_circuit(circuit, tmp_path / "none" / "ours.json", info)
    kept = torch.zeros(16, 40, dtype=torch.bool)
    kept[place(info, "0.1", "mlp 0")] = True
    with WORDS.raises(RunError, "no_edge"):
        write_circuit(Circuit("edges", kept=kept), tmp_path / "ours.json", info, parallel=True)


def test_unscored_edges_give_no_score_to_a_node():
    scores = torch.tensor([[1.0, float("nan")], [float("nan")] * 2, [-3.0, 1.0]])
    by_node = Circuit("edges", scores).of_nodes().scores
    assert by_node[[0, 2]].tolist() == [1.0, -2.0]
    assert bool(by_node[1].isnan())
    assert top(by_node, 2, "signed").tolist() == [True, False, True]
