"""Function vectors by demonstration on the offline model: correct demonstrations, one false one, one ambiguous one.

Called as `pages` says. One demonstration per
class, the same for all queries of a seed. In *one false* the demonstration at a place that changes with the seed
displays the next class; in *ambiguous* it keeps its label and gets the text of an example of the next class after its
own. Heads are chosen once for each task, by `head_mediation` on other queries with other demonstrations.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import icl_mech as icl
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, by_seed

SETS = ("correct", "one false", "ambiguous")
HEADS = "heads"
LOSSES = ("routing", "values", "both", "demonstrations")


def demonstrations(task: icl.Task, seed: int) -> tuple[int, dict[str, list[icl.Example]]]:
    """The place of the changed demonstration, and the demonstrations by set."""
    drawn, count = np.random.default_rng(seed), len(task.labels)
    by_class = [[e for e in task.train if e.label == label] for label in range(count)]
    texts = [[members[int(n)] for n in drawn.permutation(len(members))[:2]] for members in by_class]
    order = [int(label) for label in drawn.permutation(count)]
    correct, place = [texts[label][0] for label in order], seed % count
    changed, following = correct[place], (order[place] + 1) % count
    false = replace(changed, label=following)
    ambiguous = replace(changed, text=f"{changed.text} {texts[following][1].text}")
    sets = {"correct": correct}
    for name, example in zip(SETS[1:], (false, ambiguous), strict=True):
        sets[name] = [*correct[:place], example, *correct[place + 1 :]]
    return place, sets


def queries(task: icl.Task, number: int) -> list[list[icl.Example]]:
    """Queries that choose the heads, and all others, by class."""
    by_class = [[e for e in task.test if e.label == label] for label in range(len(task.labels))]
    return [
        [example for members in by_class for example in members[:number]],
        [example for members in by_class for example in members[number:]],
    ]


def chosen(model: Any, name: str) -> list[tuple[int, int]]:
    """The five heads with the largest effect, on four queries of each class with demonstrations of each."""
    task = icl.load_task(name)
    how: dict[str, Any] = {"shots": 1, "seed": 99, "demonstrations": "per_prompt"}
    sides = [
        icl.build_prompts(task, model, queries=queries(task, 4)[0], labels=labels, **how)
        for labels in ("correct", "shuffled")
    ]
    mediation = icl.head_mediation(model, *sides, mean="class", progress=False)
    return [*mediation.top(5, "difference")]


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> Any:
    """The heads of a task, or means over the queries of a seed, by set of demonstrations."""
    name, seed = cell
    if seed == HEADS:
        return chosen(model, name)
    heads = [(layer, head) for layer, head in kept[name, HEADS]]
    task, drawn = icl.load_task(name), np.random.default_rng(seed)
    place, sets = demonstrations(task, seed)
    others, each = queries(task, 4)[1], n // len(task.labels)
    by_class = [[e for e in others if e.label == label] for label in range(len(task.labels))]
    asked = [
        members[int(k)] for members in by_class for k in drawn.permutation(len(members))[:each]
    ]
    kept = {}
    for shown, examples in sets.items():
        prompts = icl.build_prompts(task, model, demonstrations=examples, queries=asked, seed=seed)
        result = icl.function_vector_by_demonstration(model, prompts, heads=heads, progress=False)
        kept[shown] = numbers(result, place)
    return {"place": place, "sets": kept}


def numbers(result: Any, place: int) -> dict[str, Any]:
    """The means of a result, of which one demonstration is the changed one."""
    lost = [result.interval("lost", condition=name).value for name in LOSSES]
    beyond = [list(result.beside_random(name)) for name in LOSSES[:2]]
    others = [demo for demo in range(result.count) if demo != place]
    by_demo = {
        name: (float(values[:, place].mean()), float(values[:, others].mean()))
        for name, values in (
            ("removed", result.removed), ("share", result.share),
            ("attention", result.attention[:, 0]), ("shift", result.shift),
        )
    }  # fmt: skip
    same = result.same_class()
    added = [result.interval("added", vector=name).value for name in ("whole", "demonstrations")]
    return {
        "status": result.status,
        "lost": lost,
        "beyond": beyond,
        "by_demo": by_demo,
        "same": None if same is None else list(same),
        "recency": list(result.recency()),
        "cosine": result.interval("cosine").value,
        "added": [*added, result.interval("summed").value],
        "plain": result.interval("plain").value,
        "bare": result.interval("bare").value,
        "prompts": result.prompts,
    }


def spread(values: Sequence[float]) -> str:
    """Mean and range over seeds."""
    mean, low, high = float(np.mean(values)), min(values), max(values)
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]".replace("-", "−")


def rows(cells: list[dict[str, Any]], shown: str, columns: Sequence[Callable[[Any], float]]) -> str:
    """Cells of a table row."""
    return " | ".join(spread([of(own["sets"][shown]) for own in cells]) for of in columns)


def table(kept: Kept) -> str:
    """The tables of all cells, in Markdown."""
    lines = [
        "SmolLM2-135M-Instruct, one demonstration per class; mean over seeds [smallest, largest seed], in logits "
        "of the right answer above the mean of the others unless stated otherwise.",
        "",
    ]
    for task in TASKS:
        cells = [own for cell, own in kept.items() if cell[0] == task and cell[1] != HEADS]
        if not cells:
            continue
        prompts = cells[0]["sets"]["correct"]["prompts"]
        heads = ", ".join(f"{layer}.{head}" for layer, head in kept[task, HEADS])
        lines += [
            f"**`{task}`**, {prompts} queries for each of {len(cells)} seeds, heads {heads}",
            "",
        ]
        split = [lambda own, n=n: own["lost"][n] for n in range(4)]
        lines += [
            "| demonstrations | loss with routing of the cut run | values | both | without their parts | routing beyond random heads | status by seed |",
            "|---|---|---|---|---|---|---|",
        ]
        for shown in SETS:
            beyond = [lambda own: own["beyond"][0][0]]
            statuses = ", ".join(own["sets"][shown]["status"] for own in cells)
            lines.append(f"| {shown} | {rows(cells, shown, [*split, *beyond])} | {statuses} |")
        lines += [
            "",
            "| demonstrations | changed one: effect | others: effect | changed one: attention | others: attention | changed one: attention that context adds | others |",
            "|---|---|---|---|---|---|---|",
        ]
        for shown in SETS:
            each = [
                lambda own, name=name, n=n: own["by_demo"][name][n]
                for name in ("removed", "attention", "shift")
                for n in range(2)
            ]
            lines.append(f"| {shown} | {rows(cells, shown, each)} |")
        lines += [
            "",
            "| demonstrations | cosine of their sum and the vector | vector added | their sum added | single effects summed | right answer, zero-shot | with demonstrations |",
            "|---|---|---|---|---|---|---|",
        ]
        for shown in SETS:
            sums = [
                lambda own: own["cosine"],
                *(lambda own, n=n: own["added"][n] for n in range(3)),
            ]
            ends = [lambda own: own["bare"], lambda own: own["plain"]]
            lines.append(f"| {shown} | {rows(cells, shown, [*sums, *ends])} |")
        lines.append("")
    return "\n".join(lines)


PAGE = Page(
    "function_vector_by_demonstration",
    measured,
    table,
    n=12,
    cells=lambda seeds: [*((task, HEADS) for task in TASKS), *by_seed(seeds)],
)

if __name__ == "__main__":
    PAGE.run()
