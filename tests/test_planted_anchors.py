"""Every measurement of label words finds the planted circuit, and finds nothing without it."""

import math

import pytest
import torch
from scipy.stats import binom

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.measurements.confusion.agreement import label_pairs
from icl_mech.models import adapt
from icl_mech.planted import CLOSE_CLASSES, COLLECTING_HEAD, LABELS, READING_HEAD, WEAK_CLASS
from icl_mech.planted.model import SIZE, WEAK
from tests.said import Words

WORDS = Words(__file__)

N = 48
CHANCE = 1 / len(LABELS)
WEAKEST = LABELS.index(WEAK_CLASS)
CLOSE = tuple(LABELS.index(label) for label in CLOSE_CLASSES)
TASK = icl.planted_task()


def build(model, **options):
    return icl.build_prompts(TASK, model, **{"shots": 1, "n": N, **options})


@pytest.fixture(scope="module")
def model():
    return icl.planted_model()


@pytest.fixture(scope="module")
def control():
    return icl.planted_model(anchors=False)


@pytest.fixture(scope="module")
def prompts(model):
    """Demonstrations of their own: what noise decides is then not the same for all."""
    return build(model, demonstrations="per_prompt")


def by_class(predicted, answers):
    return [float((predicted == answers)[answers == c].double().mean()) for c in range(len(LABELS))]


def at_chance(interval):
    """Not above the loyalty of answers that have nothing to do with the prompt.

    Below it may lie: noise then answers alike for all words of a class, and need not be right.
    """
    return interval.low <= CHANCE


# The models


@pytest.mark.slow
def test_they_pass_the_load_time_checks(model, control):
    assert adapt(model).info.notes == adapt(control).info.notes == ()


