"""Averages as small multiples: curves over layers or doses, or dots with intervals."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from icl_mech.errors import SweepError, near_matches
from icl_mech.measurements.saliency import kinds
from icl_mech.shapes import Bars, LayerCurves, Meaning, Panel, Shape
from icl_mech.sweeps.cells import FEW, Averaged, plural
from icl_mech.sweeps.tables import rows

ALONG = ("layer", "depth", "seen")
"""Axes of a quantity that run across a figure."""

NUMBERS = ("false_share", "shots", "n")
"""Dimensions that do so if no axis does and they have several values."""

TITLES = {
    "depth": "share of the model's depth",
    "false_share": "share of false labels",
    "shots": "demonstrations per class",
    "n": "prompts",
    "seen": "demonstrations seen",
}

MEANINGS: dict[str, Meaning] = {
    "true": "true", "false": "false", "no demonstrations": "reference",
    "label": "label", "random": "other", "plain": "reference", "reweighted": "label",
    **{kinds.NAMES[score]: own for score, own in zip(kinds.SCORES, kinds.MEANINGS, strict=True)},
    **{f"S_{score}": own for score, own in zip(kinds.SCORES, kinds.MEANINGS, strict=True)},
}  # fmt: skip

MOST_PANELS = 24

SPARSE = 12
"""Up to this number of columns intervals are bars, not bands."""


def drawing(
    averages: Averaged,
    *,
    panels: str | None = None,
    curves: str | None = None,
    x: str | None = None,
) -> Shape:
    """The shape of averages.

    Raises:
        SweepError: a dimension or axis that is not there.
    """
    free = [*averages.varied, *averages.axes]
    for option, name in (("panels", panels), ("curves", curves), ("x", x)):
        if name is not None and name not in free:
            hint = near_matches(name, free) if free else "These averages are one number."
            raise SweepError(f"{option}={name!r}. {hint}")
    x = x or _across(averages, free, (panels, curves))
    table = [_named(row) for row in rows(averages) if _shown(row, averages)]
    left = [name for name in free if name != x]
    if x is not None:
        panels = panels or next((name for name in left[:-1] if name != curves), None)
        if panels:
            table = [row | _short(row) for row in table]
        return _curves(averages, table, x, panels, [name for name in left if name != panels])
    return _dots(averages, table, curves or (left[-1] if len(left) > 1 else None), left)


def _across(averages: Averaged, free: Sequence[str], taken: Sequence[str | None]) -> str | None:
    for name in (*(a for a in ALONG if a in averages.axes), *NUMBERS):
        if name in free and name not in taken:
            return name
    return None


def _shown(row: dict[str, Any], averages: Averaged) -> bool:
    """Without demonstrations both sides are one."""
    alike = row.get("shots") == 0 and "side" in averages.axes and "shots" in averages.varied
    return not (alike and row["side"] == "false")


def _named(row: dict[str, Any]) -> dict[str, Any]:
    """A row with names for people in place of labels, and numbers for doses."""
    found = dict(row)
    if "score" in found:
        found["score"] = kinds.NAMES.get(found["score"], found["score"])
    if "shots" in found and "side" in found and found["shots"] == 0:
        found["side"], found["shots"] = "no demonstrations", ""
    if "false_share" in found and found["false_share"] is None:
        found["false_share"] = 0.0 if found.get("labels") == "correct" else 1.0
    return found


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Names that have room in small axes."""
    return {"score": str(row["score"]).split(":")[0]} if "score" in row else {}


def note(averages: Averaged) -> str:
    """What bars or bands are, and over how much."""
    bases = sorted({averages.basis(cell) for cell in averages.cells})
    text = f"means over {' or '.join(bases)}, nested 95 % intervals"
    if any(cell.counts[dim] > 1 for cell in averages.cells for dim in averages.fixed):
        text += f" (of just these {' and '.join(map(plural, averages.fixed))})"
    few = [cell for cell in averages.cells if 1 < len(cell.points) < FEW]
    units = {next(dim for dim, count in cell.counts.items() if count > 1) for cell in few}
    if units:
        text += f"; small points: single {' or '.join(map(plural, sorted(units)))}"
    return text


def _title(averages: Averaged) -> str:
    minus = ", ".join(f"{dim} {own}" for dim, own in averages.minus.items())
    return averages.heading + (f", minus that of {minus}" if minus else "")


