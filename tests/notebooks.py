"""Runs the notebooks and stores what they show: `python -m tests.notebooks [names]`, `make notebooks`.

What differs between two runs without a meaning is not stored: times, progress bars, paths of the
machine, versions in the metadata. A notebook that fails is left as it was.
"""

import os
import re
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

REPOSITORY = Path(__file__).parents[1]
NOTEBOOKS = sorted(
    (REPOSITORY / "notebooks").glob("*.ipynb"), key=lambda path: int(path.stem.split("_")[0])
)
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
FIGURE = "application/vnd.plotly.v1+json"
BARS = "application/vnd.jupyter.widget-view+json"
PLACES = {
    sysconfig.get_path("purelib"): "site-packages",
    str(REPOSITORY): "icl_mech",
    tempfile.gettempdir(): "tmp",
    str(Path.home()): "~",
}
"""Paths of this machine, and what stands for them; the narrower ones first."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "PLOTLY_RENDERER": "plotly_mimetype",
    # tqdm misses ipywidgets, which nobody needs to have.
    "PYTHONWARNINGS": "ignore:IProgress not found",
}


def read(path: Path) -> NotebookNode:
    """A notebook."""
    return nbformat.read(path, as_version=4)


def execute(notebook: NotebookNode, folder: Path) -> None:
    """Run all cells from top to bottom, in a kernel that starts in `folder`."""
    own = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        NotebookClient(
            notebook,
            timeout=900,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    finally:
        for name, value in own.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def clean(notebook: NotebookNode) -> None:
    """Leave out what differs between two runs without a meaning."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.outputs = [_cleaned(item) for item in cell.outputs if not _is_bar(item)]


def outputs(notebook: NotebookNode) -> Iterator[NotebookNode]:
    """The outputs of all cells."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def _is_bar(output: NotebookNode) -> bool:
    """True for progress, which is of interest only while it goes on."""
    data = output.get("data", {})
    text = output.text if output.output_type == "stream" else data.get("text/plain", "-")
    return not text.strip() or (BARS in data and "text/html" not in data)


def _cleaned(output: NotebookNode) -> NotebookNode:
    data = output.get("data", {})
    data.pop(BARS, None)  # a widget needs its kernel; beside it stands a still
    if FIGURE in data:
        data.pop("text/plain", None)  # the repr of a whole figure, as long as the figure
    for mime, content in data.items():
        if isinstance(content, str):
            data[mime] = _without_places(content)
    if output.output_type == "stream":
        output.text = _without_places(output.text)
    return output


def _without_places(text: str, places: Mapping[str, str] = PLACES) -> str:
    for place, name in places.items():
        text = text.replace(place, name)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def main(names: list[str]) -> None:
    """Run the notebooks whose names begin so (none given: all), one after the other."""
    paths = [path for path in NOTEBOOKS if not names or path.stem.startswith(tuple(names))]
    total = 0.0
    for path in paths:
        notebook, start = read(path), time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            execute(notebook, Path(folder))
        clean(notebook)
        nbformat.validate(notebook)
        nbformat.write(notebook, path)
        seconds = time.perf_counter() - start
        total += seconds
        cells, size = len(notebook.cells), path.stat().st_size / 1e3
        print(f"{path.stem:<38} {seconds:5.0f} s {size:6.0f} kB {cells:3} cells", flush=True)
    print(f"{len(paths)} notebooks{'':<26} {total:5.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
