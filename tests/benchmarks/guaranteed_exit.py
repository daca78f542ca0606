"""Exit with a guarantee on the offline model: writes docs/results/guaranteed_exit.md.

    python -m tests.benchmarks.guaranteed_exit FOLDER [--seeds 5] [--n 200] [--minutes 9]
    python -m tests.benchmarks.guaranteed_exit FOLDER --write

One demonstration of each class, the same ones before all queries of a seed, with true or with permuted labels. Every cell
(task, labels, seed) is kept in FOLDER, and those that are there are not made again. The rates of violation are over 1,000
random halves of each cell.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.metrics import Interval

TASKS = ("headlines", "questions")
LABELS = ("correct", "permuted")
RULES: tuple[tuple[Any, float, int], ...] = (
    ("difference", 0.1, 1),
    ("difference", 0.1, 15),
    ("difference", 0.1, 24),
    ("difference", 0.2, 24),
    ("harm", 0.1, 24),
    ("harm", 0.2, 24),
)
"""Loss, tolerated risk and the first layer that may answer, of 30."""

SPLITS = 1000
PLACE = Path("docs") / "results" / "guaranteed_exit.md"


def cell(model: Any, task: str, labels: Any, seed: int, n: int) -> GuaranteedExitResult:
    """The result of a task, a setting of labels and a seed."""
    most = min(n, len(icl.load_task(task).test))
    prompts = icl.build_prompts(
        task, model, shots=1, n=most, seed=seed, labels=labels, balanced=False
    )
    return icl.guaranteed_exit(model, prompts, seed=seed, progress=False)


def mean(intervals: list[Interval]) -> str:
    """The mean over seeds, and each."""
    values = [interval.value for interval in intervals]
    each = ", ".join(f"{value:.2f}".replace("-", "−") for value in values)
    return f"{sum(values) / len(values):.2f} ({each})".replace("-", "−")


def table(folder: Path) -> str:
    """The accuracies, and what each rule gives."""
    first = [
        "| task | labels | prompts by seed | accuracy, zero-shot (by seed) | accuracy, whole model (by seed) |",
        "|---|---|---|---|---|",
    ]
    rules = [
        "| task | labels | loss | ε | first layer | seeds with a threshold | layers saved | risk | accuracy | answered by zero-shot | "
        "status | splits certified | violated on the other half | violated over all prompts |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for labels in LABELS:
            cells = sorted(folder.glob(f"{task}-{labels}-*"))
            if not cells:
                continue
            each = [GuaranteedExitResult.load(place) for place in cells]
            counts = sorted({result.count for result in each})
            first.append(
                f"| `{task}` | {labels} | {', '.join(map(str, counts))} | {mean([r.without for r in each])} | "
                f"{mean([r.whole for r in each])} |"
            )
            for loss, epsilon, layer in RULES:
                ruled = [
                    replace(result, loss=loss, epsilon=epsilon, first=layer) for result in each
                ]
                splits = [result.splits(SPLITS) for result in ruled]
                certified, violated, beyond = (
                    sum(getattr(split, name) for split in splits) / len(splits)
                    for name in ("certified", "violated", "beyond")
                )
                some = sum(result.threshold is not None for result in ruled)
                statuses = Counter(result.status for result in ruled)
                back = sum(result.fell_back for result in ruled) / len(ruled)
                rules.append(
                    f"| `{task}` | {labels} | {loss} | {epsilon} | {layer} | {some} of {len(ruled)} | "
                    f"{mean([r.saved for r in ruled])} | {mean([r.risk for r in ruled])} | "
                    f"{mean([r.accuracy for r in ruled])} | {back:.2f} | "
                    f"{', '.join(f'{count} {status}' for status, count in statuses.most_common())} | "
                    f"{100 * certified:.1f} % | {100 * violated:.1f} % | {100 * beyond:.1f} % |"
                )
    return "\n".join(first) + "\n\n" + "\n".join(rules) + "\n"


def main() -> None:
    """Measure for some minutes, or write the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    model = None if options.write else icl.load_model()
    for seed in range(0 if options.write else options.seeds):
        for task in TASKS:
            for labels in LABELS:
                place = options.folder / f"{task}-{labels}-{seed}"
                if place.exists() or time.monotonic() > end:
                    continue
                start = time.monotonic()
                result = cell(model, task, labels, seed, options.n)
                result.save(place)
                print(
                    f"{task} {labels} {seed}: {time.monotonic() - start:.0f} s, {result.summary()}",
                    flush=True,
                )
    print(text := table(options.folder))
    if options.write:
        PLACE.parent.mkdir(exist_ok=True)
        PLACE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
