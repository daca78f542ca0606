"""The command line, called as the installed command calls it, on a tiny model from files."""

import csv
import sys
from pathlib import Path

import pytest

import icl_mech as icl
from icl_mech.cli import main

MODEL = Path(__file__).parent.parent / "golden" / "label_words" / "tiny_gpt2"


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs the command; gives exit code, output and errors."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["icl-mech", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
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


@pytest.fixture
def no_model(monkeypatch):
    """Loading a model, its tokenizer too, fails the test."""

    def fail(*_, **__):
        pytest.fail("the model was loaded")

    monkeypatch.setattr(icl, "load_model", fail)
    monkeypatch.setattr("icl_mech.models.loading.load_tokenizer", fail)


@pytest.fixture
def no_weights(monkeypatch):
    """Loading a model fails the test; its tokenizer may be loaded."""
    monkeypatch.setattr(icl, "load_model", lambda *_, **__: pytest.fail("the model was loaded"))


def own_data(table):
    """Options of the tiny model and the twelve rows."""
    return [
        *("--model", MODEL, "--task", table, "--n", 4, "--shots", 2),
        *("--template", "Review: {text}\\nSentiment: {label}"),
        *("--label-words", "Negative, Positive"),
        *("--text-column", "sentence", "--label-column", "verdict"),
    ]
