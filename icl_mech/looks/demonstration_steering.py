"""Figures of steering by demonstrations: the held-out test, the search over blocks and strengths, and side effects."""

import torch

from icl_mech.measurements.causal.recovered_gain import LOG_PROB, DemonstrationSteeringResult
from icl_mech.metrics import Interval
from icl_mech.results import basis
from icl_mech.results.wording import counted, told
from icl_mech.shapes import Bars, LayerCurves

CONTEXTS = {
    "demonstrations": "demonstrations as text",
    "vector": "their vector",
    "shuffled": "vector of shuffled labels",
    "offset": "offset of the label logits",
    "random": "random directions",
}


def drawing(result: DemonstrationSteeringResult, show: str = "recovered") -> Bars | LayerCurves:
    """Changes over the bare queries by context, by block and strength, or away from the task.

    Args:
        result: The result to draw.
        show: `recovered`, `search` or `side_effects`.
    """
    if show == "search":
        return _search(result)
    return _recovered(result) if show == "recovered" else _side_effects(result)


def _recovered(result: DemonstrationSteeringResult) -> Bars:
    contexts = [name for name in CONTEXTS if name in result.contexts]
    changes = [result.change(name) for name in contexts]
    return Bars(
        "Demonstrations as text and as a vector",
        tuple(CONTEXTS[name] for name in contexts),
        ("log-probability", "accuracy"),
        *_ends([[change.nats, change.accuracy] for change in changes]),
        y_title="change over the bare query",
        note=_note(result, result.count, "held-out"),
        meanings=("label", "target"),
        levels=((0.0, "bare query"),),
        apart=(f"change of the {LOG_PROB}", "change of accuracy"),
    )


def _search(result: DemonstrationSteeringResult) -> LayerCurves:
    tried = result.sel("searched")
    return LayerCurves(
        "Effect of the vector by block and strength",
        tuple(f"strength {told(strength)}" for strength in result.strengths),
        tried.values.T,
        tried.low.T,
        tried.high.T,
        y_title=tried.unit,
        note=_note(result, len(result.searched) - result.count, "training"),
        x=tuple(map(float, result.layers)),
        x_title="output of block, to which the vector is added",
        levels=((0.0, "bare query"),),
        marks=((float(result.layer), f"chosen: strength {told(result.strength)}"),),
    )


def _side_effects(result: DemonstrationSteeringResult) -> Bars:
    states, names, titles = (
        ("vector", "random"),
        [*result.tasks],
        ["change of accuracy"] * len(result.tasks),
    )
    columns = [[result.task_accuracy(task, state) for state in states] for task in result.tasks]
    losses = [loss for state in states if (loss := result.added_loss(state)) is not None]
    if losses:
        names, titles, columns = [*names, "texts"], [*titles, "nats per token"], [*columns, losses]
    return Bars(
        "Side effects of the vector",
        tuple(CONTEXTS[state] for state in states),
        tuple(names),
        *_ends([[column[row] for column in columns] for row in range(len(states))]),
        y_title="change with the vector",
        note="95 % intervals over prompts of each task, and over texts",
        levels=((0.0, "no change"),),
        apart=tuple(f"{name}: {title}" for name, title in zip(names, titles, strict=True)),
    )


def _ends(rows: list[list[Interval]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Values, low and high ends."""
    values = torch.tensor([[[*interval] for interval in row] for row in rows], dtype=torch.float64)
    return values[..., 0], values[..., 1], values[..., 2]


def _note(result: DemonstrationSteeringResult, count: int, which: str) -> str:
    return basis(result, counted(count, f"{which} prompt"), quantity="")
