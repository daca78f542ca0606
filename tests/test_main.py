"""The command line, called as the installed command calls it."""

import csv
import sys
from pathlib import Path

import pytest
from rich.console import Console

import icl_mech as icl
from icl_mech import __main__
from icl_mech.models import known_models
from icl_mech.results import Folder
from icl_mech.tasks import known_tasks
from tests.saved import contents

MODEL = Path(__file__).parent / "golden" / "label_words" / "tiny_gpt2"


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command; gives exit code, output and errors."""
    monkeypatch.setattr(__main__, "console", Console(width=200))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["icl-mech", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            __main__.main()
        done = capsys.readouterr()
        return end.value.code or 0, done.out, done.err

    return run


@pytest.fixture
def table(tmp_path):
    """Twelve rows in columns of other names."""
    path = tmp_path / "films.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sentence", "verdict"])
        for i in range(6):
            writer.writerow([f"a fine film, number {i}", "Positive"])
            writer.writerow([f"a dull plot, number {i}", "Negative"])
    return path


def options(table, out):
    return [
        *("analyze", "--model", MODEL, "--task", table, "--out", out, "--n", 4, "--shots", 2),
        *(
            "--template",
            "Review: {text}\\nSentiment:{label}",
            "--label-words",
            "Negative, Positive",
        ),
        *("--text-column", "sentence", "--label-column", "verdict"),
    ]


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
        assert line.split()[1] == str(len(task.labels))
        assert ("offline" in line) == task.offline


def test_one_task(command):
    code, out, _ = command("tasks", "reviews")
    assert code == 0
    assert out == "Review: {text}\nSentiment:{label}\nlabels: Negative, Positive\n"


def test_an_unknown_task(command):
    code, out, err = command("tasks", "revews")
    assert (code, out) == (1, "")
    assert err.startswith("Error: Unknown task 'revews'. Did you mean 'reviews'")
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["[/x]", "[red]x", "[bold]"])
def test_brackets_in_messages_are_text(command, name):
    code, _, err = command("tasks", name)
    assert code == 1
    assert err.startswith(f"Error: Unknown task {name!r}.")


def test_no_command_shows_help(command):
    _, out, err = command()
    shown = out + err
    for name in ("demo", "analyze", "models", "tasks"):
        assert name in shown


def test_an_unknown_option(command):
    code, out, err = command("analyze", "--shot", 2)
    assert code == 2
    assert "--shot" in out + err


def test_analyze_writes_results_and_page(command, table, tmp_path):
    out = tmp_path / "runs" / "films"
    code, printed, _ = command(*options(table, out))
    assert code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == ["analysis.json", "flow", "index.html", "predictions", "saliency"]
    assert [path.name for path in out.parent.iterdir()] == ["films"]

    found = icl.load_analysis(out)
    assert found.title == "tiny_gpt2 on films (4 prompts)"
    assert printed.startswith(found.summary())
    assert f"Results: {out}" in printed
    assert f"Page: {out / 'index.html'}" in printed
    assert "<h1>tiny_gpt2 on films (4 prompts)</h1>" in (out / "index.html").read_text()

    model = icl.load_model(str(MODEL))
    task = icl.load_task(
        table,
        template="Review: {text}\nSentiment:{label}",
        labels=["Negative", "Positive"],
        text_column="sentence",
        label_column="verdict",
    )
    again = icl.analyze(model, icl.build_prompts(task, model, shots=2, n=4))
    assert found.summary() == again.summary()
    assert again.flow.provenance["prompts"] == found.flow.provenance["prompts"]


def test_analyze_replaces_an_older_analysis_if_told_so(command, table, tmp_path):
    out = tmp_path / "films"
    assert command(*options(table, out))[0] == 0
    first = icl.load_analysis(out)
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
        assert "index.html was not written by icl_mech, or was changed" in err
        (out / "index.html").write_bytes(page)
    again = ("--overwrite", "--loss", "vocab", "--seed", 1)
    assert command(*options(table, out), *again)[0] == 0
    after = contents(out)
    assert after.keys() == before.keys()
    assert after["notes.txt"] == after["flow/notes.txt"] == b"mine"
    assert after["index.html"] != before["index.html"]
    second = icl.load_analysis(out)
    assert second.flow.provenance["variants"]["loss"] == "vocab"
    assert first.flow.provenance["prompts"]["seed"] == 0
    assert second.flow.provenance["prompts"]["seed"] == 1


def test_without_a_folder_runs_are_numbered(command, table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = options(table, "nowhere")
    del given[given.index("--out") : given.index("--n")]
    (tmp_path / "runs" / "analysis-2").mkdir(parents=True)
    (tmp_path / "runs" / "analysis-2" / "mine.txt").write_text("mine")
    for number, name in ((0, "analysis"), (1, "analysis-3")):
        code, printed, _ = command(*given, "--seed", number)
        assert code == 0
        assert f"Results: {tmp_path / 'runs' / name}\n" in printed
        found = icl.load_analysis(tmp_path / "runs" / name)
        assert found.flow.provenance["prompts"]["seed"] == number
    with Folder(tmp_path / "runs" / "analysis-4"):  # another run that has not finished
        assert command(*given)[0] == 0
    assert icl.load_analysis(tmp_path / "runs" / "analysis-5")
    assert command(*given, "--shots", 99)[0] == 1
    assert len(list((tmp_path / "runs").iterdir())) == 4
    assert command(*given, "--seed", 7, "--overwrite")[0] == 0
    found = icl.load_analysis(tmp_path / "runs" / "analysis")
    assert found.flow.provenance["prompts"]["seed"] == 7


def test_a_failed_analysis_leaves_the_older_one(command, table, tmp_path):
    out = tmp_path / "films"
    assert command(*options(table, out))[0] == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    code, _, err = command(*options(table, out), "--shots", 99, "--overwrite")
    assert code == 1
    assert "shots=99" in err
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
    assert err.startswith("Error: Cannot write to ")
    assert blocked.read_text() == "mine"


def test_an_output_folder_with_other_files(command, table, tmp_path):
    code, _, err = command(*options(table, tmp_path))  # the table lies there
    assert code == 1
    assert "it holds other files" in err
    assert table.is_file()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--reduction", "sum", "reduction='sum'. Known: abs_then_sum, sum_then_abs"),
        ("--model", "gtp2", "Unknown model 'gtp2'. Did you mean 'gpt2'"),
        ("--task", "missing.csv", "No file or folder 'missing.csv'"),
        ("--template", "Review: {text}", "{label}"),
        ("--text-column", "text", "has no column 'text'; it has 'sentence', 'verdict'"),
        ("--loss", "labels", "loss='labels'. Did you mean 'label'"),
        ("--device", "gpu", "Unknown device 'gpu'"),
        ("--dtype", "float8", "Unknown or unusable dtype 'float8'"),
        ("--label-map", "Positive", "--label-map 'Positive'; write value=Label word"),
        ("--label-map", "a=Positive,b=Negative", "label_map= has no 'Positive'"),
        ("--labels-as", "name", "labels_as='name'. Did you mean 'names'"),
        ("--overlap", "drop", "overlap='drop'. Known: avoid, keep, refuse"),
        ("--test-split", "dev", "is a file, so test_split= would have no effect"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_mistakes_are_one_message(command, table, tmp_path, option, value, message):
    code, out, err = command(*options(table, tmp_path / "out"), option, value)
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    assert message in err
    assert not (tmp_path / "out").exists()


def test_options_for_ones_own_data(command, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(__main__, "load_task", lambda task, **options: given.update(options))
    command(
        *("analyze", "--task", "films/small", "--model", "none", "--out", tmp_path / "out"),
        *("--label-map", "pos=Positive, neg = Negative", "--labels-as", "names"),
        *("--train-split", "fit", "--test-split", "held", "--config", "c", "--overlap", "keep"),
    )
    assert given == {
        "template": None, "labels": None, "text_column": "text", "label_column": "label",
        "label_map": {"pos": "Positive", "neg": "Negative"}, "labels_as": "names",
        "train_split": "fit", "test_split": "held", "config": "c", "overlap": "keep",
    }  # fmt: skip


@pytest.mark.slow
def test_demo(command, tmp_path):
    code, out, _ = command("demo", "--out", tmp_path / "demo", "--n", 6)
    assert code == 0
    for name in ("reviews", "headlines", "questions"):
        (line,) = [row for row in out.splitlines() if row.startswith(name)]
        assert "first third of layers" in line
    page = (tmp_path / "demo" / "index.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") == 4
    assert "Label words are anchors" in page
