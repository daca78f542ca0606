"""What claims require: the same of a run and of a sweep, beside controls, and of nothing that says nothing."""

import math
from dataclasses import replace

import pytest
import torch

from icl_mech.measurements.alignment.alignment import AlignmentResult
from icl_mech.measurements.causal.steer import SteerResult
from icl_mech.measurements.heads.conditions import CHOSEN, NONE, heads_close
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.results.judging import judged
from icl_mech.studies import Analysis
from icl_mech.studies.causal import CAUSAL
from icl_mech.studies.claim import Claim, Effect
from icl_mech.studies.competence import ABOVE_CONSTANT
from icl_mech.studies.hand_over import HAND_OVER
from icl_mech.studies.judge import verdict
from icl_mech.studies.label_words import AGGREGATION, EXTRACTION, SUFFICE
from icl_mech.studies.overthinking import OVERTHINKS
from icl_mech.studies.overthinking_heads import LATE_ATTENDS, LATE_ATTENTION
from icl_mech.studies.shares import LOSS
from icl_mech.studies.untrained import flow_required
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.verdicts import by_model
from tests.planted_results import ablation_of, exit_of
from tests.said import Words
from tests.studies.test_untrained import report  # noqa: F401

WORDS = Words(__file__)

N = 48
UNBALANCED = torch.tensor([0] * 14 + [1] * 34)


def test_a_threshold_is_not_where_the_opposite_begins():
    moved = Interval(0.2, 0.1, 0.3)
    assert judged(moved, null=0.5) == "opposite"
    assert judged(moved, null=0.5, opposite=0.0) == "not shown"
    assert judged(Interval(-0.2, -0.3, -0.1), null=0.5, opposite=0.0) == "opposite"
    assert judged(Interval(0.2, 0.1, 0.3), null=-0.5, opposite=0.0, rising=False) == "opposite"
    assert judged(Interval(-0.2, -0.3, -0.1), null=-0.5, opposite=0.0, rising=False) == "not shown"


def test_nothing_that_moves_is_not_the_opposite_of_a_hand_over():
    none = mean_interval(torch.zeros(24), "change")
    measures = HAND_OVER.measures([own.required(none, 24) for own in HAND_OVER.effects])
    assert [own.name for own in measures] == ["early", "late"]
    assert {own.status for own in measures} == {"not shown"}


@pytest.mark.parametrize(
    ("claim", "groups"),
    [
        (AGGREGATION, [("the change of answers", 1), (LOSS, 2)]),
        (EXTRACTION, [(LOSS, 2)]),
        (SUFFICE, [("compare_compression", 4)]),
    ],
)
def test_one_effect_of_a_measure_that_is_not_clear_is_enough(claim, groups):
    def measures(unclear):
        each = []
        for own in claim.effects:
            far = 0.0 if own.name == unclear else 0.3 if own.rising else -0.3
            end = Interval(own.null + far, own.null + far - 0.1, own.null + far + 0.1)
            each.append(own.required(end, N))
        return claim.measures(each)

    assert [own.name for own in measures("")] == [name for name, _ in groups]
    assert {own.status for own in measures("")} == {"supported"}
    for effect in claim.effects:
        found = measures(effect.name)
        assert [own.status for own in found].count("not shown") == 1
    assert sum(count for _, count in groups) == len(claim.effects)


def test_a_network_without_a_number_decides_nothing(report):  # noqa: F811
    effect = Interval(0.7, 0.6, 0.8)
    found = replace(report.untrained, early=torch.tensor([math.nan, 0.0, 0.1]))
    assert found.status(effect, "first", N) == "cannot be judged"
    low = replace(report.untrained, early=torch.tensor([0.0, 0.0, 0.1]))
    assert low.status(effect, "first", N) == "supported"
    assert flow_required(report.flow, None, "wp", "first").status == "cannot be judged"


@pytest.mark.parametrize(("constant", "status"), [(True, "not shown"), (False, "supported")])
def test_answers_that_follow_no_demonstrations_are_no_override(constant, status):
    taught = 1 - UNBALANCED
    answered = torch.zeros(N, dtype=torch.long) if constant else taught
    result = AlignmentResult(
        predicted=torch.stack([UNBALANCED, answered], 1),
        zero_shot=torch.zeros(N, dtype=torch.long), answers=UNBALANCED, taught=taught,
        labels=("bad", "good", "odd"), provenance={},
    )  # fmt: skip
    assert judged(result.taught_above_truth) == "supported"  # 34 of 48 are taught to be class 0
    if constant:
        assert result.above_undemonstrated.value == 0
    found = [
        own for own in CAUSAL.verdicts(Analysis({"alignment": result}, "")) if own.p is not None
    ]
    assert [own.status for own in found] == [status]
    assert f" {'Yes' if status == 'supported' else 'Not shown'}"[1:] in result.figures()[0].answer


