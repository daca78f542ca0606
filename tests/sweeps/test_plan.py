"""What a sweep will do, before it does it."""

import json

import pytest

from icl_mech.errors import IclMechError, RunError, SweepError, TaskError
from icl_mech.measurements import Flow, LayerAccuracy, Predict
from icl_mech.sweeps.item import DIMS, Item
from icl_mech.sweeps.plan import contents_of, grid_of, planned
from tests.said import Words
from tests.sweeps.loaders import OTHER, TASK, other, tiny

WORDS = Words(__file__)


def plan_of(*measurements, models=tiny, tasks=TASK, formats=(None,), study=None, run=None, **grid):
    contents = contents_of(study, measurements, {}, run or {})
    return planned(models, tasks, formats, grid_of(**grid), contents)


def test_the_product_in_a_stable_order():
    plan = plan_of(Predict(), models=[tiny, other], tasks=[TASK, OTHER], seeds=(3, 1), shots=[1, 2])
    cells = [(i.model, i.task, i.shots, i.seed) for i in plan.items]
    assert cells == [
        (m, t, k, s) for m in ("tiny", "other") for t in ("tiny", "other") for k in (1, 2)
        for s in (3, 1)
    ]  # fmt: skip
    assert len({item.key for item in plan.items}) == len(plan) == 16
    assert [i.key for i in plan.items] == [
        i.key for i in plan_of(Predict(), models=[tiny, other], tasks=[TASK, OTHER], seeds=[3, 1],
                               shots=(1, 2)).items
    ]  # fmt: skip


def test_an_item_is_plain_values_and_comes_back():
    for item in plan_of(Predict(), LayerAccuracy(), false_share=(0.5,)).items:
        back = Item.from_dict(json.loads(json.dumps(item.to_dict())))
        assert (back.key, back.dims, back.content) == (item.key, item.dims, item.content)
        assert set(item.dims) == set(DIMS)
        assert len(item.key) <= 100
    with WORDS.raises(SweepError, "item_plain_values_comes"):
        Item.from_dict({"model": "x"})


@pytest.mark.parametrize(
    "change",
    [{"seeds": 1}, {"shots": 2}, {"n": 4}, {"labels": "permuted"}, {"demonstrations": "per_prompt"},
     {"balanced": False}, {"tasks": {"tiny": OTHER}}, {"models": {"tiny": other}},
     {"formats": "{text} is: {label}"}, {"run": {"interventions": ["x"]}}],
)  # fmt: skip
def test_whatever_differs_has_a_key_of_its_own(change):
    plain = plan_of(Predict(), seeds=0)
    assert plan_of(Predict(), **{"seeds": 0, **change}).items[0].key != plain.items[0].key
    assert plan_of(Predict(score="sum"), seeds=0).items[0].key != plain.items[0].key
    assert plan_of(Predict(), seeds=[0]).items[0].key == plain.items[0].key


def test_pairs_get_items_of_their_own():
    plan = plan_of(Predict(), LayerAccuracy(), Flow(), seeds=(0,), n=6)
    assert [(i.pair, i.labels, i.demonstrations) for i in plan.items] == [
        (False, "correct", "shared"), (True, "permuted", "per_prompt"),
    ]  # fmt: skip
    assert [[m.name for m in e.content.measurements] for e in plan.entries] == [
        ["predict", "flow"] if Predict.name == "predict" else [Predict.name, "flow"],
        ["layer_accuracy"],
    ]
    both = plan_of(study=("label_words", "overthinking"), seeds=0)
    assert [(i.study, i.pair) for i in both.items] == [
        ("label_words", False),
        ("overthinking", True),
    ]


@pytest.mark.parametrize(
    ("study", "rest"), [("overthinking", Flow()), ("label_words", LayerAccuracy())]
)
def test_what_a_study_has_no_prompts_for_gets_items_of_its_own(study, rest):
    plan = plan_of(Predict(), LayerAccuracy(), rest, study=study, seeds=0)
    found = {
        (e.item.study, e.item.pair): [m.name for m in e.content.measurements] for e in plan.entries
    }
    single, pairs = [Predict.name, *(["flow"] if rest.name == "flow" else [])], ["layer_accuracy"]
    if study == "overthinking":
        assert found == {("overthinking", True): pairs, ("measurements", False): single}
    else:
        assert found == {("label_words", False): single, ("measurements", True): pairs * 2}


def test_settings_that_are_one_are_one_item():
    plan = plan_of(Predict(), labels=("correct", "permuted"), false_share=(0.2, 0.6), seeds=0)
    assert [(i.labels, i.false_share) for i in plan.items] == [
        ("correct", None), ("permuted", 0.2), ("permuted", 0.6),
    ]  # fmt: skip
    zero = plan_of(Predict(), labels=("correct", "permuted"), shots=(0, 1), seeds=0)
    assert [(i.shots, i.labels) for i in zero.items] == [
        (0, "correct"),
        (1, "correct"),
        (1, "permuted"),
    ]


def test_what_makes_no_sense_is_left_out_with_a_reason():
    plan = plan_of(LayerAccuracy(), labels=("correct", "permuted"), seeds=0)
    assert len(plan) == 1
    assert "do not differ" in plan.skipped[0]
    assert "shots 0" in plan_of(study="label_words", shots=(0, 1), seeds=0).skipped[0]
    plan = plan_of(Predict(), tasks=[TASK, "reviews"], formats=(None, 7), seeds=0)
    assert [(i.task, i.format) for i in plan.items] == [("tiny", ""), ("reviews", "")]
    assert len(plan.skipped) == 2
    with WORDS.raises(SweepError, "what_makes_no_sense"):
        plan_of(LayerAccuracy(), labels="correct")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"models": []}, SweepError, "models empty"),
        ({"models": [tiny, tiny]}, SweepError, "tiny"),
        ({"tasks": [TASK, TASK]}, SweepError, "two named tiny"),
        ({"tasks": "reviws"}, TaskError, "reviews"),
        ({"seeds": []}, SweepError, "seeds empty"),
        ({"seeds": [1, 1]}, SweepError, "value twice"),
        ({"seeds": [-1]}, SweepError, "at least 0"),
        ({"labels": "permutated"}, SweepError, "permuted"),
        ({"shots": "two"}, SweepError, "expected"),
        ({"n": 0}, SweepError, "at least 1"),
        ({"study": "label words"}, SweepError, "label_words"),
        ({"formats": [object()]}, SweepError, "formats holds"),
        ({"formats": "{text}{label}"}, TaskError, "nothing before"),
        ({"labels": "permuted", "false_share": 1.5}, TaskError, "0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(given, error, message):
    with WORDS.raises(error, message) as caught:
        plan_of(Predict(), **given)
    assert isinstance(caught.value, IclMechError)


@pytest.mark.usefixtures("unchecked")
def test_a_class_is_no_measurement():
    with pytest.raises(RunError, match="Predict"):
        contents_of(None, [Predict], {}, {})
