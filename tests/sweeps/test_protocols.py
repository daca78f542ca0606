"""Sweeps over demonstrations in total, sets of texts, and checkpoints."""

import json

import pytest

import icl_mech as icl
from icl_mech.errors import ResultError, SweepError
from icl_mech.measurements import (
    CompareCompression,
    ContextAccuracy,
    LayerAccuracy,
    Predict,
    SpanFlow,
)
from icl_mech.studies.anchors import CARRY
from icl_mech.sweeps import Sweep, comparison, sweep
from icl_mech.sweeps.config import arguments
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.plan import contents_of, grid_of, planned
from icl_mech.sweeps.result import item_of
from tests.said import Words
from tests.sweeps.loaders import TASK, tiny

WORDS = Words(__file__)

STORIES = icl.TextSet(
    "stories",
    [
        "The film was good. It was bad. We left it. It is a movie. Good film. Bad.",
        "Stocks fell. The home team won. A movie. It was. Bad. Good. No.",
        "It was good. A story. Was it. The plot. We left. Bye.",
    ],
)


def plan_of(*measurements, models=tiny, tasks=TASK, study=None, **grid):
    contents = contents_of(study, measurements, {}, {})
    return planned(models, tasks, (None,), grid_of(**grid), contents)


# Demonstrations in all


def test_in_all_is_a_dimension_of_its_own():
    plan = plan_of(Predict(), LayerAccuracy(), total=[0, 2, "max"], seeds=0)
    assert [(i.pair, i.shots, i.total, i.demonstrations) for i in plan.items] == [
        (pair, None, total, "per_prompt") for pair in (False, True) for total in (0, 2, "max")
    ]
    both = plan_of(Predict(), total=2, shots=[1, 2], seeds=0)
    assert [(i.shots, i.total) for i in both.items] == [(1, None), (2, None), (None, 2)]
    assert [(i.shots, i.total) for i in plan_of(Predict(), seeds=0).items] == [(1, None)]
    with WORDS.raises(SweepError, "all_dimension_own", "'shared'"):
        plan_of(Predict(), total=2, demonstrations="shared")
    with WORDS.raises(SweepError, "all_dimension_own_2"):
        plan_of(Predict(), total=["most"])
    with WORDS.raises(SweepError, "all_dimension_own_3", "0"):
        plan_of(study="label_words", total=0)


def test_items_of_before_keep_their_keys_and_are_read():
    (plain,) = plan_of(Predict(), seeds=0).items
    written = plain.to_dict()
    assert not {"total", "revision"} & {*written}
    assert Item.from_dict(json.loads(json.dumps(written))).key == plain.key
    # As it was before there were totals.
    assert plain.key.startswith("tiny-tiny-measurements-correct-1shot-seed0-")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    out = tmp_path_factory.mktemp("mixed") / "sweep"
    sweep(
        tiny, TASK, [LayerAccuracy()], total=[0, 1, 2], shots=1, n=4, seeds=(0, 1),
        out=out, progress=False,
    )  # fmt: skip
    return Sweep.load(out)


def test_an_item_is_what_build_prompts_gives(mixed):
    item = next(i for i in mixed.plan if i.total == 2 and i.seed == 1)
    pair = icl.build_prompt_pairs(TASK, tiny(), total=2, n=4, seed=1)
    own = mixed.analysis(item)
    assert [p.digest for p in own.prompts] == [p.digest for p in pair]
    again = item_of(own)
    assert (again.total, again.shots, again.labels) == (2, None, "permuted")


def test_the_two_protocols_are_never_averaged(mixed):
    found = mixed.average("layer_accuracy.gap")
    assert {(c.dims["shots"], c.dims["total"]) for c in found.cells} == {
        (1, None), (None, 0), (None, 1), (None, 2),
    }  # fmt: skip
    by_shots = mixed.average("layer_accuracy.gap", over=("shots", "seed"))
    assert [c.items for c in by_shots.cells if c.dims["total"] is None] == [2]
    with WORDS.raises(SweepError, "two_protocols_never_averaged"):
        mixed.average("layer_accuracy.gap", over=("shots", "total"))
    per_class, in_all = (
        mixed.analysis(next(i for i in mixed.plan if i.total == total)).layer_accuracy
        for total in (None, 2)
    )
    with WORDS.raises(ResultError, "two_protocols_never_averaged_2"):
        per_class - in_all
    with WORDS.raises(ResultError, "two_protocols_never_averaged_3"):
        icl.early_exit([per_class, in_all])


def test_a_curve_over_their_number(mixed):
    part = mixed.select(total=[0, 1, 2])
    shape = part.average("layer_accuracy.gap", layer=2).drawing()
    assert (shape.x, shape.x_title) == ((0.0, 1.0, 2.0), "demonstrations in total")
    sides = part.average("layer_accuracy.calibrated", layer=2).drawing()
    assert set(sides.names) == {"no demonstrations", "true", "false"}


def test_accuracy_by_demonstrations_over_all():
    pair = icl.build_prompt_pairs(TASK, tiny(), total=3, n=4)
    found = icl.measure(tiny(), pair, ContextAccuracy(), progress=False).context_accuracy
    assert found.scores.shape[3] == 4
    with WORDS.warns(UserWarning, "accuracy_demonstrations_over_all"):
        most = icl.build_prompt_pairs(TASK, tiny(), total="max", n=4)
    assert item_of(icl.measure(tiny(), most[0], Predict(), progress=False)).total == "max"


# Sets of texts


