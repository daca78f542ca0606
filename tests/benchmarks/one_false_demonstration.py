"""One false demonstration on the offline model: writes docs/results/one_false_demonstration.md.

Called as `pages` says. Four demonstrations, classes drawn independently, other ones for each prompt; the first or the last is
false. Tables are over the prompts of all seeds; statuses are also given by seed.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import FlowByDemonstration, OneFalseDemonstration
from icl_mech.metrics import Interval
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, of

TOTAL = 4
PLACES = (0, TOTAL - 1)
OVER_PROMPTS = ("logits", "attention", "matching", "displayed", "classes", "answers")
FLOW = ("wp", "pq", "read", "received", "edges", "distance", "classes")


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> dict[str, Any]:
    """Both results of a task and seed."""
    task, seed = cell
    prompts = icl.build_prompts(
        task, model, total=TOTAL, n=n, seed=seed, demonstrations="per_prompt"
    )
    measures = (OneFalseDemonstration(PLACES, seed=seed), FlowByDemonstration())
    run = icl.measure(model, prompts, *measures, progress=False)
    return {"false": run["one_false_demonstration"], "flow": run["flow_by_demonstration"]}


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


def table(kept: Kept) -> str:
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
        if not (cells := of(kept, task)):
            continue
        each, saliency = ([own[name] for own in cells] for name in ("false", "flow"))
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


PAGE = Page("one_false_demonstration", measured, table, n=12)

if __name__ == "__main__":
    PAGE.run()