@pytest.mark.slow
def test_it_is_the_same_for_a_seed_and_another_for_another():
    first, again, other = (icl.planted_model(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_layer_norms_change_nothing_much(model, prompts):
    with torch.no_grad():
        tokens = torch.tensor([prompt.tokens for prompt in prompts[:4]])
        _, cache = model.run_with_cache(tokens)
    for layer in range(model.cfg.n_layers):
        residual = cache[f"blocks.{layer}.hook_resid_pre"]
        assert residual.mean(-1).abs().max() < 1e-4
        assert (residual.norm(dim=-1) / SIZE).min() >= 0.99
        assert (residual.norm(dim=-1) / SIZE).max() < 1.02


def test_a_token_is_a_word(model, prompts):
    assert {len(prompt) for prompt in prompts} == {4 * 8 + 5}
    assert "".join(prompts[0].pieces) == model.tokenizer.decode(prompts[0].tokens)


def test_it_answers_from_the_demonstrations(model):
    true, false = icl.build_prompt_pairs(TASK, model, shots=1, n=N)
    assert icl.predict(model, true).accuracy.low > 0.5
    followed = icl.predict(model, false)
    assert followed.accuracy.value < CHANCE
    shown = torch.tensor([prompt.false_answer for prompt in false])
    assert (followed.predicted == shown).double().mean() > 0.5


def test_the_control_knows_the_answers_itself(control):
    true, false = icl.build_prompt_pairs(TASK, control, shots=1, n=N)
    plain = icl.predict(control, true)
    assert plain.accuracy.low > 0.5
    assert torch.equal(plain.predicted, icl.predict(control, false).predicted)


# What is there is found


def test_saliency_peaks_in_the_planted_blocks(model, prompts):
    flow = icl.flow_scores(model, prompts)
    into, out, _ = flow.per_prompt.mean(0)
    for own, (layer, _) in ((into, COLLECTING_HEAD), (out, READING_HEAD)):
        others = own.clone()
        others[layer] = 0.0
        assert own[layer] > 10 * others.max()
        assert own.argmax() == layer
    assert flow.difference("first").low > 0.9
    assert flow.difference("last").high < -0.9
    assert flow.above_null("wp", "first")[1].low > 0.9
    assert flow.above_null("pq", "last")[1].low > 0.3


@pytest.mark.slow
def test_isolation_in_the_first_two_blocks_takes_the_answers_away(model, prompts):
    found = icl.isolation(model, prompts, depths=(1, 2), draws=3)
    assert at_chance(found.loyalty(("first", 2, "label")))
    for window in found.windows:
        if window != ("first", 2, "label"):
            assert found.loyalty(window).value > 0.95, window
    for tokens in ("label", "random"):
        assert found.loyalty(("last", 2, tokens)).value == 1
    assert found.loyalty(("first", 2, "random")).value == 1
    assert found.status == "supported"


def test_attention_tells_the_answer_from_the_planted_block_on(model, prompts):
    found = icl.extraction(model, prompts)
    layer, _ = READING_HEAD
    assert found.auc.argmax() == layer
    assert found.auc[layer] > 0.9
    assert all(0.3 < auc < 0.7 for other, auc in enumerate(found.auc.tolist()) if other != layer)
    assert found.status == "supported"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["hidden_anchor", "text_anchor", "hidden_random"])
def test_only_the_states_of_label_words_stand_for_the_demonstrations(model, prompts, method):
    found = icl.compress_demonstrations(model, prompts, method=method)
    if method == "hidden_anchor":
        assert found.label_loyalty.value == 1
        assert found.word_loyalty.value > 0.95
    else:
        assert at_chance(found.label_loyalty)


def test_the_planted_pair_is_confused_first(model, prompts):
    found = icl.diagnose_confusion(model, prompts)
    assert found.layer == READING_HEAD[0]
    pairs = label_pairs(len(LABELS))
    assert min(pairs, key=lambda pair: float(found.distance[pair])) == CLOSE
    assert min(pairs, key=lambda pair: float(found.confusion_auc[pair])) == CLOSE


@pytest.mark.slow
def test_the_weak_class_is_named_and_cured_by_factors(model):
    test = build(model, n=2 * N, demonstrations="per_prompt")
    train = build(model, n=24, split="train", demonstrations="per_prompt", seed=1)
    learned = icl.fit_reweighting(model, train, lr=0.1, epochs=4)
    found = icl.evaluate_reweighting(model, learned, test)
    plain, lifted = (by_class(logits.argmax(-1), found.answers) for logits in found.label_logits)
    assert min(range(len(LABELS)), key=plain.__getitem__) == WEAKEST
    factors = learned.beta[READING_HEAD]
    assert factors.argmax() == WEAKEST
    assert factors[WEAKEST] > 1
    assert factors[WEAKEST] > factors.sort().values[-2] + 0.5
    assert lifted[WEAKEST] > plain[WEAKEST] + 0.2
    assert found.difference().low > 0
    # The ceiling: the weakness undone, so that only words' own errors are left.
    undone = torch.zeros_like(learned.beta)
    undone[(*READING_HEAD, WEAKEST)] = -math.log(WEAK)
    ceiling = icl.evaluate_reweighting(model, icl.Reweight(undone), test)
    assert found.accuracy("reweighted").value >= ceiling.accuracy("reweighted").value - 0.05


# What is not there is not found


def measures(model, seed):
    """Isolation and extraction on prompts of this seed."""
    prompts = build(model, n=24, seed=seed)
    isolated = icl.isolation(model, prompts, depths=(2,), draws=3, progress=False)
    return prompts, isolated, icl.extraction(model, prompts, progress=False)


def check_rate(found):
    """No more than a rate of 2.5 % would give once in a thousand times."""
    positive = sum(own == "supported" for own in found)
    assert positive <= binom.ppf(0.999, len(found), 0.025)


def few_and(many, few):
    """A small version for `make check`; what a rate can be told from, before a release."""
    return pytest.mark.parametrize("many", [few, pytest.param(many, marks=pytest.mark.exhaustive)])


@pytest.mark.slow
@few_and(20, 4)
def test_without_the_circuit_nothing_is_found(control, many):
    found = [measures(control, seed)[1:] for seed in range(many)]
    check_rate([isolated.status for isolated, _ in found])
    check_rate([read.status for _, read in found])


@pytest.mark.slow
def test_the_control_keeps_its_answers_whatever_is_cut(control):
    prompts = build(control, n=16)
    isolated = icl.isolation(control, prompts, depths=(2,), draws=2)
    assert all(isolated.loyalty(window).value == 1 for window in isolated.windows)
    for method in ("hidden_anchor", "text_anchor", "hidden_random"):
        found = icl.compress_demonstrations(control, prompts, method=method)
        assert found.label_loyalty.value == 1


@pytest.mark.slow
def test_factors_do_nothing_for_the_control(control):
    test, train = build(control), build(control, split="train", n=8)
    learned = icl.fit_reweighting(control, train, epochs=3)
    found = icl.evaluate_reweighting(control, learned, test)
    assert found.difference().low <= 0 <= found.difference().high
    assert abs(found.difference().value) < 0.1


def test_saliency_of_the_control_is_far_below(model, control):
    scores = [icl.flow_scores(own, build(own, n=12)).per_prompt.mean(0) for own in (model, control)]
    for score, (layer, _) in ((0, COLLECTING_HEAD), (1, READING_HEAD)):
        assert scores[0][score, layer] > 100 * scores[1][score].max()


# Anchor tokens: the label words are not told


def found_and_others(model, prompts, **options):
    """Label words called anchors, other tokens called so, and whether the strongest is a label word."""
    found = icl.anchor_tokens(model, prompts, progress=False, **options)
    pairs = [
        (set(anchors) & set(p.label_positions), set(anchors) - set(p.label_positions))
        for p, anchors in zip(prompts, found.anchors, strict=True)
    ]
    strongest = [
        int(times.nan_to_num(0.0).argmax()) in p.label_positions
        for p, times in zip(prompts, found.times, strict=True)
    ]
    return found, [own for own, _ in pairs], [others for _, others in pairs], strongest


@pytest.mark.slow
def test_the_columns_that_are_read_are_anchors(model, prompts):
    """The one that fits the query is read; the others hardly differ from noise, as the weak class."""
    found, own, others, strongest = found_and_others(model, prompts)
    assert all(strongest)
    assert found.status == "supported"
    read = [
        place in anchors
        for p, anchors in zip(prompts, own, strict=True)
        for place, label in zip(p.label_positions, p.label_classes, strict=True)
        if label == p.answer != WEAKEST
    ]
    assert sum(read) >= 0.8 * len(read)
    assert found.interval("strongest", kind="marked").low > 0.5
    assert found.interval("strongest", kind="matched").high < 0.1
    assert sum(map(bool, others)) <= binom.ppf(0.999, len(prompts), 0.05)


def test_a_ratio_takes_noise_for_anchors(model, prompts):
    """Three times the median: all classes but the weak one, and much of what is no anchor."""
    found, own, others, _ = found_and_others(model, prompts, ratio=3.0)
    assert found.status == "supported"  # the comparison does not depend on the rule
    for p, anchors in zip(prompts, own, strict=True):
        shown = zip(p.label_positions, p.label_classes, strict=True)
        assert {place for place, label in shown if label != WEAKEST} <= anchors
    assert sum(map(len, others)) > len(prompts)


@pytest.mark.slow
@few_and(12, 3)
def test_the_control_has_no_anchors(many):
    """Of the texts of a control at most 5 % have any; those of one share their words' codes."""
    rates, judged = [], []
    for seed in range(many):
        control = icl.planted_model(anchors=False, seed=seed)
        prompts = build(control, n=12, seed=seed, demonstrations="per_prompt")
        for of in ("saliency", "attention"):
            found = icl.anchor_tokens(control, prompts, of=of, progress=False)
            rates.append(sum(map(bool, found.anchors)) / len(prompts))
            judged.append(found.status)
    error = torch.tensor(rates).std() / len(rates) ** 0.5
    assert sum(rates) / len(rates) <= 0.05 + 3 * error
    check_rate(judged)


def test_full_strength_is_the_circuit_itself(model):
    again = icl.planted_model(strength=1)
    for (name, own), (_, other) in zip(
        model.named_parameters(), again.named_parameters(), strict=True
    ):
        assert torch.equal(own, other), name


@pytest.mark.slow
def test_strength_is_graded_and_answers_stay_good():
    kept, above = [], []
    for strength in (0.0, 0.5, 1.0):
        weaker = icl.planted_model(strength=strength)
        prompts = build(weaker, n=48, demonstrations="per_prompt")
        found = icl.isolation(weaker, prompts, depths=(2,), draws=1, progress=False)
        kept.append(found.sel("label_loyalty", side="first", tokens="label").only().value)
        flow = icl.flow_scores(weaker, prompts, progress=False)
        above.append(flow.above_null("pq", "last")[1].value)
        assert icl.predict(weaker, prompts, progress=False).accuracy.value > 0.7
    # Nothing depends on the label words, half of the words, all of them.
    assert kept[0] == 1
    assert kept[0] > kept[1] + 0.2 > kept[2] + 0.4
    assert above[0] < above[2] / 4


def test_a_strength_that_is_none():
    for strength in (-0.1, 1.5):
        with WORDS.raises(ModelError, "strength_none_2", "0", "1"):
            icl.planted_model(strength=strength)
    with WORDS.raises(ModelError, "strength_none"):
        icl.planted_model(anchors=False, strength=0.5)
