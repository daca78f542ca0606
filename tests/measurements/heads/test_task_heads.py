"""Task recognition and learning heads: by hand, in plain Hugging Face, on planted circuits, and in words."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import hypergeom
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements import TaskHeads
from icl_mech.measurements.causal.answers import Answers
from icl_mech.measurements.demonstrations import two_parts
from icl_mech.measurements.heads.head_sets import overlaps
from icl_mech.measurements.heads.label_span import (
    LabelSpanReading,
    _random_tokens,
    label_span,
    orthonormal,
)
from icl_mech.measurements.heads.task_claims import TaskHeadsResult
from icl_mech.measurements.heads.task_sets import TaskSets, right_and_blind
from icl_mech.models import adapt
from icl_mech.planted import TASK_LEARNING_HEADS, TASK_RECOGNITION_HEADS, null_model
from icl_mech.planted.task import EXPECTED, LEARNT
from tests.engine.test_paths import TASK
from tests.fuzz.reference import Heads, Plain, Text
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model

WORDS = Words(__file__)

N = 48


def planted(model, n=N, **options):
    how = {"shots": 1, "n": n, "demonstrations": "per_prompt", **options}
    return icl.build_prompts(icl.planted_task(), model, **how)


@pytest.fixture(scope="module")
def model():
    return icl.planted_model(circuit="task")


@pytest.fixture(scope="module")
def prompts(model):
    return planted(model)


@pytest.fixture(scope="module")
def found(model, prompts):
    beside = {"copying": (*TASK_LEARNING_HEADS, (0, 3)), "elsewhere": ((0, 0), (0, 1))}
    return icl.task_heads(model, prompts, beside=beside, progress=False)


# --- the projection ---


def test_span_of_the_same_directions_twice_has_their_rank():
    rows = torch.tensor([[3.0, 0, 0, 0], [0, 2.0, 0, 0], [3.0, 2.0, 0, 0]], dtype=torch.float64)
    basis = orthonormal(rows)
    assert_close(basis.T @ basis, torch.diag(torch.tensor([1.0, 1, 0, 0])).double())
    assert basis.any(-1).sum() == 2


def test_by_hand():
    """Two label words along two axes: recognition, learning and its control in a few numbers."""
    model = adapt(tiny_model("llama"))
    labels = torch.tensor([7, 9])
    span = label_span(model, labels, draws=3, seed=0)
    assert span.rank == 2
    rows, norm = model.readout(labels[None])[0][0], model.final_norm_parts
    first, second = norm.pulled_back(rows.detach())
    # The output is three times the first direction and something outside the span.
    outside = torch.randn(first.shape, generator=torch.Generator().manual_seed(0))
    outside = outside - span.rows.T @ (span.rows @ outside)
    output = 3 * first + outside
    size = float((span.rows @ output).norm())
    assert size == pytest.approx(3 * float(first.norm()), rel=1e-5)
    difference = first - second
    cosine = float(first @ difference / first.norm() / difference.norm())
    assert float(span.towards[0] @ output) / size == pytest.approx(cosine, rel=1e-4)
    assert_close(span.towards[0], -span.towards[1])
    towards = torch.tensor([[0.5, -0.5], [0.2, -0.2]])[:, None, None]
    right, blind = right_and_blind(towards, torch.tensor([0, 1]))
    assert_close(right.flatten(), torch.tensor([0.5, -0.2]))
    assert_close(blind.flatten(), torch.zeros(2))


def directions(model, family, ids):
    """Along which label words read the residual stream, in plain Hugging Face."""
    rows = model.lm_head.weight.detach().double()[ids]
    norm = model.transformer.ln_f if family == "gpt2" else model.model.norm
    gain = norm.weight.detach().double() + (1 if family == "gemma3" else 0)
    rows = rows * gain
    return rows - rows.mean(-1, keepdim=True) if family == "gpt2" else rows


def outputs(plain, family, text):
    """What every head adds to the residual stream at the target, `[layer, head, d_model]`."""
    kept, handles = {}, []
    for layer in range(plain.n_layers):

        def keep(module, args, layer=layer):
            kept[layer] = args[0][0, text.target].detach()

        handles.append(plain.attention_out(layer).register_forward_pre_hook(keep))
    plain.run(text)
    for handle in handles:
        handle.remove()
    every = []
    for layer in range(plain.n_layers):
        weight = plain.attention_out(layer).weight.detach().double()
        weight = weight if family == "gpt2" else weight.T
        z = kept[layer].view(plain.n_heads, -1)
        written = torch.einsum("hd,hdm->hm", z, weight.view(plain.n_heads, -1, weight.shape[1]))
        if family == "gemma3":
            after = plain.blocks[layer].post_attention_layernorm
            written = written * (1 + after.weight.detach().double())
        every.append(written)
    return torch.stack(every)


def as_text(prompt):
    return Text(
        [*prompt.tokens], prompt.target, [*prompt.label_positions], [*prompt.label_classes],
        [[token] for token in prompt.label_tokens], prompt.answer,
    )  # fmt: skip


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3"])
def test_scores_and_ablations_in_plain_hugging_face(family):
    """A small loop of its own: least squares onto the label words' directions, one head at a time."""
    task = replace(TASK, labels=("Negative", "Positive"))
    prompts = icl.build_prompts(task, tiny_model(family), shots=1, n=6, demonstrations="per_prompt")
    model = adapt(tiny_model(family))
    (scores,) = run(model, prompts, [LabelSpanReading(2, 0)], progress=False)
    labels = prompts.choice_tokens[0].tolist()
    drawn = _random_tokens(model, labels, 2, np.random.default_rng(0))
    hf = tiny_hf(family)
    plain = Plain(hf)
    worst = 0.0
    for number, prompt in enumerate(prompts):
        text = as_text(prompt)
        written = outputs(plain, family, text)
        rows = directions(hf, family, [word[0] for word in text.words])
        for span, seen in (
            (rows, scores.recognition[number]),
            *(
                (directions(hf, family, ids), scores.random[number, ..., d])
                for d, ids in enumerate(drawn)
            ),
        ):
            for layer in range(3):
                for head in range(4):
                    output = written[layer, head]
                    fit = torch.linalg.lstsq(span.T, output[:, None]).solution
                    expected = (span.T @ fit).norm() / output.norm()
                    worst = max(worst, abs(float(expected - seen[layer, head])))
        for label in range(2):
            towards = rows[label] - rows[1 - label]
            fit = torch.linalg.lstsq(rows.T, written.flatten(0, 1).T).solution
            inside = (rows.T @ fit).T.unflatten(0, (3, 4))
            expected = torch.cosine_similarity(inside, towards.expand_as(inside), dim=-1)
            # A cosine is as exact as the part of the output that it is the cosine of.
            gap = (expected - scores.towards[number, ..., label]) * scores.recognition[number]
            worst = max(worst, float(gap.abs().max()))
    assert worst <= 1e-5


