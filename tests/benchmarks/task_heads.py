"""Task recognition and task learning heads of the offline model.

Called as `pages` says. After all seeds, the heads of the causal study (function vector, induction, false induction, label
promoting) are chosen on other pairs; the sets of the first seed are compared with these.
"""

from collections import Counter
from dataclasses import replace
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import HeadMediation, HeadScores, InductionScores, TaskHeads
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.task_claims import CONTEXT, SETS, TaskHeadsResult
from icl_mech.metrics import Interval
from icl_mech.results.wording import said, told
from icl_mech.studies.causal import HEADS, chosen
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, by_seed

DRAWS = 8
OTHERS, PAIRS = "others", 16
QUIET: dict[str, Any] = {"progress": False}
PROMPTS: dict[str, Any] = {"shots": 1, "demonstrations": "per_prompt"}


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> Any:
    """Scores and ablations of one task and seed, or the sets with which they are compared."""
    task, seed = cell
    if seed == OTHERS:
        return other_sets(model, task)
    prompts = icl.build_prompts(task, model, n=n, seed=seed, **PROMPTS)
    return TaskHeads(draws=DRAWS, seed=seed)(model, prompts, **QUIET)


def other_sets(model: Any, task: str) -> dict[str, list[tuple[int, int]]]:
    """The heads that the causal study would choose on these pairs."""
    pair = icl.build_prompt_pairs(task, model, n=PAIRS, seed=1000, **PROMPTS)
    measures = (HeadMediation("class"), HeadScores(), InductionScores())
    run = icl.measure(model, pair, *measures, **QUIET)
    results = {name: run[name] for name in ("head_mediation", "head_scores", "induction_scores")}
    return {name: list(heads) for name, heads in chosen(results, HEADS).items()}


def over_seeds(values: list[float]) -> str:
    """Mean over seeds with Student's interval, and the seeds one by one."""
    from scipy.stats import t

    every = torch.tensor(values, dtype=torch.float64)
    mean, n = float(every.mean()), len(values)
    if n < 2:
        return told(mean)
    half = float(t.ppf(0.975, n - 1)) * float(every.std(correction=1)) / n**0.5
    return said(Interval(mean, mean - half, mean + half), sign=True)


def often(results: list[TaskHeadsResult], name: Any) -> str:
    """Heads of a set, with the number of seeds that chose them."""
    counts = Counter(head_name(head) for own in results for head in own.of(name))
    named = [f"{head} ({count})" for head, count in counts.most_common() if count > 1]
    return ", ".join(named) or "none twice"


def named(results: list[TaskHeadsResult], heads: str) -> str:
    """Heads that a score names on the tested half, corrected over all, with the number of seeds."""
    counts = Counter(head_name(head) for own in results for head in getattr(own, heads)())
    return ", ".join(f"{head} ({count})" for head, count in counts.most_common(8)) or "none"


def table(kept: Kept) -> str:
    """Effects over seeds, statuses, heads by seed, and overlaps, in Markdown."""
    lines = ["| task | heads | change | random heads | comparison | beyond it (nats) | to lose | by seed |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    every = {
        task: [own for cell, own in kept.items() if cell[0] == task and cell[1] != OTHERS]
        for task in TASKS
    }
    for task, results in every.items():
        for name in SETS:
            effects = [own.effects(name) for own in results]
            change = [effect.change.value for effect in effects]
            random = [effect.change.value - effect.beyond_random.value for effect in effects]  # type: ignore[union-attr]
            measure = {"recognition": "outside_change", "learning": "right_change"}[name]
            other = [
                own.interval(measure, context=CONTEXT[name], set=name).value for own in results
            ]
            nats = [effect.beyond_context.value for effect in effects]  # type: ignore[union-attr]
            in_nats = all(name == "recognition" or own.log_right is not None for own in results)
            room = [effect.room.value for effect in effects]  # type: ignore[union-attr]
            statuses = Counter(own.status_of(name) for own in results)
            said_statuses = ", ".join(
                f"{count} {status}" for status, count in statuses.most_common()
            )
            columns = [f"`{task}`", name, *map(over_seeds, (change, random, other)), over_seeds(nats) if in_nats else "–", over_seeds(room), said_statuses]  # fmt: skip
            lines.append(f"| {' | '.join(columns)} |")
    lines += ["", "| task | chosen for recognition | chosen for learning | recognition clear | learning clear |", "|---|---|---|---|---|"]  # fmt: skip
    for task, results in every.items():
        columns = [f"`{task}`", *(often(results, name) for name in SETS), *(named(results, name) for name in ("recognising", "teaching"))]  # fmt: skip
        lines.append(f"| {' | '.join(columns)} |")
    lines += ["", "| task | set | other set | shared heads | expected | p |", "|---|---|---|---|---|---|"]  # fmt: skip
    for task, results in every.items():
        if not (sets := kept.get((task, OTHERS))) or not results:
            continue
        others = tuple(tuple(map(tuple, heads)) for heads in sets.values())
        own = replace(results[0], other_names=tuple(sets), others=others)
        for overlap in own.overlaps:
            heads = ", ".join(map(head_name, overlap.heads)) or "–"
            mark = "**" if overlap.beyond else ""
            lines.append(
                f"| `{task}` | {overlap.first} | {overlap.second} | {mark}{heads}{mark} | "
                f"{overlap.expected:.2f} | {overlap.p_value:.2g} |"
            )
    return "\n".join(lines) + "\n"


PAGE = Page(
    "task_heads",
    measured,
    table,
    n=48,
    cells=lambda seeds: [*by_seed(seeds), *((task, OTHERS) for task in TASKS)],
)

if __name__ == "__main__":
    PAGE.run()
