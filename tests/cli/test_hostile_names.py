"""Names that no file can have, and folders that are not there, at every door of the command line that takes one."""

import sys
from io import BytesIO, TextIOWrapper

import pytest

from icl_mech.cli import main
from tests.cli.conftest import MODEL
from tests.said import Words

WORDS = Words(__file__)

NAMES = {
    "too long": "a" * 300,
    "no UTF-8": "\udcff",
    "half a pair": "\ud800",
    "a zero": "a\0b",
    "nobody's home": "~nobody-of-this-name/runs",
    "in a device": "/dev/null/runs",
    "nothing": "",
}

DOORS = (
    "show NAME",
    "page NAME",
    "export NAME --out paper",
    "compare NAME NAME",
    "atlas add NAME --atlas atlas",
    "atlas build NAME --out site",
    "sweep NAME --out runs",
    "sweep study.yaml --out NAME --dry-run",
    "power NAME",
    "reproduce NAME",
    "reproduce lw-table-1 --tasks NAME --model gpt2 --out runs --dry-run",
    "reproduce lw-table-1 --tasks offline --model NAME --out runs --dry-run",
    "prompts --task NAME",
    "prompts --task reviews --model NAME",
    "prompts --task reviews --template NAME",
    "tasks NAME",
    "analyze --task reviews --model NAME",
    "analyze --task reviews --model MODEL --measurement NAME",
    "analyze --texts NAME --model MODEL",
    "measure flow --task reviews --model MODEL --interventions NAME",
    "measure flow --task NAME --model MODEL",
)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", NAMES)
def test_a_name_is_refused_in_words(command, no_weights, tmp_path, monkeypatch, door, kind):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(f"models: {MODEL}\ntasks: []\nmeasurements: [flow]\n")
    words = [
        word.replace("NAME", NAMES[kind]).replace("MODEL", str(MODEL)) for word in door.split()
    ]
    code, _, errors = command(*words)
    assert code in (1, 2)
    assert "Traceback" not in errors
    assert "Error" in errors or "Usage" in errors


@pytest.mark.parametrize("option", ["--label-words", "--template", "--narrative"])
def test_half_a_surrogate_pair_is_no_text(command, no_weights, option):
    text = f"{{text}} {{label}} {NAMES['half a pair']}, good"
    code, _, errors = command("prompts", "--task", "reviews", f"{option}={text}")
    assert code in (1, 2)
    assert "Error" in errors or "Usage" in errors


@pytest.mark.parametrize("kind", ["too long", "in a device"])
def test_a_copy_that_cannot_be_written(command, kind):
    code, _, errors = command("reproduce", "lw-table-1", "--copy", f"{NAMES[kind]}.yaml")
    assert code == 1
    WORDS(errors, "not_written")


def test_a_copy_makes_its_folder(command, tmp_path):
    file = tmp_path / "new" / "folder" / "mine.yaml"
    assert command("reproduce", "lw-table-1", "--copy", file)[0] == 0
    assert file.read_text() == command("reproduce", "lw-table-1", "--show")[1]


def test_signs_that_a_terminal_has_not_end_no_command(monkeypatch):
    terminal = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "argv", ["icl-mech", "reproduce", "lw-table-1", "--show"])
    with pytest.raises(SystemExit) as end:
        main()
    terminal.flush()
    assert not end.value.code
    assert b"\\xa7" in terminal.buffer.getvalue()  # the paragraph sign of "table 1 (§3.1)"
