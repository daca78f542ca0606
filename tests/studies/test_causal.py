"""The causal study on the planted model: the sets are found, tested on other prompts, and judged."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import PromptError
from icl_mech.measurements.demonstrations import halves
from icl_mech.studies import Analysis
from icl_mech.studies.causal import CAUSAL, EXPECTED, FALSE_INDUCTION, FUNCTION_VECTOR
from icl_mech.sweeps import comparison, sweep
from tests.planted import INDUCTION_HEADS, planted_model, planted_task
from tests.said import Words

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return planted_model()


@pytest.fixture(scope="module")
def pair(model):
    return icl.build_prompt_pairs(planted_task(), model, shots=3, n=24)


@pytest.fixture(scope="module")
def study(model, pair):
    return icl.analyze(model, pair, study="causal", progress=False)


def test_it_holds_every_part(study):
    assert tuple(study) == tuple(CAUSAL.gives)
    WORDS(study.notes, "halves", "12")


def test_heads_are_chosen_on_one_half_and_tested_on_the_other(model, pair, study):
    choosing, testing = halves(pair)
    queries = [{tuple(prompt.tokens[-2:]) for prompt in own[0]} for own in (choosing, testing)]
    assert len(choosing[0]) + len(testing[0]) == len(pair[0])
    assert not queries[0] & queries[1]
    alone = icl.head_mediation(model, *choosing, mean="class", progress=False)
    assert_close(study["head_mediation"].difference, alone.difference, atol=1e-4, rtol=1e-4)
    comparison = study["compare_heads"]
    sets = dict(zip(comparison.sets, comparison.heads, strict=True))
    assert sets[FUNCTION_VECTOR] == alone.top(2, "difference")  # of 16 heads two a set
    own = icl.compare_heads(model, *testing, sets, progress=False)
    assert_close(comparison.change, own.change, atol=1e-4, rtol=1e-4, equal_nan=True)


def test_the_planted_heads_are_in_both_sets_that_should_have_them(study):
    comparison = study["compare_heads"]
    sets = dict(zip(comparison.sets, comparison.heads, strict=True))
    for name in (FUNCTION_VECTOR, FALSE_INDUCTION):
        assert set(INDUCTION_HEADS) <= set(sets[name])


def test_verdicts_follow_from_the_intervals(study):
    found = {own.claim.split(":")[0]: own for own in study.verdicts()}
    assert {"Function-vector heads", "False induction heads", "Override"} <= set(found)
    assert found["Override"].status == "supported"
    # The planted heads are in several sets, so what is left of each does nothing.
    for own in ("Function-vector heads", "False induction heads"):
        assert found[own].status != "supported"


def test_heads_that_only_one_set_has_are_judged(model, pair):
    _, testing = halves(pair)
    sets = {FALSE_INDUCTION: list(INDUCTION_HEADS), "induction": [(0, 2), (1, 3)]}
    result = icl.compare_heads(model, *testing, sets, draws=2, progress=False)
    (own,) = (
        v
        for v in CAUSAL.verdicts(Analysis({"heads": result}, ""))
        if v.claim.startswith("False induction")
    )
    assert own.status == "supported"
    WORDS(own.finding, "heads_only_set_judged", "2")


def test_its_page(study, tmp_path):
    page = study.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    WORDS(page, "page", "24")
    for expected in EXPECTED:
        name, _, sentence = expected.claim.partition(": ")
        assert f"<b>{name}:</b> {sentence} <b " in page
    assert "Causal study" in page


def test_it_goes_on_where_it_was_stopped(model, pair, tmp_path):
    first = icl.analyze(model, pair, study="causal", out=tmp_path / "run", progress=False)
    again = icl.analyze(model, pair, study="causal", out=tmp_path / "run", progress=False)
    assert tuple(again) == tuple(first)
    assert again.made["resumed"] == len(first)


def test_too_few_pairs_are_refused(model, pair):
    few = tuple(own[[0, 1, 2, 3]] for own in pair)
    with WORDS.raises(PromptError, "too_few_pairs_refused"):
        icl.analyze(model, few, study="causal", progress=False)


def test_what_would_test_heads_on_what_chose_them_is_refused(model, pair):
    twice = tuple(own[[*range(12), *range(12)]] for own in pair)
    with WORDS.raises(PromptError, "what_would_test_heads"):
        icl.analyze(model, twice, study="causal", progress=False)
    one = [n for n, answer in enumerate(pair[0].answers.tolist()) if answer == 0]
    with WORDS.raises(PromptError, "what_would_test_heads_2"):
        halves((pair[0][one], pair[1][one]))
    with WORDS.raises(PromptError, "what_would_test_heads_3"):
        icl.analyze(model, (pair[0], pair[1][:20]), study="causal", progress=False)


def test_its_page_is_not_that_of_another_study(study):
    results = study.results
    assert Analysis(results, "").study == study.study == "causal"
    few = {"one": results["compare_heads"], "two": results["steer"]}
    assert Analysis(few, "").study == ""


def test_it_takes_pairs(model, pair):
    with WORDS.raises(PromptError, "takes_pairs"):
        icl.analyze(model, pair[0], study="causal", progress=False)
    edit = icl.Patch("z", [(0, 0)], source=pair[0])
    with WORDS.raises(PromptError, "takes_pairs_2"):
        icl.analyze(model, pair, study="causal", interventions=[edit], progress=False)


def test_in_a_sweep_its_claims_are_judged(tmp_path):
    found = sweep(
        planted_model, planted_task(), study="causal", shots=3, seeds=(0, 1), n=24, progress=False
    )
    assert not found.failures()
    assert all(item.pair for item in found.plan)
    own = [one for one in comparison(found).judged if one.paper == CAUSAL.source]
    texts = {one.claim.text.split(":")[0]: one for one in own}
    assert texts["Override"].status == "supported"
    assert "2 seeds × 24 prompts" in texts["Override"].finding
    keys = [section.key for section in comparison(found).page().sections]
    assert {"steer", "alignment"} <= set(keys)
    curve = found.average("function vector effect", "seed")
    assert curve.axes == ("layer",)
    assert bool(torch.isfinite(curve.cells[0].value).all())
