"""What commands are made of: groups of options, the line to copy, what is printed and where."""

import json
import shlex
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

from icl_mech import Analysis
from icl_mech.cli.console import (
    EXIT_CODE,
    draw,
    error_line,
    interruptible,
    note,
    say,
    say_json,
    waiting,
)
from icl_mech.cli.job import command_line, without_place
from icl_mech.cli.options import grouped
from icl_mech.studies.analysis import described, result_values
from tests.measurements.saliency.test_null import known
from tests.planted_results import found_of, heads_of
from tests.said import Words

WORDS = Words(__file__)

# --- groups of options and the line to copy ---


@dataclass(frozen=True)
class Source:
    name: Annotated[str, typer.Option(help="Which one.")]
    size: int = 3


@dataclass(frozen=True)
class Output:
    out: str | None = None
    balanced: bool = True
    quiet: bool = False
    kind: Annotated[Literal["a", "b"], typer.Option("-k", "--kind")] = "a"


SEEN: dict[str, Any] = {}


@grouped
def show(context: Any, source: Source, output: Output, json: bool = False) -> None:
    """Shows a source.

    And more.
    """
    SEEN.update(source=source, output=output, json=json, line=command_line(context))


@pytest.fixture
def run():
    app = typer.Typer()

    @app.callback()
    def above() -> None:
        """Commands."""

    group = typer.Typer()
    group.command("show")(show)
    app.add_typer(group, name="group")
    SEEN.clear()

    def call(*words):
        return CliRunner().invoke(app, ["group", "show", *words], prog_name="icl-mech")

    return call


def test_groups_are_taken_apart_and_put_together(run):
    assert run("--name", "x", "--size", "5", "--no-balanced", "-k", "b").exit_code == 0
    assert SEEN["source"] == Source("x", 5)
    assert SEEN["output"] == Output(balanced=False, kind="b")
    assert SEEN["json"] is False
    assert run("--name", "y", "--json").exit_code == 0
    assert (SEEN["source"], SEEN["output"], SEEN["json"]) == (Source("y"), Output(), True)


def test_fields_without_a_default_are_needed_and_words_are_checked(run):
    assert run().exit_code == 2
    assert run("--name", "x", "--kind", "c").exit_code == 2
    assert run("--name", "x", "--size", "many").exit_code == 2
    assert not SEEN


def test_the_help_is_that_of_function_and_fields(run):
    text = run("--help").output
    WORDS(text, "help_function_fields")
    assert "Which one." in text
    assert text.index("--name") < text.index("--size") < text.index("--balanced")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--name", "x"], "--name x"),
        (["--size", "3", "--name", "x"], "--name x"),
        (["--size", "4", "--name", "a b'c"], "--name 'a b'\"'\"'c' --size 4"),
        (["--name", "x", "--no-balanced", "--balanced"], "--name x"),
        (["--name", "x", "--no-balanced", "-k", "b"], "--name x --no-balanced --kind b"),
        (["--name", "x", "--out", "here", "--quiet", "--json"], "--name x"),
    ],
)
def test_the_line_holds_what_does_not_go_without_saying(run, words, line):
    assert run(*words).exit_code == 0
    WORDS.exactly(SEEN["line"], "line_holds_what_go", line)
    # Copied, it does the same.
    first = dict(SEEN)
    assert run(*shlex.split(SEEN["line"])[3:]).exit_code == 0
    assert SEEN["source"] == first["source"]
    assert (SEEN["output"].balanced, SEEN["output"].kind) == (
        first["output"].balanced,
        first["output"].kind,
    )


# --- what is printed ---


def test_results_are_printed_as_they_are(capsys):
    text = "[red]not markup[/red] " + "long " * 60
    say(text)
    say_json({"a": [1, float("nan")], "é": np.float32(2.5)})
    out, err = capsys.readouterr()
    first, _, rest = out.partition("\n")
    assert first == text
    assert err == ""
    assert json.loads(rest) == {"a": [1, None], "é": 2.5}
    assert "é" in rest


@pytest.mark.parametrize(("write", "before"), [(note, ""), (error_line, "Error: ")])
def test_what_is_beside_results_is_one_line_on_standard_error(capsys, write, before):
    text = "/a/[b]/c.csv holds [1, 2] " + "and more " * 60
    write(text)
    assert capsys.readouterr() == ("", f"{before}{text}\n")


def test_drawn_parts_are_results(capsys):
    draw("one", "two")
    assert capsys.readouterr() == ("one\ntwo\n", "")


@pytest.mark.parametrize("quiet", [False, True])
def test_waiting_writes_nothing_where_nothing_turns(capsys, quiet):
    with waiting("loading [x]", quiet=quiet):
        say("inside")
    assert capsys.readouterr() == ("inside\n", "")


def test_an_interruption_is_one_line_and_a_code(capsys):
    with pytest.raises(typer.Exit) as end, interruptible("All is kept in [a]."):
        raise KeyboardInterrupt
    assert end.value.exit_code == EXIT_CODE == 130
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    WORDS.exactly(err, "interruption", "All is kept in [a].")
    with pytest.raises(ValueError, match="other"), interruptible(""):
        raise ValueError("other")
    with interruptible("x"):
        pass
    assert capsys.readouterr().err == ""


# --- a run as plain values ---


def test_results_as_plain_values():
    """Every cell with its axes and ends, ready for JSON."""
    found = known()
    analysis = Analysis({"flow": found}, "t", ("one", "two"))
    values = json.loads(json.dumps(described(analysis)))
    assert (values["title"], values["notes"]) == ("t", ["one", "two"])
    flow = values["results"]["flow"]
    assert (flow["kind"], flow["summary"]) == ("FlowScores", found.summary())
    share = flow["quantities"]["share"]
    assert share["axes"] == {"score": ["wp", "pq", "ww"], "layer": [0, 1, 2]}
    assert share["unit"] == found.quantities()["share"].unit
    quantity = found.quantities()["share"]
    low, high = quantity.ends()
    for end, expected in (("value", quantity.value()), ("low", low), ("high", high)):
        assert torch.allclose(torch.tensor(share[end]).double(), expected)


def test_results_without_quantities():
    found = found_of(heads_of({(0, 0): 0.3}, {}, shape=(2, 2)), top=1)
    assert set(result_values(found)["quantities"]) == set(found.quantities())
    bare = replace(found, scores=None)
    values = result_values(bare)
    assert values["quantities"] == {}
    assert values["summary"] == found.summary()
    assert values["kind"] == "FalseInductionResult"


def test_a_command_tells_no_place_on_the_machine(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    inside, outside = tmp_path / "here" / "study.yaml", tmp_path / "films.csv"
    for file in (inside, outside):
        file.write_text("")
    monkeypatch.chdir(tmp_path / "here")
    assert without_place(inside) == "study.yaml"
    assert without_place(str(outside)) == "films.csv"
    assert without_place("/{text}: {label}") == "/{text}: {label}"
    assert without_place(3) == "3"
