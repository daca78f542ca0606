"""Figures of stability: agreement compared with chance, over what conclusions hold, and how often heads recur."""

import torch

from icl_mech.checking import Count
from icl_mech.measurements.causal.head_maps import ordered
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.stability.agreement import Line
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.shapes import Bars, Grid, Grids, Table

OPEN = "–"


def drawing(
    result: StabilityResult, show: str = "agreement", most: Count = 4
) -> Bars | Table | Grids:
    """Agreement on heads or on layers and what chance gives, over what conclusions hold, or how often heads recur.

    Args:
        result: The result to draw.
        show: `agreement`, `layers`, `claims` or `heads`.
        most: Maximum number of maps of heads.
    """
    if show == "claims":
        return _claims(result)
    if show == "heads":
        return _heads(result, most)
    if show == "layers":
        lines = result.measured("distance")
        title, unit = "Distance of critical layers between runs", "layers"
        return _beside_chance(lines, title, f"mean distance of two runs ({unit})", result)
    lines = result.measured("overlap", "correlation")
    title = "Agreement on heads between runs"
    return _beside_chance(
        lines, title, f"Jaccard overlap of the top {result.k} heads, or rank correlation", result
    )


def _beside_chance(lines: tuple[Line, ...], title: str, unit: str, result: StabilityResult) -> Bars:
    """Means over pairs of runs, and their chance levels."""
    chance = [line.chance for line in lines]
    values, low, high = (
        torch.tensor([*zip(ends, chance, strict=True)], dtype=torch.float64)
        for ends in zip(*(line.interval for line in lines), strict=True)
    )
    # A chance level is exact.
    low[:, 1] = high[:, 1] = torch.nan
    exchanged = "within layers" if result.within == "layer" else "in the whole model"
    return Bars(
        title,
        tuple(f"{line.subject}, {len(line.names)} {line.axis}" for line in lines),
        ("observed", "by chance"),
        values,
        low,
        high,
        y_title=unit,
        note=f"95 % intervals for new runs (from three runs on); chance: heads relabelled {exchanged}"
        if lines and lines[0].measure != "distance"
        else "95 % intervals for new runs (from three runs on); chance: any layer",
        meanings=("label", "reference"),
    )


def _claims(result: StabilityResult) -> Table:
    """Over how many values of each axis each conclusion holds."""
    axes = list(dict.fromkeys(line.axis for lines in result.conclusions for line in lines))
    rows = []
    for lines in result.conclusions:
        held = {line.axis: f"{line.held} of {len(line.names)}" for line in lines}
        rows.append((lines[0].subject, *(held.get(axis, OPEN) for axis in axes)))
    return Table(
        "Over what each conclusion holds",
        ("conclusion", *axes),
        tuple(rows),
        "number of values at which it holds",
    )


def _heads(result: StabilityResult, most: int) -> Grids:
    """Fraction of runs that have a head among their top k, one map for each axis."""
    overlaps = [line for line in result.lines if line.measure == "overlap"]
    maps = []
    for line, share in list(zip(overlaps, result.shares, strict=True))[:most]:
        often = [head for head in ordered(share, len(line.heads)) if head_name(head) in line.heads]
        maps.append(
            Grid(
                title=f"{line.subject}, {line.runs} runs over {len(line.names)} {line.axis}",
                values=share.T,
                row_title="head",
                column_title="layer",
                quantity="fraction of runs",
                marked=tuple((head, layer) for layer, head in often),
                names=tuple(map(head_name, often)),
            )
        )
    return Grids(f"How often heads are among the top {result.k}", tuple(maps))
