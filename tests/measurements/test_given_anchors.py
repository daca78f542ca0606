"""Anchors that the user names in texts: every measurement of anchors reads just these tokens."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.measurements import CompareCompression
from icl_mech.models import adapt
from tests.measurements.test_texts_as_prompts import demonstrations, plain
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

TEXTS = [
    "The film was good. It was a story! Was it bad? The plot was good. We left.",
    "The team won on Monday. It was a boring story. Who is it? The plot was bad.",
    "A movie is good. It was a story and it was bad! The plot was good and we left it.",
]
NAMED = [["film", "a story", "plot"], ["team", (31, 45), "plot"], ["is good", "story and", "plot"]]
ANCHORS = [["film", "story", "plot"], ["team", "story", "plot"], ["good", "and", "plot"]]
"""The last word of each, which the anchor ends."""


@pytest.fixture(scope="module")
def model():
    return adapt(tiny_model("gpt2"))


@pytest.fixture(scope="module")
def prompts(model):
    return icl.texts(TEXTS, model, anchors=NAMED)


def test_the_last_token_of_each_collects_what_stands_since_the_one_before(prompts):
    for prompt, text, words in zip(prompts, TEXTS, ANCHORS, strict=True):
        before = ["".join(prompt.pieces[: place + 1]) for place in prompt.anchors]
        assert len(before) == 3
        for own, word in zip(before, words, strict=True):
            assert own == text[: text.index(word) + len(word)]
        starts = [1, *(place + 1 for place in prompt.anchors[:-1])]
        assert prompt.units == tuple(zip(starts, prompt.anchors, strict=True))
        assert prompt.target == len(prompt) - 1
    assert prompts.source["spans"] == "behind anchors"


def test_flow_reads_them(model, prompts):
    flow = icl.flow_scores(model, prompts)
    maps = icl.saliency_maps(model, prompts)
    for row, prompt in enumerate(prompts):
        edges = maps.values[row]
        into = torch.cat([edges[:, place, :place] for place in prompt.anchors], dim=1).mean(1)
        out = edges[:, prompt.target, list(prompt.anchors)].mean(1)
        assert torch.allclose(flow.per_prompt[row, :2].float(), torch.stack([into, out]), rtol=1e-4)


def test_isolation_cuts_them_off(model, prompts):
    own = plain(model, prompts, icl.Isolate([0, 1]))
    by_hand = plain(
        model, prompts, icl.Isolate([0, 1], positions=[prompt.anchors for prompt in prompts])
    )
    assert torch.equal(own, by_hand)
    found = icl.isolation(model, prompts, depths=[2], tokens="label")
    kept = (own[:, 0] == plain(model, prompts)[:, 0]).double()
    assert torch.equal(found.label_kept[found.windows.index(("first", 2, "label"))], kept)
    sentences = icl.texts(TEXTS, model)
    assert sentences[0].tokens == prompts[0].tokens
    assert not torch.equal(own, plain(model, sentences, icl.Isolate([0, 1])))


def test_compression_keeps_them(model, prompts):
    own = CompareCompression(("hidden_anchor", "hidden_random"))
    found = icl.measure(model, prompts, own, progress=False)["compare_compression"]
    for prompt, kept in zip(prompts, found.kept[0], strict=True):
        assert kept == (0, *prompt.anchors)
    for prompt, kept in zip(prompts, found.kept[1], strict=True):
        assert set(prompt.anchors).intersection(kept) == {prompt.anchors[-1]}
    assert found.log_prob.isfinite().all()


def test_heads_and_columns_are_read_at_them(model, prompts):
    tokens = icl.anchor_tokens(model, prompts, of="attention", ratio=3.0)
    assert tokens.marked == tuple(prompt.anchors for prompt in prompts)
    (made,) = demonstrations(model, prompts)
    assert [prompt.label_positions for prompt in made] == [prompt.anchors for prompt in prompts]
    heads = icl.head_attention(model, prompts, heads=[(1, 2)])
    for prompt, marks in zip(prompts, heads.marks, strict=True):
        assert tuple(place for place, mark in enumerate(marks) if mark) == prompt.anchors


def test_a_unit_is_left_out_with_its_anchor(model, prompts):
    found = icl.leave_one_out(model, prompts)
    (made,) = demonstrations(model, prompts)
    for row, prompt in enumerate(made):
        logs = []
        for start, stop in ((1, 1), (1, prompt.anchors[0] + 1)):
            shorter = torch.tensor([prompt.tokens[:start] + prompt.tokens[stop:]])
            with torch.no_grad():
                logits = tiny_hf("gpt2")(shorter).logits[0, -1, list(prompt.label_tokens)]
            logs.append(logits.log_softmax(-1)[0])
        assert torch.allclose(found.change[row, 0].float(), logs[0] - logs[1], atol=1e-5)


def test_what_needs_classes_says_so_as_of_any_text(model, prompts):
    with WORDS.raises(PromptError, "what_needs_classes_says", "'vocabulary'"):
        icl.extraction(model, prompts)


def test_sets_of_texts_take_theirs_along(model, prompts):
    own = icl.TextSet("own", TEXTS, anchors=NAMED)
    assert own.prompts(model).prompts == prompts.prompts
    drawn = {prompt.tokens: prompt.anchors for prompt in own.prompts(model, n=3, seed=2)}
    assert drawn == {prompt.tokens: prompt.anchors for prompt in prompts}
    assert own.digest != icl.TextSet("own", TEXTS).digest
    with WORDS.raises(PromptError, "sets_texts_take_theirs", "'own'"):
        icl.TextSet("own", TEXTS, anchors=NAMED[:2])
