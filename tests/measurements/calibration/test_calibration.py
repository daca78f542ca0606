"""Calibration baselines of a tiny model, against its own label probabilities."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import build_prompts, measure, predict, prompts_from_text
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import Reweight
from icl_mech.measurements.calibration.calibration import Calibration, calibration
from icl_mech.measurements.calibration.content_free import (
    random_words,
    replaced,
    texts_of,
    training_texts,
)
from icl_mech.metrics.calibration import calibrate_batch, calibrate_labels
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Result
from icl_mech.sweeps.reading import bounds_of
from tests.measurements.lens.test_logit_lens import TASK
from tests.prompts.cases import toy_task
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TOY = toy_task(per_class=8)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, build_prompts(TOY, model, shots=1, n=6)


def label_probs(model, prompts):
    return predict(model, prompts).label_logits.double().softmax(-1)


def text(prompt):
    return "".join(prompt.pieces)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_only_the_querys_text_is_replaced(family):
    model = tiny_model(family)
    prompts = build_prompts(TASK, model, shots=1, n=6)
    found = replaced(prompts, ["N/A", "", "bad film"], model.tokenizer)
    assert len(found.prompts) == 3
    assert found.context == (0,) * 6
    own, *_ = prompts
    before = text(own)[: text(own).rindex("Review:")]
    assert [text(prompt) for prompt in found.prompts] == [
        f"{before}Review: N/A\nSentiment:", f"{before}Review: \nSentiment:",
        f"{before}Review: bad film\nSentiment:",
    ]  # fmt: skip
    for prompt in found.prompts:
        assert prompt.label_positions == own.label_positions
        assert prompt.answer is None
        assert text(prompt)[-1] == ":"


def test_replaced_prompts_are_those_that_would_be_built(gpt2):
    """A query's own text, put back, gives the prompt itself."""
    model, prompts = gpt2
    for prompt in prompts:
        (span,) = [span for span in prompt.spans if span.role == "query_text"]
        own = "".join(prompt.pieces[span.start : span.stop]).strip()
        again = replaced(PromptBatch((prompt,)), [own], model.tokenizer).prompts[0]
        assert again.tokens == prompt.tokens
        assert again.spans == prompt.spans


def test_every_context_has_inputs_of_its_own(gpt2):
    model, _ = gpt2
    prompts = build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt", seed=3)
    found = replaced(prompts, ["N/A"], model.tokenizer)
    for prompt, number in zip(prompts, found.context, strict=True):
        assert (
            found.prompts[number].tokens[: prompt.label_positions[-1]]
            == (prompt.tokens[: prompt.label_positions[-1]])
        )


TEXTS = ["plain words of other films", "nothing that is asked here"]


def test_contexts_run_apart_give_what_whole_prompts_give(gpt2):
    model, _ = gpt2
    prompts = build_prompts(TASK, model, shots=2, n=6, demonstrations="per_prompt", seed=3)
    apart = calibration(model, prompts, texts=TEXTS, draws=4, progress=False)
    whole = calibration(model, prompts, texts=TEXTS, draws=4, path="whole", progress=False)
    assert_close(apart.scores, whole.scores, atol=1e-6, rtol=0)
    assert_close(apart.priors, whole.priors, atol=1e-6, rtol=0)
    assert not torch.allclose(apart.priors[0, 0], apart.priors[1, 0])


def test_each_method_is_its_formula(gpt2):
    model, prompts = gpt2
    found = calibration(model, prompts, draws=3, seed=1)
    plain = label_probs(model, prompts)
    free = label_probs(model, replaced(prompts, ["N/A", "", "[MASK]"], model.tokenizer).prompts)
    demonstrations = ["".join(p) for p in {
        prompt.pieces[span.start : span.stop]
        for prompt in prompts for span in prompt.spans if span.role == "demo_text"
    }]  # fmt: skip
    assert len(demonstrations) == 2
    texts = [own.strip() for own in demonstrations]
    in_order = sorted(texts, key=lambda own: text(prompts[0]).index(own))
    words = replaced(prompts, random_words(in_order, 3, 1), model.tokenizer).prompts
    wanted = [
        plain, calibrate_labels(plain, free), calibrate_labels(plain, label_probs(model, words)),
        calibrate_batch(plain),
    ]  # fmt: skip
    assert found.methods == ("plain", "contextual", "domain", "batch")
    assert_close(found.scores, torch.stack(wanted, dim=1), atol=1e-6, rtol=1e-6)
    assert_close(found.priors[0, 0], free.mean(0), atol=1e-6, rtol=1e-6)
    assert_close(found.priors[3, 2], plain.mean(0), atol=1e-6, rtol=1e-6)
    right = found.scores.argmax(-1) == prompts.answers[:, None]
    assert_close(found.sel("accuracy").values, right.double().mean(0))
    gain = found.sel("gain").values
    assert float(gain[0]) == 0
    assert_close(gain, (right.double() - right[:, :1].double()).mean(0))
    assert bounds_of(found.quantities()["gain"].unit) == (-1, 1)


