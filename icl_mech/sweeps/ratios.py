"""Shares of a gap over many items: ratios of means, with intervals from their linear parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import SweepError
from icl_mech.measurements.heads.ablation import NONE, Ablation
from icl_mech.metrics import Interval, early_exit_layer, mean_interval
from icl_mech.studies import Analysis
from icl_mech.sweeps.averaged import Averages

if TYPE_CHECKING:
    from icl_mech.sweeps.result import Sweep


def gap_reduction(
    sweep: "Sweep", condition: str = "chosen heads", over: str | Sequence[str] = ("task", "seed")
) -> Averages:
    """Share of the gap between true and false demonstrations that an ablation closes.

    It is the ratio of the means over all items, not the mean of their ratios, which single items
    with hardly any gap would rule. Its interval is that of the mean of
    `closed - ratio * gap`, divided by the mean gap; where the interval of the mean gap includes 0,
    the ratio is undefined.

    Raises:
        SweepError: no item has this ablation.
    """

    def parts(analysis: Analysis) -> tuple[Tensor, Tensor] | None:
        result = analysis.ablation
        return _parts(result, condition) if condition in result.conditions else None

    def mean_of(place: int) -> Any:
        def value(analysis: Analysis) -> Interval | None:
            found = parts(analysis)
            return None if found is None else mean_interval(found[place])

        return value

    closed = sweep.average(mean_of(0), over, name="closed")
    gap = sweep.average(mean_of(1), over, name="gap")
    cells = []
    from dataclasses import replace

    for one, whole in zip(closed.cells, gap.cells, strict=True):
        ratio = float(one.value / whole.value) if float(whole.low) > 0 else torch.nan
        size = float(whole.value)

        def linear(analysis: Analysis, ratio: float = ratio, size: float = size) -> Any:
            found = parts(analysis)
            return None if found is None else mean_interval((found[0] - ratio * found[1]) / size)

        if ratio != ratio:
            nothing = torch.full_like(one.value, torch.nan)
            cells.append(replace(one, value=nothing, low=nothing, high=nothing))
            continue
        place = {dim: own for dim, own in one.dims.items() if dim in gap.varied}
        around = sweep.average(linear, over, **place).cells[0]
        cells.append(
            replace(one, value=one.value * 0 + ratio, low=around.low + ratio, high=around.high + ratio,
                    points=torch.full_like(one.points, torch.nan))
        )  # fmt: skip
    name = f"share of the gap closed by {condition}"
    return replace(closed, name=name, unit="share of the gap", cells=tuple(cells), heading=name)


def _parts(
    result: Ablation, condition: str
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """What the ablation gives back with false demonstrations, and the gap, of every pair."""
    own = result.scores[[i for i, name in enumerate(result.conditions) if name == condition], 1]
    plain = result.scores[result.conditions.index(NONE)]
    return (own.mean(0) - plain[1]).double(), (plain[0] - plain[1]).double()


def fixed_exit(
    sweep: "Sweep", side: str = "false", over: str | Sequence[str] = ("task", "seed")
) -> tuple[int, Averages]:
    """One layer for all tasks to leave at, chosen on every second seed and tested on the others.

    It is the one with the largest mean advantage over the last layer with false demonstrations, as
    in the paper; seeds draw their queries from the same examples, so some may have chosen it too.

    Returns:
        The layer, and the change of calibrated accuracy there.

    Raises:
        SweepError: fewer than two seeds, or models of several depths.
    """
    seeds = sorted({item.seed for item in sweep.plan})
    if len(seeds) < 2:
        raise SweepError("A layer is chosen on some seeds and tested on others; run two at least.")
    accuracy = [
        analysis.layer_accuracy.accuracy("false")
        for _, analysis in sweep.select(seed=seeds[::2])
        if "layer_accuracy" in analysis
    ]
    if len({len(own) for own in accuracy}) != 1:
        raise SweepError("One layer for all needs items of one depth; select a model.")
    layer = early_exit_layer(torch.stack(accuracy))

    def change(analysis: Analysis) -> Interval:
        scores = analysis.layer_accuracy.pair_scores[:, ("true", "false").index(side)].double()
        return mean_interval(scores[:, layer] - scores[:, -1])

    name = f"change by leaving at layer {layer}, {side} demonstrations"
    return layer, sweep.select(seed=seeds[1::2]).average(change, over, name=name)
