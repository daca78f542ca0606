"""Circuits: plain Hugging Face, identities, and planted heads."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import (
    Example,
    PromptBatch,
    Task,
    Template,
    build_prompt_pairs,
    build_prompts,
    circuit_faithfulness,
)
from icl_mech.engine import common_prefix
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.base import Options
from icl_mech.measurements.circuits.ablated import Stored
from icl_mech.measurements.circuits.alignment import aligned, margin, split
from icl_mech.measurements.circuits.circuit_faithfulness import GRID, CircuitFaithfulness
from icl_mech.measurements.circuits.edge_scores import eap_ig, points
from icl_mech.measurements.circuits.graph import Circuit, Components
from icl_mech.models import adapt
from icl_mech.planted.heads import FALSE_INDUCTION_HEADS, FUNCTION_VECTOR_HEADS, INDUCTION_HEADS
from icl_mech.results.words import Words as File
from tests.measurements.circuits.explicit import Explicit
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

TEXTS = (
    "good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring", "the movie was good",
    "terrible plot", "home team", "a final match", "Technology", "no hope",
)  # fmt: skip
TASK = Task(
    "tiny",
    Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS)),
)

FAMILIES = ("gpt2", "llama", "neox")
QUIET = Options(progress=False)


def near(ours, theirs):
    """Equal up to rounding."""
    assert_close(
        torch.as_tensor(ours).double(),
        torch.as_tensor(theirs).double(),
        atol=1e-5 * max(1.0, float(torch.as_tensor(theirs).abs().max())),
        rtol=0,
    )


def pair_of(model, n=8):
    return build_prompt_pairs(TASK, model, shots=1, n=n, seed=0)


def ids(prompts, number):
    """Tokens up to the target, and the tokens of the right and the demonstrated label."""
    true, false = (side[number] for side in prompts)
    words = true.label_tokens
    return (
        list(true.tokens[: true.target + 1]),
        list(false.tokens[: false.target + 1]),
        int(words[true.answer]),
        int(words[false.false_answer]),
    )


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("variant", ["paper", "reference"])
def test_edge_scores_of_plain_hugging_face(family, variant):
    model, plain = tiny_model(family), Explicit(tiny_hf(family))
    pair = pair_of(model)
    ours = eap_ig(adapt(model), pair, QUIET, steps=3, variant=variant, grouped=False)
    places = [(k + (variant == "paper")) / 3 for k in range(3)]
    assert points(3, variant) == places
    for number in (0, 5):
        theirs = plain.scores(*ids(pair, number), places)
        assert float(theirs.abs().max()) > 1e-2
        near(ours.edges[number], theirs)
        near(ours.nodes[number], theirs.sum(1))
    # Keys and values that query heads share: the sum over the group.
    shared = eap_ig(adapt(model), pair, QUIET, steps=3, variant=variant)
    info = adapt(model).info
    counts = [info.n_heads, info.n_heads, info.n_heads, 1]
    group = info.n_heads // info.n_kv_heads
    columns = []
    for part in ours.edges[..., :-1].split(sum(counts), dim=2):
        q, k, v, mlp = part.split(counts, dim=2)
        columns += [q, *(x.unflatten(2, (-1, group)).sum(3) for x in (k, v)), mlp]
    near(shared.edges, torch.cat([*columns, ours.edges[..., -1:]], dim=2))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("ablation", ["resample", "zero"])
def test_edges_of_plain_hugging_face(family, ablation):
    model, plain = tiny_model(family), Explicit(tiny_hf(family))
    pair, info = pair_of(model), adapt(model).info
    parts = Components.of(info, "edges", parallel=plain.parallel)
    generator = torch.Generator().manual_seed(3)
    kept = parts.laid(torch.rand(len(parts), generator=generator) < 0.5)
    found = circuit_faithfulness(
        model,
        *pair,
        circuit=Circuit("edges", kept=kept),
        granularity="edges",
        ablation=ablation,
        draws=2,
    )
    alive = parts.laid(parts.connected(kept[parts.mask], info))
    for number in range(3):
        clean, other, right, wrong = ids(pair, number)
        with torch.no_grad():
            counter = plain.run(plain.embed(other)).written
            if ablation == "zero":
                counter = [torch.zeros_like(message) for message in counter]
            results = []
            for inside in (alive, torch.zeros_like(kept)):
                replaced = ungrouped(parts.mask & ~inside, info)
                run = plain.run(plain.embed(clean), replaced, counter)
                results.append(float(run.logits[right] - run.logits[wrong]))
        near([found.alone[number], found.empty[number]], results)
        assert abs(results[0] - float(found.plain[number])) > 1e-3


def ungrouped(edges, info):
    """Edges by key-value head as edges by query head."""
    shared = info.n_heads // info.n_kv_heads
    columns = []
    for part in edges[:, :-1].split(info.n_heads + 2 * info.n_kv_heads + 1, dim=1):
        q, k, v, mlp = part.split([info.n_heads, info.n_kv_heads, info.n_kv_heads, 1], dim=1)
        columns += [q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1), mlp]
    return torch.cat([*columns, edges[:, -1:]], dim=1)


@pytest.mark.parametrize("family", ["gpt2", "llama", "neox"])
@pytest.mark.parametrize("granularity", ["heads", "nodes"])
def test_nodes_of_plain_hugging_face(family, granularity):
    model, plain = tiny_model(family), Explicit(tiny_hf(family))
    pair, info = pair_of(model), adapt(model).info
    names = Components.of(info, "nodes").names
    kept = torch.zeros(1 + len(names), dtype=torch.bool)
    kept[[1, 4, 7, 10]] = True
    circuit = Circuit("nodes", kept=kept)
    found = circuit_faithfulness(model, *pair, circuit=circuit, granularity=granularity, draws=2)
    mlps = [number for number, name in enumerate(names, start=1) if name.startswith("mlp")]
    stays = kept.clone()
    stays[0] = True
    if granularity == "heads":
        stays[mlps] = True
    for number in range(3):
        clean, other, right, wrong = ids(pair, number)
        with torch.no_grad():
            counter = plain.run(plain.embed(other)).written
            readers = 3 * info.n_heads * info.n_layers + info.n_layers + 1
            replaced = (~stays)[:, None].expand(-1, readers)
            run = plain.run(plain.embed(clean), replaced, counter)
        near(found.alone[number], run.logits[right] - run.logits[wrong])


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_ablated_heads_are_those_of_other_interventions(family):
    model = tiny_model(family)
    pair = pair_of(model)
    heads = [(0, 1), (1, 2), (2, 0)]
    others = [(layer, h) for layer in range(3) for h in range(4) if (layer, h) not in heads]
    patched = icl.predict(
        model, pair[0], interventions=[icl.Patch("z", others, at="all", source=pair[1])]
    )
    found = circuit_faithfulness(model, *pair, circuit=heads, draws=2)
    near(found.alone, margin(patched.label_logits.double(), *pair))
    assert found.chosen == ("0.1", "1.2", "2.0")
    cut = icl.predict(
        model, pair[0], interventions=[icl.Patch("z", heads, at="all", source=pair[1])]
    )
    near(found.cut, margin(cut.label_logits.double(), *pair))
    zeroed = icl.predict(model, pair[0], interventions=[icl.ZeroHeads(others, at="all")])
    found = circuit_faithfulness(model, *pair, circuit=heads, ablation="zero", draws=2)
    near(found.alone, margin(zeroed.label_logits.double(), *pair))


def test_means_by_hand():
    model = tiny_model("gpt2")
    pair = pair_of(model)
    heads = [(0, 1), (2, 0)]
    found = circuit_faithfulness(model, *pair, circuit=heads, ablation="mean", draws=2)
    first, test = split(pair, 0)
    own = adapt(model)
    held = {}
    for side in first:
        for prompt in side:
            tokens = torch.tensor([prompt.tokens])
            z = {}
            hooks = [
                (
                    f"blocks.{layer}.attn.hook_z",
                    lambda value, hook, z=z, layer=layer: z.__setitem__(layer, value[0]),
                )
                for layer in range(3)
            ]
            with torch.no_grad(), own.wrapped.hooks(fwd_hooks=hooks):
                own.wrapped(tokens)
            for number, span in enumerate(prompt.spans):
                for position in range(span.start, span.stop):
                    for layer in range(3):
                        held.setdefault((layer, number, position - span.start), []).append(
                            z[layer][position].reshape(4, -1)
                        )
    everything = [prompt for side in (*first, *test) for prompt in side]
    lengths = [
        {p.spans[i].stop - p.spans[i].start for p in everything}
        for i in range(len(everything[0].spans))
    ]
    for row in range(2):
        prompt = test[0][row]
        hooks = []
        for layer in range(3):

            def replace(value, hook, layer=layer, prompt=prompt):
                value = value.clone()
                shape = value.shape
                by_head = value.reshape(1, shape[1], 4, -1)
                for number, span in enumerate(prompt.spans):
                    for position in range(span.start, span.stop):
                        alike = len(lengths[number]) == 1
                        keys = [
                            key
                            for key in held
                            if key[:2] == (layer, number)
                            and (not alike or key[2] == position - span.start)
                        ]
                        mean = torch.stack([v for key in keys for v in held[key]]).mean(0)
                        for head in range(4):
                            if (layer, head) not in heads:
                                by_head[0, position, head] = mean[head]
                return by_head.reshape(shape)

            hooks.append((f"blocks.{layer}.attn.hook_z", replace))
        with torch.no_grad(), own.wrapped.hooks(fwd_hooks=hooks):
            logits = own.wrapped(torch.tensor([prompt.tokens]))[0, prompt.target]
        words = prompt.label_tokens
        expected = logits[words[prompt.answer]] - logits[words[test[1][row].false_answer]]
        near(found.alone[row], expected)


@pytest.mark.parametrize("granularity", ["heads", "nodes", "edges"])
def test_everything_and_nothing(granularity):
    model = tiny_model("llama")
    pair = pair_of(model)
    found = circuit_faithfulness(model, *pair, granularity=granularity, steps=2, draws=2)
    values = found.sel("faithfulness").values
    total = len(found.components)
    assert found.fractions == GRID
    assert [found.sizes[place] for place in found.at] == [int(f * total) for f in GRID]
    assert float(values[found.sizes.index(total)]) == 1.0
    assert torch.equal(found.curve[:, found.sizes.index(total)], found.plain)
    assert float(found.curve_divergence[:, found.sizes.index(total)].abs().max()) <= 1e-6
    assert found.sizes[0] == 0
    assert float(values[0]) == 0.0
    assert torch.equal(found.curve[:, 0], found.empty)
    if granularity == "edges":
        _, test = split(pair, 0)
        other = margin(icl.predict(model, test[1]).label_logits.double(), *test)
        near(found.empty, other)


@pytest.mark.parametrize("ablation", ["resample", "mean", "zero"])
def test_shared_demonstrations_are_run_once(ablation):
    model = icl.planted_model(circuit="heads")
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    auto, whole = (
        circuit_faithfulness(model, *pair, circuit=[(1, 0), (4, 1)], ablation=ablation, path=path)
        for path in ("auto", "whole")
    )
    near(auto.alone, whole.alone)
    near(auto.random_cut, whole.random_cut)
    stored = Stored.of_counterfactuals({}, pair) if ablation == "resample" else None
    assert stored is None or common_prefix(pair[0]) <= stored.common < int(pair[0].lengths.min())


def test_edges_of_nodes_are_nodes():
    model = tiny_model("llama")
    pair, info = pair_of(model), adapt(model).info
    kept = (
        torch.rand(
            1 + info.n_layers * (info.n_heads + 1), generator=torch.Generator().manual_seed(1)
        )
        < 0.6
    )
    kept[0] = True
    parts = Components.of(info, "edges")
    edges = Circuit("edges", kept=parts.mask & kept[:, None])
    by_edge = circuit_faithfulness(model, *pair, circuit=edges, granularity="edges", draws=2)
    by_node = circuit_faithfulness(
        model, *pair, circuit=Circuit("nodes", kept=kept), granularity="nodes", draws=2
    )
    near(by_edge.alone, by_node.alone)
    reduced = circuit_faithfulness(model, *pair, circuit=edges, granularity="nodes", draws=2)
    assert reduced.reduced
    assert not by_node.reduced
    assert torch.equal(reduced.alone, by_node.alone)


def test_areas_by_hand():
    model = tiny_model("gpt2")
    found = circuit_faithfulness(model, *pair_of(model), steps=2, draws=2)
    gap = (found.plain - found.empty).double().mean()
    curve = ((found.curve - found.empty[:, None]).double().mean(0) / gap)[list(found.at)]
    cpr = cmd = 0.0
    for i in range(len(GRID) - 1):
        width = GRID[i + 1] - GRID[i]
        cpr += width * float(curve[i] + curve[i + 1]) / 2
        cmd += width * float((1 - curve[i]).abs() + (1 - curve[i + 1]).abs()) / 2
    assert float(found.quantities()["cpr"].value()) == pytest.approx(cpr)
    assert float(found.quantities()["cmd"].value()) == pytest.approx(cmd)


def test_unconnected_edges_do_nothing():
    info = adapt(tiny_model("gpt2")).info
    parts = Components.of(info, "edges")
    chosen = torch.tensor(
        [name in ("0.1 > mlp 1", "embed > mlp 0", "mlp 2 > logits") for name in parts.names]
    )
    assert not bool(parts.connected(chosen, info).any())
    path = torch.tensor(
        [name in ("embed > 0.1 v", "0.1 > mlp 1", "mlp 1 > logits") for name in parts.names]
    )
    assert torch.equal(parts.connected(path, info), path)


def test_alignment_of_unequal_spans():
    model = icl.planted_model()
    true, false = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=4)
    rows = aligned(true, false)
    assert torch.equal(rows[0, : len(true[0])], torch.arange(len(true[0])))


def test_the_word_that_another_query_leads_to():
    """Choices differ by prompt: the counterfactual's right word is looked up among those of the clean prompt."""
    prompts = build_prompts(TASK, tiny_model("gpt2"), shots=1, n=3)

    def with_choices(*names):
        rows = [
            replace(
                prompt,
                kind="choices",
                label_words=tuple((300 + ord(letter),) for letter in letters),
                labels=tuple(letters),
                answer=0,
                false_answer=None,
            )
            for prompt, letters in zip(prompts, names, strict=True)
        ]
        return PromptBatch(tuple(rows))

    clean = with_choices("abc", "abc", "abc")
    other = with_choices("cab", "dab", "abc")
    logits = torch.tensor([[1.0, 2.0, 4.0]] * 3)
    # c is scored; d is not, and a is right: the mean of the others.
    assert margin(logits, clean, other).tolist() == [1 - 4, 1 - 3, 1 - 3]
    taught = PromptBatch(tuple(replace(prompt, false_answer=2) for prompt in other))
    assert margin(logits, clean, taught).tolist() == [1 - 2, 1 - 2, 1 - 4]


