"""Exit with a guarantee on the offline model: writes docs/results/guaranteed_exit.md.

Called as `pages` says. Cells: task, labels, seed. One demonstration of each class, the same ones before all queries of a
seed, with true or with permuted labels. The rates of violation are over 1,000 random halves of each cell.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import icl_mech as icl
from icl_mech.measurements.accuracy.guaranteed_exit import GuaranteedExitResult
from icl_mech.metrics import Interval
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, of

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


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> GuaranteedExitResult:
    """The result of a task, a setting of labels and a seed."""
    task, labels, seed = cell
    most = min(n, len(icl.load_task(task).test))
    prompts = icl.build_prompts(
        task, model, shots=1, n=most, seed=seed, labels=labels, balanced=False
    )
    return icl.guaranteed_exit(model, prompts, seed=seed, progress=False)


def mean(intervals: list[Interval]) -> str:
    """The mean over seeds with the smallest and the largest."""
    values = [interval.value for interval in intervals]
    mean, low, high = sum(values) / len(values), min(values), max(values)
    spread = f" [{low:.2f}, {high:.2f}]" if f"{low:.2f}" != f"{high:.2f}" else ""
    return f"{mean:.2f}{spread}".replace("-", "−")


def table(kept: Kept) -> str:
    """The accuracies, and what each rule gives."""
    first = [
        "| task | labels | prompts | accuracy, zero-shot | accuracy, whole model |",
        "|---|---|---|---|---|",
    ]
    rules = [
        "| task | labels | loss | ε | first layer | seeds with a threshold | layers saved | risk | accuracy | answered by zero-shot | "
        "status | splits certified | violated on the other half | violated over all prompts |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for labels in LABELS:
            if not (each := of(kept, task, labels)):
                continue
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


PAGE = Page(
    "guaranteed_exit",
    measured,
    table,
    n=200,
    cells=lambda seeds: [
        (task, labels, seed) for seed in range(seeds) for task in TASKS for labels in LABELS
    ],
)

if __name__ == "__main__":
    PAGE.run()
