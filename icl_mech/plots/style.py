"""The shared style of all figures: one meaning per colour, with a second cue besides colour.

Pages show the same figures in the dark theme by replacing each light colour with its counterpart, so
a colour has one meaning only; black and white frames are written by name and unchanged.
"""

import json
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from icl_mech.shapes import Meaning

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Look(NamedTuple):
    """The look of a meaning: colour in the light and dark theme, line and marker."""

    light: str
    dark: str
    dash: str
    marker: str


LOOKS: dict[Meaning, Look] = {
    "text": Look("#0072b2", "#5cb3f0", "solid", "circle"),
    "label": Look("#bd4c00", "#ff9552", "dash", "square"),
    "other": Look("#68707b", "#99a2ae", "dot", "diamond"),
    "query": Look("#00805f", "#3fcf9f", "dashdot", "triangle-up"),
    "target": Look("#1a1c20", "#f4f6f8", "longdash", "star"),
    "true": Look("#3b3a9e", "#a9a8ff", "solid", "circle"),
    "false": Look("#b5307c", "#ff8ac4", "dash", "square"),
    "reference": Look("#8a919c", "#7a8490", "dash", "triangle-up-open"),
}
"""Looks by the meaning of a series."""

ROLES: dict[str, Meaning] = {
    "demo_text": "text",
    "rationale": "text",
    "label_word": "label",
    "query_text": "query",
    "target": "target",
}
"""Meaning of the tokens of each role."""

SERIES: tuple[Look, ...] = tuple(
    Look(light, dark, dash, marker)
    for dash, marker in (("solid", "circle"), ("dash", "square"), ("dot", "diamond"))
    for light, dark in (
        ("#7b3fa0", "#c79cf0"),
        ("#7d6608", "#d6bf4a"),
        ("#0b6e80", "#5fc9dc"),
        ("#a4343a", "#ff9a9a"),
    )
)
"""Looks of series without such a meaning, e.g. classes: twelve that differ in colour or line."""

PAGE = Look("#fdfdfc", "#14171b", "", "")
PANEL = Look("#f5f6f7", "#1d2228", "", "")
INK = Look("#1b1d21", "#eceff3", "", "")
QUIET = Look("#59616d", "#a9b2bd", "", "")
GRID = Look("#e5e8ec", "#2d333b", "", "")
RULE = Look("#b4bac3", "#56606b", "", "")
LINK = Look("#0b57a4", "#7fbcff", "", "")

SCALE = ("#f4f4f1", "#d3dcea", "#9ab3d5", "#557db9", "#244c8f", "#0b1f47")
"""Colour scale of values that start at 0, whose colour is close to the page."""

SCALE_DARK = ("#1f252c", "#233c57", "#2b6397", "#4b9ad6", "#98d0f5", "#f0f9ff")

SIGNED_SCALE = ("#134a78", "#5b93bd", "#b9d3e6", "#f6f6f4", "#f1d5b4", "#c9762b", "#7f3b08")
"""Colour scale of values centred on 0."""

SIGNED_SCALE_DARK = ("#a8dcff", "#4a8fc0", "#24435a", "#20262d", "#5a3f24", "#c9803a", "#ffc98f")

FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"

BAND = 0.14
"""Opacity of interval bands."""

LINE = 17
"""Height of a line below a title, in pixels."""

WIDTH = 120
"""Maximum characters of a line below a title, which fit in 700 pixels."""


def look(meaning: Meaning | str, place: int = 0) -> Look:
    """The look of a meaning; a series without one gets a look by its index."""
    for known, known_look in LOOKS.items():
        if known == meaning:
            return known_look
    return SERIES[place % len(SERIES)]


def of_role(role: str) -> Look:
    """The look of the tokens of a role; the template and tokens without a role look alike."""
    return LOOKS[ROLES.get(role, "other")]


def dark_colours() -> dict[str, str]:
    """The dark counterpart of every light colour, for pages."""
    pairs = {
        colour.light: colour.dark
        for colour in (*LOOKS.values(), *SERIES, PAGE, PANEL, INK, QUIET, GRID, RULE)
    }
    pairs[LINK.light] = LINK.dark
    for light, dark in ((SCALE, SCALE_DARK), (SIGNED_SCALE, SIGNED_SCALE_DARK)):
        pairs |= dict(zip(light, dark, strict=True))
    return pairs


