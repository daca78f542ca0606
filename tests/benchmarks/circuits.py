"""Circuits of the offline model on two tasks: heads that EAP-IG selects, kept alone and cut out.

    python -m tests.benchmarks.circuits OUT.json [--seeds 5] [--n 12] [--minutes 8] [--write]

Every cell (task, seed) is written when it is done, and those that are there are not made again; no new cell is begun after
`--minutes`. One demonstration per class, shared by the queries of a seed; half of the pairs score, the others test. Cells of
the first seed have the whole curve. `--write` writes `docs/results/circuits.md` from the cells that are there.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import CircuitFaithfulness
from icl_mech.measurements.circuits.circuit_faithfulness import GRID, CircuitFaithfulnessResult
from icl_mech.metrics import mean_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.results.wording import said, told

TASKS = ("headlines", "questions")
FRACTION = 0.1
DRAWS = 3
POINTS = 3
METRICS = ("alone", "random_alone", "cut", "random_cut", "plain", "empty")
PLACE = Path("docs") / "results" / "circuits.md"


def cell(model: Any, task: str, seed: int, n: int) -> dict[str, Any]:
    """The metrics of one task and seed, the heads, and for the first seed the curve."""
    pair = icl.build_prompt_pairs(task, model, shots=1, n=n, seed=seed)
    measurement = CircuitFaithfulness(
        fraction=FRACTION, fractions=() if seed else GRID, points=POINTS, draws=DRAWS, seed=seed
    )
    started = time.monotonic()
    result: CircuitFaithfulnessResult = measurement(model, *pair, progress=False)
    kept: dict[str, Any] = {name: getattr(result, name).tolist() for name in METRICS}
    kept |= {"chosen": result.chosen, "status": result.status, "cut_status": result.cut_status}
    kept |= {"unlike": result.unlike, "seconds": time.monotonic() - started}
    if result.fractions:
        curves = {name: result.sel(name) for name in ("faithfulness", "random")}
        kept["curve"] = {
            "sizes": result.sizes,
            **{
                name: [curve.values.tolist(), curve.low.tolist(), curve.high.tolist()]
                for name, curve in curves.items()
            },
            **{name: list(result.interval(name)) for name in ("cpr", "cmd")},
        }
    return kept


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


def text(cells: dict[str, dict[str, Any]]) -> str:
    """Tables in Markdown."""
    lines = [
        "| | " + " | ".join(f"`{task}`" for task in TASKS) + " |",
        "|---" * (1 + len(TASKS)) + "|",
    ]
    by_task = {
        task: [one for name, one in sorted(cells.items()) if name.startswith(f"{task} ")]
        for task in TASKS
    }
    whole = {task: pooled(own) for task, own in by_task.items() if own}
    rows = {
        "test pairs, seeds": lambda task: f"{whole[task]['count']}, {len(by_task[task])}",
        "metric of the whole model (logits)": lambda task: said(whole[task]["plain"], sign=True),
        "gap to all heads ablated (logits)": lambda task: said(whole[task]["gap"], sign=True),
        "27 heads alone, fraction of the gap": lambda task: said(whole[task]["alone"]),
        "random heads alone": lambda task: said(whole[task]["random alone"]),
        "lost without the 27 heads": lambda task: said(whole[task]["lost"]),
        "lost without random heads": lambda task: said(whole[task]["random lost"]),
        "alone beyond random (logits)": lambda task: said(whole[task]["beyond"], sign=True),
        "status by seed": lambda task: ", ".join(one["status"] for one in by_task[task]),
        "status of the cut by seed": lambda task: ", ".join(
            one["cut_status"] for one in by_task[task]
        ),
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
            f"`{task}`, seed 0, faithfulness by number of heads (of 270): CPR {said(tuple(curve['cpr']))}, CMD "
            f"{said(tuple(curve['cmd']))}.",
            "",
            "| heads | " + " | ".join(map(str, curve["sizes"])) + " |",
            "|---" * (1 + len(curve["sizes"])) + "|",
        ]
        for name, label in (("faithfulness", "largest scores"), ("random", "random")):
            lines.append(f"| {label} | " + " | ".join(told(v) for v in curve[name][0]) + " |")
    return "\n".join(lines) + "\n"


def _order(head: str) -> list[int]:
    return [int(part) for part in head.split(".")]


def main() -> None:
    """Measure for some minutes, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    cells = json.loads(given.out.read_text()) if given.out.exists() else {}
    end = time.monotonic() + 60 * given.minutes
    torch.set_num_threads(1)
    model = None if given.write else icl.load_model(given.model)
    # The first seed, whose curves cost most, comes last.
    for seed in () if given.write else (*range(1, given.seeds), 0):
        for task in TASKS:
            if f"{task} {seed}" not in cells and time.monotonic() < end:
                cells[f"{task} {seed}"] = cell(model, task, seed, given.n)
                given.out.write_text(json.dumps(cells))
    print(tables := text(cells))
    if given.write:
        PLACE.parent.mkdir(exist_ok=True)
        PLACE.write_text(tables, encoding="utf-8")


if __name__ == "__main__":
    main()
