"""`Shown`: how a record is shown and kept: its heading, figures, notebook display and files."""

import re
from dataclasses import dataclass
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from icl_mech.at_home import at_home
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.frontend import in_notebook
from icl_mech.results.answer_words import answer_kind, in_words_of
from icl_mech.results.figures import Definition, Figure, points_of_few
from icl_mech.results.folders import Folder
from icl_mech.results.record import Record
from icl_mech.results.storage import FILES, load_as, write_result
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import plotly.graph_objects as go

R = TypeVar("R", bound=Record)


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Shown(Record):
    """A record with figures and files."""

    def drawing(self) -> Shape:
        """The shape it is drawn as.

        Raises:
            ResultError: it has no figure.
        """
        raise ResultError(f"A {type(self).__name__} has no figure.")

    @property
    def page_title(self) -> str:
        """Heading of its figures on a page."""
        own = type(self).__name__.removesuffix("Result")
        title = self.title or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", own).capitalize()
        return in_words_of(answer_kind(self.provenance), title)

    @property
    def page_definitions(self) -> tuple[Definition, ...]:
        """Formulas on a page, in the words for the prompts' kind of answer."""
        return in_words_of(answer_kind(self.provenance), self.definitions)

    def figures(self) -> list[Figure]:
        """What a page shows of this result, each figure with its sentence."""
        return [Figure(self.shows[0], answer=self.summary())]

    def plot(self, show: str | None = None, **options: Any) -> "go.Figure":
        """The interactive plotly figure.

        Args:
            show: What to show, one of `shows`.
            **options: Those of the result's `drawing`.

        Raises:
            ResultError: unknown `show`, or a result without a figure.
        """
        from icl_mech.plots import figure

        if show is not None and show != "":
            self.check_show(show)
            options["show"] = show
        return figure(self.drawn(**options))

    def drawn(self, **options: Any) -> Shape:
        """Its `drawing`; of too few prompts for intervals the points alone, which the note says.

        Args:
            **options: Those of `drawing`.
        """
        return points_of_few(checked(ResultError)(self.drawing)(**options), self.quantities())

    def check_show(self, show: str) -> None:
        """Refuse what this result cannot show.

        Raises:
            ResultError: lists what it can.
        """
        if show not in self.shows:
            known = [name for name in self.shows if name]
            hint = (
                near_matches(show, known) if known else "There is one drawing only; leave it out."
            )
            raise ResultError(f"show={show!r}. {hint}")

    def check_number(self, name: str, given: int, count: int) -> None:
        """Refuse the number of a prompt, or of what else counts from 0, that is not there.

        Raises:
            ResultError: says how many there are.
        """
        if not 0 <= given < count:
            raise ResultError(f"{name}={given}; there are {count}, counted from 0.")

    def shown(self) -> "list[str | go.Figure]":
        """What a notebook shows: the summary and the figure, if it has one."""
        try:
            return [self.summary(), self.plot()]
        except ResultError:
            return [self.summary()]

    def _ipython_display_(self) -> None:
        from icl_mech.plots import show

        if not in_notebook():
            raise NotImplementedError  # IPython then prints the repr
        show(*self.shown())

    # --- files ---

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write `result.json` and `tensors.safetensors` into a folder, all or nothing.

        Args:
            folder: A new or empty folder.
            overwrite: It may hold files: those saved before are replaced as long as nobody changed
                them, all others stay.

        Raises:
            ResultError: the folder cannot be written, or holds files that would be lost; values
                that do not fit the types of their fields.
        """
        with Folder(folder, overwrite=overwrite, files=FILES) as place:
            write_result(self, place)
        return Path(expanduser(folder))

    @classmethod
    def load(cls: type[R], folder: str | Path) -> R:
        """Read what `save` wrote.

        Raises:
            ResultError: missing or damaged files, another kind of result, or a newer layout.
        """
        return load_as(cls, folder)
