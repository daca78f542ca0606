"""Bad folders, names and files: saving, loading, overwriting."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from typer.testing import CliRunner

import icl_mech as icl
from icl_mech.cli import app
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements import Predict
from icl_mech.measurements.predictions import Predictions
from icl_mech.reports import write_page
from icl_mech.results import Folder, Result, jsonable
from tests.bad_inputs.case import Bench, Case
from tests.saved import as_earlier, reseal, with_tensors


def result(**changes: Any) -> Predictions:
    size = torch.zeros(3, 2)
    top = torch.zeros(3, 5, dtype=torch.long)
    values: dict[str, Any] = {
        "label_logits": size,
        "log_probs": size.clone(),
        "predicted": top[:, 0],
        "top_tokens": top,
        "labels": ("Negative", "Positive"),
        "provenance": {"seed": 1},
    }
    return Predictions(**(values | changes))


def analysis(*names: str) -> icl.Analysis:
    return icl.Analysis(dict.fromkeys(names or ("predictions",), result()), "a title")


def mine(bench: Bench, name: str = "notes.txt", text: str = "mine") -> Path:
    file = bench.folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def saved(bench: Bench) -> Path:
    return result().save(bench.folder / "saved")


def part_over_whole(bench: Bench) -> Path:
    analysis().save(bench.folder / "run")
    return result().save(bench.folder / "run", overwrite=True)


def earlier(bench: Bench) -> Path:
    return as_earlier(saved(bench))


def edited(bench: Bench, **changes: Any) -> Path:
    """An earlier layout, which has no checksums, with other values in it."""
    file = earlier(bench) / "result.json"
    document = json.loads(file.read_text())
    values = changes.pop("values", {})
    inner = values if not isinstance(values, dict) else {**document["values"], **values}
    file.write_text(json.dumps({**document, "values": inner, **changes}))
    return file.parent


def listing(bench: Bench, **changes: Any) -> Path:
    """A saved analysis with another list in it, and a checksum that fits."""
    folder = analysis().save(bench.folder / "run")
    reseal(folder / "analysis.json", **changes)
    return folder


def earlier_listing(bench: Bench, **changes: Any) -> Path:
    folder = as_earlier(analysis().save(bench.folder / "run"))
    document = json.loads((folder / "analysis.json").read_text())
    (folder / "analysis.json").write_text(json.dumps({**document, **changes}))
    return folder


def flipped(file: Path) -> Path:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    return file.parent


def changed_tensors(bench: Bench, change: Callable[[dict[str, Any]], object]) -> Path:
    folder = saved(bench)
    with_tensors(folder, change)
    return folder


def linked(bench: Bench) -> Path:
    """A folder whose part leads elsewhere."""
    (bench.folder / "elsewhere").mkdir()
    (bench.folder / "run").mkdir()
    (bench.folder / "run" / "predictions").symlink_to(bench.folder / "elsewhere")
    return bench.folder / "run"


def loop(bench: Bench) -> Path:
    (bench.folder / "loop").symlink_to(bench.folder / "loop")
    return bench.folder / "loop" / "run"


def busy(bench: Bench) -> None:
    with Folder(bench.folder / "run"), Folder(bench.folder / "run", wait=0.0):
        pass


def command(*arguments: object) -> None:
    CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)


def case(what: str, call: Callable[[Bench], object], *says: str) -> Case:
    return Case(what, call, ResultError, says)


BAD_NAMES = ("../x", "a/b", "", ".", "..", "con", "NUL.txt", "a\\b", "a\0b", "trailing.", ".hidden")
BAD_NAMES += ("result.json", "x" * 300)

CASES = [
    Case(
        "a result over a whole analysis",
        part_over_whole,
        ResultError,
    ),
    # Where
    case("saving into nothing", lambda b: result().save(""), "folder=''", "runs/reviews"),
    case("saving into a number", lambda b: result().save(3), "folder=3"),
    case("saving into None", lambda b: analysis().save(None), "folder=None"),
    case("loading a number", lambda b: Result.load(7), "folder=7"),
    case("loading nothing", lambda b: icl.Analysis.load(""), "folder=''"),
    case("loading a list", lambda b: icl.Analysis.load(["run"]), "folder=['run']"),
    case("a path with a null", lambda b: result().save("a\0b")),
    case("the home of nobody", lambda b: result().save("~no-such-user-x/run")),
    case("a link that leads to itself", lambda b: result().save(loop(b)), "loop"),
    case("saving into a file", lambda b: result().save(mine(b))),
    case("saving below a file", lambda b: result().save(mine(b) / "x")),
    case("a name too long", lambda b: result().save(b.folder / ("x" * 300))),
    case("a system folder", lambda b: result().save("/proc/run"), "'/proc/run'"),
    case("a folder with files", lambda b: result().save(mine(b).parent)),
    case(
        "saving again",
        lambda b: (saved(b), saved(b)),
        "overwrite=True",
    ),
    case("another process saves there", busy),
    # Files of the user's own
    case(
        "overwriting somebody's result.json",
        lambda b: result().save(mine(b, "result.json").parent, overwrite=True),
    ),
    case(
        "overwriting somebody's tensors",
        lambda b: result().save(mine(b, "tensors.safetensors").parent, overwrite=True),
    ),
    case(
        "overwriting a result somebody edited",
        lambda b: result().save(flipped(saved(b) / "tensors.safetensors"), overwrite=True),
    ),
    case(
        "overwriting a file where a part belongs",
        lambda b: analysis().save(mine(b, "predictions").parent, overwrite=True),
    ),
    case(
        "overwriting through a link",
        lambda b: analysis().save(linked(b), overwrite=True),
    ),
    case(
        "a page over a file",
        lambda b: analysis().to_html(mine(b)),
    ),
    case(
        "a page over an edited page",
        lambda b: (
            write_page(b.folder / "page.html", "t", [], offline=False),
            (b.folder / "page.html").write_text("<!-- remarks -->"),
            write_page(b.folder / "page.html", "t", [], offline=False),
        ),
    ),
    case("a page that is a folder", lambda b: analysis().to_html(b.folder)),
    case("a page without a path", lambda b: analysis().to_html(""), "page=''"),
    case(
        "measuring into a folder with somebody's analysis.json",
        lambda b: icl.measure(b.model, b.prompts, Predict(), out=mine(b, "analysis.json").parent),
    ),
    Case(
        "measuring into a folder with somebody's files for a part",
        lambda b: icl.measure(
            b.model, b.prompts, Predict(), out=mine(b, "predictions/x.txt").parents[1]
        ),
        RunError,
        ("predictions",),
    ),
    case("out= that is a file", lambda b: icl.measure(b.model, b.prompts, Predict(), out=mine(b))),
    case("out= that is nothing", lambda b: icl.measure(b.model, b.prompts, Predict(), out=""), "out=''"),
    case(
        "--out that holds files",
        lambda b: command("analyze", "--out", mine(b).parent, "--model", "gpt2"),
        "overwrite=True",  # --overwrite where it is printed
    ),
    case(
        "--out that holds an analysis",
        lambda b: command("analyze", "--out", analysis().save(b.folder / "x"), "--model", "gpt2"),
    ),
    case(
        "--overwrite of a page somebody wrote",
        lambda b: command(
            *("analyze", "--overwrite", "--model", "gpt2"), "--out", mine(b, "index.html").parent
        ),
    ),
    case(
        "demo --out that holds files",
        lambda b: command("demo", "--out", mine(b).parent),
    ),
    # Names
    *(
        case(f"a result named {name[:20]!r}", lambda b, name=name: analysis(name))
        for name in BAD_NAMES
    ),
    case("a number as a name", lambda b: icl.Analysis({1: result()}, "t")),
    case("names that differ in case", lambda b: analysis("flow", "Flow"), "'flow' and 'Flow'"),
    case("results without names", lambda b: icl.Analysis([result()], "t")),
    case("a result that is none", lambda b: icl.Analysis({"a": 3}, "t"), "'a'"),
    # Values that could not be loaded again
    case(
        "saving another shape",
        lambda b: result(label_logits=torch.zeros(3)).save(b.folder / "x"), "'batch label'",
    ),
    case(
        "saving axes of two lengths",
        lambda b: result(log_probs=torch.zeros(4, 2)).save(b.folder / "x"), "[4, 2]",
    ),
    case(
        "saving another dtype",
        lambda b: result(predicted=torch.zeros(3)).save(b.folder / "x"),
    ),
    case(
        "saving sparse tensors",
        lambda b: result(label_logits=torch.zeros(3, 2).to_sparse()).save(b.folder / "x"),
    ),
    case("keys that become equal", lambda b: jsonable({1: "a", "1": "b"})),
    # Damaged
    case("no such folder", lambda b: Result.load(b.folder / "x")),
    case("loading a file", lambda b: Result.load(mine(b))),
    case(
        "result.json that is a folder",
        lambda b: ((b.folder / "result.json").mkdir(), Result.load(b.folder)),
    ),
    case(
        "a flipped bit in the tensors",
        lambda b: Result.load(flipped(saved(b) / "tensors.safetensors")),
    ),
    case(
        "a digit changed by hand",
        lambda b: (
            (f := saved(b) / "result.json").write_text(f.read_text().replace('"seed": 1', '"seed": 2')),
            Result.load(f.parent),
        ),
    ),
    case(
        "deeply nested JSON",
        lambda b: Result.load(mine(b, "result.json", "[" * 100_000).parent),
    ),
    case(
        "a part that was exchanged",
        lambda b: (
            f := analysis().save(b.folder / "run"),
            result(provenance={}).save(f / "predictions", overwrite=True),
            icl.Analysis.load(f),
        ),
    ),
    case("values a list", lambda b: Result.load(edited(b, values=[1]))),
    case("kind a number", lambda b: Result.load(edited(b, kind=3))),
    case(
        "provenance a text",
        lambda b: Result.load(edited(b, values={"provenance": "x"})),
        "'x'",
    ),
    case(
        "labels a number",
        lambda b: Result.load(edited(b, values={"labels": 3})),
    ),
    case(
        "labels of numbers",
        lambda b: Result.load(edited(b, values={"labels": [1, 2]})),
    ),
    case("layout a truth value", lambda b: Result.load(edited(b, format=True))),
    case(
        "tensors of another dtype",
        lambda b: Result.load(changed_tensors(b, lambda t: t.update(predicted=t["predicted"] * 0.5))),
    ),
    case(
        "tensors of another shape",
        lambda b: Result.load(changed_tensors(b, lambda t: t.update(log_probs=torch.zeros(2)))),
    ),
    case(
        "tensors of another name",
        lambda b: Result.load(
            changed_tensors(b, lambda t: t.update({"log_probs/a": t.pop("log_probs")}))
        ),
    ),
    case(
        "a tensor where words belong",
        lambda b: Result.load(changed_tensors(b, lambda t: t.update(labels=torch.zeros(2)))),
    ),
    case("results an object", lambda b: icl.Analysis.load(earlier_listing(b, results={})), "results is {}"),
    case("results of numbers", lambda b: icl.Analysis.load(earlier_listing(b, results=[3]))),
    case("title a list", lambda b: icl.Analysis.load(earlier_listing(b, title=[]))),
    case(
        "a result above the folder",
        lambda b: icl.Analysis.load(earlier_listing(b, results=["../x"])),
        "'../x'",
    ),
    case(
        "the same with a checksum",
        lambda b: icl.Analysis.load(listing(b, results=["../x"])),
        "'../x'",
    ),
    case(
        "a list of files above the folder",
        lambda b: icl.Analysis.load(listing(b, files={"../../x": "0" * 64})),
        "'../../x'",
    ),
    case(
        "a list of somebody's files",
        lambda b: icl.Analysis.load(listing(b, files={"thesis.txt": "0" * 64})),
        "'thesis.txt'",
    ),
    case(
        "a list of files without checksums",
        lambda b: icl.Analysis.load(listing(b, files={"result.json": 3})),
    ),
    case("no list of files", lambda b: icl.Analysis.load(listing(b, files={}))),
]  # fmt: skip
