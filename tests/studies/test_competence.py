"""How a model does a task is not judged where it does not do the task; and the page says so first."""

from dataclasses import replace

import pytest
import torch

import icl_mech as icl
from icl_mech.measurements import Flow, Predict
from icl_mech.metrics import Interval
from icl_mech.own import Claim, Effect, Study
from icl_mech.studies.competence import ABOVE_CONSTANT, HELP, HELPED, QUESTION, competence, helped
from icl_mech.studies.facts import origin_of, task_name
from icl_mech.studies.study import known_studies
from icl_mech.sweeps import comparison
from tests.browser import cases
from tests.engine.cases import ragged
from tests.said import Words
from tests.sweeps.loaders import TASK, tiny
from tests.tiny import tiny_model

WORDS = Words(__file__)


def answering(analysis, predicted):
    """The same run of a model that answers so."""
    own = analysis.predictions
    predictions = replace(own, predicted=torch.tensor(predicted), label_logits=own.label_logits)
    return replace(analysis, results={**analysis.results, "predictions": predictions})


def run_of(predictions):
    """A run of these answers alone."""
    return icl.Analysis({"predictions": predictions}, "")


@pytest.mark.slow
def test_claims_of_how_need_a_model_that_does_the_task():
    good = cases.label_words()
    always = answering(good, [0] * len(good.predictions.predicted))
    assert competence(good).status == "supported"
    assert competence(always).status in ("not shown", "opposite")
    of = known_studies()["label_words"].claims
    how = {claim.text for claim in of if ABOVE_CONSTANT in claim.needed}
    assert {claim.partition(":")[0] for claim in how} == {
        "Shallow aggregation", "Reading", "Deep extraction", "Anchors suffice",
    }  # fmt: skip
    before = {own.claim: own for own in good.verdicts()}
    for own in always.verdicts():
        if own.claim in how:
            assert own.status == own.alone == "cannot be judged"
            assert own.p is None
            WORDS.starts(own.finding, "claims_how_need_model_2")
        else:
            assert own.status == before[own.claim].status
    page = always.page()
    WORDS.starts(page.lead, "claims_how_need_model", "Cannot be judged")
    first, second, *others = page.origin.findings
    assert second.claim == HELP
    assert (first.claim, first.word) == (
        QUESTION,
        "no" if first.status == "opposite" else "not shown",
    )
    assert "always" not in first.finding or "gets" in first.finding
    assert {own.status for own in others if own.claim in how} == {"cannot be judged"}


def without(analysis, *parts):
    """The same run without some results."""
    kept = {name: own for name, own in analysis.results.items() if name not in parts}
    return replace(analysis, results=kept)


@pytest.mark.slow
def test_a_gain_tells_where_answers_were_not_kept():
    good = cases.label_words()
    bare = without(good, "predictions")
    whole, told = competence(good), competence(bare)
    assert (whole.result, told.result) == ("predictions", "gain")
    assert (told.status, told.effects) == (whole.status, whole.effects)
    assert {own.claim: own.status for own in bare.verdicts()} == {
        own.claim: own.status for own in good.verdicts()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("added", "right", "clear"), [(0.05, False, False), (0.2, False, True), (0.05, True, True)]
)
def test_a_gain_next_to_nothing_says_nothing_of_how_demonstrations_are_used(added, right, clear):
    """A tenth of the loss must go with it, or more answers be right: any text before a query moves its answer a little."""
    good = cases.label_words()
    gain = good["gain"]
    log_prob, answered = gain.log_prob.clone(), gain.right.clone()
    log_prob[:, 0] = -1.0 + torch.linspace(-1, 1, len(log_prob)) / 1000
    log_prob[:, 1] = -1.0 - added
    answered[:, 0] = 1.0
    answered[:, 1] = 0.0 if right else 1.0
    little = replace(gain, log_prob=log_prob, right=answered)
    run = replace(good, results={**good.results, "gain": little})
    assert helped(run).status == "supported"
    of = known_studies()["label_words"].claims
    how = {claim.text for claim in of if HELPED[1] in claim.needed}
    assert how
    verdicts = {own.claim: own for own in run.verdicts() if own.claim in how}
    assert {text for text, own in verdicts.items() if own.lacking} == (set() if clear else how)
    share = HELPED[1].interval(run)
    assert share.value == pytest.approx(added / (1 + added), abs=1e-3)
    for own in verdicts.values():
        WORDS.only_if(not clear, own.lacking, "a_little", "+0.05 [+0.05, +0.05]")


