"""What a run leaves: folder, page, JSON, the command; interrupted and resumed runs."""

import json

import pytest

import icl_mech as icl
from icl_mech.cli import job
from icl_mech.cli.job import without_place
from tests.cli.conftest import MODEL, own_data
from tests.said import Words
from tests.saved import contents

WORDS = Words(__file__)


@pytest.fixture
def run(command, table, tmp_path):
    """A finished run of one measurement."""
    folder = tmp_path / "run"
    code, _, err = command("measure", "predictions", *own_data(table), "--out", folder)
    assert (code, err) == (0, "")
    return folder


def test_show(command, run):
    code, out, err = command("show", run)
    assert (code, err) == (0, "")
    assert out == icl.Analysis.load(run).summary() + "\n"


def test_show_as_json(command, run):
    document = json.loads(command("show", run, "--json")[1])
    saved = icl.Analysis.load(run)
    assert document["title"] == saved.title
    own = document["results"]["predictions"]
    assert own["summary"] == saved.predictions.summary()
    interval = saved.predictions.interval()
    first = own["quantities"]["accuracy"]
    assert (first["value"], first["low"], first["high"]) == (
        interval.value, interval.low, interval.high,
    )  # fmt: skip


@pytest.mark.slow
def test_verdicts_on_the_claims_of_a_study_are_told(command, table, tmp_path):
    given = ["analyze", *own_data(table), "--study", "contextualise", "--out", tmp_path / "run"]
    code, out, err = command(*given)
    assert (code, err) == (0, "")
    verdicts = icl.Analysis.load(tmp_path / "run").verdicts()
    lines = [f"  {own.status:<16} {own.claim.partition(':')[0]}: {own.line}" for own in verdicts]
    assert lines
    told = "\n".join(["Claims", *lines])
    assert told in out
    assert told in command("show", tmp_path / "run")[1]
    document = json.loads(command("show", tmp_path / "run", "--json")[1])
    assert [(own["claim"], own["status"], own["line"]) for own in document["verdicts"]] == [
        (own.claim, own.status, own.line) for own in verdicts
    ]


def test_files_are_not_replaced_in_words_of_the_command_line(command, table, run):
    code, _, err = command("measure", "predictions", *own_data(table), "--out", run)
    assert code == 1
    assert "or give --overwrite, which replaces" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "study yaml empty"), ("models: [a]\ntasks: [b]\nseeds: [a, b]", "seeds a")],
)
def test_files_of_sweeps_are_refused_by_name(command, tmp_path, text, said):
    (tmp_path / "study.yaml").write_text(text)
    code, out, err = command("sweep", tmp_path / "study.yaml", "--out", tmp_path / "out")
    assert (code, out) == (1, "")
    WORDS(err, said)


@pytest.mark.parametrize("name", ["show", "page"])
def test_a_folder_without_a_run(command, tmp_path, name):
    code, out, err = command(name, tmp_path)
    assert (code, out) == (1, "")
    WORDS(err, "folder_without_run")


@pytest.mark.slow
def test_page_of_a_saved_run(command, run, tmp_path, request):
    request.getfixturevalue("no_model")  # from here on
    (run / "index.html").unlink()
    code, out, err = command("page", run)
    assert (code, err) == (0, "")
    assert out == f"Page: {run / 'index.html'}\n"
    assert (run / "index.html").is_file()
    other = tmp_path / "page.html"
    other.write_text("mine")
    code, out, err = command("page", run, "--out", other)
    assert (code, out, other.read_text()) == (1, "", "mine")
    assert command("page", run, "--out", other, "--overwrite")[0] == 0
    assert other.read_text().startswith("<!doctype html>")


def test_quiet_prints_the_folder_only(command, table, tmp_path):
    folder = tmp_path / "run"
    given = ("measure", "predictions", *own_data(table), "--out", folder)
    assert command(*given, "--quiet") == (0, f"{folder}\n", "")