def test_a_push_to_one_class_is_no_function_vector():
    push = torch.where(UNBALANCED == 1, 1.0, -1.0)[:, None] + 0.01 * torch.arange(N)[:, None]
    zeros, flags = torch.zeros(N, 1), torch.zeros(N, 1, dtype=torch.bool)
    result = SteerResult(
        probability=zeros, difference=push, correct=flags, plain_probability=zeros[:, 0],
        plain_difference=zeros[:, 0], plain_correct=flags[:, 0], layers=(0,), kind="add", n_labels=2,
        answers=UNBALANCED, provenance={},
    )  # fmt: skip
    by_class = [push[c == UNBALANCED].mean() for c in (0, 1)]
    assert result.gain.value == pytest.approx(float(sum(by_class) / 2), abs=1e-6)
    assert judged(result.gain) == "not shown"
    assert judged(mean_interval(push[:, 0])) == "supported"
    assert replace(result, answers=torch.ones(N, dtype=torch.long)).gain is None
    before = replace(result, answers=None)  # saved before classes were kept
    assert before.gain is None
    own = replace(before, provenance={"prompts": {"answer_kind": "choices"}})
    assert judged(own.gain) == "supported"  # no classes in common


@pytest.mark.parametrize(("true", "status"), [(0.5, "mixed"), (0.95, "supported")])
def test_moving_all_answers_towards_chance_is_no_remedy(true, status):
    result = ablation_of({NONE: (0.95, 0.2), LATE_ATTENTION: (true, 0.5)}, n=N)
    found = verdict(LATE_ATTENDS, Analysis({"late_ablation": result}, ""))
    assert found.status == status
    WORDS(found.finding, "moving_all_answers_towards")


def test_one_draw_is_no_control():
    own = torch.ones(24)
    assert beyond_draws(own, torch.zeros(24, 1)) is None
    found = beyond_draws(own, torch.zeros(24, 2), "change")
    assert found == mean_interval(own, "change")
    once = ablation_of({NONE: (0.95, 0.2), CHOSEN: (0.95, 0.8)}, [(0.95, 0.2)], n=N)
    assert once.beside_random() is None
    assert heads_close(Interval(0.5, 0.4, 0.6), None, once.gap, N) == "cannot be judged"


def test_a_task_that_is_not_done_speaks_for_no_claim():
    able, unable = Interval(0.4, 0.3, 0.5), Interval(0.0, -0.1, 0.1)
    values = {
        "done": {"effect": unable, ABOVE_CONSTANT.name: able},
        "undone": {"effect": Interval(0.6, 0.5, 0.7), ABOVE_CONSTANT.name: unable},
    }
    above = replace(ABOVE_CONSTANT, of=lambda run: values[run.title][ABOVE_CONSTANT.name])
    items, runs = [], {}
    for task in values:
        how = {
            "labels": "correct",
            "shots": 1,
            "n": N,
            "seed": 0,
            "false_share": None,
            "format": "",
        }
        item = Item(
            model="m", task=task, study="label_words", demonstrations="shared", pair=False,
            balanced=True, measured={}, sources={}, **how,
        )  # fmt: skip
        items.append(item)
        runs[item.key] = Analysis({}, task)
    swept = Sweep(items, analyses=runs)
    effect = Effect("effect", lambda run: values[run.title]["effect"])
    (found,) = by_model(swept, Claim("X: y", (effect,), "x", needs=above))
    assert found.status == "not shown"
    assert found.effects["effect"].value == 0.0
    WORDS(found.finding, "task_done_speaks_no")


def test_effects_say_on_how_many_prompts_they_rest():
    leaving = exit_of(0.5, 0.1)
    run = Analysis({"early_exit": leaving}, "")
    effect = OVERTHINKS.effects[0]
    assert effect.count(run) == leaving.halves(0)[1] < sum(leaving.halves(0))
    assert effect.count(Analysis({}, "")) is None
