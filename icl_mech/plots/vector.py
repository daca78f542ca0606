"""Export a figure for papers: PDF or SVG, at the width of a column or a page, in a serif font.

Figures are laid out for a screen of 850 pixels or, with stacked panels, 410 pixels. Scaled by 0.76, their font has
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
"""Widths of a column and of a page, in inches."""

SERIF = "STIX Two Text, Times New Roman, Nimbus Roman, Liberation Serif, serif"

SCALE = 0.76
"""Factor from pixels of the screen layout to CSS pixels, 96 per inch."""


@contextmanager
def browser() -> Iterator[None]:
    """Share one browser among all figures drawn inside the block.

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
            'Exporting a figure needs kaleido, which is not installed: pip install "kaleido>=1". It also '
            "needs Chrome or Chromium."
        ) from None


def vector(figure: go.Figure, form: str, width: Width = "column", font: str = SERIF) -> bytes:
    """The figure as PDF or SVG.

    Raises:
        ResultError: kaleido, which renders it, or the browser it needs is not installed.
    """
    plain = go.Figure(untitled(figure))
    plain.update_layout(font_family=font, paper_bgcolor="white", plot_bgcolor="white")
    plain.update_annotations(font_family=font)
    across, high = round(96 * INCHES[width] / SCALE), plain.layout.height or 450
    opts = {"format": form.lstrip("."), "width": across, "height": high, "scale": SCALE}
    try:
        drawn = _kaleido().calc_fig_sync(plain.to_dict(), opts=opts)
    except Exception as error:  # browser failures come as exceptions of many packages
        raise ResultError(
            f"kaleido could not draw the figure ({type(error).__name__}: {str(error)[:200]}). It needs Chrome "
            "or Chromium; if it is not found, set BROWSER_PATH to its path."
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
    """Write the figure as a vector file for a paper, without its title, which belongs in the caption.

    Args:
        own: The figure.
        path: Path of a `.pdf` or `.svg` file.
        width: `column` (3.25 inches, panels one below the other) or `page` (6.75 inches).
        font: Font families, separated by commas; the size is eight points.
        overwrite: Replace an existing file.

    Raises:
        ResultError: unknown width or format, the file exists, or kaleido or the browser is missing.
    """
    file = Path(expanduser(path))
    if width not in INCHES:
        raise ResultError(
            f"width={width!r} is not an option. {near_matches(str(width), get_args(Width))}"
        )
    if file.suffix not in (".pdf", ".svg"):
        raise ResultError(
            f"{file.name!r} ends in neither .pdf nor .svg; give one of these extensions."
        )
    if exists(file) and not overwrite:
        raise ResultError(f"{str(file)!r} already exists; give another path, or overwrite=True.")
    wide, narrow = own._forms
    below = narrow() if width == "column" else None
    # A figure that the user changed is written as it is.
    unchanged = below is not None and own.to_dict() == wide().to_dict()
    content = vector(below if unchanged else own, file.suffix, width, font)
    replace_file(file, content, ResultError)
    return file
