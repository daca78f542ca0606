"""A figure as a file for papers: PDF or SVG, at the width of a column or of a page, in a paper's type.

Figures are laid out for a screen of 850 or, one panel below the other, of 410 pixels. At 0.76 of that their type has
eight points, and they are as wide as a page or a column of the usual two-column styles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from os.path import exists, expanduser
from pathlib import Path
from typing import Any, Literal, get_args

import plotly.graph_objects as go

from icl_mech._files import replace_file
from icl_mech.errors import ResultError, near_matches
from icl_mech.plots.style import untitled

Width = Literal["column", "page"]

INCHES: dict[Width, float] = {"column": 3.25, "page": 6.75}
"""What a column and a page are wide."""

SERIF = "STIX Two Text, Times New Roman, Nimbus Roman, Liberation Serif, serif"

SCALE = 0.76
"""From pixels of the screen's layout to CSS pixels, of which an inch has 96."""


@contextmanager
def browser() -> Iterator[None]:
    """One browser for all figures that are drawn inside, instead of one for each.

    Raises:
        ResultError: kaleido is not installed.
    """
    kaleido = _kaleido()
    kaleido.start_sync_server(silence_warnings=True)
    try:
        yield
    finally:
        kaleido.stop_sync_server(silence_warnings=True)


def _kaleido() -> Any:
    try:
        return import_module("kaleido")
    except ImportError:
        raise ResultError(
            'Figures of papers are drawn by kaleido, which is not installed: pip install "kaleido>=1". It '
            "needs Chrome or Chromium."
        ) from None


def vector(figure: go.Figure, form: str, width: Width = "column", font: str = SERIF) -> bytes:
    """The figure as PDF or SVG.

    Raises:
        ResultError: kaleido, which makes it, or the browser that it needs, is not there.
    """
    plain = go.Figure(untitled(figure))
    plain.update_layout(font_family=font, paper_bgcolor="white", plot_bgcolor="white")
    plain.update_annotations(font_family=font)
    across, high = round(96 * INCHES[width] / SCALE), plain.layout.height or 450
    opts = {"format": form.lstrip("."), "width": across, "height": high, "scale": SCALE}
    try:
        drawn = _kaleido().calc_fig_sync(plain.to_dict(), opts=opts)
    except Exception as error:  # a browser fails in classes of many packages
        raise ResultError(
            f"kaleido could not draw the figure ({type(error).__name__}: {str(error)[:200]}). It needs Chrome "
            "or Chromium, which BROWSER_PATH may name."
        ) from error
    return bytes(drawn)


def save(
    own: go.Figure,
    path: str | Path,
    *,
    width: Width = "column",
    font: str = SERIF,
    overwrite: bool = False,
) -> Path:
    """Write the figure as a vector file for a paper, without its title: that is the caption's.

    Args:
        own: The figure.
        path: A file `.pdf` or `.svg`.
        width: `column` (3.25 inches, panels one below the other) or `page` (6.75 inches).
        font: Families, separated by commas; type has eight points.
        overwrite: Replace the file.

    Raises:
        ResultError: another width or form, a file that is there, or no kaleido or browser.
    """
    file = Path(expanduser(path))
    if width not in INCHES:
        raise ResultError(f"width={width!r}. {near_matches(str(width), get_args(Width))}")
    if file.suffix not in (".pdf", ".svg"):
        raise ResultError(f"{file.name!r} is neither .pdf nor .svg; name the file by one of them.")
    if exists(file) and not overwrite:
        raise ResultError(f"{str(file)!r} is there; name another file, or give overwrite=True.")
    wide, narrow = own._forms
    below = narrow() if width == "column" else None
    # What somebody changed is written as it is.
    unchanged = below is not None and own.to_dict() == wide().to_dict()
    content = vector(below if unchanged else own, file.suffix, width, font)
    replace_file(file, content, ResultError)
    return file
