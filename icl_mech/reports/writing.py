"""Writes pages: all or nothing, never over a file that somebody edited."""

from collections.abc import Sequence
from pathlib import Path

from icl_mech.checking import conformed
from icl_mech.errors import ResultError
from icl_mech.reports.model import Page, Section
from icl_mech.results import Folder, given_path, sealed_page


def write_page(
    path: str | Path,
    page: str | Page,
    sections: Sequence[Section] = (),
    *,
    lead: str = "",
    offline: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the page, all or nothing.

    Its last line is a checksum, so that a page nobody edited is recognised and replaced.

    Args:
        path: Of the file.
        page: A page, or the heading of a simple one.
        sections: Of a simple page: figures with their sentences.
        lead: What stands above them.
        offline: Put the plotly script into the page.
        overwrite: Replace whatever file is there.

    Raises:
        ResultError: the page cannot be written, or there is a file that is no unchanged page.
    """
    conformed("offline", offline, bool, ResultError)
    file = given_path(path, "page")
    if file.is_dir():
        raise ResultError(f"{str(path)!r} is a folder; give the path of a page in it.")
    content = page_bytes(page, sections, lead=lead, offline=offline)
    with Folder(file.parent, beside=True, files=() if overwrite else [file.name]) as place:
        place.replace(file.name, content)
    return Path(path).expanduser()


def page_bytes(
    page: str | Page, sections: Sequence[Section] = (), *, lead: str = "", offline: bool = True
) -> bytes:
    """What is written: `render_page` and the line by which it is recognised."""
    return sealed_page(render_page(page, sections, lead=lead, offline=offline))


def render_page(
    page: str | Page, sections: Sequence[Section] = (), *, lead: str = "", offline: bool = True
) -> str:
    """The page as text; the plotly script stands in it once."""
    from icl_mech.reports.rendering import html

    whole = page if isinstance(page, Page) else Page(page, sections, lead=lead)
    return html(whole, offline=offline)
