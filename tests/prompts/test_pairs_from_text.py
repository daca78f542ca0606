"""`pairs_from_text`: falsehood before the query, outside of demonstrations."""

import pytest

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.measurements.demonstrations import check_pairs
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

LABELS = ["Negative", "Positive"]
QUERIES = ["The film was good.\nSentiment:", "It was bad.\nSentiment:"] * 4
TRUE = ["I am sure it is Positive.\n", "I am sure it is Negative.\n"] * 4
FALSE = [TRUE[1], TRUE[0]] * 4
ANSWERS = ["Positive", "Negative"] * 4
CLAIM = "I am sure it is"


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def pair(model, **options):
    given = {"true": TRUE, "false": FALSE, "queries": QUERIES, "answers": ANSWERS, **options}
    return icl.pairs_from_text(label_words=LABELS, model=model, **given)


def test_the_same_query_behind_both(model):
    true, false = pair(model)
    check_pairs(true, false)
    for number, (one, other) in enumerate(zip(true, false, strict=True)):
        assert "".join(one.pieces) == TRUE[number] + QUERIES[number]
        assert "".join(other.pieces) == FALSE[number] + QUERIES[number]
        assert [span.role for span in one.spans] == ["demo_text", "query_text", "target"]
        assert one.answer == other.answer == LABELS.index(ANSWERS[number])
        assert one.label_positions == other.label_positions == ()
        assert one.false_answer is other.false_answer is None


def test_claims_are_displayed_labels_and_the_last_one_is_the_false_answer(model):
    true, false = pair(model, claims=CLAIM)
    assert [p.label_classes for p in true] == [(1,), (0,)] * 4
    assert [p.label_classes for p in false] == [(0,), (1,)] * 4
    assert [p.false_answer for p in false] == [0, 1] * 4
    assert [p.false_answer for p in true] == [None] * 8
    assert [s.role for s in false[0].spans] == [
        "demo_text", "label_word", "demo_text", "query_text", "target",
    ]  # fmt: skip
    assert pair(model, false_answers=[0, 1] * 4)[1][1].false_answer == 1


def test_curves_over_layers_are_those_of_the_lens(model):
    true, false = pair(model)
    found = icl.layer_accuracy(model, true, false)
    for side, prompts in (("true", true), ("false", false)):
        own = icl.logit_lens(model, prompts).label_logits.double().argmax(-1)
        right = (own == prompts.answers[:, None]).double().mean(0)
        plain = found.sel("plain", side=side).values
        assert (plain - right).abs().max() < 1e-9
    assert icl.early_exit(found).layer < found.scores.shape[-1] - 1


def test_heads_need_claims(model):
    with WORDS.raises(PromptError, "heads_need_claims"):
        icl.head_scores(model, pair(model)[1])
    scores = icl.head_scores(model, pair(model, claims=CLAIM)[1])
    # Of one claim of the row's own class: prefix matching is the attention to it.
    assert (scores.prefix_matching - scores.label_attending).abs().max() < 1e-6
    icl.ablation(model, *pair(model), heads=[(0, 0)])


def test_what_reads_demonstrations_as_queries_refuses_them(model):
    with WORDS.raises(PromptError, "what_reads_demonstrations_queries"):
        icl.context_accuracy(model, *pair(model, claims=CLAIM))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"true": TRUE[:3]}, "queries 8 3"),
        ({"false": TRUE}, "false text 0"),
        ({"queries": [q + " " for q in QUERIES]}, "query 0"),
        ({"answers": None}, "answers None"),
        ({"answers": [0]}, "answers 8 1"),
        ({"false_answers": ANSWERS}, "true one Positive"),
        ({"claims": CLAIM, "false": TRUE[:1] + FALSE[1:]}, "same texts"),
        ({"claims": CLAIM, "false": ["No.\n", *FALSE[1:]]}, "claims 1 0"),
        ({"claims": " "}, "claims="),
        ({"false": [text.rstrip("\n") + "The" for text in FALSE]}, ""),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_what_cannot_be(model, options, message):
    if not message:
        pair(model, **options)  # pieces are tokenised apart: the query is the same all the same
        return
    with WORDS.raises(PromptError, message):
        pair(model, **options)
