"""Write pages atomically and never over an edited file; `Paged` is the base of everything that has a page."""

from collections.abc import Sequence
from os.path import expanduser, isdir
from pathlib import Path

from icl_mech.checking import conformed
from icl_mech.errors import ResultError
from icl_mech.plots.vector import Width
from icl_mech.reports.model import Page, Section
from icl_mech.reports.paper import export_page
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

    Its last line is a checksum, which identifies an unedited page that may be replaced.

    Args:
        path: Path of the file.
        page: A page, or the heading of a simple one.
        sections: Sections of a simple page: figures with their sentences.
        lead: Text above the sections.
        offline: Put the plotly script into the page.
        overwrite: Replace any file that is there.

    Raises:
        ResultError: the page cannot be written, or the existing file is not an unedited page.
    """
    conformed("offline", offline, bool, ResultError)
    file = given_path(path, "page")
    if isdir(file):
        raise ResultError(f"{str(path)!r} is a folder; give the path of a page inside it.")
    content = page_bytes(page, sections, lead=lead, offline=offline)
    with Folder(file.parent, beside=True, files=() if overwrite else [file.name]) as place:
        place.replace(file.name, content)
    return Path(expanduser(path))


def page_bytes(
    page: str | Page, sections: Sequence[Section] = (), *, lead: str = "", offline: bool = True
) -> bytes:
    """The bytes of the file: the page of `render_page`, and the checksum line that identifies it."""
    return sealed_page(render_page(page, sections, lead=lead, offline=offline))


def render_page(
    page: str | Page, sections: Sequence[Section] = (), *, lead: str = "", offline: bool = True
) -> str:
    """The page as HTML, with the plotly script included once."""
    from icl_mech.reports.rendering import html

    whole = page if isinstance(page, Page) else Page(page, sections, lead=lead)
    return html(whole, offline=offline)


class Paged:
    """Base of everything that has a page: a run, a comparison of runs, a recipe next to its paper."""

    def page(self) -> Page:
        """The page, which `to_html` writes."""
        raise NotImplementedError

    def to_html(self, path: str | Path, *, offline: bool = True, overwrite: bool = False) -> Path:
        """Write one self-contained page with all figures.

        Args:
            path: Path of the page.
            offline: Put the plotly script into the page (about 5 MB); else load it from its CDN.
            overwrite: Replace any file that is there; otherwise only an unedited page that this
                package wrote.

        Raises:
            ResultError: the page cannot be written, or another file is there.
            SweepError: nothing in a sweep can be drawn.
        """
        return write_page(path, self.page(), offline=offline, overwrite=overwrite)

    def export(
        self,
        folder: str | Path,
        *,
        width: Width = "column",
        figures: bool = True,
        overwrite: bool = False,
    ) -> Path:
        """Write the page as the parts of a paper, all or nothing.

        `figures/NAME.pdf` and `.svg` without titles, `tables/NAME.tex` and `.csv`, `claims.tex`, `methods.tex` (model,
        prompts, seeds, n, variants, intervals, versions), `references.bib`, and `paper.tex`, which holds them all.

        Args:
            folder: A new or empty folder.
            width: Width of figures: `column` (3.25 inches, panels one below the other) or `page` (6.75 inches).
            figures: False leaves out the figures, which need kaleido and a browser (Chromium); the rest needs neither.
            overwrite: Replace files of these names.

        Raises:
            ResultError: figures cannot be drawn (kaleido or a browser is missing, or it does not answer for a minute), or the
                folder is not empty.
            SweepError: nothing in a sweep can be drawn.
        """
        return export_page(self.page, folder, width=width, figures=figures, overwrite=overwrite)
