"""Attention of chosen heads against the model's own pattern, and the marks by hand."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import ZeroHeads, ZeroLayers
from icl_mech.engine.layouts import common_prefix
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.heads.head_attention import (
    HeadAttention,
    HeadAttentionResult,
    head_attention,
)
from icl_mech.measurements.heads.head_scores import head_scores
from icl_mech.measurements.running import measured
from icl_mech.metrics import mean_interval
from icl_mech.prompts import Prompt, PromptBatch, Span
from tests.measurements.overthinking_cases import (
    CLOSE,
    FAMILIES,
    planted_case,
    planted_pairs,
    tiny_case,
    tiny_pairs,
)
from tests.planted import ATTENDING_DECOYS, INDUCTION_HEADS, PREVIOUS_TOKEN_HEADS
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

HEADS = ((2, 3), (0, 1), (2, 0), (1, 2))


@pytest.fixture(scope="module", params=FAMILIES)
def case(request):
    return tiny_case(request.param)


@pytest.fixture(scope="module")
def found(case):
    return head_attention(case[0], case[2], HEADS)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_case("gpt2")


@pytest.fixture(scope="module")
def planted():
    model, _, _ = planted_case()
    prompts = planted_pairs(model, shots=2)[1][:5]
    return prompts, head_attention(model, prompts, [*INDUCTION_HEADS, *ATTENDING_DECOYS])


def own_attention(model, prompt, heads=HEADS):
    """The target's row by TransformerLens' own cache, one prompt at a time."""
    with torch.no_grad():
        _, cache = model.run_with_cache(torch.tensor([prompt.tokens]))
    rows = [cache[f"blocks.{layer}.attn.hook_pattern"][0, head] for layer, head in heads]
    return torch.stack([row[prompt.target, : prompt.target + 1] for row in rows])


def assert_same(found, expected, tolerance=CLOSE):
    for one, other in zip(found.values, expected.values, strict=True):
        assert_close(one, other, **tolerance)
    assert (found.heads, found.tokens, found.marks) == (
        expected.heads, expected.tokens, expected.marks,
    )  # fmt: skip


# --- values ---


def test_values_are_the_models_own_pattern(case, found):
    model, _, false = case
    assert len(set(false.lengths.tolist())) > 1
    for prompt, values in zip(false, found.values, strict=True):
        assert_close(values, own_attention(model, prompt), **CLOSE)


def test_rows_sum_to_one(found):
    for values in found.values:
        assert_close(values.sum(-1), torch.ones(len(HEADS)), atol=1e-5, rtol=0)


def test_a_value_and_a_mark_for_every_token_up_to_the_target(case, found):
    _, _, false = case
    assert found.heads == HEADS
    for row, prompt in enumerate(false):
        assert found.tokens[row] == prompt.pieces[: prompt.target + 1]
        assert len(found.marks[row]) == len(found.tokens[row]) == found.values[row].shape[1]


@pytest.mark.parametrize("size", [1, 5])
def test_batch_size_changes_nothing(case, found, size):
    assert_same(head_attention(case[0], case[2], HEADS, batch_size=size), found)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shared_beginning_changes_nothing(family, monkeypatch):
    """Where demonstrations are shared, padding stands behind the target's row."""
    model = tiny_model(family)
    _, false = tiny_pairs(model, demonstrations="shared")
    assert common_prefix(false) > max(prompt.label_spans[-1].stop for prompt in false)
    shared = head_attention(model, false, HEADS)
    for prompt, values in zip(false, shared.values, strict=True):
        assert_close(values, own_attention(model, prompt), **CLOSE)
    assert_same(head_attention(model, false, HEADS, batch_size=1), shared)
    monkeypatch.setattr("icl_mech.engine.runs.can_share", lambda *_: False)
    assert_same(head_attention(model, false, HEADS), shared)


