"""Studies of your own: in analyze, on pages, in sweeps, in files and on the command line, saved and loaded."""

import json
import re
import sys
from pathlib import Path

import pytest

import icl_mech as icl
from icl_mech.errors import PromptError, RunError, SweepError
from icl_mech.measurements import Flow, Predict
from icl_mech.metrics import Interval
from icl_mech.own import Claim, Effect, Study
from icl_mech.results import Result
from icl_mech.results.judging import judged, p_value
from icl_mech.studies import LABEL_WORDS
from icl_mech.studies import study as studies
from icl_mech.studies.competence import QUESTION
from icl_mech.studies.judge import verdict
from icl_mech.sweeps import Sweep, comparison, sweep
from icl_mech.sweeps.config import read_config
from tests.cli.conftest import MODEL, command, own_data, table  # noqa: F401 - fixtures
from tests.said import Words
from tests.sweeps.loaders import OTHER, TASK, tiny

WORDS = Words(__file__)

DOCS = Path(__file__).parents[2] / "docs" / "add"
PLACE = "my_study:LOOKING_BACK"


def first_block(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0]


MORE = """
from icl_mech.measurements import Predict

EARLY = Effect("early flow of mine", lambda report: report.flow.difference("first"))
FLOWING = Study(
    "flowing", measurements=[Flow()], claims=[Claim("Flowing: it flows", [EARLY], "flow")]
)
CUT = icl.ZeroHeads([(0, 0)])
NOTHING = 3


@dataclass(frozen=True)
class Needy(Sink):
    k: int


@dataclass(frozen=True)
class Deep(Study):
    name: str = "deep"
    measurements: tuple = (Predict(),)
    depth: int = 2
"""


@pytest.fixture
def forgotten(monkeypatch):
    """What is made known in a test is known in that test only."""
    monkeypatch.setattr(studies, "_KNOWN", dict(studies._KNOWN))
    return studies._KNOWN


