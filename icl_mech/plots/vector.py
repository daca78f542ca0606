"""Export a figure for papers: PDF or SVG, at the width of a column or a page, in a serif font.

Figures are laid out for a screen of 850 pixels or, with stacked panels, 410 pixels. Scaled by 0.76, their font has
eight points, and they are as wide as a page or a column of the usual two-column styles.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
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


PATIENCE, FAREWELL = 60.0, 5.0
"""Seconds that the browser has to start, or to draw one figure; and to close."""

REMEDY = (
    "Install Chrome or Chromium (kaleido_get_chrome downloads one), or set BROWSER_PATH to its path"
)


def browser(instead: str = "") -> Any:
    """Kaleido with a browser, which is not started yet.

    Args:
        instead: What else the user may do, for the message.

    Raises:
        ResultError: kaleido, which draws figures, or the browser it needs is not installed.
    """
    try:
        # Figures hold no formulas, whose script would come from the network.
        return import_module("kaleido").Kaleido(timeout=None, mathjax=False)
    except ImportError:
        raise ResultError(
            'Exporting a figure needs kaleido, which is not installed: pip install "kaleido>=1". It also '
            f"needs Chrome or Chromium{instead}."
        ) from None
    except Exception as error:  # of a package that comes with kaleido
        raise ResultError(
            f"Exporting a figure needs a browser, and kaleido finds none ({type(error).__name__}). "
            f"{REMEDY}{instead}."
        ) from error


def vectors(
    figures: Mapping[str, go.Figure],
    width: Width = "column",
    font: str = SERIF,
    drawing: object = None,
) -> dict[str, bytes]:
    """Figures as PDF or SVG, by the names of their files.

    Args:
        figures: The figures.
        width: See `save`.
        font: See `save`.
        drawing: What `browser` returned; None: it is asked now.

    Raises:
        ResultError: kaleido or the browser is not installed, fails, or does not answer.
    """
    work = _drawn(drawing or browser(), figures, width, font)
    with ThreadPoolExecutor(1) as thread:  # that of a notebook already runs a loop
        return thread.submit(asyncio.run, work).result()


async def _drawn(
    drawing: Any, figures: Mapping[str, go.Figure], width: Width, font: str
) -> dict[str, bytes]:
    drawn = {}
    try:
        await _in_time(drawing.open())
        for name, figure in figures.items():
            plain, opts = _asked(figure, Path(name).suffix, width, font)
            drawn[name] = bytes(await _in_time(drawing.calc_fig(plain, opts=opts)))
    except Exception as error:  # browser failures come as exceptions of many packages
        raise ResultError(
            f"kaleido could not draw a figure ({type(error).__name__}: {str(error)[:200]}). It needs a "
            f"working browser. {REMEDY}."
        ) from error
    finally:
        closing = asyncio.ensure_future(drawing.close())
        if not (await asyncio.wait([closing], timeout=FAREWELL))[0]:
            closing.cancel()  # it no longer waits for an answer, but kills the browser
            await asyncio.wait([closing], timeout=4 * FAREWELL)
    return drawn


async def _in_time(work: Coroutine[Any, Any, Any]) -> Any:
    """What the browser answers; `asyncio.wait_for` would raise what kaleido makes of a cancelled task.

    Raises:
        TimeoutError: nothing, for too long.
    """
    task = asyncio.ensure_future(work)
    if not (await asyncio.wait([task], timeout=PATIENCE))[0]:
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        task.cancel()
        raise TimeoutError(f"the browser did not answer within {PATIENCE:g} s")
    return task.result()


def _asked(
    figure: go.Figure, form: str, width: Width, font: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A figure as kaleido takes it, and its format and size."""
    plain = go.Figure(untitled(figure))
    plain.update_layout(font_family=font, paper_bgcolor="white", plot_bgcolor="white")
    plain.update_annotations(font_family=font)
    across, high = round(96 * INCHES[width] / SCALE), plain.layout.height or 450
    return plain.to_dict(), {"format": form[1:], "width": across, "height": high, "scale": SCALE}


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
    drawn = vectors({file.name: below if unchanged else own}, width, font)
    replace_file(file, drawn[file.name], ResultError)
    return file
