"""Figures of attribution patching: heatmaps over layers and heads, and the estimate against exact patching."""

from icl_mech.errors import ResultError
from icl_mech.looks.head_maps import head_map
from icl_mech.measurements.causal.attribution_patching import AttributionPatchingResult
from icl_mech.measurements.causal.head_maps import FRAMED, heads_of
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.results import basis
from icl_mech.shapes import Grid, Grids, Scatter

TITLES = {"attribution": "Attribution", "exact": "Exact patching, at all positions"}


def drawing(result: AttributionPatchingResult, show: str = "maps") -> Grids | Grid | Scatter:
    """Heatmaps of attribution and exact patching, or one against the other.

    Args:
        result: The result to draw.
        show: `maps`, `attribution`, `exact` or `both` (one against the other).

    Raises:
        ResultError: exact patching was not run.
    """
    if result.exact is None and show in ("exact", "both"):
        raise ResultError("Exact patching was not run; measure with exact=True.")
    if show == "both":
        return _against(result)
    if show != "maps":
        return _map(result, show, f"{basis(result)}; framed: the {FRAMED} largest attributions")
    shown = ("attribution",) if result.exact is None else ("attribution", "exact")
    maps = tuple(_map(result, name) for name in shown)
    return Grids("Attribution of heads", maps, basis(result))


def _map(result: AttributionPatchingResult, name: str, note: str = "") -> Grid:
    return head_map(
        result.sel(name), TITLES[name], result.top(), quantity="logits", signed=True, note=note
    )


def _against(result: AttributionPatchingResult) -> Scatter:
    quantities, top = result.quantities(), result.top()
    x, y = quantities["attribution"].value(), quantities["exact"].value()
    heads = heads_of(x.shape)
    return Scatter(
        title="Attribution and exact patching",
        x=x.flatten(),
        y=y.flatten(),
        names=tuple(map(head_name, heads)),
        groups=tuple("largest attribution" if head in top else "other heads" for head in heads),
        x_title="attribution, in logits",
        y_title="change under exact patching, in logits",
        note=f"means over {result.count} pairs of prompts",
        order=("largest attribution", "other heads"),
        meanings=("target", "other"),
        named=tuple(i for i, head in enumerate(heads) if head in top),
    )