def _words(row: dict[str, Any], names: Sequence[str]) -> str:
    parts = []
    for name in names:
        own = row[name]
        if own in ("", None):
            continue
        plain = isinstance(own, str)
        parts.append(own if own.startswith("S_") else own.replace("_", " ") if plain else f"{name.replace('_', ' ')} {own:g}"
                     if isinstance(own, int | float) else str(own))  # fmt: skip
    return ", ".join(parts)


def _curves(
    averages: Averaged,
    table: Sequence[dict[str, Any]],
    x: str,
    panel: str | None,
    names: Sequence[str],
) -> LayerCurves:
    own_names = [name for name in names if name != x]
    heads = list(dict.fromkeys(_words(row, [panel]) if panel else "" for row in table))
    if len(heads) > MOST_PANELS:
        raise SweepError(
            f"{len(heads)} panels are too many to be read (at most {MOST_PANELS}); average over more "
            "dimensions, or select a part of the sweep."
        )
    places = sorted({float(row[x]) for row in table})
    found: dict[tuple[str, str], dict[float, dict[str, Any]]] = {}
    for row in table:
        key = (_words(row, [panel]) if panel else "", _words(row, own_names) or averages.name)
        found.setdefault(key, {})[float(row[x])] = row
    blank: dict[str, Any] = {"value": math.nan, "low": math.nan, "high": math.nan}
    ends = [
        torch.tensor([[own.get(at, blank)[end] for at in places] for own in found.values()])
        for end in ("value", "low", "high")
    ]
    spread: list[tuple[int, tuple[float, ...]]] = []
    for place, own in enumerate(found.values()):
        units = max((len(row.get("points", ())) for row in own.values()), default=0)
        if units > 1:
            spread += [
                (place, tuple(_point(own.get(at), unit) for at in places)) for unit in range(units)
            ]
    curve_names = [name for _, name in found]
    parts = tuple(
        Panel(head, tuple(i for i, (own, _) in enumerate(found) if own == head)) for head in heads
    )
    # One look for curves of one name in all panels.
    order = {name: MEANINGS.get(name.split(", ")[-1], "") for name in dict.fromkeys(curve_names)}
    known = all(order.values()) and len(set(order.values())) == len(order)
    usual: tuple[Meaning, ...] = ("label", "text", "query", "other", "target", "reference")
    looks: dict[str, Meaning] = {}
    for i, (name, meaning) in enumerate(order.items()):
        looks[name] = meaning if known else usual[i % len(usual)]  # type: ignore[assignment]
    return LayerCurves(
        title=_title(averages), names=tuple(curve_names),
        values=ends[0].double(), low=ends[1].double(), high=ends[2].double(),
        y_title=averages.unit or averages.name, note=note(averages), x=tuple(places),
        x_title=TITLES.get(x, x), meanings=tuple(looks[name] for name in curve_names),
        apart=_apart(places, max(len(part.curves) for part in parts)),
        panels=parts if panel else (), columns=2 if len(heads) < 5 else 3, spread=tuple(spread),
    )  # fmt: skip


def _apart(places: Sequence[float], curves: int) -> float:
    """How far points of curves are set apart, so that their bars do not hide each other."""
    if len(places) < 2 or curves < 2 or len(places) > SPARSE:
        return 0.0
    return 0.025 * min(b - a for a, b in pairwise(places))


def _point(row: dict[str, Any] | None, unit: int) -> float:
    points = () if row is None else row.get("points", ())
    return float(points[unit]) if unit < len(points) else math.nan


def _dots(
    averages: Averaged, table: Sequence[dict[str, Any]], curves: str | None, left: Sequence[str]
) -> Bars:
    down = [name for name in left if name != curves]
    groups = list(dict.fromkeys(_words(row, down) or averages.name for row in table))
    names = list(dict.fromkeys(_words(row, [curves]) if curves else averages.name for row in table))
    ends = [torch.full((len(groups), len(names)), math.nan, dtype=torch.float64) for _ in range(3)]
    spread = []
    for row in table:
        group = groups.index(_words(row, down) or averages.name)
        dot = names.index(_words(row, [curves]) if curves else averages.name)
        for end, name in zip(ends, ("value", "low", "high"), strict=True):
            end[group, dot] = row[name]
        if len(row.get("points", ())) > 1:
            spread.append((group, dot, tuple(row["points"])))
    value, low, high = ends
    return Bars(
        _title(averages), tuple(groups), tuple(names), value, low, high,
        averages.unit or averages.name, note=note(averages), spread=tuple(spread),
    )  # fmt: skip
