"""How much of the answer goes through label words in real models: writes docs/benchmarks/real_models_table.md.

    python -m tests.benchmarks.real_amounts FOLDER --models smollm2-135m [--tasks questions] [--seeds 5] [--n 128]
    python -m tests.benchmarks.real_amounts FOLDER --write

Every cell (model, task, seed) is kept in FOLDER; the same command goes on where it was stopped. All prompts of a seed
share one set of demonstrations, one of each class, four of open answers.
"""

import argparse
import warnings
from collections.abc import Iterator, Sequence
from math import isfinite
from pathlib import Path

import torch

import icl_mech as icl
from icl_mech.measurements import EdgeCuts, Gain
from icl_mech.metrics import Interval, over_units
from icl_mech.metrics.ratios import nested_ratio
from icl_mech.plots import figure
from icl_mech.shapes import Bars
from icl_mech.studies import Analysis
from icl_mech.studies.label_words import READING
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.result import item_of
from icl_mech.sweeps.verdicts import by_model

MODELS = ("smollm2-135m", "gemma-3-270m")
TASKS = (
    *("questions", "headlines", "reviews", "unnatural"),
    *("antonyms", "plurals", "past_tense", "capitals", "english_french"),
)
MOST = {"unnatural": 120, "antonyms": 116, "plurals": 84, "past_tense": 90, "capitals": 84}
"""Queries that a task has with every set of demonstrations, where these are fewer; balanced over classes."""

WINDOWS = ("all", "early", "middle", "late")


def cell(folder: Path, name: str, task: str, seed: int) -> Path:
    """Where it is kept."""
    return folder / name / f"{task}-{seed}"


def measure(folder: Path, name: str, tasks: Sequence[str], seeds: int, n: int) -> None:
    """Everything of one model that is not there yet, all tasks of one seed after the other."""
    model = icl.load_model(name)
    for seed in range(seeds):
        for task in tasks:
            place = cell(folder, name, task, seed)
            if (place / "analysis.json").is_file():
                continue
            shots = 1 if task in TASKS[:4] else 4
            most = min(n, MOST.get(task, n))
            prompts = icl.build_prompts(
                task, model, shots=shots, n=most, seed=seed, demonstrations="shared"
            )
            cuts = EdgeCuts(edges="anchors", rows="target", draws=2, seed=seed)
            icl.measure(model, prompts, Gain(seed=seed), cuts, progress=False).save(place)
            print(name, task, seed, flush=True)


class Cells:
    """One model on one task, over its seeds."""

    def __init__(self, folder: Path, name: str, task: str) -> None:
        """Load what is there."""
        places = sorted((folder / name).glob(f"{task}-*"))
        self.runs = [Analysis.load(place) for place in places]
        pool = [own["gain"].provenance["prompts"].get("pool") for own in self.runs]
        n = min((len(own["gain"].right) for own in self.runs), default=0)
        self.drawn = min(1.0, n / pool[0]) if pool and pool[0] else 0.0
        self.prompts = n

    def mean(self, values: Sequence[Interval]) -> Interval:
        """Over seeds, with an interval for other demonstrations and queries."""
        ends = torch.tensor([list(own) for own in values], dtype=torch.float64).unbind(1)
        return Interval(*map(float, over_units(*ends, drawn=self.drawn)[:3]))

    def gained(self, over: str) -> Interval:
        """What demonstrations add, nats."""
        return self.mean([getattr(own["gain"], f"over_{over}").nats for own in self.runs])

    def accuracy(self, context: str) -> float:
        """Share of right answers in a context."""
        each = [own["gain"] for own in self.runs]
        found = [own.right[:, own.contexts.index(context)].mean() for own in each]
        return float(torch.stack(found).mean())

    def lost(self, window: str) -> Interval:
        """Nats of the right answer that the target loses without label words."""
        return self.mean([own["edge_cuts"].lost("anchors", window) for own in self.runs])

    def status(self) -> str:
        """What today's judge says of *Reading*, over seeds, taken alone."""
        items = {item_of(own): own for own in self.runs}
        sweep = Sweep([*items], analyses={item.key: own for item, own in items.items()})
        return next((own.status for own in by_model(sweep, READING)), "–")

    def share(self, window: str) -> Interval:
        """The same as a share of what demonstrations add over zero-shot; not-a-number where that is not clear."""
        lost, added = [], []
        for own in self.runs:
            cuts = own["edge_cuts"]
            cut = cuts.log_prob[:, 0, cuts.windows.index(window)]
            lost.append((cuts.plain_log_prob - cut).double())
            added.append(own["gain"].added("zero_shot").double())
        return nested_ratio(lost, added, drawn=self.drawn)