def test_the_study_of_anchors_over_sets_of_texts(tmp_path):
    found = sweep(
        tiny,
        [STORIES, TASK],
        study="anchors",
        n=2,
        seeds=(0, 1),
        out=tmp_path / "s",
        progress=False,
    )
    WORDS(found.skipped[0], "study_anchors_over_sets", "6", "'tiny'")
    assert [(i.task, i.labels, i.shots, i.title) for i in found.plan] == [
        ("stories", "", None, f"tiny on stories: anchors, seed {seed}, n = 2") for seed in (0, 1)
    ]
    assert set(found.items.state) == {"done"}
    mean = found.average("anchor_agreement.correlation", control="plain", score="all_heads")
    each = [own["anchor_agreement"].correlation[:, 0, 0].mean() for _, own in found]
    assert float(mean.cells[0].value) == pytest.approx(float(sum(each)) / 2)
    alone = icl.analyze(
        tiny(), STORIES.prompts(tiny(), n=2, seed=1), study="anchors", progress=False
    )
    assert alone.prompts[0].digest == found.analysis(found.plan[1]).prompts[0].digest
    again = sweep(
        tiny, [STORIES, TASK], study="anchors", n=2, seeds=(0, 1), out=tmp_path / "s", resume=True,
        progress=False,
    )  # fmt: skip
    assert [i.key for i in again.plan] == [i.key for i in found.plan]


def test_claims_and_figures_of_anchors_in_sweeps():
    texts = icl.TextSet(
        "more", [f"{own} {text}" for own in "abcdefgh" for text in STORIES.texts][:8]
    )
    own = CompareCompression(("hidden_anchor", "hidden_random"))
    found = sweep(tiny, texts, [own], study="anchors", n=6, seeds=(0, 1), progress=False)
    (judged,) = (one for one in comparison(found).judged if one.claim is CARRY)
    assert len(judged.effects) == 3
    assert judged.status in ("not shown", "mixed", "opposite")
    each = [
        run["compare_compression"].difference("hidden_anchor", "hidden_random", "kl").value
        for _, run in found
    ]
    mean = judged.effects["divergence after ends minus random tokens"].value
    assert mean == pytest.approx(sum(each) / 2)
    page = comparison(found).page()
    keys = [section.key for section in page.sections]
    assert {"suppression", "anchor_agreement", "anchor_tokens", "compare_compression-ends"} <= {
        *keys
    }
    assert len(set(keys)) == len(keys), keys
    (words,) = (one.limits for one in page.sections if one.key == "anchor_tokens")
    WORDS(words, "claims_figures_anchors_sweeps")


def test_texts_go_where_they_can():
    plan = plan_of(SpanFlow(), LayerAccuracy(), tasks=[STORIES, TASK], seeds=0, n=2)
    assert [(i.task, i.pair) for i in plan.items] == [
        ("stories", False), ("tiny", False), ("tiny", True),
    ]  # fmt: skip
    WORDS(plan.skipped[0], "texts_go_where_they")
    both = plan_of(study=("anchors", "label_words"), tasks=[STORIES, TASK], seeds=0, n=2)
    assert [(i.study, i.task) for i in both.items] == [
        ("anchors", "stories"), ("label_words", "tiny"),
    ]  # fmt: skip


def test_texts_in_a_file(tmp_path):
    (tmp_path / "a.txt").write_text("\n---\n".join(STORIES.texts))
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, STORIES.texts)))
    given = {"models": "m", "study": "anchors", "tasks": {
        "one": {"texts": "b.jsonl", "spans": "lines"}, "two": {"texts": ["a. b.", "c. d."]},
        "three": "a.txt",
    }}  # fmt: skip
    tasks = arguments(given, tmp_path)["tasks"]
    assert (tasks["one"].name, tasks["one"].spans) == ("one", "lines")
    assert tasks["one"].texts == STORIES.texts
    assert tasks["two"].texts == ("a. b.", "c. d.")
    plan = plan_of(study="anchors", tasks=tasks["three"], seeds=0, n=2)
    assert plan.entries[0].task.texts().texts == STORIES.texts
    with pytest.raises(SweepError, match="key 'colour'"):
        arguments({**given, "tasks": {"x": {"texts": ["a"], "colour": 1}}}, tmp_path)
    totals = arguments({"models": "m", "tasks": "reviews", "total": [0, 4, "max"]}, tmp_path)
    assert totals["total"] == [0, 4, "max"]


# Checkpoints


def stepped(revision):
    """A model of which there are checkpoints."""
    return {"step1": tiny, "step2": tiny}[revision]()


def test_checkpoints_are_a_dimension():
    found = sweep(
        stepped, TASK, [Predict()], revisions=["step1", "step2"], n=4, seeds=0, progress=False
    )
    assert [(i.model, i.revision) for i in found.plan] == [
        ("stepped", "step1"),
        ("stepped", "step2"),
    ]
    assert len({i.key for i in found.plan}) == 2
    assert found.average("predictions.values", over="seed").varied == ("revision",)
    WORDS(found.plan[1].title, "checkpoints_dimension", "2")


def test_a_hub_id_is_loaded_at_its_revision(monkeypatch):
    asked = []

    def load(name, **options):
        asked.append((name, options["revision"]))
        return tiny()

    monkeypatch.setattr("icl_mech.sweeps.sources.load_model", load)
    sweep("owner/name", TASK, [Predict()], revisions=["a", "b"], n=2, seeds=0, progress=False)
    assert asked == [("owner/name", "a"), ("owner/name", "b")]


def test_what_has_no_revisions(tmp_path):
    with WORDS.raises(SweepError, "what_no_revisions"):
        plan_of(Predict(), revisions=["a"])
    with WORDS.raises(SweepError, "what_no_revisions_2"):
        plan_of(Predict(), models=tiny(), revisions=["a"])
    with WORDS.raises(SweepError, "what_no_revisions_3"):
        plan_of(Predict(), models="smollm2-135m", revisions=["a"])
