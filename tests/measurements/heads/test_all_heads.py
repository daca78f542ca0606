"""Attention of all heads, from any row, against Hugging Face's own pattern; and what browses it."""

import json
import re

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import HeadAttention
from icl_mech.measurements.heads.head_attention import HeadAttentionResult, head_attention
from icl_mech.plots import figure
from icl_mech.plots.still import still
from icl_mech.shapes import Grid, TokenStrips
from icl_mech.shapes.tokens import MANY
from tests.measurements.overthinking_cases import tiny_pairs
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def pattern(hf, tokens):
    """All patterns, layer x head x row x column."""
    hf.set_attn_implementation("eager")
    with torch.no_grad():
        return torch.cat(hf(torch.tensor([tokens]), output_attentions=True).attentions)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, tiny_pairs(model)[1][:3]


@pytest.fixture(scope="module")
def found(gpt2):
    return head_attention(*gpt2)


@pytest.mark.parametrize("family", ["gpt2", "llama", "neox"])
def test_all_heads_are_hugging_faces(family):
    model, hf = tiny_model(family), tiny_hf(family)
    prompts = tiny_pairs(model)[1][:3]
    for row in ("target", 7, 0):
        found = head_attention(model, prompts, row=row)
        for prompt, values in zip(prompts, found.values, strict=True):
            place = prompt.target if row == "target" else row
            own = pattern(hf, prompt.tokens)[:, :, place, : place + 1]
            assert_close(values, own.flatten(0, 1), **CLOSE)
            assert_close(values.sum(-1), torch.ones(len(values)), atol=1e-5, rtol=0)


