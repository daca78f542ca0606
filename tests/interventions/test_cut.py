"""`Cut`: plainly masked runs in all families and layouts, Isolate and Suppress spelled out, controls, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.layouts import common_prefix
from icl_mech.errors import PromptError
from icl_mech.interventions import Cut, TokenSet, load_intervention
from icl_mech.interventions.token_sets import members
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import FAMILIES, tiny_hf, tiny_model, tiny_tokenizer, tokenizer_kind

WORDS = Words(__file__)

CONTEXTUALISE = Cut("units", "units", relation="others")
CUTS = {
    "contextualise": CONTEXTUALISE,
    "aggregate": Cut("units", ["query", "target"]),
    "anchors to the target": Cut("anchors"),
    "own units into anchors": Cut("units", "anchors", relation="own"),
    "one demonstration": Cut(TokenSet("units", units=[1]), "query"),
    "behind a demonstration": Cut(TokenSet("units", units=[0]), "after"),
    "earlier anchors": Cut("anchors", "units", relation="others"),
    "random rows": Cut("before", "random", seed=3),
    "control": Cut("anchors", ["query", "target"], control=True, seed=1),
    "control of one row": Cut("anchors", control=True, seed=2),
    "control between demonstrations": Cut("anchors", "demo_text", "others", control=True),
}
TEXTS = ["The film was a wonderful story. It was good! Was it bad? The plot was good. We left."]


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    hf = precise(request.param)
    model = icl.load_model(hf, tokenizer=tiny_tokenizer(tokenizer_kind(request.param)))
    return request.param, model, icl.build_prompts(TASK, model, shots=2, n=4)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, icl.build_prompts(TASK, model, shots=2, n=4)


def precise(family):
    """In double precision, but for norms that compute in single whatever the model does."""
    model = tiny_hf(family)
    return model if family in ("llama", "gemma3") else model.double()


def logits(model, prompts, changes, **options):
    ((found, *_),) = run(model, prompts, [PredictionReading()], changes, **options)
    return found


def edges_of(cut, prompt, index=0, layer=0):
    """True where an edge is cut, one by one."""
    found = torch.zeros(len(prompt), len(prompt), dtype=torch.bool)
    for rows, columns in cut.blocks(prompt, index, layer):
        inside = [place for place in range(len(prompt)) if place in columns]
        for row in range(len(prompt)):
            if row in rows:
                for column in inside:
                    found[row, column] |= column < row + cut.itself
    return found


def masked_run(family, prompt, edges):
    """Label logits of the Hugging Face model with these edges masked in all layers."""
    model, count = precise(family), len(prompt)
    places = torch.arange(count)
    seen = (places[None] <= places[:, None]) & ~edges

    def mask(window):
        own = seen & (places[:, None] - places[None] < window)
        lowest = torch.finfo(model.dtype).min
        return torch.zeros(1, 1, count, count, dtype=model.dtype).masked_fill(~own, lowest)

    wide = mask(count)
    given = {"full_attention": wide, "sliding_attention": mask(8)} if family == "gemma3" else wide
    with torch.no_grad():
        ids = torch.tensor([prompt.tokens])
        found = model(
            input_ids=ids, attention_mask=given, position_ids=places[None], use_cache=False
        )
    return found.logits[0, prompt.target, list(prompt.label_tokens)]


@pytest.mark.parametrize("name", CUTS)
def test_a_plainly_masked_run(setting, name):
    family, model, prompts = setting
    cut = CUTS[name]
    wanted = torch.stack(
        [masked_run(family, p, edges_of(cut, p, i)) for i, p in enumerate(prompts)]
    )
    plain = torch.stack([masked_run(family, p, torch.zeros(1, dtype=torch.bool)) for p in prompts])
    random = name.startswith(("random", "control"))
    assert not torch.allclose(wanted, plain, atol=1e-5 if random else 1e-3)
    rounding = 1e-6 if wanted.dtype == torch.float64 else 4e-6
    margin = rounding * max(1.0, float(plain.abs().max()))
    alone = [logits(model, prompts[[i]], [cut], path="whole") for i in range(len(prompts))]
    assert_close(torch.cat(alone), wanted, atol=margin, rtol=0, check_dtype=False)
    for found in (
        logits(model, prompts, [cut], path="whole"),
        logits(model, prompts, [cut]),
        logits(model, prepare(model, prompts, batch_size=2), [cut]),
        run_variants(model, prompts, [PredictionReading()], [[], [cut], [replace(cut, layers=[1])]])[1][0][0],
    ):  # fmt: skip
        assert_close(found, wanted, atol=margin, rtol=0, check_dtype=False)


def test_zero_sets_the_pattern(gpt2):
    """Not renormalised: the row keeps what it had of other tokens."""
    model, prompts = gpt2
    assert not torch.allclose(
        logits(model, prompts, [CONTEXTUALISE]),
        logits(model, prompts, [replace(CONTEXTUALISE, mode="zero")]),
    )
    segment = Segment.whole(adapt(model), prompts)
    ((site, hook),) = replace(CONTEXTUALISE, mode="zero", layers=[1]).hooks(segment)
    pattern = torch.rand(len(prompts), 4, *segment.dest.shape[1:], segment.src.shape[1])
    found = hook(pattern.clone())
    assert (site.name, site.layer) == ("pattern", 1)
    for row, prompt in enumerate(prompts):
        own = edges_of(CONTEXTUALISE, prompt, row)
        corner = (slice(None), slice(-len(prompt), None), slice(-len(prompt), None))
        assert_close(found[row][corner], pattern[row][corner].masked_fill(own, 0.0), atol=0, rtol=0)


def test_heads_add_up(gpt2):
    """All heads of a layer are the layer, and one is not."""
    model, prompts = gpt2
    every = [(1, head) for head in range(4)]
    layer = logits(model, prompts, [replace(CONTEXTUALISE, layers=[1])], path="whole")
    heads = logits(model, prompts, [replace(CONTEXTUALISE, heads=every)], path="whole")
    assert_close(heads, layer, atol=0, rtol=0)
    one = logits(model, prompts, [replace(CONTEXTUALISE, heads=every[:1])], path="whole")
    assert not torch.allclose(one, layer, atol=1e-4)


NAMED = {
    "label words": (icl.Isolate([0, 2]), Cut("before", "anchors", layers=[0, 2])),
    "after softmax": (icl.Isolate([1], mode="zero"), Cut("before", "anchors", layers=[1], mode="zero")),
    "random tokens": (
        icl.Isolate([0], "random", redraw="layer", seed=2),
        Cut("before", TokenSet("random", redraw="layer", seed=2), layers=[0]),
    ),
    "positions": (
        icl.Isolate([1], positions=[[3, 5]] * 4),
        Cut("before", TokenSet(positions=[[3, 5]] * 4), layers=[1]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("name", NAMED)
def test_isolate_is_a_value_of_it(gpt2, name, path):
    model, prompts = gpt2
    own, spelled = NAMED[name]
    found = logits(model, prompts, [own], path=path)
    assert torch.equal(found, logits(model, prompts, [spelled], path=path))
    assert not torch.equal(found, logits(model, prompts, [], path=path))
    assert own.to_dict()["intervention"] == "Isolate"


def test_suppress_is_a_value_of_it():
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    span = prompts[0].text_spans[1]
    for own, spelled in (
        (icl.Suppress([1]), Cut(TokenSet("spans", units=[1]), "after")),
        (icl.Suppress([0, 1], "all"), Cut(TokenSet("spans", units=[0, 1]), "all", itself=True)),
        (icl.Suppress(positions=[[span]]), Cut(TokenSet(positions=[[span]]), "after")),
    ):
        flows = [
            icl.span_flow(model, prompts, proximity=1, interventions=[edit])
            for edit in (own, spelled)
        ]
        assert all(map(torch.equal, *(flow.matrices for flow in flows)))
        assert own.to_dict()["intervention"] == "Suppress"


@pytest.mark.parametrize("name", CUTS)
def test_saved_and_loaded(gpt2, name):
    _, prompts = gpt2
    cut = CUTS[name]
    again = load_intervention(json.loads(json.dumps(cut.to_dict())))
    assert again.to_dict() == cut.to_dict()
    assert repr(again) == repr(cut)
    assert again.blocks(prompts[0], 0, 0) == cut.blocks(prompts[0], 0, 0)


def test_units_and_relations(gpt2):
    """Own and other units are what the prompt says, edge by edge."""
    _, prompts = gpt2
    prompt = prompts[0]
    number = torch.full((len(prompt),), -1)
    for span in prompt.spans:
        if span.demo is not None:
            number[span.start : span.stop] = span.demo
    number[0] = -1
    own, rows = number[:, None], number[None]
    both = (own >= 0) & (rows >= 0) & torch.ones(len(prompt), len(prompt)).tril(-1).bool()
    assert torch.equal(edges_of(CONTEXTUALISE, prompt), both & (own != rows))
    assert torch.equal(edges_of(Cut("units", "units", "own"), prompt), both & (own == rows))
    assert torch.equal(edges_of(Cut("units", "units"), prompt), both)
    query = edges_of(CUTS["aggregate"], prompt).nonzero()
    assert sorted({*query[:, 0].tolist()}) == list(
        range(int((number >= 0).nonzero().max()) + 1, prompt.target + 1)
    )


def prompt_of(target, anchors=(1,), more=0, seed=0):
    """Random tokens, read at `target`."""
    draw = np.random.default_rng([seed, target])
    return icl.Prompt.from_positions(
        draw.integers(5, 90, target + 1 + more).tolist(),
        label_positions=anchors,
        label_classes=(0,) * len(anchors),
        label_tokens=(7, 11),
        target=target,
        answer=0,
    )


def by_row(cut, prompt, index=0):
    """Columns that are cut, of each row."""
    edges = edges_of(cut, prompt, index)
    return {row: own.nonzero()[:, 0].tolist() for row, own in enumerate(edges) if own.any()}


def positions(src, dst, **how):
    return Cut(TokenSet(positions=[src]), TokenSet(positions=[dst]), **how)


@pytest.mark.parametrize(
    ("src", "dst", "drawn"),
    [
        ([2], [3], {3: [1]}),  # the first token is not drawn
        (
            [0, 2],
            [3, 4],
            {3: [1], 4: [1, 3]},
        ),  # unless the cut has it, in whatever row; row 3 lacks one
        ([(3, 5)], [5, 8], {5: [1, 2]}),
        ([(20, 40)], [41], {41: [*range(1, 20), 40]}),  # all that are left, far as they are
    ],
)
def test_a_control_by_hand(src, dst, drawn):
    cut, prompt = positions(src, dst, control=True), prompt_of(41)
    if src[0] == 0:
        with WORDS.raises(PromptError, "control_by_hand", 3, 2, 1):
            by_row(cut, prompt)
        cut = positions(src, [4], control=True)
        drawn = {4: [1, 3]}
    found = by_row(cut, prompt)
    assert {row: found[row] for row in drawn} == drawn
    assert {row: len(own) for row, own in found.items()} == {
        row: len(own) for row, own in by_row(replace(cut, control=False), prompt).items()
    }


@pytest.mark.slow
def test_a_control_draws_near_tokens_alike():
    """Around one cut token all 16 others within 8 positions, each as often: chi squared of 15 degrees of freedom."""
    prompt, count = prompt_of(40), 800
    draws = [by_row(positions([20], [40], control=True, seed=n), prompt)[40] for n in range(count)]
    places, counts = np.unique(draws, return_counts=True)
    assert places.tolist() == [*range(12, 20), *range(21, 29)]
    assert float(((counts - count / 16) ** 2).sum() / (count / 16)) < 37.7  # p = .001


@pytest.mark.parametrize("seed", range(12))
def test_a_control_takes_as_many_edges_of_each_row(seed):
    """None of the cut, all before the row, about as long, and the same whatever follows."""
    draw = np.random.default_rng(seed)
    target = int(draw.integers(40, 90))
    prompt = prompt_of(target, seed=seed)
    src = sorted({*draw.integers(seed % 2, target, 6).tolist()})
    dst = sorted({*draw.integers(20, target, 4).tolist(), target})
    cut = positions(src, dst, itself=bool(seed % 3))
    control = replace(cut, control=True, seed=seed)
    assert cut.has_control(icl.PromptBatch((prompt,)))
    own, drawn = by_row(cut, prompt), by_row(control, prompt)
    every = {column for columns in own.values() for column in columns}
    assert own.keys() == drawn.keys()
    for row, columns in own.items():
        assert len(drawn[row]) == len(set(drawn[row])) == len(columns)
        assert not {*columns} & {*drawn[row]}
        assert all(column < row and (column > 0 or 0 in every) for column in drawn[row])
        if row - max(columns) > 8 and min(columns) > 8:
            # There are 10 free ones at least within 8 positions of each.
            assert max(abs(a - b) for a, b in zip(columns, drawn[row], strict=True)) <= 8
    longer = prompt_of(target, more=5, seed=seed)
    longer = replace(longer, tokens=(*prompt.tokens, *longer.tokens[target + 1 :]))
    assert by_row(control, longer) == drawn
    assert any(by_row(replace(control, seed=100 + n), prompt) != drawn for n in range(3))


def test_label_words_are_replaced_by_other_tokens_of_demonstrations(gpt2):
    """Not by those of the query, however near: any model needs these."""
    _, prompts = gpt2
    cut = Cut("anchors", "target", control=True)
    for index, prompt in enumerate(prompts):
        inside = {place for unit in members(prompt) for place in unit}
        for seed in range(20):
            (drawn,) = by_row(replace(cut, seed=seed), prompt, index).values()
            assert {*drawn} <= inside - {*prompt.anchors}
    # A cut token of the query is replaced by any.
    query = positions([prompts[0].target - 1], [prompts[0].target], control=True)
    seen = [by_row(replace(query, seed=n), prompts[0])[prompts[0].target][0] for n in range(60)]
    assert {*seen} - {place for unit in members(prompts[0]) for place in unit}


def test_edges_between_demonstrations_have_no_control(gpt2):
    model, prompts = gpt2
    cut = replace(CONTEXTUALISE, control=True)
    assert not CONTEXTUALISE.has_control(prompts)
    assert not cut.has_control(prompts)
    assert not CUTS["aggregate"].has_control(prompts)
    assert CUTS["control"].has_control(prompts)
    assert icl.Isolate([0]).has_control(prompts) is False  # nothing is left before a label word
    first = by_row(CONTEXTUALISE, prompts[0])
    row = min(first)
    with WORDS.raises(
        PromptError, "no_control", "Prompt 0", f"Row {row}", len(first[row]), "0 are"
    ):
        icl.predict(model, prompts, interventions=[cut])
    with pytest.raises(PromptError, match="Prompt 0"):
        cut.check_prompts(prompts)


def test_a_control_of_shared_demonstrations_is_shared(gpt2):
    """Draws of a row depend on what stands before it, so that a common beginning is computed once."""
    _, prompts = gpt2
    assert prompts.source["demonstrations"] == "shared"
    length = common_prefix(prompts)
    assert length > 20
    for name in ("control", "control of one row", "control between demonstrations"):
        assert CUTS[name].shares(prompts, length)
    drawn = {
        tuple(by_row(CUTS["control of one row"], prompt, n)[prompt.target])
        for n, prompt in enumerate(prompts)
    }
    assert len(drawn) > 1


def test_edges_into_the_target_take_one_row_of_each_prompt(gpt2):
    model, prompts = gpt2
    for cut in (Cut("anchors"), Cut("anchors", control=True), Cut("units", mode="zero")):
        assert cut.target_only
        kept = prepare(model, prompts)
        found = logits(model, kept, [cut])
        assert_close(found, logits(model, prompts, [cut], path="whole"), atol=1e-5, rtol=0)
        assert not torch.allclose(found, logits(model, prompts, []), atol=1e-5)
    for cut in (CUTS["aggregate"], Cut("units", "after"), positions([1], [3]), icl.Isolate([0])):
        assert not cut.target_only


def test_isolating_ends_of_sentences():
    """Anchors of texts are the last tokens of their spans before the target."""
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    assert icl.Isolate([0]).isolated(prompts[0], 0, 0) == prompts[0].anchors
    cut = icl.span_flow(model, prompts, proximity=1, interventions=[icl.Isolate([0])])
    assert not torch.equal(cut.matrices[0], icl.span_flow(model, prompts, proximity=1).matrices[0])
