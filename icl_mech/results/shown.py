"""`Shown`: display and storage of a record: its heading, figures, notebook display and files."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from os.path import expanduser
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

from icl_mech.at_home import at_home
from icl_mech.checking import bound_to, checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.frontend import in_notebook
from icl_mech.results.answer_words import answer_kind, in_words_of
from icl_mech.results.figures import Definition, Figure, points_of_few
from icl_mech.results.folders import Folder
from icl_mech.results.record import Record
from icl_mech.results.storage import FILES, load_as, write_result
from icl_mech.results.words import Words
from icl_mech.shapes import Shape

if TYPE_CHECKING:
    import plotly.graph_objects as go

R = TypeVar("R", bound=Record)

PARTS = ("question", "answer", "caption", "establishes", "limits", "short")
"""Sentences of a figure, in the order of its fields; each is a block `SHOW_PART` of the method's words."""


def _block(show: str, part: str) -> str:
    return f"{show}_{part}" if show else part


def _words_of(kind: type) -> list[str]:
    """Words of a class name, without `Result`."""
    return re.split(r"(?<=[a-z0-9])(?=[A-Z])", kind.__name__.removesuffix("Result"))


@cache
def look_of(stem: str) -> Callable[..., Shape] | None:
    """The drawing function of a method; None if the drawing follows from the declarations of its results."""
    name = f"icl_mech.looks.{stem}"
    if not stem or find_spec(name) is None:
        return None
    look: Callable[..., Shape] = import_module(name).drawing
    return look


@at_home
@dataclass(frozen=True, eq=False, kw_only=True)
class Shown(Record):
    """A record with figures and files."""

    def drawing(self, *given: Any, **options: Any) -> Shape:
        """The shape it is drawn as.

        Args:
            *given: One of `shows`, by default the first; then options in their order.
            **options: Options of `icl_mech.looks.METHOD.drawing`.

        Raises:
            ResultError: an unknown `show` or option, or a result without a figure.
        """
        look = look_of(self.stem())
        draw = self.usual_drawing if look is None else MethodType(look, self)
        bound = bound_to(signature(draw), "drawing", given, options, ResultError)
        if "show" in bound.arguments:
            self.check_show(bound.arguments["show"])
        drawn: Shape = checked(ResultError)(draw)(*bound.args, **bound.kwargs)
        return drawn

    def usual_drawing(self) -> Shape:
        """The shape of a result whose method has no drawing function.

        Raises:
            ResultError: a result without a figure.
        """
        raise ResultError(f"A {type(self).__name__} has no figure.")

    @classmethod
    def stem(cls) -> str:
        """Name of its method, which names its text file and drawing function: `isolation_map` for IsolationMapResult.

        A class outside this package uses the name of the class that it extends, and thus its sentences and figure;
        a class that extends only `Result` has none, whatever its name.
        """
        home = next(kind for kind in cls.__mro__ if kind.__module__.split(".")[0] == "icl_mech")
        return "_".join(_words_of(home)).lower()

    @property
    def sentences(self) -> Words:
        """The text file of its method."""
        return Words(self.stem())

    @property
    def page_title(self) -> str:
        """Heading of its figures on a page."""
        title = self.sentences.optional("title", result=self) or self.title
        return in_words_of(
            answer_kind(self.provenance), title or " ".join(_words_of(type(self))).capitalize()
        )

    @property
    def page_definitions(self) -> tuple[Definition, ...]:
        """Formulas on a page, worded for the prompts' kind of answer."""
        return in_words_of(answer_kind(self.provenance), self.definitions)

    def on_page(self) -> tuple[str, ...]:
        """The options of `shows` that a page shows."""
        return self.shows[:1]

    def is_drawn(self, show: str) -> bool:
        """False if one of `on_page` has nothing to show; its answer then says why."""
        return True

    def figures(self) -> list[Figure]:
        """Figures of this result on a page, each with its sentences."""
        words, shows = self.sentences, self.on_page()
        if not any(_block(show, "answer") in words for show in shows):
            return [Figure(show, answer=self.summary()) for show in shows[:1]]
        figures = []
        for show in shows:
            question, answer, caption, establishes, limits, short = (
                words.optional(_block(show, part), result=self) for part in PARTS
            )
            drawn = self.is_drawn(show)
            figures.append(
                Figure(show, question, answer, caption, establishes, limits, short, drawn)
            )
        return figures

    def plot(self, show: str | None = None, **options: Any) -> "go.Figure":
        """The interactive plotly figure.

        Args:
            show: The drawing, one of `shows`.
            **options: Options of the result's `drawing`.

        Raises:
            ResultError: unknown `show`, or a result without a figure.
        """
        from icl_mech.plots import figure

        if show is not None and show != "":
            self.check_show(show)
            options["show"] = show
        return figure(self.drawn(**options))

    def drawn(self, **options: Any) -> Shape:
        """Its `drawing`; points alone if there are too few prompts for intervals, as the note then says.

        Args:
            **options: Options of `drawing`.
        """
        return points_of_few(checked(ResultError)(self.drawing)(**options), self.quantities())

    def check_show(self, show: str) -> None:
        """Reject an option that this result cannot show.

        Raises:
            ResultError: lists the known options.
        """
        if show not in self.shows:
            known = [name for name in self.shows if name]
            hint = (
                near_matches(show, known)
                if known
                else "There is only one drawing; leave out show=."
            )
            raise ResultError(f"show={show!r} is not available. {hint}")

    def check_number(self, name: str, given: int, count: int) -> None:
        """Reject an index of a prompt, or of anything else counted from 0, that is out of range.

        Raises:
            ResultError: says how many there are.
        """
        if not 0 <= given < count:
            raise ResultError(f"{name}={given} is out of range; there are {count}, counted from 0.")

    def shown(self) -> "list[str | go.Figure]":
        """Notebook output: the summary and the figure, if there is one."""
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
            overwrite: The folder may hold files: saved files are replaced unless they were changed,
                all others stay.

        Raises:
            ResultError: the folder cannot be written or holds files that would be lost, or values
                do not fit the types of their fields.
        """
        with Folder(folder, overwrite=overwrite, files=FILES) as place:
            write_result(self, place)
        return Path(expanduser(folder))

    @classmethod
    def load(cls: type[R], folder: str | Path) -> R:
        """Load a result written by `save`.

        Raises:
            ResultError: missing or damaged files, another kind of result, or a newer layout.
        """
        return load_as(cls, folder)