@pytest.mark.parametrize("circuit", [None, [(0, 1)]])
def test_means_of_different_roles_are_refused_before_anything_runs(circuit, monkeypatch):
    model = tiny_model("gpt2")
    pairs = [build_prompt_pairs(TASK, model, shots=shots, n=8, seed=0) for shots in (1, 2)]
    mixed = [
        PromptBatch((*pairs[0][side][[0, 1, 2, 3]], *pairs[1][side][[4, 5, 6, 7]]))
        for side in (0, 1)
    ]

    def runs(*args, **options):
        raise AssertionError(args)

    monkeypatch.setattr(f"{CircuitFaithfulness.__module__}.eap_ig", runs)
    monkeypatch.setattr(CircuitFaithfulness, "passes", runs)
    with pytest.raises(PromptError, match="ablation='mean'"):
        circuit_faithfulness(model, *mixed, circuit=circuit, ablation="mean", draws=2)


def test_planted_heads_carry_what_demonstrations_change():
    model = icl.planted_model(circuit="heads")
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    heads = (*FUNCTION_VECTOR_HEADS, *INDUCTION_HEADS, *FALSE_INDUCTION_HEADS)
    found = circuit_faithfulness(model, *pair, circuit=heads)
    assert found.status == found.cut_status == "supported"
    assert found.carried.value == pytest.approx(1.0, abs=0.01)
    assert found.lost.value == pytest.approx(1.0, abs=0.01)
    noise = [(0, 3), (1, 1), (1, 3), (2, 0), (2, 2), (3, 1), (3, 3), (4, 0), (4, 2)]
    other = circuit_faithfulness(model, *pair, circuit=noise)
    assert other.status in ("not shown", "opposite")
    assert other.carried.value == pytest.approx(0.0, abs=0.01)
    selected = circuit_faithfulness(model, *pair, fraction=9 / 28)
    assert {tuple(map(int, name.split("."))) for name in selected.chosen} == set(heads)
    assert selected.count == selected.selected == 12