def test_heads_come_in_the_order_given(gpt2):
    model, _, false = gpt2
    found = head_attention(model, false, HEADS)
    order = (3, 2, 0, 1)
    other = head_attention(model, false, [HEADS[i] for i in order])
    assert other.heads == tuple(HEADS[i] for i in order)
    for one, two in zip(found.values, other.values, strict=True):
        assert_close(one[list(order)], two, **CLOSE)


def early(prompt, demo):
    """The same tokens, read before the label of a demonstration."""
    spans = prompt.label_spans
    return Prompt.from_positions(
        prompt.tokens,
        label_positions=[span.start for span in spans],
        label_lengths=[span.stop - span.start for span in spans],
        label_classes=prompt.label_classes,
        label_tokens=prompt.label_tokens,
        answer=prompt.answer,
        false_answer=prompt.false_answer,
        target=spans[demo].start - 1,
    )


def test_tokens_after_the_target_are_left_out(gpt2):
    """Each prompt is read at another place, none at its end."""
    model, _, false = gpt2
    prompts = PromptBatch(tuple(early(prompt, 2 + i % 3) for i, prompt in enumerate(false[:6])))
    found = head_attention(model, prompts, HEADS)
    for row, prompt in enumerate(prompts):
        assert_close(found.values[row], own_attention(model, prompt), **CLOSE)
        sizes = [s.stop - s.start for s in prompt.label_spans if s.start < prompt.target]
        assert sum(map(bool, found.marks[row])) == sum(sizes)
    scores = head_scores(model, prompts)
    assert_close(labels_of(found), chosen(scores.attending), **CLOSE)


def test_interventions_are_made(gpt2):
    model, _, false = gpt2
    plain = head_attention(model, false, HEADS)
    edited = head_attention(model, false, HEADS, interventions=[ZeroHeads([(1, 0)])])
    for one, two in zip(plain.values, edited.values, strict=True):
        assert_close(one[[1, 3]], two[[1, 3]], **CLOSE)
        assert float((one[[0, 2]] - two[[0, 2]]).abs().max()) > 1e-4
    assert edited.provenance["interventions"][0]["intervention"] == "ZeroHeads"


def test_processed_weights_have_attention_too():
    model = tiny_model("gpt2")
    _, false = tiny_pairs(model)
    plain = head_attention(model, false[:3], HEADS)
    model.enable_compatibility_mode()
    processed = head_attention(model, false[:3], HEADS)
    assert_same(processed, plain, {"atol": 1e-4, "rtol": 1e-4})
    with pytest.raises(RunError, match="processed"):
        head_attention(model, false[:3], HEADS, interventions=[ZeroLayers(1)])


# --- marks ---


def tiny_prompt(shown, *, answer=0, false_answer=1):
    """`a : B B . b : C . q :`, label words of two and one tokens; two demonstrations."""
    words = ((10,), (20, 21), (30,))
    tokens, spans = [1], [Span("bos", None, 0, 1)]

    def put(role, demo, ids):
        spans.append(Span(role, demo, len(tokens), len(tokens) + len(ids)))
        tokens.extend(ids)

    for demo, label in enumerate(shown):
        put("demo_text", demo, (40 + demo,))
        put("format", demo, (2,))
        put("label_word", demo, words[label])
        put("format", demo, (3,))
    put("query_text", None, (50,))
    put("target", None, (2,))
    return Prompt(tuple(tokens), tuple(spans), tuple(shown), words, answer, false_answer)


@pytest.mark.parametrize(
    ("shown", "facts", "expected"),
    [
        ((1, 2), {}, "...MM...O..."),
        ((2, 1), {}, "...O...MM..."),
        ((1, 1), {}, "...MM...MM..."),
        ((0, 2), {}, "...O...O..."),
        ((0, 1), {"false_answer": 2}, "...O...OO..."),
        ((0, 1), {"false_answer": None}, "...M...OO..."),
        ((), {}, "..."),
    ],
)
def test_marks_by_hand(gpt2, shown, facts, expected):
    """The row's class is the one the false labels teach, else the true one."""
    prompts = PromptBatch((tiny_prompt(shown, **facts),))
    (marks,) = head_attention(gpt2[0], prompts, HEADS).marks
    short = {"": ".", "matching": "M", "other": "O", "label": "L"}
    assert "".join(short[mark] for mark in marks) == expected