def test_none_means_all_in_order_of_layers(gpt2, found):
    model, prompts = gpt2
    assert found.heads == tuple((i // 4, i % 4) for i in range(12))
    chosen = head_attention(model, prompts, [(1, 2), (0, 3)])
    for every, some in zip(found.values, chosen.values, strict=True):
        assert_close(every[[6, 3]], some, **CLOSE)
    assert found.provenance["variants"]["heads"] is None
    assert found.interval(layer=1, head=2) == pytest.approx(tuple(chosen.interval(head="1.2")))


def test_rows_by_name_are_the_last_token_of_it(gpt2):
    model, prompts = gpt2
    for row, demo in (("demo_text", 1), ("label_word", 0), ("query_text", None)):
        found = head_attention(model, prompts, [(1, 2)], row=row, demo=demo)
        for number, prompt in enumerate(prompts):
            spans = [own for own in prompt.spans if own.role == row and demo in (None, own.demo)]
            end = spans[-1].stop
            assert found.tokens[number] == prompt.pieces[:end]
            by_number = head_attention(model, prompts[number : number + 1], [(1, 2)], row=end - 1)
            assert_close(found.values[number], by_number.values[0], **CLOSE)
    assert "'query_text'" in found.row
    assert found.view().html.count("icl-target") < head_attention(*gpt2).view().html.count(
        "icl-target"
    )


def test_what_a_label_word_keeps_for_itself_is_no_look_at_label_words(gpt2):
    model, prompts = gpt2
    first = head_attention(model, prompts, row="label_word", demo=0)
    assert not any(map(any, first.marks))  # there is none before it
    second = head_attention(model, prompts, row="label_word", demo=1)
    at = [own.label_spans[0] for own in prompts]
    looks = [
        row[:, one.start : one.stop].sum(-1) for row, one in zip(second.values, at, strict=True)
    ]
    share = second.quantities()["to_label_words"].per_prompt.flatten(1)
    assert_close(share, torch.stack(looks), **CLOSE)


def test_nothing_but_a_row_is_kept(gpt2):
    model, prompts = gpt2
    (one,) = HeadAttention(row=5).passes(icl.models.adapt(model), prompts)
    assert one.readings[0].width == 6


def test_texts_have_anchors(gpt2):
    texts = icl.texts(["The film was good. Nobody saw it. Then a prize came."], gpt2[0])
    found = head_attention(gpt2[0], texts)
    assert [i for i, mark in enumerate(found.marks[0]) if mark] == list(texts[0].anchors)
    bare = icl.build_prompts("reviews", gpt2[0], shots=0, n=2)
    assert (
        found.drawing(show="grid").quantity
        != head_attention(gpt2[0], bare).drawing(show="grid").quantity
    )


def test_the_grid_is_the_share_by_layer_and_head(found):
    grid = found.drawing(show="grid")
    assert isinstance(grid, Grid)
    assert_close(grid.values[2, 1], found.sel("to_label_words").values[1, 2])
    assert [own.show for own in found.figures()] == ["grid", ""]


def test_a_head_by_layer_and_number(found):
    assert found.drawing(head=(2, 1)).first == 9
    assert found.drawing(head=9).first == 9
    for head, said in (((3, 0), "not measured"), (12, "head=12")):
        with WORDS.raises(ResultError, said):
            found.drawing(head=head)


def many():
    """Three layers of five heads over three lines."""
    torch.manual_seed(0)
    heads = tuple((layer, head) for layer in range(3) for head in range(5))
    assert len(heads) > MANY
    tokens = ("Good", ".", "\n", "Bad", " film", "\n", "So", ":")
    values = torch.rand(15, len(tokens)).softmax(-1)
    names = tuple(f"layer {layer}, head {head}" for layer, head in heads)
    return TokenStrips(
        "t", names, values, tokens, ("",) * len(tokens), "attention", first=7, heads=heads
    )


def test_of_many_heads_a_slider_of_layers_brings_that_of_their_heads():
    shape = many()
    fig = figure(shape)
    *maps, text = fig.data
    assert len(maps) == 3
    assert text.mode == "text"
    by_layer, by_head = fig.layout.sliders
    assert (by_layer.active, by_head.active) == (1, 2)
    for layer, chosen in enumerate(by_layer.steps):
        changed, brought, traces = chosen.args
        steps = brought["sliders[1].steps"]
        assert [step["label"] for step in steps] == [str(i) for i in range(5)]
        for head, step in enumerate(steps):
            z = [value for line in step["args"][0]["z"] for value in line[0]]
            assert_close(torch.tensor(z), shape.values[5 * layer + head], atol=1e-4, rtol=0)
        assert changed["z"] == steps[0]["args"][0]["z"]
        assert brought["sliders[1].active"] == 0
        assert list(traces) == [0, 1, 2]
    shown = [list(own.z[0]) for own in maps]
    assert shown == [list(line[0]) for line in by_head.steps[2].args[0]["z"]]
    assert "<svg" in still(fig)


def test_cells_are_as_wide_as_their_tokens():
    fig = figure(many())
    assert list(fig.data[0].x) == [-0.5, 3.5, 4.5, 5.5]
    assert sum(own.showscale for own in fig.data[:-1]) == 1


def test_saved_and_loaded(tmp_path, found):
    found.save(tmp_path / "all")
    loaded = HeadAttentionResult.load(tmp_path / "all")
    assert (loaded.shape, loaded.row, loaded.summary()) == ((3, 4), found.row, found.summary())


def test_a_page_has_sliders_for_many_and_a_map_to_choose_from(tmp_path):
    torch.manual_seed(0)
    model = icl.planted_model()
    prompts = icl.build_prompts(icl.planted_task(), model, shots=1, n=4)
    result = icl.measure(model, prompts, HeadAttention())
    text = result.to_html(tmp_path / "page.html", offline=False).read_text(encoding="utf-8")
    assert text.count('class="pick"') == 2
    data = json.loads(re.search(r'id="page-data">(.*?)</script>', text, re.DOTALL)[1])
    (own,) = [own for own in data["prompts"].values() if own["heads"]]
    assert len(own["rows"]) == len(own["values"]) == len(own["heads"])
    assert own["rows"][5] == "{}.{}".format(*own["heads"][5])


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"row": 10_000}, PromptError, "position 10000"),
        ({"row": "narrative"}, PromptError, "tokens"),
        ({"row": "demo_text", "demo": 99}, PromptError, "demonstration 99"),
        ({"row": "target", "demo": 0}, RunError, "names demonstration"),
        ({"heads": [(9, 0)]}, RunError, "layer 9"),
    ],
)
def test_what_is_not_there_is_refused(gpt2, options, error, said):
    with WORDS.raises(error, said):
        head_attention(*gpt2, **options)


def test_a_grid_of_some_heads_is_refused(gpt2):
    some = head_attention(*gpt2, [(0, 1)])
    with WORDS.raises(ResultError, "grid_some_heads_refused"):
        some.plot("grid")
    assert len(some.figures()) == 1