def test_saved_and_read(tmp_path):
    model = tiny_model("llama")
    found = circuit_faithfulness(model, *pair_of(model), steps=2, draws=2)
    found.save(tmp_path / "kept")
    again = type(found).load(tmp_path / "kept")
    assert torch.equal(again.curve, found.curve)
    assert again.chosen == found.chosen
    assert np.isclose(
        float(again.quantities()["cpr"].value()), float(found.quantities()["cpr"].value())
    )


def test_a_cell_of_a_sweep(tmp_path):
    planted = icl.planted_model(circuit="heads")
    measured = CircuitFaithfulness(fraction=9 / 28, fractions=(), draws=2)
    swept = icl.sweep(
        planted, icl.planted_task(), [measured], shots=1, seeds=(0, 1), n=16, out=tmp_path / "sweep",
        progress=False,
    )  # fmt: skip
    assert [item.state for item in swept.items.itertuples()] == ["done", "done"]
    average = swept.average("circuit_faithfulness.carried", over="seed")
    assert float(average.to_pandas()["value"].iloc[0]) == pytest.approx(1.0, abs=0.01)


def test_an_error_in_the_mixture_shows():
    """Edges that are left out of the ablation change the metric."""
    model = tiny_model("gpt2")
    pair, info = pair_of(model), adapt(model).info
    parts = Components.of(info, "edges")
    first = parts.names.index("embed > logits")
    one = torch.ones(len(parts), dtype=torch.bool)
    one[first] = False
    whole = circuit_faithfulness(
        model, *pair, circuit=Circuit("edges", kept=parts.mask), granularity="edges", draws=1
    )
    less = circuit_faithfulness(
        model, *pair, circuit=Circuit("edges", kept=parts.laid(one)), granularity="edges", draws=1
    )
    assert torch.equal(whole.alone, whole.plain)
    # The target's token is the same in both prompts: only this edge does nothing.
    near(less.alone, whole.plain)
    one[first], one[parts.names.index("mlp 2 > logits")] = True, False
    less = circuit_faithfulness(
        model, *pair, circuit=Circuit("edges", kept=parts.laid(one)), granularity="edges", draws=1
    )
    assert float((less.alone - whole.plain).abs().max()) > 1e-2