def test_labels_that_follow_no_rule_are_marked_as_labels(gpt2):
    model, _, _ = gpt2
    prompts = PromptBatch((tiny_prompt((1, 2), false_answer=None),), {"labels": "random"})
    (marks,) = head_attention(model, prompts, HEADS).marks
    assert [i for i, mark in enumerate(marks) if mark == "label"] == [3, 4, 8]
    assert set(marks) == {"", "label"}
    _, false = tiny_pairs(model, false_labels="random")
    found = head_attention(model, false[:2], HEADS)
    assert set(found.marks[0]) == {"", "label"}
    assert set(found.drawing().marks) == {"", "label word"}


def test_marked_tokens_are_the_label_words(case, found):
    """In built prompts, some label words have several tokens."""
    _, _, false = case
    for row, prompt in enumerate(false):
        expected = []
        for label in prompt.label_classes:
            mark = "matching" if label == prompt.false_answer else "other"
            expected += [(token, mark) for token in prompt.label_words[label]]
        marked = [
            (token, mark)
            for token, mark in zip(prompt.tokens, found.marks[row], strict=False)
            if mark
        ]
        assert marked == expected
        text = "".join(t for t, m in zip(found.tokens[row], found.marks[row], strict=True) if m)
        names = [prompt.labels[label] for label in prompt.label_classes]
        assert text.replace(" ", "") == "".join(names).replace(" ", "")


def test_prompts_without_texts_show_their_ids(gpt2):
    prompt = early(gpt2[2][0], 2)
    found = head_attention(gpt2[0], PromptBatch((prompt,)), HEADS)
    assert found.tokens[0] == tuple(str(t) for t in prompt.tokens[: prompt.target + 1])


# --- beside head scores ---


def labels_of(found):
    return found.quantities()["to_label_words"].per_prompt


def chosen(scores):
    return torch.stack([scores[:, layer, head] for layer, head in HEADS], dim=1)


def test_head_scores_are_its_sums(case, found):
    model, _, false = case
    scores = head_scores(model, false)
    assert_close(labels_of(found), chosen(scores.attending), **CLOSE)
    same = torch.stack(
        [
            values[:, [mark == "matching" for mark in marks]].sum(-1)
            for values, marks in zip(found.values, found.marks, strict=True)
        ]
    )
    assert_close(same, chosen(scores.same), **CLOSE)


def test_head_scores_of_true_prompts(gpt2):
    model, true, _ = gpt2
    found, scores = head_attention(model, true, HEADS), head_scores(model, true)
    for row, marks in enumerate(found.marks):
        same = found.values[row][:, [mark == "matching" for mark in marks]].sum(-1)
        assert_close(same, chosen(scores.same)[row], **CLOSE)


def test_the_planted_heads_look_where_they_were_made_to(planted):
    prompts, found = planted
    for row, prompt in enumerate(prompts):
        matching = torch.tensor([mark == "matching" for mark in found.marks[row]])
        assert int(matching.sum()) == 2
        assert float(found.values[row][:2, matching].sum(-1).min()) > 0.99
        labels = found.values[row][2:, list(prompt.label_positions)]
        assert_close(labels, torch.full((2, 6), 1 / 6), atol=0.02, rtol=0)
    WORDS.exactly(found.summary(), "planted_heads_look_where", "2.1", "100", "3.2", "2.0")
    model, _, _ = planted_case()
    before = head_attention(model, prompts, [PREVIOUS_TOKEN_HEADS[0]])
    assert all(float(values[0, -2]) > 0.99 for values in before.values)
    WORDS.exactly(before.summary(), "planted_heads_look_where_2", "0.0")


# --- the measurement, and labelled samples ---


