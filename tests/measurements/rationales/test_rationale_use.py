"""Is the answer read from the rationale? By hand, against plain Hugging Face, and on networks where it is known."""

from math import isnan

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Cut
from icl_mech.interventions.token_sets import TokenSet
from icl_mech.measurements import RationaleUse
from icl_mech.measurements.rationales.rationale_use import PATHS, RationaleUseResult
from icl_mech.planted import rationale_model, rationale_task
from icl_mech.prompts import corrupted_rationales, rationale_prefix
from icl_mech.prompts.rationales import rationale_of, rationale_spans
from tests.measurements.rationales.cases import (
    ASKED,
    FAMILIES,
    SHOWN,
    interval,
    log_probs,
    setting,
    text_of,
)
from tests.measurements.rationales.test_rationale_answers import planted
from tests.said import Words

WORDS = Words(__file__)
QUIET = {"progress": False}


def made(log_prob, cut, random, followed=None):
    def tensor(values):
        return torch.tensor(values, dtype=torch.float64)

    count = len(log_prob)
    return RationaleUseResult(
        log_prob=tensor(log_prob),
        right=(tensor(log_prob) > -1).double(),
        contexts=("rationale", "none", "other"),
        cut=tensor(cut),
        random=tensor(random),
        paths=PATHS,
        followed=None if followed is None else tensor(followed),
        answers=torch.zeros(count, dtype=torch.long),
        labels=("a", "b", "c"),
        provenance={"prompts": {"count": count}},
    )


def test_by_hand():
    found = made(
        [[-0.5, -1.5, -2.5], [-1.0, -3.0, -2.0]],
        [[-1.0, -0.5, -0.5], [-2.0, -1.0, -1.0]],
        [[[-0.5, -0.75], [-0.5, -0.5], [-0.5, -0.5]], [[-1.0, -1.5], [-1.0, -1.0], [-1.0, -1.0]]],
        [0.5, 1.5],
    )
    assert found.changes == ("none", "other", *PATHS)
    assert found.gain.value == found.lost("none").value == 1.5
    assert found.lost("other").value == 1.5
    assert found.lost("cut rationale").value == 0.75
    assert found.lost_beside("cut rationale").value == pytest.approx(0.75 - (0.125 + 0.25) / 2)
    assert found.fraction("none").value != found.fraction("none").value  # the gain is not clear
    values = {measure.name: measure.effect.value for measure in found.needed}
    assert values == pytest.approx(
        {"gain": 1.5 - 0.1 * 2.25, "cut": 0.5625, "other": 1.5, "followed": 1.0}
    )
    assert found.sel("random_loss").values[0] == pytest.approx(0.1875)
    with WORDS.raises(ResultError, "no_such_loss", "'text'"):
        found.lost("text")
    assert found.lost_beside("none") is None


@pytest.mark.parametrize("family", FAMILIES)
def test_every_number_is_that_of_plain_hugging_face(family):
    model, prompts = setting(family)
    found = icl.rationale_use(model, prompts, draws=1, seed=3, **QUIET)
    assert found.contexts == ("rationale", "none", "other", "shuffled", "demonstrations")
    others = corrupted_rationales(prompts, model, seed=3)
    labels = {example.rationale: example.label for example in ASKED}
    for number, query in enumerate(ASKED):
        first, second = query.rationale[:-1].split(". ")
        given = "".join(rationale_of(others[number]))
        moved = [
            icl.Example(own.text, own.label, rationale=SHOWN[(demo + 1) % 3].rationale)
            for demo, own in enumerate(SHOWN)
        ]
        texts = [
            text_of(SHOWN, query.text, query.rationale),
            text_of(SHOWN, query.text, None),
            text_of(SHOWN, query.text, given),
            text_of(SHOWN, query.text, f"{second}. {first}."),
            text_of(moved, query.text, query.rationale),
        ]
        scores = [log_probs(family, text) for text in texts]
        wanted = torch.stack([score[query.label] for score in scores])
        assert_close(found.log_prob[number], wanted, atol=1e-5, rtol=1e-5)
        change = scores[2] - scores[0]
        (rest,) = {0, 1, 2} - {query.label, labels[given]}
        assert_close(
            found.followed[number], change[labels[given]] - change[rest], atol=1e-5, rtol=1e-5
        )

        said, asked = (interval(texts[0], part) for part in (query.rationale, query.text))
        after = (said[1], len(texts[0]))
        for path, (rows, columns) in enumerate(((after, said), (after, asked), (said, asked))):
            wanted = log_probs(family, texts[0], cut=(rows, columns))[query.label]
            assert_close(found.cut[number, path], wanted, atol=1e-5, rtol=1e-5)
    assert float((found.losses.abs() > 1e-4).double().mean()) > 0.9


def test_cuts_by_role_are_those_of_the_measurement():
    model, prompts = setting("gpt2")
    found = icl.rationale_use(model, prompts, draws=2, seed=5, **QUIET)
    rows = TokenSet(positions=[[(rationale_spans(p)[-1].stop, p.target + 1)] for p in prompts])
    for path, (src, dst) in enumerate(
        (("query_rationale", "after"), ("query_text", rows), ("query_text", "query_rationale"))
    ):
        for draw in (None, 0, 1):
            cut = Cut(src, dst, control=draw is not None, seed=5 + (draw or 0))
            run = icl.predict(model, prompts, interventions=[cut], **QUIET)
            among = (
                run.label_logits.double().log_softmax(-1).gather(1, prompts.answers[:, None])[:, 0]
            )
            kept = found.cut[:, path] if draw is None else found.random[:, path, draw]
            assert_close(kept, among, atol=1e-5, rtol=1e-5)
    # One group for each sentence: the later sentence loses the earlier one, too.
    several = icl.predict(model, prompts, interventions=[Cut("rationale", "target")], **QUIET)
    assert several.label_logits.isfinite().all()


