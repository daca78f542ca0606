"""Commands from words to files."""

import sys
from pathlib import Path

import pytest

import icl_mech as icl
from icl_mech.cli import job
from icl_mech.cli.demo import NEXT
from icl_mech.measurements import Predict
from icl_mech.models import known_models
from icl_mech.results import Folder
from icl_mech.studies.competence import QUESTION
from icl_mech.tasks import known_tasks
from tests.cli.conftest import MODEL, own_data
from tests.said import Words
from tests.saved import contents
from tests.small import small_model

WORDS = Words(__file__)
ROOT = Path(__file__).parents[2]


def options(table, out):
    """Of an analysis without untrained networks, which take most of its time."""
    return ["analyze", "--out", out, *own_data(table), "--nulls", 0]


def test_models(command):
    code, out, err = command("models")
    assert (code, err) == (0, "")
    for model in known_models():
        assert model.name in out
        assert model.hub_id in out


def test_tasks(command):
    code, out, err = command("tasks")
    assert (code, err) == (0, "")
    for task in known_tasks():
        (line,) = [row for row in out.splitlines() if row.split()[:1] == [task.name]]
        assert line.split()[1] == (str(len(task.labels)) if task.labels else "open")
        assert ("offline" in line) == task.offline


def test_one_task(command):
    code, out, _ = command("tasks", "reviews")
    assert code == 0
    assert out == "Review: {text}\nSentiment: {label}\nlabels: Negative, Positive\n"


def test_an_unknown_task(command):
    code, out, err = command("tasks", "revews")
    assert (code, out) == (1, "")
    WORDS.starts(err, "unknown_task", "'revews'", "'reviews'")
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["[/x]", "[red]x", "[bold]"])
def test_brackets_in_messages_are_text(command, name):
    code, _, err = command("tasks", name)
    assert code == 1
    WORDS.starts(err, "brackets", repr(name))


def test_no_command_shows_help(command):
    _, out, err = command()
    shown = out + err
    for name in ("demo", "analyze", "measure", "prompts", "show", "page", "models", "tasks"):
        assert name in shown


def test_an_unknown_option(command):
    code, out, err = command("analyze", "--shot", 2)
    assert code == 2
    assert "--shot" in out + err


def test_analyze_writes_results_and_page(command, table, tmp_path):
    out = tmp_path / "runs" / "films"
    code, printed, _ = command("analyze", "--out", out, *own_data(table))
    assert code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == [
        "analysis.json", "flow", "gain", "index.html", "predictions", "prompts.json", "saliency_maps",
        "untrained", "untrained_flow",
    ]  # fmt: skip
    assert [path.name for path in out.parent.iterdir()] == ["films"]

    found = icl.Analysis.load(out)
    WORDS.exactly(found.title, "analyze_writes_results_page", "2", "4")
    assert printed.startswith(found.summary())
    assert f"Results: {out}" in printed
    assert f"Page: {out / 'index.html'}" in printed
    assert (
        "<h1>How does information flow in tiny_gpt2 on films?</h1>"
        in (out / "index.html").read_text()
    )

    model = icl.load_model(str(MODEL))
    task = icl.load_task(
        table,
        template="Review: {text}\nSentiment: {label}",
        labels=["Negative", "Positive"],
        text_column="sentence",
        label_column="verdict",
    )
    prompts = icl.build_prompts(task, model, shots=2, n=4, demonstrations="per_prompt")
    again = icl.analyze(model, prompts)
    assert found.summary() == again.summary()
    assert again.flow.provenance["prompts"] == found.flow.provenance["prompts"]


@pytest.mark.slow
def test_analyze_replaces_an_older_analysis_if_told_so(command, table, tmp_path):
    out = tmp_path / "films"
    assert command(*options(table, out))[0] == 0
    first = icl.Analysis.load(out)
    (out / "notes.txt").write_text("mine")
    (out / "flow" / "notes.txt").write_text("mine")
    before = contents(out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icl, "load_model", lambda *_, **__: pytest.fail("the model was loaded"))
        code, printed, err = command(*options(table, out))
        assert (code, printed) == (1, "")
        assert "--overwrite" in err
        assert contents(out) == before
        page = (out / "index.html").read_bytes()
        (out / "index.html").write_bytes(page + b"my remarks")
        code, printed, err = command(*options(table, out), "--overwrite")
        assert (code, printed) == (1, "")
        WORDS(err, "analyze_replaces_older_analysis")
        (out / "index.html").write_bytes(page)
    again = ("--overwrite", "--loss", "vocab", "--seed", 1)
    assert command(*options(table, out), *again)[0] == 0
    after = contents(out)
    assert after.keys() == before.keys()
    assert after["notes.txt"] == after["flow/notes.txt"] == b"mine"
    assert after["index.html"] != before["index.html"]
    second = icl.Analysis.load(out)
    assert second.flow.provenance["variants"]["loss"] == "vocab"
    assert first.flow.provenance["prompts"]["seed"] == 0
    assert second.flow.provenance["prompts"]["seed"] == 1


