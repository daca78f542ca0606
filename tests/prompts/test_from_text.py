"""`prompts_from_text`: label words found by characters, and what is refused."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from icl_mech.errors import PromptError
from icl_mech.prompts import Span, build_prompts, prompts_from_text
from tests.prompts.cases import KINDS, SENTIMENTS, decode, decoder, toy_task
from tests.said import Words
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

BPE = tiny_tokenizer("bpe")
TEXT = "Review: a\nSentiment: Positive\nReview: b\nSentiment:"


def one(text=TEXT, answers=None, kind="bpe", labels=SENTIMENTS, **options):
    (prompt,) = prompts_from_text([text], labels, tiny_tokenizer(kind), answers, **options)
    return prompt


def test_token_by_token():
    prompt = one(answers=["Negative"])
    assert BPE.convert_ids_to_tokens(list(prompt.tokens)) == [
        "Review", ":", "Ġa", "Ċ", "Sentiment", ":", "ĠPositive", "Ċ",
        "Review", ":", "Ġ", "b", "Ċ", "Sentiment", ":",
    ]  # fmt: skip
    assert prompt.spans == (
        Span("demo_text", 0, 0, 6),
        Span("label_word", 0, 6, 7),
        Span("query_text", None, 7, 14),
        Span("target", None, 14, 15),
    )
    assert prompt.label_classes == (1,)
    assert prompt.labels == SENTIMENTS
    assert prompt.answer == 0
    assert prompt.exact


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bos", [None, False])
def test_the_text_of_a_built_prompt_gives_its_tokens_and_positions(kind, bos):
    task = toy_task()
    for built in build_prompts(task, tiny_tokenizer(kind), n=3, shots=2, bos=bos):
        text = decode(kind, built.tokens[1 if built.spans[0].role == "bos" else 0 :])
        prompt = one(text, [built.answer], kind, bos=bos)
        assert prompt.tokens == built.tokens
        assert prompt.label_positions == built.label_positions
        assert prompt.label_classes == built.label_classes
        assert prompt.label_words == built.label_words
        assert (prompt.answer, prompt.target) == (built.answer, built.target)


def test_longer_words_are_not_label_words():
    text = "A Positively Negatives PositiveNegative Positive_x: Negative, Positive\nq:"
    prompt = one(text)
    assert prompt.label_classes == (0, 1)
    read = decoder("bpe", prompt)
    assert [read(span) for span in prompt.label_spans] == [" Negative", " Positive"]
    WORDS.exactly(read(prompt.spans[0]), "longer_words_label_words")


def test_label_words_of_several_words_and_tokens():
    labels = ("plant/vegetable", "animal", "good movie")
    prompt = one("x: good movie\ny: plant/vegetable\nz:", labels=labels)
    assert prompt.label_classes == (2, 0)
    read = decoder("bpe", prompt)
    assert [read(span) for span in prompt.label_spans] == [" good movie", " plant/vegetable"]


def test_of_two_label_words_the_longer_is_taken():
    # Their first tokens must differ, so "a+" is one token here.
    merges = [(" ", "a"), (" a", "+")]
    tokens = [*"\nxyz: a+", " a", " a+"]
    model = models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(model))
    (prompt,) = prompts_from_text(["x: a+\ny: a\nz:"], ["a", "a+"], tokenizer)
    assert prompt.label_classes == (1, 0)


def test_a_label_word_needs_a_space_before_it():
    prompt = one("Positive (Positive) Positive\nq:")
    assert prompt.label_positions == (len(BPE("Positive (Positive)")["input_ids"]),)


def test_signs_of_label_words_are_no_patterns():
    prompt = one("x: a+\ny: a.\nz: ab\nq:", labels=("good.", "a+", "bad"))
    assert prompt.label_classes == (1,)


INSIDE = "Review: a Negative film\nSentiment: Positive\nReview: so Positive\nSentiment:"


def test_label_words_inside_texts_count_without_before():
    assert one(INSIDE).label_classes == (0, 1, 1)


@pytest.mark.parametrize("before", ["Sentiment:", "Sentiment: ", ":"])
def test_before_leaves_label_words_inside_texts_alone(before):
    prompt = one(INSIDE, before=before)
    assert prompt.label_classes == (1,)
    assert decoder("bpe", prompt)(prompt.spans[0]) == "Review: a Negative film\nSentiment:"


def test_before_is_a_text_and_not_a_pattern():
    prompt = one("a? Positive b. Negative c:", before=".")
    assert prompt.label_classes == (0,)


def test_source_records_before():
    batch = prompts_from_text([TEXT], SENTIMENTS, BPE, before="Sentiment:")
    assert batch.source["before"] == "Sentiment:"
    assert batch.source["task"] == {"name": "text", "labels": list(SENTIMENTS)}


def test_texts_without_demonstrations():
    prompt = one("Review: b\nSentiment:")
    assert prompt.label_positions == ()
    assert [span.role for span in prompt.spans] == ["query_text", "target"]


def test_answers_by_name_or_index():
    batch = prompts_from_text([TEXT] * 4, SENTIMENTS, BPE, [1, "Negative", " Positive", 0])
    assert batch.answers.tolist() == [1, 0, 1, 0]


def test_texts_without_answers():
    batch = prompts_from_text([TEXT, TEXT], SENTIMENTS, BPE)
    assert not batch.has_answers
    with WORDS.raises(PromptError, "texts_without_answers", "2"):
        _ = batch.answers


def test_label_words_with_a_leading_space_are_the_same():
    blank = one(labels=(" Negative", " Positive"))
    assert replace(blank, parts=one().parts) == one()
    assert [blank.text[own.start : own.stop] for own in blank.parts][1] == " Positive"


@pytest.mark.parametrize(
    ("texts", "options", "fragments"),
    [
        ([TEXT, " \n"], {}, ["empty", "Text 1"]),
        ([TEXT + " "], {}, ["ends in a space", "Text 0"]),
        ([TEXT + " Positive"], {}, ["ends with a label word"]),
        ([TEXT], {"answers": []}, ["no answers", "1", "0"]),
        ([TEXT], {"answers": [0, 1]}, ["two answers", "1", "2"]),
        (
            [TEXT, TEXT],
            {"answers": ["Positive", "Neutral"]},
            ["Neutral", "'Neutral'", "1", "Negative", "Positive"],
        ),
        ([TEXT], {"answers": [2]}, ["answer 2", "answer 2", "2 classes"]),
        ([TEXT], {"bos": True}, ["BOS"]),
        ([], {}, ["no prompt"]),
    ],
)
def test_refusals(texts, options, fragments):
    with WORDS.raises(PromptError, *fragments):
        prompts_from_text(texts, SENTIMENTS, BPE, **options)


def test_label_words_that_share_their_first_token():
    # Behind what both begin with they differ.
    assert [own.text for own in one(labels=("good", "good movie")).candidates] == ["\n", " movie"]
    labels = ("good", "good movie", "bad")
    assert one(labels=labels).score == "sum"
    with WORDS.raises(PromptError, "label_words_share_their", "'good'", "'good movie'"):
        one(labels=labels, score="first")


def test_texts_longer_than_the_context():
    model = SimpleNamespace(tokenizer=BPE, cfg=SimpleNamespace(n_ctx=14))
    with WORDS.raises(PromptError, "texts_longer_than_context", "15"):
        prompts_from_text([TEXT], SENTIMENTS, model)
