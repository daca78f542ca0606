"""What demonstrations add: by hand, against runs of their own, on planted models, and in words."""

from dataclasses import replace
from math import log

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import PromptBatch
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements import Gain
from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.prompts import shuffled_labels
from icl_mech.prompts.rewriting import zero_shot
from tests.engine.cases import ragged
from tests.engine.test_paths import TASK
from tests.measurements.saliency.cases import with_roles
from tests.measurements.test_whole_words import CITIES, task
from tests.measurements.test_whole_words import model as random_model
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def planted(n=24, shots=1, **options):
    model = icl.planted_model(**options)
    how = {"shots": shots, "n": n, "demonstrations": "per_prompt"}
    return model, icl.build_prompts(icl.planted_task(), model, **how)


def made(log_prob, right, contexts=("demonstrations", "zero_shot", "shuffled"), **more):
    count = len(log_prob)
    return GainResult(
        log_prob=torch.tensor(log_prob, dtype=torch.float64),
        right=torch.tensor(right, dtype=torch.float64),
        contexts=contexts,
        answers=torch.zeros(count, dtype=torch.long),
        labels=("a", "b"),
        provenance={"prompts": {"count": count}},
        **more,
    )


def test_by_hand(model):
    """Probabilities .8, .5, .6 and .9, .9, .3 of the right answers; two draws of shuffled labels."""
    prompts = icl.build_prompts(TASK, model, shots=1, n=2)
    measurement = Gain(draws=2)
    assert len(measurement.passes(random_adapted(model), prompts)) == 4

    def read(*probabilities):
        rows = torch.full((2, prompts.n_labels), -30.0)
        for row, own in enumerate(probabilities):
            rows[row, prompts.answers[row]] = log(own)
            rows[row, prompts.answers[row] - 1] = log(1 - own)
        nothing = torch.zeros(2, 1)
        return [(rows + 5.0, rows - 9.0, nothing.long(), nothing)]

    reads = [read(0.8, 0.9), read(0.5 + 1e-9, 0.9), read(0.6, 0.3), read(0.4, 0.3)]
    found = measurement.result(random_adapted(model), prompts, reads)
    assert found.contexts == ("demonstrations", "zero_shot", "shuffled")
    expected = [[log(0.8), log(0.5), (log(0.6) + log(0.4)) / 2], [log(0.9), log(0.9), log(0.3)]]
    assert_close(found.log_prob, torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)
    assert found.right.tolist() == [[1, 1, 0.5], [1, 1, 0]]
    assert found.over_zero_shot.value == pytest.approx(log(0.8 / 0.5) / 2, abs=1e-6)
    assert found.over_zero_shot.accuracy.value == 0
    assert found.over_shuffled.accuracy.value == 0.75
    low, high = found.over_shuffled.low, found.over_shuffled.high
    assert low < found.over_shuffled.value < high
    assert found.interval("gain", over="shuffled") == found.over_shuffled.nats
    assert found.interval("accuracy_gain", over="shuffled") == found.over_shuffled.accuracy


def random_adapted(model):
    from icl_mech.models import adapt

    return adapt(model)


@pytest.mark.parametrize("draws", [1, 2])
def test_every_number_is_that_of_a_run_of_its_own(model, draws):
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    found = icl.gain(model, prompts, draws=draws, seed=5)
    orders = [shuffled_labels(prompts, model, 5 + draw) for draw in range(draws)]
    for place, batches in enumerate(
        [[prompts], [icl.build_prompts(TASK, model, shots=0, n=4)], orders]
    ):
        runs = [icl.predict(model, batch) for batch in batches]
        log_probs = [own.label_logits.double().log_softmax(-1) for own in runs]
        right = [own.predicted == prompts.answers for own in runs]
        wanted = torch.stack(log_probs).mean(0).gather(1, prompts.answers[:, None])[:, 0]
        assert_close(found.log_prob[:, place], wanted, atol=1e-5, rtol=0)
        assert torch.equal(found.right[:, place], torch.stack(right).double().mean(0))
    assert float((found.log_prob[:, :1] - found.log_prob[:, 1:]).abs().min()) > 1e-6


def test_label_words_of_several_tokens_are_scored_whole():
    prompts = icl.build_prompts(task(CITIES), random_model("bpe"), shots=1, n=3)
    assert prompts.score == "sum"
    found = icl.gain(random_model("bpe"), prompts, progress=False)
    for place, batch in enumerate(
        [prompts, zero_shot(prompts, random_model("bpe").tokenizer).prompts]
    ):
        run = icl.predict(random_model("bpe"), batch, progress=False)
        wanted = run.log_probs.double().log_softmax(-1).gather(1, prompts.answers[:, None])[:, 0]
        assert_close(found.log_prob[:, place], wanted, atol=2e-5, rtol=0)


def test_the_planted_circuit_learns_from_labels():
    found = icl.gain(*planted(48, 2), draws=2)
    assert found.over_zero_shot.low > 0.1
    assert found.over_shuffled.low > 1
    assert found.over_zero_shot.accuracy.low > 0.2
    assert found.over_shuffled.accuracy.low > 0.3
    WORDS(found.figures()[0].answer, "planted_circuit")
    WORDS(found.figures()[0].establishes, "planted_circuit_2")


