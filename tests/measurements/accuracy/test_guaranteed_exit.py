"""Exit with a guarantee: by hand, against plain Hugging Face, on networks of known layers, and what is refused."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import PromptBatch
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import GuaranteedExit
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.measurements.demonstrations import query
from icl_mech.metrics.risk import hoeffding_bentkus
from icl_mech.planted.circuit import GAIN, Circuit, Neurons
from icl_mech.planted.nulls import N_LAYERS, SPACES, STRONG, _base, _known
from icl_mech.planted.words import planted_tokenizer
from tests.engine.cases import ragged
from tests.engine.test_paths import TASK
from tests.fuzz.reference import Plain, Text
from tests.measurements.test_open_answers import made as open_task
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)
QUIET = {"progress": False}


def made(confidence, right, zero_shot, **more):
    """A result of these prompts; every second one calibrates."""
    count = len(zero_shot)
    values = {
        "answers": torch.arange(count) // 2 % 2,
        "thresholds": torch.tensor([0.9, 0.5, 0.0], dtype=torch.float64),
        "epsilon": 0.1,
        "delta": 0.1,
        "loss": "difference",
        "starts": 1,
        "first": 1,
        "labels": ("a", "b"),
        "calibration": torch.arange(count) % 2 == 0,
        "provenance": {"prompts": {"count": count}},
    }
    return GuaranteedExitResult(
        confidence=torch.tensor(confidence, dtype=torch.float64),
        right=torch.tensor(right, dtype=torch.float64),
        zero_shot=torch.tensor(zero_shot, dtype=torch.float64),
        **{**values, **more},
    )


def test_by_hand(tmp_path):
    """Two layers; the first prompt is confident (and wrong) early, the second late, the third never."""
    result = made(
        [[0.99, 0.6, 0.95], [0.99, 0.4, 0.8], [0.99, 0.3, 0.4]],
        [[1, 0, 1], [1, 0, 1], [1, 0, 0]],
        [1, 0, 1],
    )
    assert result.exits().tolist() == [[2, 1, 1], [-1, 2, 1], [-1, -1, 1]]
    assert result.correct().tolist() == [[1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert result.losses().tolist() == [[0, 1, 1], [0, -1, 0], [0, 0, 1]]
    assert result.savings().tolist() == [[0, 0.5, 0.5], [0, 0, 0.5], [0, 0, 0.5]]
    assert replace(result, loss="harm").losses().tolist() == [[0, 1, 1], [0, 0, 0], [0, 0, 1]]
    # The first and the third calibrate: mean losses 0, .5 and 1, mapped to [0, 1].
    expected = hoeffding_bentkus(torch.tensor([0.5, 0.75, 1.0]), 0.55, 2)
    assert_close(result.p_values(), expected)
    assert not result.reachable
    assert result.place is None
    assert result.threshold is None
    assert result.status == "cannot be judged"
    assert (result.risk.value, result.saved.value, result.accuracy.value, result.fell_back) == (0, 0, 0, 1)  # fmt: skip
    assert result.without.value == 0
    assert result.whole.value == 1
    again = GuaranteedExitResult.load(result.save(tmp_path / "r"))
    assert_close(again.losses(), result.losses())
    assert again.shown_thresholds == (0.9, 0.5, 0.0)


def test_the_smallest_accepted_threshold_counts():
    """80 prompts, right after layer 1 of 2, which is confident to .7; without demonstrations always wrong."""
    result = made([[0.6, 0.7, 0.99]] * 80, [[0, 1, 1]] * 80, [0] * 80)
    assert result.threshold == 0.0
    assert result.status == "supported"
    assert (result.saved.value, result.risk.value, result.accuracy.value) == (0.5, -1, 1)
    late = replace(result, right=torch.tensor([[0.0, 0.0, 1.0]] * 80))
    assert late.threshold == 0.9  # later ones leave too early, but risk nothing: zero-shot is wrong
    assert late.status == "not shown"


def test_a_late_answer_is_no_use_where_zero_shot_knows():
    right = torch.tensor([[0.0, 0.0, 1.0]] * 80)
    result = made([[0.6, 0.7, 0.99]] * 80, right.tolist(), [1] * 80, epsilon=0.3)
    # At .9 the last layer answers as well as zero-shot; below, everything would be lost.
    assert result.threshold == 0.9
    assert result.saved.value == 0
    assert result.status == "not shown"
    assert replace(result, loss="harm").threshold == 0.9


def test_the_constant_answer_of_choices_is_a_guess():
    """Among four choices a guess is right for a quarter of the prompts: .45 is better."""
    right = [[0, 1, 1]] * 36 + [[0, 0, 0]] * 44
    mixed = [right[number * 7 % 80] for number in range(80)]
    result = made([[0.6, 0.7, 0.99]] * 80, mixed, [0] * 80, labels=(), candidates=4)
    assert result.constant == 0.25 < result.accuracy.low < 0.5
    assert result.status == "supported"
    assert replace(result, candidates=2).status == "not shown"


def test_choices_of_a_real_prompt():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(open_task(), model, shots=2, n=4, demonstrations="per_prompt")
    assert prompts.n_labels > 2
    result = icl.guaranteed_exit(model, prompts, **QUIET)
    assert result.candidates == prompts.n_labels
    assert result.constant == 1 / prompts.n_labels


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_equal_to_a_loop_in_plain_hugging_face(family):
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt")
    result = icl.guaranteed_exit(model, prompts, **QUIET)
    plain, tokenizer = Plain(tiny_hf(family)), model.tokenizer
    ids = [tokenizer(f"Sentiment: {label}", add_special_tokens=False).input_ids[-1] for label in TASK.labels]  # fmt: skip
    for row, prompt in enumerate(prompts):
        (asked,) = [prompt.text[s.start : s.stop] for s in prompt.parts if s.role == "query_text"]
        tokens = tokenizer(prompt.text).input_ids
        bare = tokenizer(f"Review: {asked}\nSentiment:").input_ids
        logits = plain.lens(text_of(tokens, ids))[:, ids]
        scale = max(1.0, float(logits.abs().max()))
        assert_close(result.confidence[row], logits.softmax(-1).amax(-1), atol=1e-5 * scale, rtol=0)
        assert result.right[row].tolist() == (logits.argmax(-1) == prompt.answer).tolist()
        alone = plain.run(text_of(bare, ids)).logits[-1, ids]
        assert float(result.zero_shot[row]) == float(alone.argmax() == prompt.answer)


def text_of(tokens, ids):
    return Text(tokens, len(tokens) - 1, [], [], [[token] for token in ids], 0)


def test_splits_are_those_of_a_plain_loop():
    generator = torch.Generator().manual_seed(3)
    count = 60
    confidence = torch.rand(count, 4, generator=generator).tolist()
    right = (
        torch.rand(count, 4, generator=generator) < torch.tensor([0.3, 0.5, 0.8, 0.9])
    ).double()
    zero_shot = (torch.rand(count, generator=generator) < 0.3).double()
    result = made(confidence, right.tolist(), zero_shot.tolist(), epsilon=0.05, starts=2)
    order = torch.rand(25, count, generator=torch.Generator().manual_seed(7)).argsort(1)
    violated = certified = beyond = 0
    saved = 0.0
    for row in order:
        calibration = torch.zeros(count, dtype=torch.bool)
        calibration[row[: count // 2]] = True
        single = replace(result, calibration=calibration)
        certified += single.place is not None
        violated += single.risk.value > 0.05
        saved += single.saved.value
        if single.place is not None:
            beyond += float(single.losses()[:, single.place].mean()) > 0.05
    splits = result.splits(25, seed=7)
    assert 0 < certified < 25
    assert splits.certified == pytest.approx(certified / 25)
    assert splits.violated == pytest.approx(violated / 25)
    assert splits.beyond == pytest.approx(beyond / 25)
    assert splits.saved == pytest.approx(saved / 25)


@pytest.mark.parametrize(("loss", "epsilon"), [("difference", 0.1), ("difference", 0.02), ("harm", 0.1)])  # fmt: skip
def test_violated_in_at_most_delta_of_the_splits_on_data_of_known_risk(loss, epsilon):
    """Confidence that is calibrated, with a wrong but sure third: the risk rises as the threshold falls."""
    generator = torch.Generator().manual_seed(0)
    count, layers = 600, 5
    skill = torch.rand(count, 1, generator=generator)
    depth = torch.linspace(0, 1, layers)
    probability = 0.5 + 0.5 * depth * skill
    right = (torch.rand(count, layers, generator=generator) < probability - 0.15 * (depth < 0.6)).double()  # fmt: skip
    zero_shot = (torch.rand(count, generator=generator) < 0.55).double()
    result = made(
        probability.tolist(), right.tolist(), zero_shot.tolist(), loss=loss, epsilon=epsilon,
        starts=5, thresholds=torch.arange(99, -1, -1, dtype=torch.float64) / 100,
        calibration=torch.arange(count) < count // 2,
    )  # fmt: skip
    splits = result.splits(300)
    assert splits.violated <= result.delta
    assert splits.beyond <= result.delta


# --- networks of known layers ---


def on(model, n=96, seed=0, **options):
    how = {"shots": 1, "n": n, "seed": seed, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(icl.planted_task(), model, **how)
    return icl.guaranteed_exit(model, prompts, **QUIET, **options)


@pytest.mark.parametrize("layer", [3, 4, 5])
def test_the_exit_is_where_the_answer_is_written(layer):
    result = on(icl.planted_model(hand_over=layer))
    # Confident prompts leave right after the block that reads the label words.
    exits = result.exits()[:, result.shown_thresholds.index(0.9)]
    assert set(exits.tolist()) <= {-1, layer + 1}
    assert float((exits > 0).double().mean()) > 0.3
    assert result.status == ("not shown" if layer == 5 else "supported")
    splits = result.splits(200)
    assert splits.violated <= result.delta


def misleading(seed, constant):
    """Sure of one answer from block 2 on, whatever the query; the right one outweighs it from block 4 on."""
    sure = torch.zeros(1, len(icl.planted.LABELS))
    sure[0, 0] = constant / GAIN / 5
    early = Neurons(1, {"is_colon": 10.0}, -5.0, "answer", sure)
    known = replace_layer(_known(3 * STRONG), 3)
    circuit = Circuit(SPACES, N_LAYERS, _base(), [early, known])
    return icl.load_model(circuit.model(seed), tokenizer=planted_tokenizer())


def replace_layer(neurons, layer):
    return Neurons(layer, *neurons[1:])


def test_confidence_in_a_wrong_answer_is_not_accepted_where_zero_shot_is_right():
    """Without demonstrations the network answers the constant; with them it does so early, and is right late."""
    sure = on(misleading(0, STRONG), loss="harm")
    # Zero-shot answers the constant, right for a quarter; so does the early exit: no harm, and no accuracy.
    assert sure.without.value == pytest.approx(0.25, abs=0.15)
    assert sure.whole.value == 1
    assert sure.accuracy.value == pytest.approx(sure.without.value)
    assert sure.status == "not shown"
    unsure = on(misleading(0, 0.5))
    assert unsure.whole.value == 1
    assert unsure.threshold is not None
    assert unsure.risk.high < 0.1


def test_a_fitted_lens_that_changes_nothing():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt")
    layers, width = model.cfg.n_layers, model.cfg.d_model
    shapes = (layers, width, width), (layers, width)
    plain = icl.guaranteed_exit(model, prompts, **QUIET)
    zero = icl.TunedLens.given(model, *map(torch.zeros, shapes))
    same = icl.guaranteed_exit(model, prompts, lens=zero, **QUIET)
    assert torch.equal(same.confidence, plain.confidence)
    doubled = icl.TunedLens.given(model, torch.zeros(shapes[0]), torch.ones(shapes[1]))
    other = icl.guaranteed_exit(model, prompts, lens=doubled, **QUIET)
    assert not torch.equal(other.confidence, plain.confidence)
    assert torch.equal(other.confidence[:, -1], plain.confidence[:, -1])


def test_words_and_drawing():
    result = on(icl.planted_model())
    drawing = result.drawing()
    held_out = ~result.calibration
    assert_close(drawing.values[0], result.losses()[held_out].mean(0))
    assert_close(drawing.values[1], result.savings()[held_out].mean(0))
    (figure,) = result.figures()
    WORDS(figure.answer, "answer")
    WORDS(figure.establishes, "establishes")
    WORDS(result.summary(), "summary")
    WORDS(figure.question, "question")
    WORDS(figure.caption, "caption")
    (figure,) = replace(result, loss="harm").figures()
    WORDS(figure.answer, "harm")
    WORDS(figure.establishes, "establishes_harm")
    few = on(icl.planted_model(), n=8)
    WORDS(few.figures()[0].answer, "few")
    none = on(icl.untrained(icl.planted_model(), 0))
    WORDS(none.figures()[0].answer, "none")


def test_refusals():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt")
    with WORDS.raises(RunError, "epsilon"):
        GuaranteedExit(epsilon=0.0, loss="harm")
    with WORDS.raises(RunError, "large_epsilon"):
        GuaranteedExit(epsilon=2.0)
    with WORDS.raises(RunError, "delta"):
        GuaranteedExit(delta=0.0)
    with WORDS.raises(RunError, "starts"):
        GuaranteedExit(grid=4)
    with WORDS.raises(RunError, "first"):
        icl.guaranteed_exit(model, prompts, first=7)
    with WORDS.raises(PromptError, "twice"):
        icl.guaranteed_exit(model, PromptBatch((prompts[0], prompts[0])))
    other = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt", seed=1)
    queries = {str(query(prompt)) for prompt in prompts}
    again = next(prompt for prompt in other if str(query(prompt)) in queries)
    assert again.tokens not in {prompt.tokens for prompt in prompts}
    with WORDS.raises(PromptError, "repeated_query"):
        icl.guaranteed_exit(model, PromptBatch((*prompts, again), prompts.source))
    with WORDS.raises(PromptError, "single"):
        icl.guaranteed_exit(model, prompts[[0]])
    same = [number for number, prompt in enumerate(prompts) if prompt.answer == prompts[0].answer]
    with WORDS.raises(PromptError, "one_class"):
        icl.guaranteed_exit(model, prompts[same])
    with WORDS.raises(PromptError, "no_demonstrations"):
        icl.guaranteed_exit(model, icl.build_prompts(TASK, model, shots=0, n=4))
    with WORDS.raises(PromptError, "no_zero_shot"):
        icl.guaranteed_exit(model, ragged()[[0, 1]])


def test_a_cell_of_a_sweep(tmp_path):
    from tests.sweeps.loaders import TASK as SWEPT
    from tests.sweeps.loaders import tiny

    run = icl.sweep(
        tiny, SWEPT, [GuaranteedExit()], shots=1, n=4, seeds=[0, 1], out=tmp_path / "sweep", **QUIET,
    )  # fmt: skip
    mean = run.average("guaranteed_exit.saved", over="seed")
    assert mean.cells[0].value.shape == (100,)
    assert icl.load(tmp_path / "sweep").summary() == run.summary()


def test_the_measurement_is_the_function():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4, demonstrations="per_prompt")
    run = icl.measure(model, prompts, GuaranteedExit(seed=2), **QUIET)["guaranteed_exit"]
    alone = icl.guaranteed_exit(model, prompts, seed=2, **QUIET)
    assert torch.equal(run.confidence, alone.confidence)
    assert torch.equal(run.calibration, alone.calibration)
