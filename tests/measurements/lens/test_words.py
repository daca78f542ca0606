"""Likeliest words: decoded, as a table, and side by side against TransformerLens' own readout."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech.errors import PromptError, ResultError
from icl_mech.looks.lenses import word_table
from icl_mech.measurements.demonstrations import without_demonstrations
from icl_mech.measurements.lens.likeliest import decoded, in_order, settled
from icl_mech.measurements.lens.top_words import TopWords, TopWordsResult
from icl_mech.measurements.running import measured
from icl_mech.prompts import PromptBatch
from tests.measurements.overthinking_cases import lens_logits, tiny_case
from tests.measurements.saliency.cases import written
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

# --- words ---


@pytest.mark.parametrize("kind", ["bpe", "sentencepiece"])
def test_tokens_as_they_read_in_a_prompt(kind):
    tokenizer = tiny_tokenizer(kind)
    ids = tokenizer(" Positive movie", add_special_tokens=False)["input_ids"]
    words = decoded(torch.tensor([ids, ids]), tokenizer)
    assert sorted(words) == sorted({str(i) for i in ids})
    assert "".join(words[str(i)] for i in ids) == " Positive movie"


def test_label_words_keep_their_order():
    tokenizer = tiny_tokenizer("bpe")
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"][0] for text in (" sport", " bad")]
    tokens = torch.tensor([*ids, ids[0]])
    assert in_order(tokens, tokenizer) == (" sport", " bad", " sport")
    assert in_order(tokens.flip(0)[:2], tokenizer) == (" sport", " bad")


def test_without_a_tokenizer_there_are_no_words():
    assert decoded(torch.tensor([1]), None) == {}
    assert decoded(None, tiny_tokenizer("bpe")) == {}
    assert in_order(torch.tensor([1]), None) == ()


def test_a_table_by_column_and_layer():
    tokens = torch.tensor([[[1, 2], [3, 1]], [[2, 2], [1, 9]]])
    probs = torch.arange(8).reshape(2, 2, 2) / 10
    words = {"1": " a", "2": " b", "3": " c"}
    table = word_table(["x", "y"], tokens, probs, words, title="t", labels=[" b"], note="n")
    assert table.columns == ("x", "y")
    assert table.words == (((" a", " b"), (" c", " a")), ((" b", " b"), (" a", "token 9")))
    assert_close(table.probs, probs.double())
    assert (table.title, table.bold, table.note) == ("t", (" b",), "n")


@pytest.mark.parametrize(
    ("tokens", "layer"),
    [([1, 2, 2], 1), ([2, 2, 2], 0), ([2, 1, 2], 2), ([2, 1, 2, 2], 2), ([5], 0)],
)
def test_from_which_layer_on_a_word_stays(tokens, layer):
    assert settled(torch.tensor(tokens)) == layer


# --- side by side ---


@pytest.fixture(scope="module")
def case():
    return tiny_case("gpt2")


@pytest.fixture(scope="module")
def found(case):
    model, true, false = case
    return measured(TopWords(first=3), model, (true, false))


def bare_tokens(prompt):
    """What belongs to no demonstration, template between them included with them."""
    inside = [
        i for span in prompt.spans if span.demo is not None for i in range(span.start, span.stop)
    ]
    return prompt.tokens[: min(inside)] + prompt.tokens[max(inside) + 1 :]


def test_every_side_is_the_models_own_readout(case, found):
    model, true, false = case
    bare = without_demonstrations(true)
    assert found.sides == ("no demonstrations", "true demonstrations", "false demonstrations")
    assert found.top_tokens.shape == (3, 3, 4, 3)
    columns = list(true[0].label_tokens)
    for side, prompts in enumerate((bare, true, false)):
        for row, prompt in enumerate(prompts[:3]):
            probs = lens_logits(model, prompt, [prompt.target])[0].double().softmax(-1)
            own = probs.gather(1, found.top_tokens[row, side])
            assert_close(own, probs.topk(3).values, atol=1e-4, rtol=0)
            assert_close(found.top_probs[row, side], own, atol=1e-4, rtol=0)
            labels = found.label_probs[row, side]
            assert_close(labels, probs[:, columns], atol=1e-4, rtol=1e-3)
    assert float((found.label_probs[:, 1] - found.label_probs[:, 2]).abs().max()) > 1e-3


def test_bare_queries_are_cut_out(case):
    _, true, _ = case
    bare = without_demonstrations(true)
    for own, prompt in zip(bare, true, strict=True):
        assert own.tokens == bare_tokens(prompt)
        assert own.tokens[own.target] == prompt.tokens[prompt.target]
        assert [span.role for span in own.spans if span.role == "query_text"] == ["query_text"]
        assert own.label_classes == ()
        assert (own.answer, own.false_answer) == (prompt.answer, None)
        assert len(own.pieces) == len(own)
        assert "".join(own.pieces) == "".join(prompt.pieces)[-len("".join(own.pieces)) :]
    assert (bare.source["shots"], bare.source["labels"]) == (0, "correct")


def test_queries_that_cannot_be_cut_out(case):
    _, true, _ = case
    assert without_demonstrations(without_demonstrations(true)) is None
    bare = replace(true[0], spans=tuple(replace(span, role="unknown") if span.role == "demo_text"
                                        else span for span in true[0].spans))  # fmt: skip
    assert without_demonstrations(PromptBatch((bare,))) is None
    inside = written(
        ("demo_text", 2), ("label_word", 1), ("demo_text", 3), ("target", 1), ("label_word", 1),
        classes=(0, 1),
    )  # fmt: skip
    assert without_demonstrations(PromptBatch((inside,))) is None
    spans = tuple(replace(span, demo=1) if span.role == "target" else span for span in inside.spans)
    assert without_demonstrations(PromptBatch((replace(inside, spans=spans),))) is None


def test_how_many_prompts_are_kept(case, found):
    model, true, false = case
    every = measured(TopWords(first=None), model, (true, false))
    assert len(every.top_tokens) == len(true)
    assert_close(every.label_probs[:3], found.label_probs, atol=1e-4, rtol=0)
    assert found.answers.tolist() == true.answers[:3].tolist()
    assert found.label_words == in_order(true.label_tokens, model.tokenizer)
    with pytest.raises(PromptError):
        measured(TopWords(), model, (true, true[:3]))


# --- by hand ---


def known(**more):
    """Two prompts, two sides, three layers; the word of the last layer comes at 1 and at 2."""
    tokens = torch.tensor([[[1, 2, 2], [3, 1, 1]], [[1, 1, 1], [2, 2, 2]]])[..., None]
    probs = torch.tensor([[[0.1, 0.5, 0.75], [0.2, 0.3, 0.4]], [[0.9] * 3, [0.8] * 3]])[..., None]
    given = {"words": {"1": " <b>", "2": " yes"}, "labels": ("no", "yes"), "label_words": (" yes",)}
    return TopWordsResult(
        sides=("true demonstrations", "false demonstrations"), top_tokens=tokens, top_probs=probs,
        label_probs=torch.rand(2, 2, 3, 2), answers=torch.tensor([0, 1]), **{**given, **more},
    )  # fmt: skip


def test_a_prompt_is_drawn_with_its_own_words():
    drawn = known().drawing(prompt=1)
    assert drawn.words == (((" <b>",),) * 3, ((" yes",),) * 3)
    WORDS.exactly(drawn.note, "prompt_drawn_own_words", "2")
    assert drawn.bold == (" yes",)
    assert known(labels=()).drawing().note == "prompt 1 of 2"
    for prompt in (2, -1):
        with pytest.raises(ResultError, match=f"prompt={prompt} is out"):
            known().drawing(prompt=prompt)


def test_the_last_word_and_since_when():
    (figure,) = known().figures()
    WORDS(figure.answer, "last_word_since_when", "0.75", "1")
    assert "false demonstrations: “<b>” (0.40), on top from layer 1 on" in figure.answer
    WORDS(figure.caption, "last_word_since_when_2")
    assert "bold" not in known(label_words=()).figures()[0].caption
    unknown = known(words={}).figures()[0]
    assert "“token 2”" in unknown.answer
    assert known().summary() == (
        "next word on the first prompt, true demonstrations: ' yes', false demonstrations: ' <b>'"
    )