def test_cutting_what_is_not_there_changes_nothing():
    model, prompts = setting("gpt2")
    bare = rationale_prefix(prompts, model, 0)
    with WORDS.raises(PromptError, "nothing_to_cut", 0):
        icl.predict(model, bare, interventions=[Cut("query_rationale", "target")], **QUIET)


@pytest.mark.parametrize(
    ("kind", "status", "measures"),
    [
        ("carries", "supported", {"gain", "cut", "other", "followed"}),
        ("decorative", "not shown", set()),
        ("switch", "not shown", {"gain"}),
        ("alarm", "not shown", {"gain", "other"}),
    ],
)
def test_it_is_claimed_where_the_rationale_carries_the_answer(kind, status, measures):
    found = icl.rationale_use(*planted(kind), **QUIET)
    assert found.status == status
    assert {m.name for m in found.needed if m.status == "supported"} == measures
    assert (found.fraction("cut rationale").low > 0.9) == (kind != "decorative")
    lost = found.lost("cut text")
    assert (abs(lost.value) < 0.01) == (kind == "carries")
    assert abs(found.lost("demonstrations").value) < 1e-3


@pytest.mark.parametrize("draws", [0, 1])
def test_without_draws_nothing_is_claimed(draws):
    """One draw has no spread: its loss could be that of any random edges."""
    found = icl.rationale_use(*planted("carries", 8), draws=draws, **QUIET)
    assert found.status == "cannot be judged"
    assert found.lost_beside("cut rationale") is None
    assert ("random_loss" in found.quantities()) == bool(draws)
    assert "beside_random" not in found.quantities()
    assert found.plot().data
    WORDS(found.figures()[0].answer, "too_few_draws", draws)
    WORDS(found.summary(), "too_few_draws_summary", draws)


def test_a_fraction_needs_a_clear_positive_gain():
    rows = [[-2.0 - 0.01 * n, -1.0, -2.5] for n in range(8)]
    worse = made(rows, [[-2.5] * 3] * 8, [[[-2.0, -2.0]] * 3] * 8)
    assert worse.gain.high < 0
    assert all(map(isnan, worse.fraction("other")))
    better = made([[b, a, c] for a, b, c in rows], [[-2.5] * 3] * 8, [[[-2.0, -2.0]] * 3] * 8)
    assert better.gain.low > 0
    assert better.fraction("none") == pytest.approx((1, 1, 1))


def test_layers_after_the_reading_change_nothing():
    model, prompts = planted("carries", 8)
    found = icl.rationale_use(model, prompts, layers=[4, 5], draws=1, **QUIET)
    assert found.lost("cut rationale").value == pytest.approx(0, abs=0.01)
    read = icl.rationale_use(model, prompts, layers=[1], draws=1, **QUIET)
    assert read.fraction("cut rationale").value == pytest.approx(1, abs=0.01)


def test_two_classes_have_no_followed_class():
    task = rationale_task()
    few = tuple(e for e in task.test if e.label < 2)
    model = rationale_model()
    two = icl.Task(
        "two", task.template, task.labels[:2], tuple(e for e in task.train if e.label < 2), few
    )
    prompts = icl.build_prompts(two, model, shots=2, n=8)
    found = icl.rationale_use(model, prompts, draws=1, **QUIET)
    assert found.followed is None
    assert [measure.name for measure in found.needed] == ["gain", "cut", "other"]


def test_missing_contexts_are_noted_and_refusals():
    model, prompts = setting("gpt2")
    short = icl.prompts.with_rationales(prompts, model, ["Yes.", "A plus.", "It is good.", "Bad."])
    found = icl.rationale_use(model, short, draws=1, **QUIET)
    assert "shuffled" not in found.contexts
    WORDS.starts(found.notes[0], "note")
    with WORDS.raises(PromptError, "one_class"):
        icl.rationale_use(model, prompts[[1]], draws=1, **QUIET)
    with WORDS.raises(PromptError, "no_rationale", 0):
        icl.rationale_use(model, icl.build_prompts("reviews", model, n=2), **QUIET)


def test_it_is_saved_and_shown(tmp_path):
    model, prompts = planted("carries", 8)
    report = icl.measure(model, prompts, RationaleUse(draws=2), out=tmp_path / "run", **QUIET)
    found = report["rationale_use"]
    loaded = icl.load(tmp_path / "run")["rationale_use"]
    assert torch.equal(loaded.random, found.random)
    assert loaded.status == found.status == "supported"
    WORDS.starts(found.summary(), "summary")
    for show in found.shows:
        assert found.plot(show).data


def test_the_rationale_is_a_role_of_flow():
    model, prompts = planted("carries", 4)
    maps = icl.saliency_maps(model, prompts, **QUIET)
    segments = [segment.name for segment in maps.by_segment(0).segments]
    assert [name for name in segments if name.startswith("rationale")] == [
        *(f"rationale {demo}" for demo in (1, 2, 3, 4)), "rationale"
    ]  # fmt: skip
