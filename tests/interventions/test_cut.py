"""`Cut`: plainly masked runs in all families and layouts, Isolate and Suppress spelled out, controls, refusals."""

import json
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.interventions import Cut, TokenSet, load_intervention
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.engine.test_paths import TASK
from tests.tiny import FAMILIES, tiny_hf, tiny_model, tiny_tokenizer, tokenizer_kind

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
    "control": replace(CONTEXTUALISE, control=True, seed=1),
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
    assert name in ("random rows", "control") or not torch.allclose(wanted, plain, atol=1e-3)
    margin = 1e-6 * max(1.0, float(plain.abs().max()))
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["contextualise", "aggregate", "own units into anchors"])
def test_controls_have_as_many_edges_of_each_distance(gpt2, name):
    _, prompts = gpt2
    seen = set()
    for seed in range(5):
        control = replace(CUTS[name], control=True, seed=seed)
        for index, prompt in enumerate(prompts):
            own, drawn = edges_of(CUTS[name], prompt), edges_of(control, prompt, index)
            for distance in range(len(prompt)):
                one, two = own.diagonal(-distance), drawn.diagonal(-distance)
                others = int((~one[1 : prompt.target + 1 - distance]).sum())
                assert int(one.sum()) == int(two.sum())
                # Others first.
                assert int((one & two).sum()) == max(0, int(one.sum()) - others)
            assert not drawn[:, 0].any()  # the first token is in no unit
            assert not drawn[prompt.target + 1 :].any()
            # Whatever batch a prompt is in.
            assert torch.equal(drawn, edges_of(control, prompt, 0))
            seen.add(tuple(drawn.nonzero().flatten().tolist()))
    assert len(seen) == 5 * len(prompts)


def test_isolating_ends_of_sentences():
    """Anchors of texts are the last tokens of their spans before the target."""
    model = tiny_model("gpt2")
    prompts = icl.texts(TEXTS, model)
    assert icl.Isolate([0]).isolated(prompts[0], 0, 0) == prompts[0].anchors
    cut = icl.span_flow(model, prompts, proximity=1, interventions=[icl.Isolate([0])])
    assert not torch.equal(cut.matrices[0], icl.span_flow(model, prompts, proximity=1).matrices[0])