@pytest.mark.slow
def test_more_right_answers_do_not_help_where_the_right_one_is_not_likelier():
    """Both are asked for: more of them may be right, and the others all the surer of a wrong one."""
    good = cases.label_words()
    gain = good["gain"]
    log_prob, answered = gain.log_prob.clone(), gain.right.clone()
    log_prob[:, 0] = torch.linspace(-3, -0.1, len(log_prob)).double()
    log_prob[:, 1] = log_prob[:, 0].flip(0)
    answered[:, 0], answered[:, 1] = 1.0, 0.0
    split = replace(gain, log_prob=log_prob, right=answered)
    run = replace(good, results={**good.results, "gain": split})
    assert helped(run).status == "not shown"
    how = {
        claim.text for claim in known_studies()["label_words"].claims if HELPED[0] in claim.needed
    }
    for own in run.verdicts():
        WORDS.only_if(own.claim in how, own.lacking, "not likelier")


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [("gain",), ("predictions", "gain")])
def test_what_was_not_measured_is_not_clear(left_out):
    bare = without(cases.label_words(), *left_out)
    of = known_studies()["label_words"].claims
    how = {claim.text for claim in of if claim.needed}
    for own in bare.verdicts():
        if own.claim in how:
            assert own.status == "cannot be judged"
            assert own.lacking
    assert helped(bare) is None
    told = competence(bare)
    assert (told is None) is ("predictions" in left_out)
    asked = [own.claim for own in bare.page().origin.findings if own.claim in (QUESTION, HELP)]
    assert asked == [QUESTION] * (told is not None)


@pytest.mark.slow
@pytest.mark.parametrize("labels", ["shuffled", "permuted", "random"])
def test_other_labels_are_judged_by_their_own_answers(labels):
    """A planted model answers what these labels teach, so that right answers are no more than a constant one has."""
    model = icl.planted_model(seed=1)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=24, seed=1, demonstrations="per_prompt", labels=labels
    )
    report = icl.analyze(model, prompts, study="label_words", nulls=0, maps=0, progress=False)
    assert competence(report).status in ("not shown", "opposite")
    how = {own.text for own in known_studies()["label_words"].claims if own.needed}
    judged = {own.claim: own.status for own in report.verdicts()}
    assert {judged[claim] for claim in how if claim in judged} == {"cannot be judged"}


def test_true_demonstrations_tell_it_in_pairs():
    found = competence(cases.overthinking())
    assert (found.result, found.status) == ("layer_accuracy", "supported")
    WORDS(found.finding, "true_demonstrations_tell_pairs")
    assert "n = 18 pairs" in found.finding


def test_answers_of_changed_models_tell_and_a_lens_of_the_papers_code_does_not():
    model = tiny()
    own = {"shots": 1, "n": 6}
    true = icl.build_prompts(TASK, model, **own)
    assert competence(run_of(icl.predict(model, true))).claim == QUESTION
    false = icl.build_prompts(TASK, model, labels="permuted", **own)
    assert competence(run_of(icl.predict(model, false))) is not None
    changed = icl.predict(model, true, interventions=[icl.Isolate([0])])
    assert competence(run_of(changed)) is not None
    variants = {**changed.provenance, "variants": {"variant": "reference"}}
    assert competence(run_of(replace(changed, provenance=variants))) is None


