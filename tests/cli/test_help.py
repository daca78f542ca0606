"""Help, version, completion, examples."""

import json
import re
import shlex
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from icl_mech.cli import app, options
from icl_mech.cli.measure import measurable
from icl_mech.engine import readings
from icl_mech.measurements.saliency import reduction
from icl_mech.metrics import layers
from icl_mech.models import Quantization, known_models
from icl_mech.prompts import drawing, splitting
from icl_mech.studies import nulls, study
from icl_mech.tasks import known_tasks
from tests.said import Words

WORDS = Words(__file__)

analyze = import_module("icl_mech.cli.analyze")
ROOT = Path(__file__).parent.parent.parent
COMMANDS = ("demo", "analyze", "prompts", "show", "page", "models", "tasks")
EVERY = [(), *((name,) for name in COMMANDS), *(("measure", name) for name in measurable())]


def test_version(command):
    code, out, err = command("--version")
    assert (code, err) == (0, "")
    assert out.startswith(f"icl-mech {version('icl-mech')} (")
    assert f"transformer-lens {version('transformer-lens')}" in out


def test_both_flags_show_help(command):
    assert command("measure", "flow", "--help") == command("measure", "flow", "-h")


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_help(command, words):
    code, out, err = command(*words, "-h")
    assert (code, err) == (0, "")
    assert "Examples" in out
    WORDS(" ".join(out.split()), "help", "0", "1", "2")


def test_help_does_not_wait_for_libraries():
    code = (
        "import sys\nfrom icl_mech.__main__ import main\n"
        "for words in sys.argv[1:]:\n"
        "    sys.argv = ['icl-mech', *words.split()]\n"
        "    try:\n        main()\n    except SystemExit:\n        pass\n"
        "print([own for own in ('torch', 'transformer_lens', 'transformers') if own in sys.modules])"
    )
    root = typer.main.get_command(app)
    calls = ["--help", *(f"{name} --help" for name in root.commands if name != "measure")]
    assert len(calls) > 10
    done = subprocess.run([sys.executable, "-c", code, *calls], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stdout.count("Usage:") == len(calls)


def test_words_of_options_are_those_of_the_package():
    own = [name for name, one in study.known_studies().items() if study.is_own(one)]
    assert list(analyze.STUDIES) == own
    assert options.Demonstrations == drawing.Demonstrations
    assert options.Quantization == Quantization
    assert options.Unit == splitting.Unit
    assert analyze.Loss == readings.Loss
    assert analyze.Reduction == reduction.Reduction
    assert analyze.HALF == layers.HALF
    assert analyze.NULLS == nulls.PREFIX
    assert study.DEFAULT == "default"


def test_help_is_in_panels(command):
    _, out, _ = command("measure", "isolation", "-h")
    for panel in ("Variants", "Model", "Task", "Your own data", "Prompts", "How to run"):
        assert f"─ {panel} ─" in out
    assert out.index("Variants") < out.index("─ Model ─")


def completed(words):
    """What the shell would offer for the last word."""
    done = CliRunner().invoke(
        app,
        prog_name="icl-mech",
        env={
            "_ICL_MECH_COMPLETE": "complete_bash",
            "COMP_WORDS": shlex.join(["icl-mech", *words]).replace("''", ""),
            "COMP_CWORD": str(len(words)),
        },
    )
    return set(done.output.split())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["an"], {"analyze"}),
        (["analyze", "--study", "la"], {"label_words"}),
        (["analyze", "--model", "gpt2-"], {m.name for m in known_models() if "gpt2-" in m.name}),
        (["analyze", "--task", "he"], {"headlines"}),
        (["tasks", "ot-"], {t.name for t in known_tasks() if t.name.startswith("ot-")}),
        (["measure", "isolation-"], {"isolation-map"}),
        (["measure", "isolation", "--mode", "z"], {"zero"}),
        (["measure", "isolation", "--dep"], {"--depths"}),
    ],
)
def test_completion(words, offered):
    assert completed(words) == offered


def test_models_and_tasks_as_json(command):
    models = json.loads(command("models", "--json")[1])
    assert [own["name"] for own in models] == [known.name for known in known_models()]
    tasks = json.loads(command("tasks", "--json")[1])
    assert [own["name"] for own in tasks] == [known.name for known in known_tasks()]
    (one,) = json.loads(command("tasks", "reviews", "--json")[1])
    assert one == next(own for own in tasks if own["name"] == "reviews")


def written_commands():
    """Commands of the docs and of the help's examples."""
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(
            r"```(?:bash|text)\n(.*?)```", file.read_text(encoding="utf-8"), re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("icl-mech "):
                    yield line
    root = typer.main.get_command(app)
    for own in (root, *root.commands.values(), *root.commands["measure"].commands.values()):
        for line in (own.epilog or "").split("\n\n"):
            if line.strip().startswith("icl-mech "):
                yield line.strip()


WRITTEN = list(dict.fromkeys(written_commands()))


def test_there_are_written_commands():
    assert len(WRITTEN) > 25


@pytest.mark.parametrize("line", WRITTEN)
def test_a_written_command_can_be_read(line, tmp_path, monkeypatch):
    """Every word of it is known; the command itself is not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "heads.json").write_text("[]")
    (tmp_path / "my.txt").write_text("One. Two.")
    _, *words = shlex.split(line, comments=True)
    own = typer.main.get_command(app)
    while hasattr(own, "commands") and words and not words[0].startswith("-"):
        own = own.commands[words.pop(0)]
    values = [word for word in words if word not in ("-h", "--help", "--version")]
    if "--install-completion" not in values and values:
        with own.make_context("icl-mech", values):
            pass