@pytest.mark.parametrize("family", ["gpt2", "llama", "neox"])
def test_ablations_are_those_of_hugging_face(family, monkeypatch):
    """Accuracy among the label words and probability outside them, for every condition that is run."""
    sets = (((0, 1), (2, 2)), ((1, 0),))
    monkeypatch.setattr(TaskHeads, "_sets", lambda *given: TaskSets(*sets, ()))
    model = tiny_model(family)
    prompts = icl.build_prompts(TASK, model, shots=1, n=6, demonstrations="per_prompt")
    result = TaskHeads(draws=2, top=2)(model, prompts, progress=False)
    assert result.heads == sets
    plain = Plain(tiny_hf(family))
    _, testing = _parts(prompts)
    worst = 0.0
    for number, prompt in enumerate(testing):
        text = as_text(prompt)
        for place, heads in enumerate(((), *sets)):
            edits = [Heads([*heads], "zero_output", "target")] if heads else []
            logits = plain.run(text, edits).logits[text.target].detach()
            ids = [word[0] for word in text.words]
            outside = 1 - float(logits.softmax(-1)[ids].sum())
            worst = max(worst, abs(outside - float(result.outside[number, 0, place])))
            right = float(logits[ids].argmax() == prompt.answer)
            assert right == float(result.right[number, 0, place])
    assert worst <= 1e-5


def _parts(prompts):
    return (prompts[part] for part in two_parts(prompts, 0))


def test_identities(model, prompts):
    """The span holds the label logits: a head with recognition 0 moves none of them."""
    adapted = adapt(model)
    (sound,) = run(adapted, prompts[:4], [LabelSpanReading(2, 0)], progress=False)
    (published,) = run(
        adapted, prompts[:4], [LabelSpanReading(2, 0, variant="reference")], progress=False
    )
    assert 0 <= float(sound.recognition.min()) <= float(sound.recognition.max()) <= 1
    assert float(sound.towards.abs().max()) <= 1
    lens = icl.logit_lens(model, prompts[:4], per="head", progress=False).label_logits
    idle = sound.recognition < 1e-6
    assert bool(idle.any())
    assert float(lens[idle].abs().max()) < 1e-4
    # The published score of learning is the logit difference over the squared projection.
    classes = sound.towards.shape[-1]
    others = (published.towards.sum(-1, keepdim=True) - published.towards) / (classes - 1)
    assert_close(published.towards.sum(-1), torch.zeros_like(others[..., 0]), atol=1e-3, rtol=1e-3)
    inside = sound.recognition > 1e-3
    same = published.towards.argmax(-1) == sound.towards.argmax(-1)
    assert bool(same[inside].float().mean() > 0.95)


