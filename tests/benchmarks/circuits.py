"""Circuits of the offline model on two tasks: heads that EAP-IG selects, kept alone and cut out.

Called as `pages` says. One demonstration per class, shared by the queries of a seed; half of the pairs score, the others test. Cells of
the first seed, which cost most and come last, have the whole curve.
"""

import time
from collections import Counter
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import CircuitFaithfulness
from icl_mech.measurements.circuits.circuit_faithfulness import GRID, CircuitFaithfulnessResult
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.results.wording import said, told
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, of

FRACTION = 0.1
DRAWS = 3
POINTS = 3
METRICS = ("alone", "random_alone", "cut", "random_cut", "plain", "empty")


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> dict[str, Any]:
    """The metrics of one task and seed, the heads, and for the first seed the curve."""
    task, seed = cell
    pair = icl.build_prompt_pairs(task, model, shots=1, n=n, seed=seed)
    measurement = CircuitFaithfulness(
        fraction=FRACTION, fractions=() if seed else GRID, points=POINTS, draws=DRAWS, seed=seed
    )
    started = time.monotonic()
    result: CircuitFaithfulnessResult = measurement(model, *pair, progress=False)
    values: dict[str, Any] = {name: getattr(result, name).tolist() for name in METRICS}
    values |= {"chosen": result.chosen, "status": result.status, "cut_status": result.cut_status}
    values |= {"unlike": result.unlike, "seconds": time.monotonic() - started}
    if result.fractions:
        curves = {name: result.sel(name) for name in ("faithfulness", "random")}
        values["curve"] = {
            "sizes": result.sizes,
            **{
                name: [curve.values.tolist(), curve.low.tolist(), curve.high.tolist()]
                for name, curve in curves.items()
            },
            **{name: list(result.interval(name)) for name in ("cpr", "cmd")},
        }
    return values


def pooled(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Intervals over the test pairs of all seeds."""
    own = {name: torch.cat([torch.tensor(one[name]) for one in cells]).double() for name in METRICS}
    gap = own["plain"] - own["empty"]
    parts = {
        "alone": own["alone"] - own["empty"],
        "random alone": own["random_alone"].mean(1) - own["empty"],
        "lost": own["plain"] - own["cut"],
        "random lost": own["plain"] - own["random_cut"].mean(1),
    }
    made: dict[str, Any] = {name: ratio_interval(part, gap) for name, part in parts.items()}
    made["beyond"] = beyond_draws(own["alone"], own["random_alone"])
    made["gap"] = mean_interval(gap)
    made["plain"] = mean_interval(own["plain"])
    made["count"] = len(gap)
    return made


def table(kept: Kept) -> str:
    """Tables in Markdown."""
    lines = [
        "| | " + " | ".join(f"`{task}`" for task in TASKS) + " |",
        "|---" * (1 + len(TASKS)) + "|",
    ]
    by_task = {task: of(kept, task) for task in TASKS}
    whole = {task: pooled(own) for task, own in by_task.items() if own}
    rows = {
        "test pairs, seeds": lambda task: f"{whole[task]['count']}, {len(by_task[task])}",
        "metric of the whole model (logits)": lambda task: said(whole[task]["plain"], sign=True),
        "gap to all heads ablated (logits)": lambda task: said(whole[task]["gap"], sign=True),
        "27 heads alone, fraction of the gap": lambda task: _fraction(whole[task]["alone"]),
        "random heads alone": lambda task: _fraction(whole[task]["random alone"]),
        "lost without the 27 heads": lambda task: _fraction(whole[task]["lost"]),
        "lost without random heads": lambda task: _fraction(whole[task]["random lost"]),
        "alone beyond random (logits)": lambda task: said(whole[task]["beyond"], sign=True),
        "status by seed": lambda task: _counted(by_task[task], "status"),
        "status of the cut by seed": lambda task: _counted(by_task[task], "cut_status"),
        "heads selected in every seed": lambda task: (
            ", ".join(
                sorted(set.intersection(*(set(one["chosen"]) for one in by_task[task])), key=_order)
            )
            or "none"
        ),
    }
    for name, row in rows.items():
        lines.append(
            f"| {name} | " + " | ".join(row(t) if t in whole else "–" for t in TASKS) + " |"
        )
    for task in TASKS:
        curve = next((one["curve"] for one in by_task[task] if "curve" in one), None)
        if curve is None:
            continue
        lines += [
            "",
            f"`{task}`, seed 0, faithfulness by number of heads (of 270): CPR {told(curve['cpr'][0])}, CMD "
            f"{told(curve['cmd'][0])}.",
            "",
            "| heads | " + " | ".join(map(str, curve["sizes"])) + " |",
            "|---" * (1 + len(curve["sizes"])) + "|",
        ]
        for name, label in (("faithfulness", "largest scores"), ("random", "random")):
            lines.append(f"| {label} | " + " | ".join(told(v) for v in curve[name][0]) + " |")
    return "\n".join(lines) + "\n"


def _counted(cells: list[dict[str, Any]], name: str) -> str:
    counts = Counter(cell[name] for cell in cells)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def _fraction(interval: Interval) -> str:
    return said(interval) if interval.value == interval.value else "–"


def _order(head: str) -> list[int]:
    return [int(part) for part in head.split(".")]


PAGE = Page(
    "circuits",
    measured,
    table,
    n=12,
    cells=lambda seeds: [(task, seed) for seed in (*range(1, seeds), 0) for task in TASKS],
)

if __name__ == "__main__":
    PAGE.run()
