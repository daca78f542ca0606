"""Networks that do the task another way: what is causally true of each, and prompts with other label words."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

import icl_mech as icl
from icl_mech import planted
from icl_mech.errors import ModelError, PromptError, TaskError
from icl_mech.interventions import Cut, ZeroHeads
from icl_mech.models import adapt
from icl_mech.planted import NULLS, nonsense_labels, null_model, planted_task
from icl_mech.planted.nulls import LABEL_RESTING_HEAD, QUERY_HEADS, RESTING_HEAD, STRONG, NullKind
from icl_mech.prompts import moved_anchors
from icl_mech.tasks import Template
from tests.benchmarks.planted_nulls import DIAL, LABEL_WORDS, answers, change, network
from tests.benchmarks.planted_nulls import prompts as drawn
from tests.said import Words

WORDS = Words(__file__)

SEEDS = (0, 1)
CHANCE = 0.25
N = 32
FROM_QUERY = ("reads_query", "decorative", "resting", "alarm")
FROM_LABELS = ("early", "copier")


def prompts(seed=0, n=N, **options):
    return drawn(seed, n, **options)


def accuracy(model, given):
    return answers(model, given).accuracy.value


# All kinds


def test_every_kind_is_described_and_public():
    assert set(NULLS) == set(get_args(NullKind))
    assert {kind for kind, own in NULLS.items() if own.switches} == set(FROM_QUERY)
    for own in NULLS.values():
        assert own.description.endswith(".")
        assert own.fools.endswith(".")
    names = ("NULLS", "NullNetwork", "nonsense_labels", "null_model")
    assert set(names) <= set(planted.__all__)


@pytest.mark.slow
@pytest.mark.parametrize("kind", NULLS)
def test_it_passes_the_load_time_checks_and_a_seed_draws_it(kind):
    assert adapt(network(kind)).info.notes == ()
    given = network(kind), null_model(kind, seed=0), network(kind, 1)
    first, again, other = (own.state_dict() for own in given)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", [*FROM_QUERY, *FROM_LABELS])
def test_it_does_the_task_with_demonstrations_only(kind, seed):
    model = network(kind, seed)
    assert accuracy(model, prompts(seed)) >= 0.95
    assert accuracy(model, prompts(seed, shots=0)) <= 0.45


@pytest.mark.parametrize("kind", FROM_QUERY)
def test_the_switch_is_demonstrations_of_whatever_labels(kind):
    model = network(kind)
    if kind != "alarm":
        for labels in ("shuffled", "permuted", "random"):
            assert accuracy(model, prompts(labels=labels)) >= 0.95
    # Line breaks are what it sees: without its edges to these it knows nothing.
    cut = [Cut("format", "target")]
    assert answers(model, prompts(), cut).accuracy.value <= 0.45
    always = network(kind, switched=False)
    for shots in (0, 1):
        assert accuracy(always, prompts(shots=shots)) >= 0.95


@pytest.mark.parametrize("kind", ["reads_query", "prior", "resting", "alarm"])
def test_label_words_carry_nothing(kind):
    found = change(network(kind), prompts(), LABEL_WORDS)
    assert found.changed == 0
    assert abs(found.right) < 0.005


@pytest.mark.parametrize("kind", FROM_LABELS)
@pytest.mark.parametrize("seed", SEEDS)
def test_labels_are_all_it_knows(kind, seed):
    model = network(kind, seed)
    false = prompts(seed, labels="permuted")
    assert answers(model, false).predicted.tolist() == [own.false_answer for own in false]
    assert accuracy(model, prompts(seed, labels="shuffled")) <= 0.45
    found = change(model, prompts(seed), LABEL_WORDS)
    assert found.accuracy <= 0.45
    assert found.changed >= 0.5


@pytest.mark.parametrize("kind", ["reads_query", "prior", "decorative"])
def test_attention_to_label_words_tells_the_answer_all_the_same(kind):
    read = icl.extraction(network(kind), prompts(n=24), progress=False)
    assert read.auc[4] > 0.95


# Each kind


@pytest.mark.parametrize("switched", [True, False])
def test_heads_that_read_the_query_raise_it_with_and_without_demonstrations(switched):
    model = network("reads_query", switched=switched)
    zero = ZeroHeads(QUERY_HEADS)
    for shots in (0, 1):
        given = prompts(shots=shots)
        rows = torch.arange(len(given)), given.answers
        plain, without = answers(model, given), answers(model, given, [zero])
        fall = (plain.label_logits - without.label_logits)[rows]
        assert (fall - STRONG).abs().max() < 0.1 * STRONG
        assert without.accuracy.value <= 0.45
        one = answers(model, given, [ZeroHeads(QUERY_HEADS[:1])])
        fall = (plain.label_logits - one.label_logits)[rows]
        assert (fall - STRONG / len(QUERY_HEADS)).abs().max() < 0.5


@pytest.mark.slow
def test_a_prior_knows_two_classes_and_says_a_third_to_the_rest():
    expected = torch.tensor([0, 1, 2, 2])
    for seed in SEEDS:
        for options in ({}, {"shots": 0}, {"labels": "permuted"}):
            given = prompts(seed, **options)
            found = answers(network("prior", seed), given)
            assert torch.equal(found.predicted, expected[given.answers])
            assert found.accuracy.value == 0.75


@pytest.mark.parametrize("seed", SEEDS)
def test_the_dial_is_the_share_of_the_answer_behind_label_words(seed):
    models = [network("decorative", seed, share) for share in DIAL]
    found = [change(model, prompts(seed), LABEL_WORDS) for model in models]
    assert all(own.before >= 0.95 for own in found)
    assert all(own.changed == 0 for own in found[:4])
    assert all(abs(own.right) < 0.005 for own in found[:3])
    assert -0.05 < found[3].right < -0.01
    assert found[4].changed > 0.5
    assert found[4].accuracy <= 0.45
    assert found[4].right < -0.5
    false = prompts(seed, labels="permuted")
    assert accuracy(models[3], false) >= 0.95
    assert accuracy(models[4], false) == 0


def test_early_is_read_in_block_1_and_said_in_the_last_but_one():
    model = network("early")
    assert model.cfg.n_layers == 8
    given = prompts()
    first, later = range(2), range(2, 8)
    assert change(model, given, Cut("units", "target", layers=[*later])).changed == 0
    assert change(model, given, Cut("units", "target", layers=[*first])).changed > 0.5
    true, false = (prompts(labels=labels) for labels in ("correct", "permuted"))
    by_layer = icl.logit_lens(model, true, progress=False).label_logits.argmax(-1)
    right = (by_layer == true.answers[:, None]).double().mean(0)
    assert right[:7].max() <= 0.5
    assert right[-2:].min() >= 0.95
    assert accuracy(model, false) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_without_rest_logits_shrink_and_answers_stay(seed):
    model, given = network("resting", seed), prompts(seed)
    rows = torch.arange(len(given)), given.answers

    def lead(*edits):
        logits = answers(model, given, edits).label_logits
        return logits[rows] - (logits.sum(-1) - logits[rows]) / 3

    plain = lead()
    rests = (
        Cut("format", "target", heads=[RESTING_HEAD]),
        Cut("units", "target", layers=[4, 5]),
        Cut("units", "units", relation="others", heads=[LABEL_RESTING_HEAD]),
    )
    for cut in rests:
        assert change(model, given, cut).changed <= 0.05
        # Less than two thirds are left of every answer's lead.
        assert ((lead(cut) / plain) < 2 / 3).all()
        assert (lead(cut) > 1).all()


def test_what_is_left_without_rest_is_one_scale():
    # A residual stream of norm s, and ballast at right angles to it: all logits shrink alike.
    model, given = network("resting"), prompts(n=8)
    cut = Cut("format", "target", heads=[RESTING_HEAD])
    tokens = torch.tensor([own.tokens for own in given])

    def norms(edits):
        kept = icl.logit_lens(model, given, interventions=edits, progress=False)
        return kept.label_logits[:, -1].std(-1)

    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
    plain = cache["blocks.5.hook_resid_post"][:, -1].norm(dim=-1)
    expected = plain / (plain**2 + 110.0**2).sqrt()
    assert ((norms([cut]) / norms([])) - expected).abs().max() < 0.1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_copier_knows_nothing_before_it_copies(seed):
    pair = (prompts(seed), prompts(seed, labels="permuted"))
    model = network("copier", seed)
    for given in pair:
        by_layer = icl.logit_lens(model, given, progress=False).label_logits.argmax(-1)
        right = (by_layer == given.answers[:, None]).double().mean(0)
        assert (right[:5] - CHANCE).abs().max() <= 0.2
    assert accuracy(model, pair[0]) >= 0.95
    assert accuracy(model, pair[1]) == 0


def test_an_alarm_sinks_the_right_label_and_any_wrong_one_wins():
    taught, wrong, by_label = 0, 0, torch.zeros(4)
    for seed in SEEDS:
        false = prompts(seed, labels="permuted")
        found = answers(network("alarm", seed), false)
        assert found.accuracy.value <= 0.05
        wrong += len(false)
        taught += sum(
            own.false_answer == said for own, said in zip(false, found.predicted, strict=True)
        )
        by_label += found.predicted.bincount(minlength=4)
    assert abs(taught / wrong - 1 / 3) < 0.12
    assert by_label.min() / wrong > 0.1
    # Another label taught: mostly the same answers, as the word decides.
    model = network("alarm")
    one, other = (answers(model, prompts(labels=own)) for own in ("permuted", "random_incorrect"))
    assert (one.predicted == other.predicted).double().mean() > 0.9
    # One misfit is enough.
    assert accuracy(model, prompts(labels="shuffled")) <= 0.2


def test_options_that_a_kind_does_not_have():
    for share in (-0.1, 1.5):
        with WORDS.raises(ModelError, "share_outside", share):
            null_model("decorative", share=share)
    with WORDS.raises(ModelError, "share_of_another", "resting"):
        null_model("resting", share=0.1)
    for kind in ("prior", *FROM_LABELS):
        with WORDS.raises(ModelError, "no_switch", kind):
            null_model(kind, switched=False)
    with pytest.raises(ModelError, match="kind"):
        null_model("anchors")


# Prompts


@pytest.fixture(scope="module")
def offline():
    return icl.load_model()


def test_nonsense_labels_say_nothing_and_stay_the_same_for_a_seed():
    for name in ("reviews", "questions"):
        task = icl.load_task(name)
        found, again, other = (nonsense_labels(task, seed=seed) for seed in (0, 0, 1))
        assert found.labels == again.labels != other.labels
        assert len({label[0] for label in found.labels}) == len(found.labels) == len(task.labels)
        texts = " ".join(own.text for own in (*task.train, *task.test)).lower()
        assert not any(label in texts for label in found.labels)
        assert (found.train, found.test, found.template) == (task.train, task.test, task.template)
    spaced = replace(
        icl.load_task("reviews"), template=Template("{text}:{label}"), labels=(" a", " b")
    )
    assert all(label[0] == " " != label[1] for label in nonsense_labels(spaced).labels)


def test_nonsense_labels_of_the_planted_language_are_single_tokens_of_it():
    task = nonsense_labels(planted_task())
    given = icl.build_prompts(task, network("prior"), shots=1, n=8)
    assert all(len(own.tokens) == 1 for own in given[0].candidates)
    unknown = 0
    assert all(unknown not in own.tokens for own in given)
    assert nonsense_labels(task, seed=1).labels != task.labels
    with WORDS.raises(TaskError, "no_labels_to_replace"):
        nonsense_labels("antonyms")


def test_moved_anchors_stand_before_their_texts():
    model = icl.planted_model()
    plain = prompts(n=24)
    moved = moved_anchors(plain, model)
    assert moved[0].text.split("\n")[:4] == [
        f" {label}: {text}."
        for text, label in (line.rstrip(".").split(": ") for line in plain[0].text.split("\n")[:4])
    ]
    assert moved[0].text.split("\n")[4] == plain[0].text.split("\n")[4]
    for before, after in zip(plain, moved, strict=True):
        assert after.label_classes == before.label_classes
        assert after.examples() == before.examples()
        assert (after.answer, after.label_words) == (before.answer, before.label_words)
        assert sorted(after.tokens[:-6])[:8] == sorted(before.tokens[:-6])[:8]
        for span in after.label_spans:
            words = [own for own in after.spans if (own.role, own.demo) == ("demo_text", span.demo)]
            assert all(own.start > span.stop - 1 for own in words)
    # Label words can no longer collect their own text; who reads the query does not mind.
    assert accuracy(model, plain) > 0.7
    assert accuracy(model, moved) < 0.5
    assert accuracy(network("resting"), moved) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "begins"),
    [
        ("Review: {text}\nSentiment: {label}", "Sentiment: {}\nReview: {}\nSentiment: "),
        ("Review: {text} Sentiment: {label}", "Sentiment: {} Review: {}\nSentiment: "),
        ("{text} => {label}!", " {} => {}!\n {}"),
    ],
)
def test_templates_that_can_be_turned_round(pattern, begins, offline):
    task = replace(icl.load_task("reviews"), template=Template(pattern, narrative="Read."))
    plain = icl.build_prompts(task, offline, shots=1, n=2)
    (one, _), (shown, _) = moved_anchors(plain, offline), plain[0].examples()
    labels = [task.labels[own.label] for own in shown]
    expected = begins.format(labels[0], shown[0].text, labels[1])
    assert one.text.startswith(f"Read.\n{expected}")
    assert [one.tokens[i] for i in one.label_positions] == [
        one.label_tokens[c] for c in one.label_classes
    ]


def test_prompts_whose_label_words_cannot_be_moved(offline):
    task = replace(icl.load_task("reviews"), template=Template('"{text}" is {label}'))
    with WORDS.raises(PromptError, "cannot_be_turned"):
        moved_anchors(icl.build_prompts(task, offline, shots=1, n=1), offline)
    open_ones = icl.build_prompts("antonyms", offline, shots=2, n=1)
    with WORDS.raises(PromptError, "not_of_a_task_with_classes"):
        moved_anchors(open_ones, offline)