def _told(own: Interval, digits: int = 2, *, sign: bool = True) -> str:
    if not all(map(isfinite, own)):
        return "–"
    value = f"{own.value:+.{digits}f}" if sign else f"{own.value:.{digits}f}"
    clear = own.low > 0 or own.high < 0
    text = f"{value} [{own.low:.{digits}f}, {own.high:.{digits}f}]".replace("-", "−")
    return f"**{text}**" if clear else text


def rows(folder: Path) -> Iterator[str]:
    """One for each model and task that is there."""
    for name in MODELS:
        for task in TASKS:
            cells = Cells(folder, name, task)
            if not cells.runs:
                continue
            accuracy = " → ".join(
                f"{cells.accuracy(own):.2f}" for own in ("zero_shot", "demonstrations")
            )
            parts = [cells.gained("zero_shot"), cells.gained("shuffled"), *map(cells.lost, WINDOWS)]
            share = _told(cells.share("all"), sign=False)
            numbers = " | ".join(map(_told, parts))
            size = f"{len(cells.runs)} × {cells.prompts}"
            yield f"| {name} | `{task}` | {size} | {accuracy} | {numbers} | {share} | {cells.status()} |"


SHOWN = {"smollm2-135m": "SmolLM2 135M", "gemma-3-270m": "Gemma 3 270M"}
LINES = {
    "demonstrations add": None,
    "lost without label words: first third": "early",
    "middle third": "middle",
    "last third": "late",
    "all layers": "all",
}
"""Of the picture: the gain, and the cuts by window."""


def picture(folder: Path, task: str = "questions") -> None:
    """Gain and cuts of both models on one task, which needs kaleido and a Chromium."""
    cells = [Cells(folder, name, task) for name in SHOWN]
    each = [
        [own.gained("zero_shot") if window is None else own.lost(window) for own in cells]
        for window in LINES.values()
    ]
    value, low, high = torch.tensor(each, dtype=torch.float64).unbind(-1)
    shape = Bars(
        f"What demonstrations add on {task}, and what of it goes through label words",
        tuple(LINES),
        tuple(SHOWN.values()),
        *(value, low, high),
        y_title="log-probability of the right answer (nats)",
        note=f"{len(cells[0].runs)} sets of demonstrations, {cells[0].prompts} queries each; bars: 95 % intervals over sets",
        meanings=("reference", "label"),
        sides=("", ""),
    )
    drawn = figure(shape).update_layout(paper_bgcolor="white", plot_bgcolor="white")
    place = Path("docs") / "images" / f"reading_{task}.png"
    drawn.write_image(place, width=860, height=460, scale=2)


HEAD = """| model | task | seeds × prompts | accuracy zero-shot → with | over zero-shot | over shuffled labels | cut in all layers | first third | middle third | last third | fraction of the gain, all layers | *Reading* |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Measure, or write the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=[], choices=MODELS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=128)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in given.models:
        measure(given.folder, name, given.tasks, given.seeds, given.n)
    table = HEAD + "\n".join(rows(given.folder)) + "\n"
    print(table)
    if given.write:
        (Path("docs") / "benchmarks" / "real_models_table.md").write_text(table, encoding="utf-8")
        picture(given.folder)


if __name__ == "__main__":
    main()
