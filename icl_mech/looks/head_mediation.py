"""Figure of the effects of single heads: one heatmap per measure."""

from icl_mech.looks.head_maps import head_map
from icl_mech.measurements.causal.head_maps import FRAMED, ordered
from icl_mech.measurements.causal.head_mediation import UNITS, HeadMediationResult
from icl_mech.results import basis
from icl_mech.shapes import Grid, Grids


def drawing(result: HeadMediationResult, show: str = "maps") -> Grids | Grid:
    """Heatmaps of the effects, with layers as columns and heads as rows.

    Args:
        result: The result to draw.
        show: `maps` (both measures) or one measure.
    """
    if show != "maps":
        return _map(result, show, f"{basis(result)}; framed: the {FRAMED} largest effects")
    maps = tuple(_map(result, measure) for measure in UNITS)
    return Grids("Effect of single heads", maps, basis(result))


def _map(result: HeadMediationResult, measure: str, note: str = "") -> Grid:
    effects, title = result.sel(measure), UNITS[measure]
    return head_map(
        effects,
        f"{title[0].upper()}{title[1:]}",
        ordered(effects.values, FRAMED),
        quantity="probability" if measure == "probability" else "logits",
        signed=True,
        note=note,
    )
