"""Figures of task heads: maps of both scores, the effects of ablation, all heads on one map, and shared heads."""

from itertools import product

import torch

from icl_mech._typing import Tensor
from icl_mech.looks.head_maps import head_map
from icl_mech.measurements.causal.head_maps import heads_of
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.task_claims import CONTEXT, SETS, TaskHeadsResult
from icl_mech.results import basis
from icl_mech.results.wording import counted
from icl_mech.shapes import Bars, Grids, LabelMatrix, Scatter
from icl_mech.shapes.curves import Meaning

TITLES = {"recognition": "Task recognition", "learning": "Task learning"}
IN = {"zero_shot": "zero-shot", "shuffled": "shuffled labels"}
MEANINGS: tuple[Meaning, ...] = ("label", "target", "text", "query", "false", "true", "reference")


def drawing(result: TaskHeadsResult, show: str = "scores") -> Grids | Bars | Scatter | LabelMatrix:
    """Scores above their controls, effects of ablation, both scores of all heads, or shared heads.

    Args:
        result: The result to draw.
        show: `scores`, `ablation`, `map` or `overlap`.
    """
    if show == "ablation":
        return _ablation(result)
    if show == "map":
        return _map(result)
    return _overlap(result) if show == "overlap" else _scores(result)


def _scores(result: TaskHeadsResult) -> Grids:
    """Heatmaps of both scores, the chosen heads framed."""
    maps = tuple(
        head_map(
            result.sel(f"{name}_above"),
            f"{TITLES[name]} above its control",
            result.of(name),
            quantity="score minus control",
            signed=True,
        )
        for name in SETS
    )
    return Grids("Task recognition and task learning", maps, basis(result))


def _ablation(result: TaskHeadsResult) -> Bars:
    """Changes of both measures without each set, without random heads, and in the context of comparison."""
    rows, groups = [], []
    for name in SETS:
        rows.append(_both(result, "{}_change", context="demonstrations", set=name))
        groups.append(f"{name} heads")
        rows.append(_both(result, "random_{}_change", set=name))
        groups.append(f"random heads for {name}")
        if CONTEXT[name] in result.contexts:
            rows.append(_both(result, "{}_change", context=CONTEXT[name], set=name))
            groups.append(f"{name} heads, {IN[CONTEXT[name]]}")
    value, low, high = torch.tensor(rows, dtype=torch.float64).unbind(-1)
    return Bars(
        "Ablating task heads",
        tuple(groups),
        ("probability outside label words", "right answers"),
        *(value, low, high),
        y_title="change without these heads",
        note=f"{basis(result)}; random heads: mean of {result.random_right.shape[-1]} draws",
        meanings=("label", "target"),
        levels=((0.0, "no change"),),
        apart=("probability outside label words", "fraction of right answers"),
    )


def _both(result: TaskHeadsResult, quantity: str, **labels: str) -> list[list[float]]:
    """Value and ends of both measures."""
    return [[*result.interval(quantity.format(name), **labels)] for name in ("outside", "right")]


def _map(result: TaskHeadsResult) -> Scatter:
    """All heads by both scores; a group for every combination of sets."""
    heads = heads_of(result.recognition.shape[1:])
    inside = {
        head: tuple(name for name, members in result.sets.items() if head in members)
        for head in heads
    }
    groups = tuple(" + ".join(inside[head]) or "other heads" for head in heads)
    order = sorted({*groups} - {"other heads"}, key=lambda name: _rank(result, name))
    most: tuple[Meaning, ...] = (MEANINGS * len(order))[: len(order)]
    x, y = (result.sel(f"{name}_above").values.flatten() for name in SETS)
    return Scatter(
        title="Sets of heads by what their output writes",
        x=x,
        y=y,
        names=tuple(map(head_name, heads)),
        groups=groups,
        x_title="task recognition above its control",
        y_title="task learning above its control",
        note=f"means over {counted(result.count, 'prompt')}",
        order=(*order, *(["other heads"] if "other heads" in groups else [])),
        meanings=(*most, *(("other",) if "other heads" in groups else ())),
        named=tuple(place for place, head in enumerate(heads) if inside[head]),
    )


def _rank(result: TaskHeadsResult, group: str) -> tuple[int, ...]:
    """Single sets first, in their order."""
    names = group.split(" + ")
    return len(names), *map([*result.sets].index, names)


def _overlap(result: TaskHeadsResult) -> LabelMatrix:
    """Number of heads that every two sets share."""
    names, members = zip(*result.sets.items(), strict=True)
    shared = [len({*one} & {*other}) for one, other in product(members, members)]
    values: Tensor = torch.tensor(shared, dtype=torch.float64).unflatten(
        0, (len(names), len(names))
    )
    return LabelMatrix(
        "Heads shared by sets", values, names, names, "", "", "heads", counts=True, diagonal=True
    )
