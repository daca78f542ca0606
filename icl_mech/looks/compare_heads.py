"""Figures of sets of heads: the effect of ablating them, and the heads they share."""

import torch

from icl_mech.errors import ResultError
from icl_mech.measurements.causal.compare_heads import CompareHeadsResult
from icl_mech.results import basis
from icl_mech.shapes import Bars, LabelMatrix


def drawing(result: CompareHeadsResult, show: str = "ablation") -> Bars | LabelMatrix:
    """Changes of the logit difference, or the overlap.

    Args:
        result: The result to draw.
        show: `ablation` or `overlap`.

    Raises:
        ResultError: no set has a head that is in no other set.
    """
    return _overlap(result) if show == "overlap" else _removed(result)


def _overlap(result: CompareHeadsResult) -> LabelMatrix:
    """Number of heads that two sets share."""
    return LabelMatrix(
        "Heads shared by sets",
        result.overlap,
        result.sets,
        result.sets,
        "",
        "",
        "heads",
        counts=True,
        diagonal=True,
    )


def _removed(result: CompareHeadsResult) -> Bars:
    """Changes by set, its heads before the random ones, then by side."""
    if not result.ablated:
        raise ResultError(
            "Every head is in several sets, so none was ablated; draw show='overlap' instead."
        )
    change, random = (result.sel(name) for name in ("change", "random"))
    ends = zip(
        (change.values, change.low, change.high),
        (random.values, random.low, random.high),
        strict=True,
    )
    value, low, high = (
        torch.stack([set_end.T, random_end.T], dim=1).flatten(0, 1) for set_end, random_end in ends
    )
    groups = ((name, f"random heads for {name}") for name in result.ablated)
    return Bars(
        title="Ablating the heads that only one set has",
        groups=tuple(group for pair in groups for group in pair),
        names=("true demonstrations", "false demonstrations"),
        values=value,
        low=low,
        high=high,
        y_title=change.unit,
        note=f"{basis(result)}; random heads: mean of {result.draws} draws",
        meanings=("true", "false"),
        sides=("wrong label gains", "right label gains"),
    )