def steps(colours: tuple[str, ...]) -> list[tuple[float, str]]:
    """A plotly colour scale with these colours at equal steps."""
    return [(number / (len(colours) - 1), colour) for number, colour in enumerate(colours)]


def layout(text: str = "", note: str = "", **more: object) -> dict[str, Any]:
    """The layout that all figures share; pages omit the title."""
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": FONT, "size": 13, "color": INK.light},
        "showlegend": False,
        "hovermode": "closest",
        "dragmode": False,
        "title": title(text, note),
        "margin": top_margin(note),
        **more,
    }


def axis(text: str = "", **more: object) -> dict[str, object]:
    """An axis with ticks outside in quiet ink and a thin grid."""
    return {
        "title": axis_title(text),
        "ticks": "outside",
        "tickcolor": RULE.light,
        "tickfont": {"color": QUIET.light},
        "linecolor": RULE.light,
        "showline": True,
        "gridcolor": GRID.light,
        "zeroline": False,
        "fixedrange": True,
        **more,
    }


def axis_title(text: str) -> dict[str, object]:
    """The title of an axis, no larger than its tick labels."""
    return {"text": text, "standoff": 8, "font": {"size": 13}}


def layer_ticks(count: int) -> list[int]:
    """Ticks of a layer axis: 0, 5, 10, ... and the last layer; all layers if there are few."""
    if count <= 12:
        return list(range(count))
    step = 5 if count <= 60 else 10
    last = count - 1
    return [layer for layer in range(0, last, step) if last - layer >= step / 2] + [last]


def number(value: float, digits: int = 2) -> str:
    """A number as text: true minus sign, three decimals below 0.1."""
    if value != value:
        return "undefined"
    places = digits + 1 if 0 < abs(value) < 0.1 else digits
    return f"{value:.{places}f}".replace("-", "\N{MINUS SIGN}")


def title(text: str, note: str = "") -> dict[str, object]:
    """Layout of a title with the note below it."""
    return {
        "text": text,
        "x": 0,
        "xanchor": "left",
        "xref": "container",
        "y": 1,
        "yanchor": "top",
        "yref": "container",
        "pad": {"l": 12, "t": 16},
        "subtitle": {"text": "<br>".join(_lines(note)), "font": {"color": QUIET.light}},
    }


def heading(note: str) -> int:
    """Height of the title and the lines below it, in pixels from the top."""
    return 70 + LINE * max(0, len(_lines(note)) - 1)


def top_margin(note: str) -> dict[str, int]:
    """Top margin for the title, the lines below it and labels above the axes."""
    return {"t": heading(note) + 30}


def _lines(note: str) -> list[str]:
    return wrap(note, WIDTH)


def shown(token: str) -> str:
    """The text escaped for plotly, which interprets tags in labels; `<s>` is a common token."""
    return escape(token, quote=False)


# --- without a title, where the page shows it ---

PLAIN_TOP, HEADED_TOP = 16, 52
"""Pixels above the axes: of a figure with nothing there, and of one with headings."""


def untitled(figure: "go.Figure") -> dict[str, Any]:
    """Data and layout as plain values, without the title and its margin."""
    plain: dict[str, Any] = json.loads(figure.to_json())
    untitle(plain["layout"])
    return plain


def untitle(layout: dict[str, Any]) -> None:
    """Take the title and its margin out of a layout of plain values."""
    layout.pop("template", None)
    headed = any(_above(note) for note in layout.get("annotations", []))
    headed = headed or any(_above(shape) for shape in layout.get("shapes", []))
    headed = headed or any(
        axis.get("side") == "top" for key, axis in layout.items() if key.startswith("xaxis")
    )
    top = (layout.get("margin") or {}).get("t", 100)
    used = (layout.pop("meta", None) or {}).get("above")
    wanted = used + PLAIN_TOP if used is not None else min(top, HEADED_TOP if headed else PLAIN_TOP)
    if layout.pop("title", None) is not None:
        layout["height"] = layout.get("height", 450) - (top - wanted)
        layout["margin"] = {**(layout.get("margin") or {}), "t": wanted}


def _above(part: dict[str, Any]) -> bool:
    """True for a shape or annotation above the axes."""
    reference = str(part.get("yref", ""))
    ends = [part.get(key) for key in ("y", "y0", "y1")]
    if not (reference == "paper" or reference.endswith("domain")):
        return False
    return any(isinstance(end, int | float) and end >= 1 for end in ends)
