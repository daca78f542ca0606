"""Pages of results on the offline model: cells that are measured once and kept, and tables that are written from them.

Every script of a page is called alike:

    python -m tests.benchmarks.NAME FOLDER [--seeds 5] [--n N] [--minutes 8] [--model smollm2-135m]
    python -m tests.benchmarks.NAME FOLDER --write

The first measures the cells that FOLDER lacks and begins none once the minutes are over; the second writes
docs/results/NAME.md from those that are there.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import icl_mech as icl
from icl_mech.results.shown import Shown

TASKS = ("headlines", "questions")
PLACE = Path("docs") / "results"

Cell = tuple[str | int, ...]
Kept = Mapping[Cell, Any]


def by_seed(seeds: int) -> list[Cell]:
    """Cells (task, seed), all tasks of a seed before the next."""
    return [(task, seed) for seed in range(seeds) for task in TASKS]


def of(kept: Kept, *start: str | int) -> list[Any]:
    """Values of the cells whose names begin like this."""
    return [value for cell, value in kept.items() if cell[: len(start)] == start]


@dataclass(frozen=True)
class Page:
    """A page of results.

    Attributes:
        name: Of the script and of the page.
        measure: The value of a cell from the model, the cell, the number of prompts and the cells before it: what JSON
            holds, a result, or results by name.
        table: The page from the cells, in Markdown.
        n: Number of prompts, unless it is given.
        cells: All cells of a number of seeds, in the order in which they are measured.
    """

    name: str
    measure: Callable[[Any, Cell, int, Kept], Any]
    table: Callable[[Kept], str]
    n: int
    cells: Callable[[int], Iterable[Cell]] = by_seed

    def run(self) -> None:
        """Measure for some minutes, or write the page."""
        parser = argparse.ArgumentParser(prog=self.name)
        parser.add_argument("folder", type=Path)
        parser.add_argument("--seeds", type=int, default=5)
        parser.add_argument("--n", type=int, default=self.n)
        parser.add_argument("--minutes", type=float, default=8.0)
        parser.add_argument("--model", default="smollm2-135m")
        parser.add_argument("--write", action="store_true")
        options = parser.parse_args()
        cells = list(self.cells(options.seeds))
        if not options.write:
            self._measure(cells, options)
        text = self.table(read(options.folder, cells))
        print(text)
        if options.write:
            (PLACE / f"{self.name}.md").write_text(text, encoding="utf-8")

    def _measure(self, cells: list[Cell], options: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        model, end = icl.load_model(options.model), time.monotonic() + 60 * options.minutes
        options.folder.mkdir(parents=True, exist_ok=True)
        for cell in cells:
            kept = read(options.folder, cells)
            if cell not in kept and time.monotonic() < end:
                start = time.process_time()
                write(options.folder, cell, self.measure(model, cell, options.n, kept))
                print(*cell, f"{time.process_time() - start:.0f} s", flush=True)


def write(folder: Path, cell: Cell, value: Any) -> None:
    """Keep the value of a cell, whole or not at all."""
    with TemporaryDirectory(dir=folder) as made:
        place = Path(made) / "value"
        if isinstance(value, Shown):
            value.save(place)
        elif isinstance(value, Mapping) and any(isinstance(v, Shown) for v in value.values()):
            for name, result in value.items():
                result.save(place / name)
        else:
            place.write_text(json.dumps(value), encoding="utf-8")
        place.rename(folder / "-".join(map(str, cell)))


def read(folder: Path, cells: Iterable[Cell]) -> Kept:
    """The cells that were kept."""
    places = {cell: folder / "-".join(map(str, cell)) for cell in cells}
    return {cell: _value(place) for cell, place in places.items() if place.exists()}


def _value(place: Path) -> Any:
    if place.is_file():
        return json.loads(place.read_text(encoding="utf-8"))
    if (place / "result.json").is_file():
        return icl.load(place)
    return {part.name: icl.load(part) for part in sorted(place.iterdir())}