def test_open_answers_lie_above_chance():
    model = tiny_model("gpt2")
    found = icl.predict(model, icl.build_prompts("antonyms", model, shots=2, n=6))
    chosen = replace(found, predicted=torch.tensor([0, 0, 0, 0, 0, 1]))
    own = competence(run_of(chosen))
    assert (own.status, len(found.labels)) == ("supported", 4)
    WORDS.starts(own.finding, "open_answers_lie_above", "0.83", "[0.44, 0.97]", "0.25")
    few = replace(found, predicted=torch.tensor([0, 0, 1, 2, 3, 1]))
    assert competence(run_of(few)).status == "not shown"


@pytest.mark.slow
def test_in_a_sweep_a_task_that_is_not_done_speaks_for_nothing():
    def of(task, one, other):
        return Interval(*one) if task_name(origin_of(task.results)) == "A" else Interval(*other)

    needed = Effect("need", lambda run: of(run, (0.5, 0.4, 0.6), (0.0, -0.1, 0.1)))
    effect = Effect("effect", lambda run: of(run, (0.3, 0.2, 0.4), (-0.3, -0.4, -0.2)))
    claims = [Claim(f"{name}: it is so", [effect], "flow", needs=own) for name, own in
              (("Needing", needed), ("Free", None))]  # fmt: skip
    study = Study("of_tasks", [Flow()], claims)
    tasks = [replace(TASK, name=name) for name in "AB"]
    found = icl.sweep({"tiny": tiny()}, tasks, n=6, study=study, progress=False)
    needing, free = comparison(found).judged
    WORDS(needing.finding, "sweep_task_done_speaks")
    assert needing.status != "mixed"
    WORDS(free.finding, "sweep_task_done_speaks_2")
    assert free.status == "mixed"


@pytest.mark.parametrize(("low", "status"), [(0.1, "supported"), (0.0, "cannot be judged"), (-0.1, "cannot be judged")])  # fmt: skip
def test_a_claim_of_your_own_may_need_it(low, status):
    needed = Effect("what it needs", lambda run: Interval(0.3, low, 0.5))
    clear = Effect("an effect", lambda run: Interval(0.3, 0.1, 0.5))
    study = Study("of_needs", [Flow()], [Claim("Needing: it is so", [clear], "flow", needs=needed)])
    report = icl.measure(
        tiny(), icl.build_prompts(TASK, tiny(), shots=1, n=6), Flow(), progress=False
    )
    (own,) = study.verdicts(report)
    assert own.status == status
    WORDS.only_if(status != "supported", own.line, "needs")


@pytest.mark.slow
def test_the_script_of_a_page_makes_it_again(tmp_path, monkeypatch):
    model = tiny()
    report = icl.measure(model, ragged(), Predict(), Flow(reduction="abs_then_sum"), progress=False)
    report.save(tmp_path / "run")
    script = report.page().origin.command
    assert "from icl_mech.measurements import Flow, Predict\n" in script
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(icl, "load_model", lambda name: model)
    kept = {}
    exec(script, kept)  # noqa: S102 - what the page asks a reader to run
    assert (tmp_path / "page.html").is_file()
    assert torch.equal(kept["report"].flow.per_prompt, report.flow.per_prompt)
    assert kept["report"].made["call"] == report.made["call"]


@pytest.mark.slow
def test_classes_that_are_never_answered_leave_a_task_done_in_part():
    good = cases.label_words()
    classes = len(good.predictions.labels)
    assert classes > 2
    answers = good.predictions.answers
    run = answering(good, answers.where(answers < classes - 1, 0).tolist())
    able = competence(run)
    right = run.predictions.right
    assert right.status == "supported"  # the accuracy is above the baseline
    assert able.status == "mixed"
    assert right.never == [good.predictions.labels[-1]]
    for said in (able.finding, run.predictions.figures()[0].answer):  # page, and notebook
        WORDS(said, "never_answers", right.never[0])
    (finding,) = [own for own in run.page().origin.findings if own.claim == QUESTION]
    assert (finding.status, finding.word) == ("mixed", "in part")
    (whole,) = [own for own in good.page().origin.findings if own.claim == QUESTION]
    assert (whole.status, whole.word) == ("supported", "above baseline")
    assert "never" not in whole.finding
