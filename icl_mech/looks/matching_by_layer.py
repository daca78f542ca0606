"""Figure of matching by layer: prefix matching and the fraction of the gap, on separate axes."""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.heads.matching_by_layer import SHARE, MatchingByLayerResult
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves, Meaning, Panel


def drawing(result: MatchingByLayerResult) -> LayerCurves:
    """Prefix matching by layer and, on separate axes, the fraction of the gap after each layer.

    Args:
        result: The result to draw.
    """
    low, high = result.quantities()["prefix_matching"].ends()
    # A layer lies between two readouts, so there is one readout more than layers.
    ends = [_widened(end, before=False) for end in (result.matching, low, high)]
    share = (result.gap_share, result.gap_low, result.gap_high)
    ends += [_widened(end, before=True) for end in share] if result.has_gap else []
    rows = len(ends) // 3
    panels = (
        Panel("Prefix matching, heads added", (0,), "prefix-matching score"),
        Panel("Fraction of the final gap", (1,), SHARE, ((1.0, "final gap"),)),
    )
    note = basis(result)
    if not result.has_gap:
        note += "; no fraction of the gap: the final gap is not clearly above 0"
    meanings: tuple[Meaning, ...] = ("label", "other")
    return LayerCurves(
        title="Prefix matching by layer, and where the gap opens",
        names=("heads of the layer", "gap after the layer")[:rows],
        values=torch.stack(ends[0::3]),
        low=torch.stack(ends[1::3]),
        high=torch.stack(ends[2::3]),
        y_title="prefix-matching score",
        x_title="layer of the heads (gap: read after layer …, 0: the embedding)",
        note=note,
        meanings=meanings[:rows],
        panels=panels[:rows],
        columns=1,
    )


def _widened(end: Float[Tensor, " layer"], *, before: bool) -> Float[Tensor, " entry"]:
    """Pad with one NaN: after the layers (values of heads), or before them (readouts after layers)."""
    blank = torch.full((1,), torch.nan, dtype=end.dtype)
    return torch.cat([blank, end] if before else [end, blank])