def test_gaussian_directions_are_the_share_of_the_width(model, prompts):
    """In expectation, C random directions hold C/d of the squared output."""
    (scores,) = run(
        adapt(model), prompts[:4], [LabelSpanReading(200, 0, null="gaussian")], progress=False
    )
    width = adapt(model).info.d_model
    moving = scores.random[0, 4, 0]
    assert float(moving.square().mean()) == pytest.approx(4 / width, rel=0.2)


# --- planted truth ---


def test_the_planted_heads_do_what_is_said_of_them(model, prompts):
    plain, without_first, without_second = (
        _outside_and_right(model, prompts, heads)
        for heads in ((), TASK_RECOGNITION_HEADS, TASK_LEARNING_HEADS)
    )
    assert plain[0] < 0.03
    assert plain[1] == 1
    assert without_first[0] > 0.8
    assert without_first[1] == 1
    assert without_second[0] < 0.25
    assert without_second[1] < 0.5
    assert EXPECTED > LEARNT


def _outside_and_right(model, prompts, heads):
    edits = [icl.ZeroHeads(heads)] if heads else []
    seen = icl.predict(model, prompts, interventions=edits, progress=False)
    outside = 1 - seen.log_probs.double().exp().sum(-1)
    return float(outside.mean()), float((seen.predicted == prompts.answers).double().mean())


def test_it_names_exactly_the_planted_heads(found):
    assert set(found.of("learning")) == set(TASK_LEARNING_HEADS) == set(found.teaching())
    assert set(found.of("recognition")[:3]) == set(TASK_RECOGNITION_HEADS)
    assert set(found.shared) == set(TASK_LEARNING_HEADS)
    assert {found.status_of(name) for name in ("recognition", "learning")} == {"supported"}


def test_one_intact_set_does_not_stand_in_for_the_other(found):
    """Without recognition heads all answers are right; without learning heads a label word follows."""
    right, outside = (
        found.sel(name, context="demonstrations").values for name in ("right", "outside")
    )
    assert right[1] == 1
    assert right[2] < 0.5
    assert outside[1] > 0.8
    assert outside[2] < 0.25


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_strength(strength):
    model = icl.planted_model(circuit="task", strength=strength)
    plain = _outside_and_right(model, planted(model, 24), ())
    without = _outside_and_right(model, planted(model, 24), TASK_LEARNING_HEADS)
    assert plain[1] == 1
    assert (without[1] == 1) is (strength == 0)


def test_heads_that_read_the_query_do_not_learn_from_labels():
    model = null_model("reads_query")
    result = icl.task_heads(model, planted(model), progress=False)
    assert result.effects("learning").change.high < -0.3
    assert result.status_of("learning") == "not shown"


def test_an_untrained_network_has_nothing_to_lose(model):
    untrained = icl.untrained(model, 0)
    result = icl.task_heads(untrained, planted(untrained), progress=False)
    assert result.status_of("recognition") == result.status_of("learning") == "cannot be judged"
    assert not result.recognising()
    assert not result.teaching()


# --- results ---


def test_chosen_on_other_prompts(model, prompts, found):
    """Other answers of the tested half change no chosen head."""
    assert found.count + found.chosen_on == len(prompts) == 2 * found.count
    _, testing = _parts(prompts)
    assert found.answers.tolist() == testing.answers.tolist()


def test_overlap_with_other_sets(found):
    by_pair = {(overlap.first, overlap.second): overlap for overlap in found.overlaps}
    copied = by_pair["task learning", "copying"]
    assert set(copied.heads) == set(TASK_LEARNING_HEADS)
    assert copied.beyond
    assert copied.expected == pytest.approx(3 * 4 / 24)
    assert copied.p_value == pytest.approx(hypergeom(24, 3, 4).sf(2))
    assert not by_pair["task learning", "elsewhere"].beyond
    assert found.beyond_chance == (copied,)


