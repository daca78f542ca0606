"""One false demonstration on the offline model: writes docs/results/one_false_demonstration.md.

    python -m tests.benchmarks.one_false_demonstration FOLDER [--seeds 5] [--n 12] [--minutes 8]
    python -m tests.benchmarks.one_false_demonstration FOLDER --write

Four demonstrations, classes drawn independently, other ones for each prompt; the first or the last is false. Every cell (task, seed) is kept in FOLDER, and
those that are there are not made again. Tables are over the prompts of all seeds; statuses are also given by seed.
"""

import argparse
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import FlowByDemonstration, OneFalseDemonstration
from icl_mech.measurements.by_demonstration.flow_by_demonstration import FlowByDemonstrationResult
from icl_mech.measurements.by_demonstration.one_false_demonstration import (
    OneFalseDemonstrationResult,
)
from icl_mech.metrics import Interval

TASKS = ("headlines", "questions")
TOTAL = 4
PLACES = (0, TOTAL - 1)
PLACE = Path("docs") / "results" / "one_false_demonstration.md"
OVER_PROMPTS = ("logits", "attention", "matching", "displayed", "classes", "answers")
FLOW = ("wp", "pq", "read", "received", "edges", "distance", "classes")


def cell(model: Any, task: str, seed: int, n: int) -> tuple[Any, Any]:
    """Both results of a task and seed."""
    prompts = icl.build_prompts(
        task, model, total=TOTAL, n=n, seed=seed, demonstrations="per_prompt"
    )
    run = icl.measure(
        model,
        prompts,
        OneFalseDemonstration(PLACES, seed=seed),
        FlowByDemonstration(),
        progress=False,
    )
    return run["one_false_demonstration"], run["flow_by_demonstration"]


def pooled(results: list[Any], names: tuple[str, ...]) -> Any:
    """The result over the prompts of all seeds."""
    parts = {name: torch.cat([getattr(result, name) for result in results]) for name in names}
    count = sum(len(result.classes) for result in results)
    return replace(results[0], **parts, provenance={"prompts": {"count": count, "digest": "all"}})


def shown(interval: Interval | None, digits: int = 3) -> str:
    """An interval in a table."""
    if interval is None:
        return "–"
    value, low, high = (f"{end:+.{digits}f}".replace("-", "−") for end in interval)
    return f"{value} [{low}, {high}]"


def table(folder: Path) -> str:
    """All tables."""
    lines = [
        "| task | prompts | accuracy, all true | accuracy, one false | harm | harm at equal label words | slope over place | status, by seed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    places = [
        f"| task | side | {' | '.join(f'place {place + 1}' for place in PLACES)} |",
        f"|---|---|{'---|' * len(PLACES)}",
    ]
    layers = [
        "| task | exit after layer | accuracy there minus at the end, one false | the same minus that with all true | "
        "accuracy there | overthinking | heads that turn to the false label |",
        "|---|---|---|---|---|---|---|",
    ]
    flows = [
        "| task | harm, demonstrations of the query's class minus others | recency of flow, last third |",
        "|---|---|---|",
    ]
    for task in TASKS:
        cells = sorted(folder.glob(f"{task}-*-false"))
        if not cells:
            continue
        each = [OneFalseDemonstrationResult.load(place) for place in cells]
        saliency = [
            FlowByDemonstrationResult.load(place.with_name(place.name.replace("false", "flow")))
            for place in cells
        ]
        result, flow = pooled(each, OVER_PROMPTS), pooled(saliency, FLOW)
        right = result.correct[..., -1].mean((0, 2))
        by_seed = Counter(single.status for single in each)
        statuses = ", ".join(f"{count} {status}" for status, count in by_seed.most_common())
        lines.append(
            f"| `{task}` | {result.count} | {right[0]:.2f} | {right[1]:.2f} | {shown(result.harm())} | "
            f"{shown(result.harm('exchanged'))} | {shown(result.recency)} | all: {result.status}; {statuses} |"
        )
        for name, label in (("harm", "against all true"), ("harm_beyond", "at equal label words")):
            samples = result.sel(name)
            ends = zip(samples.values, samples.low, samples.high, strict=True)
            row = " | ".join(shown(Interval(*map(float, end))) for end in ends)
            places.append(f"| `{task}` | {label} | {row} |")
        early, heads = result.exit, result.misfit_heads()
        named = ", ".join(f"{layer}.{head}" for layer, head in heads[:5]) or "none"
        more = f" and {len(heads) - 5} more" if len(heads) > 5 else ""
        layers.append(
            f"| `{task}` | {early.layer} | {shown(early.gain)} | {shown(early.beyond)} | "
            f"{shown(early.accuracy)} | {result.overthinking_status} | {named}{more} |"
        )
        flows.append(f"| `{task}` | {shown(result.same_class())} | {shown(flow.recency())} |")
    return "\n\n".join("\n".join(rows) for rows in (lines, places, layers, flows)) + "\n"


def main() -> None:
    """Measure for some minutes, or write the tables."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    model = None if options.write else icl.load_model()
    for seed in range(0 if options.write else options.seeds):
        for task in TASKS:
            places = [options.folder / f"{task}-{seed}-{kind}" for kind in ("flow", "false")]
            if places[1].exists() or time.monotonic() > end:
                continue
            start = time.monotonic()
            false, flow = cell(model, task, seed, options.n)
            for place, result in zip(places, (flow, false), strict=True):
                result.save(place, overwrite=True)
            print(f"{task} {seed}: {time.monotonic() - start:.0f} s, {false.summary()}", flush=True)
    print(text := table(options.folder))
    if options.write:
        PLACE.parent.mkdir(exist_ok=True)
        PLACE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