def test_json_holds_the_command_without_what_goes_without_saying(command, table, tmp_path):
    folder = tmp_path / "run"
    code, out, err = command(
        *("measure", "predictions", *own_data(table), "--out", folder, "--json", "--seed", 0),
        *("--no-balanced", "--batch-size", 2),
    )
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["folder"] == str(folder)
    assert document["page"] == str(folder / "index.html")
    assert document["command"] == (
        f"icl-mech measure predictions --model {without_place(str(MODEL))} "
        f"--task {without_place(str(table))} "
        r"--template 'Review: {text}\nSentiment: {label}' --label-words 'Negative, Positive' "
        "--text-column sentence --label-column verdict --shots 2 --n 4 --no-balanced "
        "--batch-size 2"
    )


def test_an_interrupted_run_says_that_nothing_was_written(command, table, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(icl, "analyze", interrupt)
    before = contents(tmp_path)
    code, out, err = command("analyze", *own_data(table), "--out", tmp_path / "run")
    assert (code, out) == (130, "")
    WORDS.starts(err, "interrupted_run_says_nothing")
    assert "--resume" in err
    assert contents(tmp_path) == before
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_run_is_resumed(command, table, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    given = ("measure", "predictions", *own_data(table), "--out", folder, "--resume")
    real = icl.measure

    def finished_then_interrupted(*arguments, **options):
        real(*arguments, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icl, "measure", finished_then_interrupted)
        code, out, err = command(*given)
    assert (code, out) == (130, "")
    WORDS.starts(err, "run_interrupted", folder)
    kept = contents(folder / "predictions")
    code, out, err = command(*given)
    assert (code, err) == (0, "")
    assert contents(folder / "predictions") == kept
    assert (folder / "index.html").is_file()
    assert command(*given)[0] == 0  # once more: nothing is left to do, the page is replaced


def test_prompts_are_those_of_the_tokenizer_alone(table):
    options = job.PromptOptions(n=4, shots=2)
    task = icl.load_task("reviews")
    model = job.loaded_model(job.ModelOptions(str(MODEL)), quiet=True)
    tokenizer = job.loaded_tokenizer(job.ModelOptions(str(MODEL)), quiet=True)
    one, other = (
        job.built_prompts(task, given, options, pair=False) for given in (model, tokenizer)
    )
    assert one.digest == other.digest
    assert tokenizer.model_max_length == model.cfg.n_ctx


# --- dry runs ---


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("icl_mech.engine.trials.SECONDS", 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("analyze", "--nulls", 0), ("measure", "flow")])
def test_a_dry_run_says_what_it_costs_and_writes_nothing(command, table, tmp_path, short, words):
    folder = tmp_path / "run"
    code, out, err = command(*words, *own_data(table), "--out", folder, "--dry-run")
    assert (code, err) == (0, "")
    assert "rows     " in out
    assert "fits" in out
    assert not folder.exists()
    code, out, _ = command(*words, *own_data(table), "--dry-run", "--json")
    (own,) = json.loads(out)["items"]
    assert code == 0
    assert own["prompts"] == 4
    assert own["rows"]["backward"] > 0
    assert own["fits"]


@pytest.mark.slow
def test_a_dry_run_that_does_not_fit_ends_with_1(command, table, short, monkeypatch):
    monkeypatch.setattr("icl_mech.studies.forecast.free_memory", lambda _: -(10**12))
    code, out, _ = command("measure", "flow", *own_data(table), "--dry-run")
    assert code == 1
    assert "DOES NOT FIT" in out


def test_a_dry_run_refuses_what_the_run_would(command, table, short):
    words = ("measure", "isolation", *own_data(table), "--depths", 99)
    code, out, err = command(*words, "--dry-run")
    assert (code, out) == (1, "")
    assert err == command(*words)[2]
    assert "99" in err


@pytest.mark.slow
def test_a_dry_run_of_a_sweep(command, tmp_path, short):
    file = tmp_path / "study.yaml"
    file.write_text(
        f"models: {MODEL}\ntasks: [reviews]\nmeasurements: [flow]\nseeds: [0, 1, 2]\nn: 4\n"
    )
    code, out, err = command("sweep", file, "--out", tmp_path / "runs", "--dry-run")
    assert (code, err) == (0, "")
    WORDS(out, "dry_run_sweep", "0", "4", "3")
    assert "3 runs: about" in out
    assert not (tmp_path / "runs").exists()