@pytest.fixture
def module(forgotten, monkeypatch, tmp_path):
    """The file of the guide to studies, in the folder of the call, with a measurement from another guide."""
    source = [first_block("study.md"), first_block("measurement.md"), MORE]
    (tmp_path / "my_study.py").write_text("\n\n".join(source), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "my_study"
    sys.modules.pop("my_study", None)


@pytest.fixture(scope="module")
def prompts():
    return icl.build_prompts(TASK, tiny(), shots=2, n=6)


# --- analyze, pages, files ---


@pytest.mark.slow
def test_the_study_of_the_guide(module, prompts, tmp_path):
    report = icl.analyze(tiny(), prompts, study=PLACE, measurements=[Predict()], progress=False)
    assert tuple(report) == ("extraction", "flow", "predictions")
    assert report.study == "looking_back"
    assert report.made["study_at"] == PLACE
    assert 'study="looking_back"' in report.made["call"]
    late, rise = report.verdicts()
    assert rise.alone == judged(report.extraction.rise, prompts=6)
    assert rise.p == p_value(report.extraction.rise, prompts=6)
    assert late.alone == judged(report.extraction.last_third, null=0.5, prompts=6)
    WORDS(late.finding, "study_guide")
    assert "(n = 6 prompts)" in late.finding
    page = report.page()
    assert page.title.startswith("Does ")
    WORDS.ends(page.title, "study_guide_2")
    assert late.finding in page.lead
    assert [own.claim for own in page.origin.findings] == [QUESTION, late.claim, rise.claim]
    assert report.to_html(tmp_path / "page.html").is_file()
    # By its name, now that it is known.
    again = icl.analyze(tiny(), prompts, study="looking_back", progress=False)
    assert again.verdicts() == report.verdicts()


@pytest.mark.slow
def test_saved_and_loaded_with_and_without_its_module(module, forgotten, prompts, tmp_path):
    report = icl.analyze(tiny(), prompts, study=PLACE, progress=False)
    report.save(tmp_path / "run")
    loaded = icl.load(tmp_path / "run")
    assert loaded.study == "looking_back"
    assert loaded.verdicts() == report.verdicts() != ()
    del forgotten["looking_back"]
    bare = icl.load(tmp_path / "run")
    assert (bare.study, bare.verdicts()) == ("looking_back", ())
    page = bare.page()
    assert page.title == bare.title
    assert len(page.sections) == len(report.page().sections)
    assert page.origin.findings == []
    WORDS(page.origin.limits[-1], "not_known_here", "'looking_back'")
    assert PLACE in page.origin.limits[-1]
    WORDS(bare.summary(), "not_known_here", "'looking_back'")


def test_a_class_and_steps_that_depend_on_results(module, prompts):
    from my_study import Deep

    assert "deep" in studies.known_studies()
    assert tuple(icl.analyze(tiny(), prompts, study=Deep, progress=False)) == ("predictions",)
    assert "deep" in studies.known_studies()
    assert Deep(depth=3).variants()["depth"] == "3"

    def steps(bench, data, *, seed, loss=None):
        bench.notes.append(f"{list(bench.results)}, seed {seed}")
        bench.measure(data, Flow(loss))

    own = Study("stepwise", measurements=[Predict()], steps=steps, gives={"flow": Result})
    report = icl.analyze(tiny(), prompts, study=own, seed=3, loss="vocab", progress=False)
    assert tuple(report) == ("flow", "predictions")
    assert report.notes == ("['predictions'], seed 3",)
    assert report.flow.provenance["variants"]["loss"] == "vocab"


def test_sections_that_are_shown(forgotten, prompts):
    own = Study("few", measurements=[Predict(), Flow()], sections=["flow"], headline="{model}?")
    page = icl.analyze(tiny(), prompts, study=own, progress=False).page()
    assert {section.key for section in page.sections} == {"flow"}
    assert page.lead == ""


def test_prompts_of_another_kind_are_refused(forgotten, prompts):
    with WORDS.raises(RunError, "prompts_another_kind_refused"):
        icl.analyze(tiny(), prompts, study=Study("idle"), progress=False)
    own = Study("paired", takes="pair")
    with WORDS.raises(PromptError, "prompts_another_kind_refused_2"):
        icl.analyze(tiny(), prompts, study=own)
    with pytest.raises(PromptError, match="'causal' or 'paired'"):
        icl.analyze(tiny(), (prompts, prompts))


# --- claims ---


class Fixed(Result):
    """A result without numbers; effects of these tests know theirs."""


def run_of(n=24):
    origin = {"prompts": {"count": n}}
    return icl.Analysis({"fixed": Fixed(provenance=origin)}, "title")


def fixed(*ends, **more):
    name = more.pop("name", "an effect")
    return Effect(name, lambda report: report["fixed"] and Interval(*ends), **more)


@pytest.mark.parametrize(
    ("effects", "one", "status"),
    [
        ([fixed(0.5, 0.2, 0.8)], False, "supported"),
        ([fixed(0.5, 0.2, 0.8, rising=False)], False, "opposite"),
        ([fixed(0.5, 0.2, 0.8, null=0.3)], False, "not shown"),
        ([fixed(0.5, 0.2, 0.8), fixed(0.1, -0.2, 0.4, name="b")], False, "mixed"),
        ([fixed(0.5, 0.2, 0.8), fixed(0.1, -0.2, 0.4, name="b")], True, "not shown"),
        ([fixed(0.5, 0.2, 0.8), Effect("b", lambda _: None)], False, "cannot be judged"),
        ([fixed(0.5, 0.2, 0.8), Effect("b", "other.interval")], False, "cannot be judged"),
        ([fixed(0.5, 0.2, 0.8), Effect("b", lambda _: 0.5)], False, "cannot be judged"),
    ],
)
def test_a_claim_is_judged_by_its_effects(effects, one, status):
    found = verdict(Claim("C: it is so", effects, "fixed", one=one), run_of())
    assert found.status == status
    assert found.result == "fixed"
    assert "(n = 24 prompts)" in found.finding


def test_few_prompts_and_nothing_that_bears_on_a_claim():
    claim = Claim("C: it is so", [fixed(0.5, 0.2, 0.8)], "fixed")
    found = verdict(claim, run_of(5))
    assert found.status == "cannot be judged"
    assert verdict(Claim("C: it is so", [Effect("b", lambda _: None)]), run_of()) is None
    assert verdict(Claim("C: it is so", [Effect("b", "gone.share")]), run_of()) is None


def test_claims_of_a_study_stand_together(forgotten):
    """Two claims at p just below 0.025: each alone is supported, together neither is."""
    barely = [fixed(0.5, 0.01, 0.99, name=name) for name in "ab"]
    own = Study("two", claims=[Claim(f"{one.name}: so", [one], "fixed") for one in barely])
    found = own.verdicts(run_of())
    assert {one.alone for one in found} == {"supported"}
    assert {one.status for one in found} == {"not shown"}


# --- names and addresses ---


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("labelwords", "label_words"),
        (3, "known"),
        ("no_module:STUDY", "no_module"),
        ("my_study:LOKING_BACK", "LOKING_BACK"),
        ("my_study:NOTHING", "int"),
        ("my_study:Sink", "class"),
    ],
)
@pytest.mark.usefixtures("unchecked", "module")
def test_an_unknown_study(prompts, given, message):
    with WORDS.raises(RunError, message):
        icl.analyze(tiny(), prompts, study=given)
    with WORDS.raises(SweepError, message):
        sweep(tiny, TASK, study=given)