@pytest.mark.slow
def test_without_a_folder_runs_are_numbered(command, table, tmp_path, monkeypatch):
    def quickly(model, prompts, *, progress=None, **_):
        return icl.measure(model, prompts, Predict(), progress=progress)

    monkeypatch.setattr(icl, "analyze", quickly)
    monkeypatch.chdir(tmp_path)
    given = ["analyze", *own_data(table)]
    (tmp_path / "runs" / "analysis-2").mkdir(parents=True)
    (tmp_path / "runs" / "analysis-2" / "mine.txt").write_text("mine")
    for number, name in ((0, "analysis"), (1, "analysis-3")):
        code, printed, _ = command(*given, "--seed", number)
        assert code == 0
        assert f"Results: {tmp_path / 'runs' / name}\n" in printed
        found = icl.Analysis.load(tmp_path / "runs" / name)
        assert found.predictions.provenance["prompts"]["seed"] == number
    with Folder(tmp_path / "runs" / "analysis-4"):  # another run that has not finished
        assert command(*given)[0] == 0
    assert icl.Analysis.load(tmp_path / "runs" / "analysis-5")
    assert command(*given, "--shots", 99)[0] == 1
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert command(*given, "--seed", 7, "--overwrite")[0] == 0
    found = icl.Analysis.load(tmp_path / "runs" / "analysis")
    assert found.predictions.provenance["prompts"]["seed"] == 7


def test_a_failed_analysis_leaves_the_older_one(command, table, tmp_path):
    out = tmp_path / "films"
    assert command(*options(table, out))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, err = command(*options(table, out), "--shots", 99, "--overwrite")
    assert code == 1
    assert "the requested --shots 99" in err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("below", ["", "results"])
def test_an_output_that_cannot_be_written_is_found_before_the_model_is_loaded(
    command, table, tmp_path, monkeypatch, below
):
    monkeypatch.setattr(icl, "load_model", lambda *_, **__: pytest.fail("the model was loaded"))
    blocked = tmp_path / "file"
    blocked.write_text("mine")
    code, out, err = command(*options(table, blocked / below))
    assert (code, out) == (1, "")
    WORDS.starts(err, "output_cannot_written_found")
    assert blocked.read_text() == "mine"


def test_an_output_folder_with_other_files(command, table, tmp_path):
    code, _, err = command(*options(table, tmp_path))  # the table lies there
    assert code == 1
    WORDS(err, "output_folder_other_files")
    assert table.is_file()


def test_options_for_ones_own_data(command, tmp_path, monkeypatch):
    given = {}
    task = icl.load_task("headlines")
    monkeypatch.setattr(icl, "load_task", lambda name, **options: given.update(options) or task)
    monkeypatch.setattr(job, "built_prompts", lambda *_, **__: sys.exit(0))
    command(
        *("analyze", "--task", "films/small", "--model", MODEL, "--out", tmp_path / "out"),
        *("--label-map", "pos=Positive, neg = Negative", "--labels-as", "names"),
        *("--train-split", "fit", "--test-split", "held", "--config", "c", "--overlap", "keep"),
        *("--test-path", "held.csv", "--test-fraction", 0.25, "--text2-column", "sentence2"),
    )
    assert given == {
        "answers": None, "other_answers": None, "rationale": None,
        "template": None, "labels": None, "prompt_format": None,
        "text_column": "text", "text2_column": "sentence2", "label_column": "label",
        "label_map": {"pos": "Positive", "neg": "Negative"}, "labels_as": "names",
        "test_path": "held.csv", "test_fraction": 0.25,
        "train_split": "fit", "test_split": "held", "config": "c", "overlap": "keep",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the random model may give one class only
@pytest.mark.parametrize(
    "offline", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["small", "offline"]
)
def test_demo(command, monkeypatch, tmp_path, offline):
    if not offline:
        model = small_model()
        monkeypatch.setattr(icl, "load_model", lambda: model)
    n = () if offline else ("--n", 6)
    code, out, _ = command("demo", "--out", tmp_path / "demo", *n)
    assert code == 0
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert f"Page: {tmp_path / 'demo' / 'index.html'}" in out
    # Whether the task is done, whether demonstrations help, and two claims.
    assert page.index(QUESTION) < page.index("Reading:</b>") < page.index("Deep extraction:</b>")
    WORDS(page, "demo", "SmolLM2-135M-Instruct" if offline else "LlamaForCausalLM")
    for line in NEXT.splitlines():
        assert line in out
    if offline:  # what the README shows
        readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
        assert out.splitlines()[0].removeprefix("Yes: ") in readme