def test_the_measurement_is_the_function(gpt2):
    model, true, false = gpt2
    found = measured(HeadAttention(HEADS, first=3), model, (true, false))
    assert_same(found, head_attention(model, false[:3], HEADS))
    assert found.provenance["prompts"]["digest"] == false.digest
    variants = {"heads": [list(head) for head in HEADS], "first": 3, "row": "target", "demo": None}
    assert found.provenance["variants"] == variants
    for number in (0, -1):
        with WORDS.raises(RunError, "first_is_too_low", number, "1"):
            measured(HeadAttention(HEADS, first=number), model, false)


def test_attention_to_label_words_has_intervals(found):
    shares = torch.stack(
        [
            values[:, [bool(mark) for mark in marks]].sum(-1)
            for values, marks in zip(found.values, found.marks, strict=True)
        ]
    )
    for place, (layer, head) in enumerate(HEADS):
        expected = mean_interval(shares[:, place], "amount")
        assert found.interval(head=f"{layer}.{head}") == pytest.approx(tuple(expected))


def test_differences_are_paired(gpt2):
    model, _, false = gpt2
    plain = head_attention(model, false, HEADS)
    edited = head_attention(model, false, HEADS, interventions=[ZeroHeads([(1, 0)])])
    change = (labels_of(plain) - labels_of(edited)).double()
    assert_close((plain - edited).values, change.mean(0), atol=1e-7, rtol=0)
    assert float(change.abs().max()) > 1e-5


# --- errors, files, figures ---


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ([], "none"),
        ([(0, 1), (1, 1), (0, 1)], "head twice"),
        ([(3, 0)], "layer 3"),
        ([(-1, 0)], "layer -1"),
        ([(0, 4)], "head 4"),
        ([(0, -1)], "head -1"),
    ],
)
def test_heads_the_model_does_not_have(gpt2, heads, message):
    with WORDS.raises(RunError, message):
        head_attention(gpt2[0], gpt2[2], heads)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": 5}, "prompt5 5 0"),
        ({"prompt": -1}, "prompt-1"),
        ({"head": 4}, "head4 4 0"),
        ({"head": -1}, "head-1"),
    ],
)
def test_drawings_out_of_range(planted, options, message):
    with WORDS.raises(ResultError, message):
        planted[1].drawing(**options)


def test_a_drawing_shows_one_prompt_with_its_marks(planted):
    _, found = planted
    drawn = found.drawing(prompt=3, head=2)
    assert torch.equal(drawn.values, found.values[3])
    assert drawn.tokens == found.tokens[3]
    assert drawn.first == 2
    assert drawn.names[:3] == ("layer 2, head 1", "layer 3, head 2", "layer 2, head 0")
    kinds = {"": "", "matching": "label word demonstrated for the last text"}
    kinds["other"] = "other label word"
    assert drawn.marks == tuple(kinds[mark] for mark in found.marks[3])
    fig = found.plot(prompt=3, head=2)
    (slider,) = fig.layout.sliders
    assert (slider.active, len(slider.steps)) == (2, len(drawn.names))
    shown = [float(v) for line in fig.data[:-1] for v in line.z[0]]
    assert max(shown) == pytest.approx(float(found.values[3][2].max()), rel=5e-3)
    texts = str(fig.to_plotly_json())
    assert kinds["matching"] in texts
    assert kinds["other"] in texts


def test_saved_and_loaded(tmp_path, case, found):
    found.save(tmp_path / "result")
    loaded = HeadAttentionResult.load(tmp_path / "result")
    assert_same(loaded, found, {"atol": 0, "rtol": 0})
    assert loaded.summary() == found.summary()
    assert loaded.drawing(11, 1).marks == found.drawing(11, 1).marks
    origin = case[2].source | {"count": 12, "digest": case[2].digest}
    assert loaded.provenance["prompts"] == origin


def test_answers_may_be_unknown(gpt2):
    """What the false labels teach is enough for the marks."""
    model, _, false = gpt2
    bare = PromptBatch(tuple(replace(prompt, answer=None) for prompt in false[:3]))
    found = head_attention(model, bare, HEADS)
    assert found.marks == head_attention(model, false[:3], HEADS).marks
