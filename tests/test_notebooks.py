"""The notebooks run from top to bottom, and hold what they showed when they last did."""

import re
import tempfile

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.notebooks import BARS, FIGURE, NOTEBOOKS, clean, execute, outputs, read

LARGEST = 1e6
MOST_CELLS = 25
FIRST_CELLS = 3
"""Number of code cells within which a reader has seen a figure."""

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
SHORT = {"2_information_flow": [], "15_by_hand": [pytest.mark.slow]}
"""Notebooks that `make check` and `make test-all` run; the rest take minutes, or show what other tests look at."""


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's own libraries
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=SHORT.get(path.stem, [pytest.mark.exhaustive]), id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_notebook(path, tmp_path):
    notebook = read(path)
    sources = [cell.source for cell in notebook.cells]
    execute(notebook, tmp_path)  # raises where a cell does
    assert not [item for item in outputs(notebook) if item.output_type == "error"]
    clean(notebook)
    nbformat.validate(notebook)
    assert [cell.source for cell in notebook.cells] == sources


def test_there_are_notebooks():
    assert [path.stem.split("_")[0] for path in NOTEBOOKS] == [str(i) for i in range(1, 17)]


@each
def test_stored_outputs_are_those_of_one_run(path):
    notebook = read(path)
    nbformat.validate(notebook)
    counts = [cell.execution_count for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert not [item for item in outputs(notebook) if item.output_type == "error"]
    assert not [item for item in outputs(notebook) if item.get("name") == "stderr"]


@each
def test_a_notebook_is_short_and_explains_itself(path):
    notebook = read(path)
    assert len(notebook.cells) <= MOST_CELLS
    assert path.stat().st_size < LARGEST
    assert notebook.cells[0].source.startswith("# ")
    assert notebook.cells[0].cell_type == notebook.cells[-1].cell_type == "markdown"
    assert "## Try next" in notebook.cells[-1].source
    assert any("assert " in cell.source for cell in code(notebook))


@each
def test_a_notebook_opens_with_its_question_and_soon_shows_a_figure(path):
    notebook = read(path)
    assert "?" in notebook.cells[0].source
    assert [
        output
        for cell in code(notebook)[:FIRST_CELLS]
        for output in cell.outputs
        if FIGURE in output.get("data", {})
    ]


@each
def test_no_path_of_a_machine(path):
    text = path.read_text(encoding="utf-8")
    for place in ("/site-packages/", "/home/", "/root/", "/Users/", "/tmp/", "ipykernel_"):
        assert place not in text, place


@each
def test_links_lead_somewhere(path):
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (path.parent / link).is_file(), link


def test_what_differs_between_runs_is_left_out():
    cell = new_code_cell("1", metadata={"execution": {"iopub.status.busy": "now"}})
    cell.outputs = [
        new_output("stream", text=f"saved in {tempfile.gettempdir()}/x"),
        new_output("stream", text="\n"),
        new_output("display_data", {BARS: {"model_id": "x"}, "text/plain": "Output()"}),
        new_output("display_data", {"text/html": "<pre></pre>", "text/plain": ""}),
        new_output("display_data", {FIGURE: {"data": []}, "text/plain": "Figure({...})"}),
        new_output("execute_result", {"text/plain": "<object at 0x7f01>"}, execution_count=1),
    ]
    notebook = new_notebook(
        cells=[cell], metadata={"language_info": {"name": "python", "version": "3.11.7"}}
    )
    clean(notebook)
    stream, figure, value = notebook.cells[0].outputs
    assert stream.text == "saved in tmp/x"
    assert list(figure.data) == [FIGURE]
    assert value.data["text/plain"] == "<object>"
    assert not notebook.cells[0].metadata
    assert "version" not in notebook.metadata.language_info