@pytest.mark.parametrize("name", ["label_words", "Mine", "", "measurements"])
@pytest.mark.usefixtures("forgotten")
def test_names_that_cannot_be(name):
    with pytest.raises(RunError, match="name"):
        Study(name)


@pytest.mark.usefixtures("forgotten")
def test_effects_of_the_package_keep_their_names():
    (late,) = [own for own in LABEL_WORDS.effects if own.name == "late extraction"]
    Study("mine", claims=[Claim("Late: so", [late], "extraction")])
    other = Effect("late extraction", lambda report: report.extraction.rise)
    with WORDS.raises(RunError, "effects_package_keep_their", "'late extraction'"):
        Study("mine", claims=[Claim("Late: so", [other], "extraction")])


@pytest.mark.usefixtures("unchecked", "forgotten")
def test_fields_are_checked():
    with WORDS.raises(RunError, "fields_checked"):
        Study("mine", measurements=[Predict])
    with pytest.raises(RunError, match="takes"):
        Study("mine", takes="pairs")


# --- sweeps and files ---


@pytest.mark.slow
def test_in_a_sweep_its_claims_are_judged(module, tmp_path):
    found = sweep(
        tiny, [TASK, OTHER], study=["default", "my_study:FLOWING"], seeds=(0, 1), n=6, nulls=0,
        progress=False, out=tmp_path / "s",
    )  # fmt: skip
    assert not found.failures()
    assert {item.study for item in found.plan} == {"default", "flowing"}
    judged_here = {own.text.split(":")[0]: own for own in comparison(found).judged}
    own = judged_here["Flowing"]
    assert own.paper == "flowing"
    mean = found.average("early flow of mine", ("task", "seed"), fixed="task").cells[0]
    assert own.effects["early flow of mine"].value == pytest.approx(float(mean.value))
    by_hand = [report.flow.difference("first").value for _, report in found]
    assert own.effects["early flow of mine"].value == pytest.approx(sum(by_hand) / 8)
    page = comparison(Sweep.load(tmp_path / "s")).page()
    WORDS({section.name for section in page.sections}, "sweep_claims_judged")
    WORDS({finding.claim for finding in page.origin.findings}, "sweep_claims_judged")


def test_what_is_not_shown_says_how_many_prompts_would_do_below_the_first_level(forgotten):
    unclear = fixed(0.1, -0.05, 0.25)
    own = Study("unclear", claims=[Claim("a: so", [unclear], "fixed")], headline="Is it {task}?")
    (found,) = own.verdicts(run_of())
    WORDS.starts(found.more, "what_shown_says_how", "1", "96", "24")
    WORDS.ends(found.more, "what_shown_says_how_2")
    assert (
        "96 prompts"
        not in found.line
        + found.finding
        + own.heading(run_of(), own.verdicts(run_of()), "m", "t")[1]
    )
    given = {"prompts": {"count": 24}, "conditional_on_demonstrations": True}
    run = icl.Analysis({"fixed": Fixed(provenance=given)}, "t", made={"study": "unclear"})
    (told,) = run.page().origin.findings
    WORDS.ends(told.finding, "what_shown_says_how_3")
    assert told.brief == found.line
    clear = Study("clear", claims=[Claim("b: so", [fixed(0.5, 0.2, 0.8, name="b")], "fixed")])
    assert clear.verdicts(run_of())[0].more == ""
    # Of several controls the least clear one counts.
    several = [fixed(0.5, 0.2, 0.8, name="c"), fixed(0.1, -0.4, 0.6, name="d")]
    (found,) = Study("both", claims=[Claim("c: so", several, "fixed", one=True)]).verdicts(run_of())
    WORDS(found.more, "what_shown_says_how_4", "601")


def test_claims_of_a_study_that_was_not_swept_are_not_judged(module):
    import my_study  # noqa: F401 - makes its study known

    from icl_mech.measurements import Extraction

    found = sweep(tiny, TASK, [Extraction()], seeds=(0, 1), n=6, progress=False)
    assert comparison(found).judged == ()  # as on the page of each item


def test_items_know_what_their_study_measures(forgotten):
    from icl_mech.sweeps.plan import contents_of

    def key(own):
        return contents_of(own, (), {}, {})[0].measured

    assert key(Study("mine", measurements=[Flow()])) != key(
        Study("mine", measurements=[Flow(loss="vocab")])
    )
    assert "of_study" not in key("label_words")