def test_overlap_by_hand():
    """One head of two drawn from four is among two others with probability 5/6."""
    (overlap,) = overlaps({"a": ((0, 0), (0, 1)), "b": ((0, 1), (1, 1))}, [("a", "b")], 4)
    assert overlap.heads == ((0, 1),)
    assert overlap.expected == 1
    assert overlap.p_value == pytest.approx(5 / 6)
    assert not overlap.beyond


def made(outside, right, **more):
    """A result of six prompts made by hand: outside and right by condition, the same for all prompts but one."""
    n = 12
    both = [
        torch.tensor(values, dtype=torch.float64).expand(n, len(values), 3).clone()
        for values in (outside, right)
    ]
    zeros, random = torch.zeros(n, 2, 2), [value[:, 0, :1, None].expand(n, 2, 4) for value in both]
    fields = {
        "recognition": zeros, "random_recognition": zeros, "learning": zeros, "blind_learning": zeros,
        "random_draws": torch.zeros(3, 2, 2), "random_right": random[1], "random_outside": random[0],
        "contexts": ("demonstrations", "zero_shot", "shuffled")[: len(outside)],
        "heads": (((0, 0),), ((1, 1),)), "shared": (), "chosen_on": n, "labels": ("a", "b"),
        "answers": torch.arange(n) % 2, "provenance": {"prompts": {"count": 2 * n}},
    }  # fmt: skip
    return TaskHeadsResult(outside=both[0], right=both[1], **{**fields, **more})


@pytest.mark.parametrize(
    ("outside", "status"),
    [
        ([[0.1, 0.5, 0.1], [0.9, 0.9, 0.9]], "supported"),
        ([[0.1, 0.12, 0.1], [0.9, 0.9, 0.9]], "present, not used"),
        ([[0.1, 0.05, 0.1], [0.9, 0.9, 0.9]], "opposite"),
        ([[0.1, 0.5, 0.1], [0.5, 0.9, 0.5]], "not shown"),
        # Zero-shot nothing is left to rise, but nine tenths of what is inside go, as with demonstrations.
        ([[0.1, 0.91, 0.1], [0.99, 0.999, 0.99]], "not shown"),
        ([[0.1, 0.91, 0.1], [0.99, 0.99, 0.99]], "supported"),
        ([[0.85, 0.9, 0.85], [0.9, 0.9, 0.9]], "cannot be judged"),
        ([[0.1, 0.5, 0.1]], "cannot be judged"),
    ],
)
def test_status_of_recognition(outside, status):
    """Beyond the change zero-shot, at least a tenth of what demonstrations move, which is a tenth of what was there."""
    right = [[1.0, 1.0, 1.0]] * len(outside)
    assert made(outside, right).status_of("recognition") == status


@pytest.mark.parametrize(
    ("right", "status"),
    [
        ([[1.0, 1.0, 0.4], [0.5, 0.5, 0.5], [0.2, 0.2, 0.4]], "supported"),
        ([[1.0, 1.0, 0.4], [0.5, 0.5, 0.5], [1.0, 1.0, 0.4]], "not shown"),
        ([[1.0, 0.4, 1.0], [0.5, 0.5, 0.5], [0.2, 0.2, 0.2]], "not shown"),
        ([[0.5, 0.5, 0.1], [0.5, 0.5, 0.5], [0.2, 0.2, 0.4]], "cannot be judged"),
        ([[1.0, 1.0, 0.4], [0.5, 0.5, 0.5]], "cannot be judged"),
    ],
)
def test_status_of_learning(right, status):
    """Beyond the change with shuffled labels, where accuracy is above the majority class."""
    outside = [[0.1, 0.1, 0.1]] * len(right)
    assert made(outside, right).status_of("learning") == status


@pytest.mark.parametrize(
    ("log_right", "status"),
    [
        ([[-0.1, -0.1, -1.2], [-1.4] * 3, [-2.0, -2.0, -1.4]], "supported"),
        ([[-0.1, -0.1, -1.2], [-1.4] * 3, [-2.0, -2.0, -2.1]], "supported"),
        # No accuracy is left to lose with shuffled labels, but as much of the probability goes.
        ([[-0.1, -0.1, -1.2], [-1.4] * 3, [-2.0, -2.0, -3.2]], "not shown"),
    ],
)
def test_learning_is_compared_with_shuffled_labels_in_nats(log_right, status):
    right = [[1.0, 1.0, 0.2], [0.5] * 3, [0.0, 0.0, 0.0]]
    every = torch.tensor(log_right, dtype=torch.float64).expand(12, 3, 3)
    result = made([[0.1] * 3] * 3, right, log_right=every)
    assert result.effects("learning").change.value == pytest.approx(-0.8)
    shuffled = log_right[2][2] - log_right[2][0]
    assert result.effects("learning").beyond_context.value == pytest.approx(-1.1 - shuffled)
    assert result.status_of("learning") == status