def test_edges_that_parallel_blocks_do_not_have():
    model = tiny_model("neox")
    info = adapt(model).info
    kept = Components.of(info, "edges").mask
    with pytest.raises(RunError, match=r"0\.0 > mlp 0"):
        circuit_faithfulness(
            model, *pair_of(model), circuit=Circuit("edges", kept=kept), granularity="edges"
        )


def test_said():
    model = icl.planted_model(circuit="heads")
    pair = icl.build_prompt_pairs(icl.planted_task(), model, shots=1, n=24)
    result = circuit_faithfulness(model, *pair, fraction=9 / 28, draws=2)
    above = result.empty + (result.plain - result.empty) * 3.4e-8
    nearly = result.empty + (result.plain - result.empty) * 0.99996
    result = replace(
        result, alone=nearly, random_alone=above[:, None].expand(-1, 2), cut=above, random_cut=nearly[:, None].expand(-1, 2)
    )  # fmt: skip
    said = File("circuit_faithfulness").say("circuit_answer", result=result)
    WORDS(said, "circuit")
    assert not re.search(r"0\.9999|e[−-]\d|undefined", said + result.summary())
    flat = replace(result, plain=result.empty)
    assert not flat.has_gap
    WORDS.exactly(File("circuit_faithfulness").say("faithfulness_answer", result=flat), "no_gap")
