"""Figures of one false demonstration: harm and accuracy by place, the lens by layer, and a map of heads."""

from typing import Any

import torch

from icl_mech.measurements.by_demonstration.one_false_demonstration import (
    OneFalseDemonstrationResult,
)
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import Grid, LayerCurves, Meaning, Panel

NAMES: dict[str, tuple[str, Meaning]] = {
    "true": ("all labels true", "true"),
    "false": ("one label false", "false"),
    "exchanged": ("same labels, text exchanged", "reference"),
}
HARMS: dict[str, tuple[str, str, Meaning]] = {
    "harm": ("true", "compared with all labels true", "false"),
    "harm_beyond": ("exchanged", "compared with the exchanged text", "reference"),
}


def drawing(result: OneFalseDemonstrationResult, show: str = "places") -> LayerCurves | Grid:
    """Harm and right answers by place; right answers and margin by layer; or attention of heads.

    Args:
        result: The result to draw.
        show: `places`, `layers` or `heads`.
    """
    if show == "heads":
        return _heads(result)
    return _layers(result) if show == "layers" else _places(result)


def _sides(result: OneFalseDemonstrationResult) -> tuple[list[str], list[Meaning]]:
    names, meanings = zip(*(NAMES[side] for side in result.sides), strict=True)
    return list(names), list(meanings)


def _chance(result: OneFalseDemonstrationResult) -> tuple[tuple[float, str], ...]:
    chance = 1 / len(result.labels)
    return ((chance, f"chance {told(chance)}"),)


def _places(result: OneFalseDemonstrationResult) -> LayerCurves:
    harms = [name for name, (side, _, _) in HARMS.items() if side in result.sides]
    lost, right = [result.sel(name) for name in harms], result.sel("accuracy")
    names, meanings = _sides(result)
    values, low, high = (
        torch.cat([torch.stack([getattr(sample, end) for sample in lost]), getattr(right, end)])
        for end in ("values", "low", "high")
    )
    split = len(lost)
    panels = (
        Panel("Probability of the right answer lost", (*range(split),), "lost", ((0.0, "none"),)),
        Panel(
            "Right answers",
            (*range(split, split + len(names)),),
            "fraction of right answers",
            _chance(result),
        ),
    )
    return LayerCurves(
        "One false demonstration, by place",
        (*(HARMS[name][1] for name in harms), *names),
        *(values, low, high),
        y_title=lost[0].unit,
        note=basis(result, quantity="harm"),
        x=tuple(float(place + 1) for place in result.places),
        x_title="place of the false label",
        meanings=(*(HARMS[name][2] for name in harms), *meanings),
        panels=panels,
    )


def _layers(result: OneFalseDemonstrationResult) -> LayerCurves:
    right, margin = result.sel("lens_accuracy"), result.sel("margin")
    names, meanings = _sides(result)
    values, low, high = (
        torch.cat([getattr(right, end), getattr(margin, end)]) for end in ("values", "low", "high")
    )
    early: Any = result.exit
    panels = (
        Panel("Right answers", (*range(len(names)),), "fraction of right answers", _chance(result)),
        Panel(
            "Right answer above the false label",
            (*range(len(names), 2 * len(names)),),
            "log-probability (nats)",
            ((0.0, "equal"),),
        ),
    )
    return LayerCurves(
        "One false demonstration, read out after each layer",
        (*names, *names),
        *(values, low, high),
        y_title=right.unit,
        note=basis(result, quantity="lens_accuracy"),
        x_title="read out after layer (0: the embedding)",
        meanings=(*meanings, *meanings),
        panels=panels,
        marks=((float(early.layer), "early exit"),) if early else (),
    )


def _heads(result: OneFalseDemonstrationResult) -> Grid:
    change = (result.attention[:, 1] - result.attention[:, 2]).double().mean((0, 1))
    drawn = result.misfit_heads()
    return Grid(
        "Attention to the label word where it is false, minus where it is correct",
        change.T,
        row_title="head",
        column_title="layer",
        quantity="attention",
        note=basis(result),
        signed=True,
        marked=tuple((head, layer) for layer, head in drawn),
        names=tuple(f"{layer}.{head}" for layer, head in drawn),
    )