def test_an_input_without_content_comes_out_uniform(gpt2):
    model, prompts = gpt2
    (own,) = replaced(prompts[:1], ["N/A"], model.tokenizer).prompts
    probs = label_probs(model, PromptBatch((own,)))
    assert torch.equal(calibrate_labels(probs, probs), torch.full((1, 2), 0.5).double())


def test_beside_reweighting_and_more_demonstrations(gpt2):
    model, prompts = gpt2
    beta = 0.5 * torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
    more = build_prompts(TOY, model, shots=2, n=6)
    found = calibration(model, prompts, reweighting=Reweight(beta), more_shots=more)
    assert found.methods[-2:] == ("reweighted", "more_shots")
    assert_close(found.scores[:, -1], label_probs(model, more), atol=1e-6, rtol=1e-6)
    own = predict(model, prompts, interventions=[Reweight(beta)]).label_logits.double().softmax(-1)
    assert_close(found.scores[:, -2], own, atol=1e-6, rtol=1e-6)
    with WORDS.raises(PromptError, "beside_reweighting_more_demonstrations"):
        calibration(model, prompts, more_shots=more[:3])
    with WORDS.raises(RunError, "beside_reweighting_more_demonstrations_2", "2"):
        calibration(model, prompts, reweighting=Reweight(beta[:2]))


def test_words_come_from_the_texts_given_and_are_as_many():
    texts = ["one two three", "four five six seven eight"]
    made = random_words(texts, 10, 0)
    assert all(len(own.split()) == 4 for own in made)
    assert {word for own in made for word in own.split()} <= set(" ".join(texts).split())
    assert made == random_words(texts, 10, 0) != random_words(texts, 10, 1)


def test_words_are_never_drawn_from_what_is_tested(gpt2):
    model, prompts = gpt2
    query = texts_of(prompts, "query_text")[0]
    with WORDS.raises(PromptError, "words_never_drawn_what", "1", "2"):
        calibration(model, prompts, texts=["nothing here", query])


def test_a_tasks_training_texts_but_for_queries(gpt2):
    model, prompts = gpt2
    texts = training_texts(TOY, prompts)
    assert texts == [example.text for example in TOY.train]
    mixed = replace(TOY, train=(*TOY.train, TOY.test[0]))
    every = build_prompts(TOY, model, shots=1, n=len(TOY.test))
    assert training_texts(mixed, every) == texts
    found = calibration(model, prompts, task=TOY, draws=2, seed=5)
    again = calibration(model, prompts, texts=texts, draws=2, seed=5)
    assert torch.equal(found.scores, again.scores)


def test_prompts_that_cannot_be_calibrated_are_refused(gpt2):
    model, prompts = gpt2
    bare = PromptBatch(
        tuple(
            Prompt.from_positions(
                prompt.tokens, label_positions=[], label_classes=[],
                label_tokens=prompt.label_tokens, answer=0,
            )
            for prompt in prompts
        )
    )  # fmt: skip
    with WORDS.raises(PromptError, "prompts_cannot_calibrated_refused", "0"):
        calibration(model, bare)
    with WORDS.raises(PromptError, "prompts_cannot_calibrated_refused_2"):
        calibration(model, build_prompts(TASK, model, shots=0, n=4))
    with WORDS.raises(PromptError, "prompts_cannot_calibrated_refused_3"):
        calibration(model, prompts, task=TOY, texts=["a"])
    with WORDS.raises(PromptError, "prompts_cannot_calibrated_refused_4"):
        calibration(model, prompts, inputs=[])
    with WORDS.raises(RunError, "prompts_cannot_calibrated_refused_5", "0", "1"):
        calibration(model, prompts, draws=0)


def test_in_an_analysis_saved_and_drawn(gpt2, tmp_path):
    model, prompts = gpt2
    found = measure(model, prompts, Calibration(draws=2)).calibration
    found.save(tmp_path / "one")
    again = Result.load(tmp_path / "one")
    assert torch.equal(again.scores, found.scores)
    for show in found.shows:
        assert len(found.plot(show).data)
    assert [figure.show for figure in found.figures()] == list(found.shows)
    staicc = calibration(model, prompts, draws=2, form="staicc")
    assert bool(((found - staicc).values == 0).all())  # the largest label is the same


def test_finished_texts_keep_the_sign_their_answer_is_read_at(gpt2):
    model, _ = gpt2
    shown = "Review: good\nSentiment: Positive\nReview: bad\nSentiment: Negative\nReview: "
    texts = [f"{shown}{query}\nSentiment:" for query in ("the film", "a story of hope")]
    batch = prompts_from_text(texts, ("Negative", "Positive"), model, [0, 1], before="Sentiment:")
    found = replaced(batch, ["N/A", ""], model.tokenizer).prompts
    assert [prompt.text for prompt in found] == [
        "Review: good\nSentiment: Positive\nReview: bad\nSentiment: NegativeN/A:",
        "Review: good\nSentiment: Positive\nReview: bad\nSentiment: Negative:",
    ]
    assert calibration(model, batch, progress=False).summary()
