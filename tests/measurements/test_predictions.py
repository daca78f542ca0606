"""Predictions against the model's own logits and a plain teacher-forced computation."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ResultError
from icl_mech.measurements.predictions import Predictions
from icl_mech.prompts import Prompt, PromptBatch
from tests.engine.cases import LABEL_TOKENS, Edge, prompt, ragged
from tests.margins import assert_top
from tests.said import Words
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

LOGITS = {"rtol": 0, "atol": 5e-5}
LABEL_WORDS = ((301,), (302, 17, 40), (303, 9))


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


@pytest.fixture(scope="module")
def gpt2():
    return tiny_model("gpt2")


@torch.no_grad()
def own_logits(model, tokens):
    return model(torch.tensor([list(tokens)]))[0]


def with_words():
    """The prompts, with label words of one, three and two tokens."""
    return PromptBatch(tuple(replace(prompt, label_words=LABEL_WORDS) for prompt in ragged()))


def forced(model, tokens, word):
    """Sum of log-probabilities of a word that follows the tokens."""
    log_probs = own_logits(model, (*tokens, *word[:-1])).log_softmax(-1)
    first = len(tokens) - 1
    return sum(log_probs[first + i, token] for i, token in enumerate(word))


def test_first_token_scores_are_columns_of_the_models_logits(model):
    found = icl.predict(model, ragged())
    logits = torch.stack([own_logits(model, prompt.tokens)[-1] for prompt in ragged()])
    labels = list(LABEL_TOKENS)
    torch.testing.assert_close(found.label_logits, logits[:, labels], **LOGITS)
    torch.testing.assert_close(found.log_probs, logits.log_softmax(-1)[:, labels], **LOGITS)
    torch.testing.assert_close(found.label_probs, logits[:, labels].softmax(-1), **LOGITS)
    assert_top(found.predicted[:, None], logits[:, labels])
    assert_top(found.top_tokens, logits)
    of_top = logits.log_softmax(-1).gather(1, found.top_tokens)
    torch.testing.assert_close(found.top_log_probs, of_top, **LOGITS)


def test_scores_of_whole_words(model):
    expected = torch.stack(
        [
            torch.stack([forced(model, prompt.tokens, word) for word in LABEL_WORDS])
            for prompt in ragged()
        ]
    )
    total = icl.predict(model, with_words(), score="sum")
    torch.testing.assert_close(total.log_probs, expected, rtol=1e-5, atol=1e-4)
    assert_top(total.predicted[:, None], expected)

    mean = icl.predict(model, with_words(), score="mean")
    per_token = expected / torch.tensor([1.0, 3.0, 2.0])
    torch.testing.assert_close(mean.log_probs, per_token, rtol=1e-5, atol=1e-4)
    assert_top(mean.predicted[:, None], per_token)

    first = icl.predict(model, with_words())
    torch.testing.assert_close(total.label_logits, first.label_logits, **LOGITS)
    assert total.provenance["variants"] == {"score": "sum", "top_k": 5}


def test_whole_words_read_before_the_end_of_a_prompt(gpt2):
    """The word follows the target, whatever else stands there."""
    base = prompt(9, (2, 7), (0, 1), answer=1, seed=5)
    inside = Prompt.from_positions(
        base.tokens,
        label_positions=(2, 7),
        label_classes=(0, 1),
        label_tokens=LABEL_TOKENS,
        answer=1,
        target=6,
    )
    inside = replace(inside, label_words=LABEL_WORDS)
    expected = torch.stack([forced(gpt2, base.tokens[:7], word) for word in LABEL_WORDS])
    found = icl.predict(gpt2, PromptBatch((inside,)), score="sum")
    torch.testing.assert_close(found.log_probs[0], expected, rtol=1e-5, atol=1e-4)


def test_whole_words_are_scored_under_the_interventions(gpt2):
    edit = Edge(0, dest=2, src=1, factor=0.0, term=4.0)
    found = icl.predict(gpt2, with_words(), score="sum", interventions=[edit])

    def cut(pattern, hook):
        pattern = pattern.clone()
        pattern[:, :, 2, 1] = 4.0
        return pattern

    with gpt2.hooks(fwd_hooks=[("blocks.0.attn.hook_pattern", cut)]):
        expected = torch.stack([forced(gpt2, ragged()[0].tokens, word) for word in LABEL_WORDS])
    torch.testing.assert_close(found.log_probs[0], expected, rtol=1e-5, atol=1e-4)
    plain = icl.predict(gpt2, with_words(), score="sum")
    assert float((plain.log_probs - found.log_probs).abs().max()) > 1e-2


def test_number_of_top_tokens(gpt2):
    few, many = (icl.predict(gpt2, ragged(), top_k=k) for k in (1, 12))
    logits = torch.stack([own_logits(gpt2, prompt.tokens)[-1] for prompt in ragged()])
    assert few.top_tokens.shape == (5, 1)
    assert_top(few.top_tokens, logits)
    assert_top(many.top_tokens, logits)
    torch.testing.assert_close(few.label_logits, many.label_logits, rtol=0, atol=0)


# --- the result itself ---


def ten(answers=(0,) * 8 + (1, 1)):
    """Ten prompts predicted as class 0."""
    logits = torch.tensor([[2.0, 0.0]]).repeat(10, 1)
    return Predictions(
        label_logits=logits,
        log_probs=logits.log_softmax(-1),
        predicted=logits.argmax(-1),
        top_tokens=torch.zeros(10, 5, dtype=torch.long),
        answers=None if answers is None else torch.tensor(answers),
        labels=("no", "yes"),
    )


def test_accuracy_with_its_wilson_interval():
    """8 of 10: (0.8 + z^2/20 -+ z sqrt(0.016 + z^2/400)) / (1 + z^2/10) with z = 1.96."""
    assert tuple(ten().accuracy) == pytest.approx((0.8, 0.4901625, 0.9433178), abs=1e-6)
    WORDS.exactly(ten().summary(), "accuracy_wilson_interval", "0.8", "[0.49, 0.943]", "10")


def test_accuracy_without_answers():
    with WORDS.raises(ResultError, "accuracy_without_answers"):
        _ = ten(None).accuracy
    WORDS.exactly(ten(None).summary(), "accuracy_without_answers_2", "10")


def test_confusion_matrix():
    result = replace(ten(), predicted=torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 0]))
    drawn = result.drawing()
    torch.testing.assert_close(drawn.values, torch.tensor([[5.0, 3.0], [1.0, 1.0]]).double())
    assert drawn.rows == drawn.columns == ("no", "yes")
    assert (drawn.row_title, drawn.column_title) == ("true class", "predicted class")


def test_mean_probabilities_without_answers():
    drawn = ten(None).drawing()
    torch.testing.assert_close(drawn.values, torch.tensor([[2.0, 0.0]]).softmax(-1))
    assert drawn.rows == ("all prompts",)
    assert drawn.columns == ("no", "yes")


def test_table():
    table = ten().by_prompt()
    assert list(table.columns) == ["predicted", "answer", "logit no", "logit yes"]
    assert table.answer.tolist() == ["no"] * 8 + ["yes"] * 2
    assert table["logit no"].tolist() == [2.0] * 10
    assert "answer" not in ten(None).by_prompt()
    (right,) = ten().to_pandas().to_dict("records")
    assert list(right) == ["accuracy", "accuracy_low", "accuracy_high"]
    assert list(right.values()) == pytest.approx(list(ten().accuracy))
    assert ten(None).to_pandas().label.tolist() == ["no", "yes"]


def test_right_answers_stand_beside_constant_ones():
    """Eight of ten are of class 0, and class 0 is all the model says: no better than constant."""
    overall, frequent = ten().figures()[0], ten().drawing("accuracy")
    WORDS.starts(overall.answer, "right_answers_stand_beside", "Not shown", "0.80", "[0.49, 0.94]")
    WORDS(overall.answer, "right_answers_stand_beside_2", "0.80")
    WORDS(overall.answer, "right_answers_stand_beside_3", "10")
    assert frequent.groups == ("all prompts (10)", "no (8)", "yes (2)")
    assert frequent.values[:, 0].tolist() == pytest.approx([0.8, 1.0, 0.0])
    assert frequent.levels == ((pytest.approx(0.8), "always “no” 0.80"), (0.5, "chance 0.50"))


def test_equal_classes_have_one_level():
    even = ten((0,) * 5 + (1,) * 5)
    ((height, level),) = even.drawing("accuracy").levels
    assert height == 0.5
    WORDS.exactly(level, "equal_classes", "0.50")
    WORDS(even.figures()[0].answer, "equal_classes_level", "0.50")


def test_confusions_in_words():
    shown = ten().figures()[1]
    WORDS.exactly(shown.answer, "confusions_words", "2")
    right = replace(ten(), predicted=ten().answers).figures()
    assert right[0].answer.startswith("Not shown: 1.00 [0.72, 1.00]")
    WORDS.exactly(right[1].answer, "confusions_words_2", "10")
    assert not right[1].drawn


def test_words_without_answers():
    (only,) = ten(None).figures()
    WORDS.exactly(only.answer, "words_without_answers", "10")
    with WORDS.raises(ResultError, "words_without_answers_2"):
        ten(None).drawing("accuracy")