def test_texts_are_no_tasks():
    with WORDS.raises(SweepError, "texts_no_tasks"):
        sweep(tiny, TASK, study="anchors")


def test_figures_of_runs_that_differ_in_a_number(tmp_path):
    """Two runs with other numbers of demonstrations side by side."""
    for shots in (1, 2):
        data = icl.build_prompts(TASK, tiny(), shots=shots, n=6)
        icl.measure(tiny(), data, Flow(), progress=False).save(tmp_path / str(shots))
    page = icl.compare(tmp_path / "1", tmp_path / "2", names=["a", "b"]).page()
    assert "flow" in {section.key for section in page.sections}


def test_a_file_of_a_sweep(module, tmp_path):
    text = (
        "models: a\ntasks: b\nstudy: my_study:LOOKING_BACK\nmeasurements:\n"
        "  - my_study:Sink\n  - {my_study:Needy: {k: 2}}\n"
    )
    (tmp_path / "study.yaml").write_text(text)
    found = read_config(tmp_path / "study.yaml")
    assert found["study"] == PLACE
    assert [own.name for own in found["measurements"]] == ["sink", "needy"]
    assert found["measurements"][1].k == 2
    (tmp_path / "study.yaml").write_text(text.replace("my_study:Sink", "my_study:Sinc"))
    with WORDS.raises(SweepError, "file_sweep", "'Sink'"):
        read_config(tmp_path / "study.yaml")


# --- the command line ---


@pytest.mark.slow
def test_on_the_command_line(module, command, table, tmp_path):  # noqa: F811
    run, words = tmp_path / "run", [*own_data(table), "--n", 6]
    own = ["--study", PLACE, "--measurement", "my_study:Sink", "--intervention", "my_study:CUT"]
    code, out, err = command("analyze", *words, *own, "--out", run, "--json")
    assert (code, err) == (0, "")
    assert set(json.loads(out)["results"]) == {"extraction", "flow", "sink"}
    for option in ("--measurement my_study:Sink", "--intervention my_study:CUT"):
        assert option in json.loads(out)["command"]
    loaded = icl.load(run)
    assert loaded.study == "looking_back"
    assert loaded["sink"].provenance["interventions"] == [icl.ZeroHeads([(0, 0)]).to_dict()]
    WORDS((run / "index.html").read_text(encoding="utf-8"), "command_line")
    code, out, _ = command("analyze", *words, *own, "--out", run, "--overwrite", "--quiet")
    assert (code, out) == (0, f"{run}\n")


@pytest.mark.slow
def test_measurements_on_the_command_line(module, command, table, tmp_path):  # noqa: F811
    words = [*own_data(table), "--quiet", "--measurement", "my_study:Sink"]
    assert command("measure", "own", *words, "--out", tmp_path / "a")[0] == 0
    assert tuple(icl.load(tmp_path / "a")) == ("sink",)
    assert command("measure", "predictions", *words, "--out", tmp_path / "b")[0] == 0
    assert tuple(icl.load(tmp_path / "b")) == ("predictions", "sink")


@pytest.mark.slow
def test_a_sweep_on_the_command_line(module, command, tmp_path):  # noqa: F811
    text = f"models: {{tiny: {MODEL}}}\ntasks: reviews\nstudy: {PLACE}\nseeds: [0]\nn: 2\n"
    (tmp_path / "study.yaml").write_text(text)
    code, _, err = command(
        "sweep", tmp_path / "study.yaml", "--out", tmp_path / "s", "--quiet",
        "--measurement", "my_study:Sink",
    )  # fmt: skip
    assert (code, err) == (0, "")
    ((item, report),) = Sweep.load(tmp_path / "s")
    assert item.study == report.study == "looking_back"
    assert "sink" in report


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["analyze", "--study", "my_study:LOKING"], 2, "LOOKING_BACK"),
        (["analyze", "--measurement", "my_study:Sinc"], 1, "Sink"),
        (["analyze", "--measurement", "Sink"], 1, "write module name"),
        (["analyze", "--measurement", "my_study:Needy"], 1, "cannot made defaults"),
        (["analyze", "--intervention", "my_study:Sink"], 1, "expected intervention"),
        (["measure", "own"], 2, "give least"),
    ],
)
@pytest.mark.usefixtures("module")
def test_addresses_that_lead_nowhere(command, words, code, message):  # noqa: F811
    found, out, err = command(*words)
    assert (found, out) == (code, "")
    WORDS(" ".join(err.split()), message)
