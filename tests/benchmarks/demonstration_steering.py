"""How much of the gain from demonstrations one vector recovers on the offline model, and what it costs.

Called as `pages` says. Held-out prompts of all seeds, with 95 % intervals over seeds and prompts, and the seeds one by one.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import DemonstrationSteering
from icl_mech.measurements.causal.recovered_gain import DemonstrationSteeringResult
from icl_mech.metrics import Interval, nested_interval
from icl_mech.metrics.ratios import nested_ratio
from icl_mech.results.wording import said, told
from tests.benchmarks.pages import TASKS, Cell, Kept, Page, of

SIDES = {"headlines": "questions", "questions": "headlines"}
"""Each task with the one on which side effects are measured."""
DRAWS = 3
EVERY = 5
"""Distance of the blocks that are tried."""
ROWS = {
    "demonstrations": "demonstrations as text",
    "vector": "their vector",
    "shuffled": "vector of shuffled labels",
    "offset": "offset of the label logits",
    "random": "random directions (mean of 3)",
}


def measured(model: Any, cell: Cell, n: int, kept: Kept) -> DemonstrationSteeringResult:
    """The result of a task and seed."""
    task, seed = cell
    prompts = icl.build_prompts(task, model, shots=1, n=n, seed=seed)
    layers = range(EVERY - 1, model.cfg.n_layers, EVERY)
    measurement = DemonstrationSteering(layers=layers, draws=DRAWS, tasks=[SIDES[task]], seed=seed)
    return measurement(model, prompts, progress=False)


Results = Sequence[DemonstrationSteeringResult]


def over_seeds(results: Results, values: Callable[[DemonstrationSteeringResult], Any]) -> Interval:
    """The mean over seeds of the means over their prompts."""
    pooled = nested_interval([values(result) for result in results])
    return Interval(*(float(end) for end in (pooled.value, pooled.low, pooled.high)))


def minus(context: str, control: str, which: str = "log_prob") -> Callable[..., torch.Tensor]:
    """Values of held-out prompts in a context minus those in another."""

    def values(result: DemonstrationSteeringResult) -> torch.Tensor:
        of_rows = getattr(result, which)[result.held_out]
        return (
            of_rows[:, result.contexts.index(context)] - of_rows[:, result.contexts.index(control)]
        )

    return values


def table(kept: Kept) -> str:
    """All tasks in Markdown."""
    lines = []
    for task in TASKS:
        if not (results := of(kept, task)):
            continue
        gain = [minus("demonstrations", "bare")(result) for result in results]
        above = over_seeds(results, minus("demonstrations", "bare")).low > 0
        lines += [
            f"**`{task}`**: {sum(result.count for result in results)} held-out prompts of {len(results)} seeds.",
            "",
            "| compared with the bare query | nats | accuracy | fraction of the gain |",
            "|---|---|---|---|",
        ]
        for context, name in ROWS.items():
            nats = over_seeds(results, minus(context, "bare"))
            right = over_seeds(results, minus(context, "bare", "right"))
            pooled = nested_ratio([minus(context, "bare")(result) for result in results], gain)
            share = Interval(*(float(end) for end in (pooled.value, pooled.low, pooled.high)))
            fraction = said(share) if above and share.value == share.value else "–"
            lines.append(
                f"| {name} | {said(nats, sign=True)} | {said(right, sign=True)} | {fraction} |"
            )
        lines += ["", "| the vector minus a control, nats | all seeds | by seed |", "|---|---|---|"]
        for control in ("random", "offset", "shuffled"):
            pooled = over_seeds(results, minus("vector", control))
            each = ", ".join(
                told(effect.value, sign=True) if (effect := result.beyond(control)) else "–"
                for result in results
            )
            lines.append(f"| {ROWS[control]} | {said(pooled, sign=True)} | {each} |")
        lines += ["", "| side effect | with the vector | with random directions |", "|---|---|---|"]
        for task_number, name in enumerate(results[0].tasks):
            both = [over_seeds(results, _change(task_number, state)) for state in (1, 2)]
            lines.append(
                f"| accuracy on `{name}` | {said(both[0], sign=True)} | {said(both[1], sign=True)} |"
            )
        losses = [
            over_seeds(results, lambda result, state=state: _loss(result, state))
            for state in (1, 2)
        ]
        lines.append(
            f"| loss on 8 texts, nats per token | {said(losses[0], sign=True)} | {said(losses[1], sign=True)} |"
        )
        chosen = ", ".join(f"{result.layer} ({told(result.strength)})" for result in results)
        lines += [
            "",
            f"Block (strength) by seed: {chosen}. A vector recovers part of the gain, by seed: "
            f"{', '.join(result.status for result in results)}; beyond the vector of shuffled labels: "
            f"{', '.join(result.status_of('labels') for result in results)}. Fraction of the gain by seed: "
            f"{', '.join(_fraction(result) for result in results)}.",
            "",
        ]
    return "\n".join(lines)


def _change(task: int, state: int) -> Callable[[DemonstrationSteeringResult], torch.Tensor]:
    def values(result: DemonstrationSteeringResult) -> torch.Tensor:
        assert result.task_right is not None
        right = result.task_right[:, task]
        return (right[:, state] - right[:, 0])[right[:, 0].isfinite()]

    return values


def _loss(result: DemonstrationSteeringResult, state: int) -> torch.Tensor:
    assert result.text_loss is not None
    return result.text_loss[:, state] - result.text_loss[:, 0]


def _fraction(result: DemonstrationSteeringResult) -> str:
    share = result.share()
    return said(share) if share.value == share.value else "undefined"


PAGE = Page("demonstration_steering", measured, table, n=48)

if __name__ == "__main__":
    PAGE.run()
