"""Elements of a static picture: paths, images with one pixel per cell, text with plotly's tags."""

import re
import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape, unescape

import numpy as np
import numpy.typing as npt

LINE, LETTER = 16, 6.6
"""Height of a line of text and width of a letter, in pixels."""

DASHES = {"dash": "9 9", "dot": "3 3", "dashdot": "9 3 3 3", "longdash": "15 15"}
"""Those of plotly, for lines of at most three pixels."""

Number = int | float

Pixels = npt.NDArray[np.uint8]


def path(
    points: Sequence[tuple[Number, ...]],
    colour: str,
    width: Number | None,
    more: str = 'fill="none"',
) -> str:
    """A line through points, two pixels wide by default."""
    if not more.startswith("fill"):
        more = f'fill="none" {more}'
    line = "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<path d="M{line}" stroke="{colour}" stroke-width="{2 if width is None else width:g}" {more}/>'


def dashed(dash: str | None) -> str:
    """The SVG attribute of a dashed line, by plotly's name of the dash."""
    return f'stroke-dasharray="{DASHES[dash]}"' if dash in DASHES else ""


def coloured(shares: npt.NDArray[np.float64], paint: Sequence[tuple[Number, str]]) -> Pixels:
    """Pixels of values between 0 and 1; transparent where there is no value."""
    stops = [at for at, _ in paint]
    tones = [[int(colour[i : i + 2], 16) for _, colour in paint] for i in (1, 3, 5)]
    known = np.nan_to_num(np.clip(shares, 0, 1))
    channels = [np.interp(known, stops, tone) for tone in tones]
    pixels: Pixels = np.stack([*channels, 255.0 * ~np.isnan(shares)], -1).round().astype(np.uint8)
    return pixels


def image(cells: Pixels, x: Sequence[Number], y: Sequence[Number]) -> str:
    """Cells as a PNG of one pixel each, drawn between the ends `x` and `y`."""
    rows = b"".join(b"\0" + row.tobytes() for row in cells)
    head = struct.pack(">2I5B", cells.shape[1], cells.shape[0], 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data))
        for tag, data in chunks
    )
    return (
        f'<image x="{x[0]:.1f}" y="{y[0]:.1f}" width="{x[1] - x[0]:.1f}" height="{y[1] - y[0]:.1f}" '
        'preserveAspectRatio="none" style="image-rendering:pixelated" '
        f'href="data:image/png;base64,{b64encode(png).decode()}"/>'
    )


UNWRITTEN = re.compile(r"<[^>]+>|[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Tags, and characters that XML does not allow."""


def plain(text: str) -> str:
    """A plotly text without its tags."""
    return unescape(UNWRITTEN.sub("", text))


def words(
    text: str,
    x: Number,
    y: Number,
    *,
    size: Number | None = 13,
    colour: str | None = None,
    anchor: str = "start",
    angle: Number = 0,
    family: str | None = None,
) -> str:
    """Lines of a plotly text: bold and colour are kept, other tags are dropped."""
    if not plain(text).strip():
        return ""
    lines = "".join(
        f'<tspan x="{x:.1f}" dy="{LINE * bool(i)}">{_marked(line)}</tspan>'
        for i, line in enumerate(text.split("<br>"))
    )
    look = f'font-size="{size or 13:g}" text-anchor="{anchor}" xml:space="preserve"'
    look += f' fill="{colour}"' * bool(colour) + f' font-family="{escape(family or "")}"' * bool(
        family
    )
    look += f' transform="rotate({angle:g},{x:.1f},{y:.1f})"' * bool(angle)
    return f'<text y="{y:.1f}" {look}>{lines}</text>'


def _marked(line: str) -> str:
    svg, inside = "", 0
    for part in re.split(r"(<[^>]+>)", line):
        colour = re.search(r'color:([^";]+)', part)
        if part.startswith(("<b>", "<span")):
            style = f'fill="{escape(colour[1])}"' if colour else 'font-weight="700"'
            svg, inside = f"{svg}<tspan {style}>", inside + 1
        elif part in ("</b>", "</span>") and inside:
            svg, inside = f"{svg}</tspan>", inside - 1
        else:
            svg += escape(plain(part))
    return svg + "</tspan>" * inside
