"""What all figures share."""

from html import escape

PALETTE = ("#1f77b4", "#d62728", "#7f7f7f", "#2ca02c", "#9467bd", "#8c564b")
"""Curve colours, by place."""

SCALE = "Blues"
"""Colour scale of heatmaps of values that start at 0."""

SIGNED_SCALE = "RdBu"
"""Colour scale of heatmaps of values around 0."""

BLANK = "#e8e8e8"
"""Behind the cells of a heatmap that have no value."""

TEMPLATE = "plotly_white"


def title(text: str, note: str = "") -> dict[str, object]:
    """Layout of a title with what is to be said below it."""
    return {"text": text, "subtitle": {"text": note}}


def colour(place: int) -> str:
    """Colour of the curve at this place."""
    return PALETTE[place % len(PALETTE)]


def shown(token: str) -> str:
    """As plotly shows it: it reads tags in labels, and `<s>` is a common token."""
    return escape(token, quote=False)
