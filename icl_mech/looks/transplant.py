"""Figures of activation patching between runs: flips by place and layer, or curves with a random-token baseline."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.causal.transplant import DIRECTIONS, TransplantResult
from icl_mech.results import Samples, basis
from icl_mech.results.wording import counted
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves, Meaning, Panel

INTO = ("From the false run into the true one", "From the true run into the false one")

PLACES: dict[str, tuple[str, Meaning]] = {
    "anchors": ("label words", "label"),
    "target": ("target", "target"),
    "query": ("query text", "query"),
    "template": ("template", "other"),
}


def drawing(result: TransplantResult, show: str = "map") -> LabelMatrices | LayerCurves:
    """A heatmap of flips by place and layer, or curves of one measure with a random-token baseline.

    Args:
        result: The result to draw.
        show: `map`, `flips`, `log_prob` or `followed`.
    """
    return _map(result) if show == "map" else _curves(result, show)


def _curves(result: TransplantResult, name: str) -> LayerCurves:
    """A panel for each direction; the curves of a place and of its random tokens are consecutive."""
    at_place, at_random = result.sel(name), result.sel(f"random_{name}")
    value, low, high = _beside_random([at_place, at_random], axis=2)
    width = 2 * len(result.at)
    return LayerCurves(
        f"{at_place.unit[0].upper()}{at_place.unit[1:]}",
        _rows(result) * len(DIRECTIONS),
        *(value, low, high),
        y_title=at_place.unit,
        note=_note(result),
        x=tuple(map(float, result.layers)),
        x_title="input of block",
        meanings=tuple(PLACES[at][1] for at in result.at for _ in range(2)) * len(DIRECTIONS),
        nulls=tuple(range(1, width * len(DIRECTIONS), 2)),
        panels=tuple(
            Panel(title, tuple(range(width * i, width * (i + 1)))) for i, title in enumerate(INTO)
        ),
    )


def _map(result: TransplantResult) -> LabelMatrices:
    matrices = []
    for direction, title in zip(DIRECTIONS, INTO, strict=True):
        samples = [result.sel(name, direction=direction) for name in ("flips", "random_flips")]
        value, low, high = _beside_random(samples, axis=1)
        matrices.append(
            LabelMatrix(
                title,
                value,
                _rows(result),
                tuple(map(str, result.layers)),
                "",
                "input of block",
                "fraction of answers that become the other run's",
                low=low,
                high=high,
                ends=(0.0, 1.0),
            )
        )
    return LabelMatrices("Where the answer is carried", tuple(matrices), _note(result))


def _beside_random(samples: Sequence[Samples], *, axis: int) -> list[Float[Tensor, "row layer"]]:
    """Values and interval ends; rows of a place come before those of its random tokens."""
    ends = zip(*((each.values, each.low, each.high) for each in samples), strict=True)
    return [torch.stack(end, dim=axis).flatten(0, axis) for end in ends]


def _rows(result: TransplantResult) -> tuple[str, ...]:
    return tuple(name for at in result.at for name in (PLACES[at][0], f"random: {PLACES[at][0]}"))


def _note(result: TransplantResult) -> str:
    pairs = counted(result.count, "pair")
    return basis(result, f"{result.differing} of {pairs} answered differently")