@pytest.mark.slow
def test_a_model_that_knows_gains_nothing():
    found = icl.gain(*planted(anchors=False))
    for own in (found.over_zero_shot, found.over_shuffled):
        assert abs(own.value) < 0.02
        assert own.accuracy.value == 0
    assert "is not shown" in found.figures()[0].answer


@pytest.mark.slow
def test_labels_as_they_are_displayed():
    """Demonstrations are what prompts show: false ones harm, and their labels in another order do less."""
    model, _ = planted()
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=2, n=24, labels="permuted", demonstrations="per_prompt"
    )
    found = icl.gain(model, prompts)
    assert found.over_shuffled.high < 0
    WORDS(found.figures()[0].answer, "permuted")


@pytest.mark.slow
def test_open_answers():
    model = icl.load_model()
    prompts = icl.build_prompts("past_tense", model, shots=6, n=6)
    found = icl.gain(model, prompts, progress=False)
    assert found.over_zero_shot.low > 0.1
    plain = icl.predict(model, prompts, progress=False)
    wanted = plain.label_logits.double().log_softmax(-1)[:, 0]
    assert_close(found.log_prob[:, 0], wanted, atol=2e-5, rtol=0)
    assert found.contexts[1:] == ("zero_shot", "shuffled")


def test_texts_are_scored_over_the_vocabulary(model):
    text = "The film was good. It was a story! Was it bad? The plot was good."
    texts = [text, text.replace("film", "movie")]
    prompts = icl.texts(texts, model, continuation=[" It is", " He was"])
    found = icl.gain(model, prompts)
    assert found.contexts == ("demonstrations", "zero_shot")
    assert found.over_shuffled is None
    assert found.drawing("accuracy").levels == ()
    WORDS(found.notes[0], "texts")
    rest = icl.predict(model, prompts)
    assert_close(found.log_prob[:, 0], rest.log_probs[:, 0].double(), atol=1e-5, rtol=0)
    ending = icl.gain(model, icl.texts(texts, model))
    assert ending.right[:, 0].tolist() == [1, 1]
    WORDS(ending.notes[1], "texts_without_answer")


def test_demonstrations_of_one_class(model):
    one = [own for own in TASK.train if own.label == 0][:2]
    prompts = icl.build_prompts(TASK, model, demonstrations=one, n=3, balanced=False)
    found = icl.gain(model, prompts)
    assert found.contexts == ("demonstrations", "zero_shot")
    assert found.over_shuffled is None
    WORDS(found.figures()[0].answer, "one_class")
    assert found.plot("gain").data


def test_prompts_whose_text_is_not_known(model):
    """Zero-shot prompts are then cut out of the tokens."""
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)
    blind = PromptBatch(tuple(replace(own, parts=()) for own in prompts))
    found = icl.gain(model, blind)
    assert found.contexts == ("demonstrations", "zero_shot")
    assert_close(found.log_prob, icl.gain(model, prompts).log_prob[:, :2], atol=1e-5, rtol=0)


def test_refusals(model):
    with WORDS.raises(PromptError, "no_demonstrations"):
        icl.gain(model, icl.build_prompts(TASK, model, shots=0, n=2))
    with WORDS.raises(PromptError, "positions"):
        icl.gain(model, ragged())
    blind = PromptBatch(tuple(replace(own, answer=None) for own in with_roles()))
    with WORDS.raises(PromptError, "no_answers"):
        icl.gain(model, blind)
    with WORDS.raises(ResultError, "no_such_figure"):
        made([[0.0, 0.0, 0.0]], [[1, 1, 1]]).drawing("loss")


@pytest.mark.parametrize(
    ("zero", "other", "name"),
    [
        (1, 1, "both"),
        (1, 0, "zero_shot_only"),
        (-1, 1, "better_without"),
        (1, -1, "better_shuffled"),
    ],
)
def test_what_is_said(zero, other, name):
    spread = torch.linspace(-0.3, 0.3, 12, dtype=torch.float64)
    rows = [[-1.0, -1.0 - zero + float(s), -1.0 - other - float(s)] for s in spread]
    right = [[1, n % 2, n % 3 > 0] for n in range(12)]
    found = made(rows, right)
    WORDS(found.figures()[0].answer, name)
    assert found.over_zero_shot.value == pytest.approx(zero)


def test_pages(tmp_path):
    found = made([[-1.0, -2.0, -1.5]] * 3, [[1, 0, 1]] * 3, notes=("A note.",))
    gain, right = found.figures()
    WORDS(gain.answer, "few")
    WORDS(right.answer, "accuracies")
    WORDS(found.summary(), "summary")
    assert found.plot().data
    assert found.plot("accuracy").data
    again = GainResult.load(found.save(tmp_path / "gain"))
    assert torch.equal(again.log_prob, found.log_prob)
    assert again.contexts == found.contexts
    assert again.over_zero_shot == found.over_zero_shot
    assert again.notes == ("A note.",)


def test_the_measurement_is_the_function(model):
    prompts = icl.build_prompts(TASK, model, shots=1, n=3)
    found = icl.measure(model, prompts, Gain())["gain"]
    assert_close(found.log_prob, icl.gain(model, prompts).log_prob)
