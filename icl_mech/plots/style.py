"""What all figures share."""

from html import escape
from textwrap import wrap

PALETTE = ("#1f77b4", "#d62728", "#7f7f7f", "#2ca02c", "#9467bd", "#8c564b")
"""Curve colours, by place."""

MARKS = ("#d62728", "#ff7f0e", "#2ca02c")
"""Colours of frames on heatmaps, by place."""

SCALE = "Blues"
"""Colour scale of heatmaps of values that start at 0."""

SIGNED_SCALE = "RdBu"
"""Colour scale of heatmaps of values around 0."""

BLANK = "#e8e8e8"
"""Behind the cells of a heatmap that have no value."""

TEMPLATE = "plotly_white"

WIDTH = 120
"""Characters of a line below a title: what 700 pixels hold."""


def title(text: str, note: str = "") -> dict[str, object]:
    """Layout of a title with what is to be said below it."""
    return {"text": text, "subtitle": {"text": "<br>".join(_lines(note))}}


def top_margin(note: str) -> dict[str, int]:
    """Room for the title and the lines below it."""
    return {"t": 100 + 16 * max(0, len(_lines(note)) - 1)}


def _lines(note: str) -> list[str]:
    return wrap(note, WIDTH)


def colour(place: int) -> str:
    """Colour of the curve at this place."""
    return PALETTE[place % len(PALETTE)]


def shown(token: str) -> str:
    """As plotly shows it: it reads tags in labels, and `<s>` is a common token."""
    return escape(token, quote=False)