def test_nats_of_the_label_words():
    """Probabilities outside that round to one still differ in what is inside."""
    answers = Answers(torch.tensor([[-50.0, -60.0], [0.0, -1.0]]), torch.tensor([0.0, 2.0]))
    inside = torch.tensor(
        [-50.0 + math.log1p(math.exp(-10)), math.log1p(math.exp(-1)) - 2]
    ).double()
    assert answers.outside[0] == 1
    assert_close(answers.log_inside, inside)
    assert_close(answers.outside, 1 - inside.exp())
    right = answers.log_right(torch.tensor([1, 0]))
    expected = [-60 - (inside[0]), -(inside[1] + 2)]
    assert_close(right, torch.tensor(expected).double())
    # Results without these numbers have them from the probabilities.
    old = made([[0.1, 0.91, 0.1], [0.99, 0.999, 0.99]], [[1.0] * 3] * 2)
    inside = (1 - old.outside).log()
    new = replace(old, log_inside=inside, log_right=old.right.log())
    assert_close(
        old.effects("recognition").beyond_context, new.effects("recognition").beyond_context
    )
    assert old.effects("recognition").beyond_context.value == pytest.approx(0.0, abs=1e-9)


def test_an_unknown_set(found):
    with WORDS.raises(ResultError, "unknown_set"):
        found.of("nope")
    with WORDS.raises(ResultError, "unknown_set_status"):
        found.status_of("nope")
    with WORDS.raises(ResultError, "unknown_set_effects"):
        found.effects("nope")


def test_sentences_where_there_is_nothing_to_lose(found):
    """The reason is that demonstrations move too little, not the number of prompts."""
    moved = made([[0.85, 0.9, 0.85], [0.9, 0.9, 0.9]], [[0.5, 0.5, 0.1]] * 2)
    WORDS.starts(moved.figures()[1].answer, "little_room")
    WORDS(moved.figures()[1].answer, "no_accuracy")
    alone = replace(found, other_names=(), others=())
    questions = {figure.show: figure.question for figure in alone.figures()}
    WORDS(questions["map"], "map_alone")
    WORDS({figure.show: figure.question for figure in found.figures()}["map"], "map_beside")
    assert "Shared heads:." not in alone.sentences.say("overlap_answer", result=alone)


def test_no_heads_change_nothing(model):
    """A network whose heads write nothing: both sets are empty, and nothing is ablated."""
    result = made([[0.1] * 3, [0.9] * 3], [[1.0] * 3] * 2, heads=((), ()))
    assert result.status_of("recognition") == "not shown"
    assert not math.isnan(result.effects("learning").change.value)
    WORDS(result.figures()[1].answer, "none")


def test_words(found):
    texts = {figure.show: figure for figure in found.figures()}
    assert list(texts) == ["scores", "ablation", "map", "overlap"]
    for show, figure in texts.items():
        WORDS(figure.answer, show)
        assert figure.caption
        assert figure.limits
    for show in texts:
        assert found.plot(show=show).data


def test_saved(found, tmp_path):
    again = TaskHeadsResult.load(found.save(tmp_path / "found"))
    assert again.heads == found.heads
    assert again.overlaps == found.overlaps
    assert again.status_of("learning") == "supported"
    assert_close(again.outside, found.outside)


def test_a_cell_of_a_sweep(model, tmp_path):
    swept = icl.sweep(
        {"planted": model}, [icl.planted_task()], seeds=[0, 1], n=24, shots=1,
        demonstrations="per_prompt", measurements=[TaskHeads(draws=2)], out=tmp_path, progress=False,
    )  # fmt: skip
    assert len(swept) == 2


# --- bad inputs ---


def test_refused(model, prompts):
    tiny = tiny_model("gpt2")
    few = icl.build_prompts(TASK, tiny, shots=1, n=4, demonstrations="per_prompt")
    with WORDS.raises(RunError, "too_many_heads", 5, 12, "tiny-gpt2"):
        TaskHeads(top=5)(tiny, few)
    with WORDS.raises(RunError, "post_norm"):
        gemma = tiny_model("gemma3")
        TaskHeads(variant="reference")(gemma, icl.build_prompts(TASK, gemma, shots=1, n=4))
    with WORDS.raises(PromptError, "zero_shot"):
        TaskHeads()(model, planted(model, shots=0))
    with WORDS.raises(RunError, "no_such_head"):
        TaskHeads(beside={"mine": [(9, 9)]})(model, prompts)
