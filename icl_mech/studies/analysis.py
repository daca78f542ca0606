"""`Analysis`: the results of one study, saved, drawn and reported together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.at_home import at_home
from icl_mech.errors import IclMechError, ResultError
from icl_mech.frontend import in_notebook
from icl_mech.names import key_now
from icl_mech.prompts import PromptBatch
from icl_mech.reports import Page, Paged, Section, page_bytes
from icl_mech.results import (
    PROMPTS,
    About,
    Folder,
    Result,
    check_names,
    paths_of,
    read_results,
    write_results,
)
from icl_mech.results.tables import ENDS
from icl_mech.studies.judge import Verdict
from icl_mech.studies.nulls import PREFIX, UntrainedCurves, with_band
from icl_mech.studies.pages import page_of, sections_of, study_of, unknown
from icl_mech.studies.parts import Parts

if TYPE_CHECKING:
    import plotly.graph_objects as go
    import xarray as xr


@at_home
@dataclass(frozen=True, eq=False, repr=False)
class Analysis(Parts, Paged):
    """The results of one study, by name: `analysis["flow"]`, or `analysis.flow`.

    Attributes:
        results: Results in reading order.
        title: Model and task.
        notes: Omitted measurements with reasons, and limits of the numbers.
        prompts: The prompts: one batch, or true and false ones; none in runs saved by earlier
            versions. Heads may have been chosen on others, which are not kept.
        made: How it was made: `date` (ISO 8601 with the zone), `call` (the Python line), `setup`
            (lines that make model and prompts, if known), `command` (the command line, "" if it
            was none), `device`, `seconds`, `resumed` (how many results an earlier call left), and `study`
            (its name).

    Raises:
        ResultError: a name that cannot be the name of a folder, or prompts of another study.
    """

    results: dict[str, Result]
    title: str
    notes: tuple[str, ...] = ()
    prompts: tuple[PromptBatch, ...] = ()
    made: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reject values that could not be saved."""
        if not isinstance(self.results, dict):
            raise ResultError(
                f"results={self.results!r} is not a dictionary; give results by name, such as {{'flow': ...}}."
            )
        check_names(self.results)
        for name, result in self.results.items():
            if not isinstance(result, Result):
                raise ResultError(
                    f"results[{name!r}] is a {type(result).__name__}, but a Result was expected; give the "
                    "results of measurements."
                )
        object.__setattr__(self, "prompts", check_prompts(self.prompts, self.results))

    @property
    def study(self) -> str:
        """Name of its study; "" for measurements chosen one by one.

        For runs saved by versions that did not keep it, the study whose results they hold.
        """
        study = study_of(self.results, self.made)
        guessed = study.name if study is not None and study.claims else ""
        return str(self.made.get("study") or guessed)

    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on each claim of its study, as shown on its page."""
        study = study_of(self.results, self.made)
        return () if study is None else study.verdicts(self)

    def __contains__(self, name: object) -> bool:
        """True if there is a result of that name."""
        return isinstance(name, str) and key_now(name, self.results) in self.results

    def __iter__(self) -> Iterator[str]:
        """Names of the results, in reading order."""
        return iter(self.results)

    def __len__(self) -> int:
        """Number of results."""
        return len(self.results)

    def __dir__(self) -> list[str]:
        """Attributes, and the names of the results."""
        return sorted({*super().__dir__(), *self.results})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.results)

    def summary(self) -> str:
        """A summary of the results in a few lines."""
        results = self._told()
        width = max(map(len, results), default=0) + 1
        lines = [self.title]
        lines += [f"  {name:<{width}} {result.summary()}" for name, result in results.items()]
        lines += [f"  note: {note}" for note in (*self.notes, *unknown(self.made))]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The summary."""
        return self.summary()

    def _ipython_display_(self) -> None:
        from icl_mech.plots import show

        if not in_notebook():
            raise NotImplementedError  # IPython then prints the repr
        parts: list[Any] = []
        for name, result in self._told().items():
            banded = f"{PREFIX}{name}" in self.results
            parts += [result.summary(), self.plot(name)] if banded else result.shown()
        show(self.title, *parts)

    def _told(self) -> dict[str, Result]:
        """The results with a summary; curves of untrained networks only appear behind figures."""
        return {
            name: result
            for name, result in self.results.items()
            if not isinstance(result, UntrainedCurves)
        }

    def plot(self, name: str, show: str | None = None) -> "go.Figure":
        """The figure of one result, with untrained networks behind its curves if they were measured.

        Args:
            name: Name of the result.
            show: One of its `shows`.

        Raises:
            MissingResult: no result of that name.
            ResultError: unknown `show`, or a result without a figure.
        """
        from icl_mech.plots import figure

        result = self[name]
        show = result.shows[0] if show is None else show
        shape = result.drawn(show=show) if show else result.drawn()
        return figure(with_band(self.results, name, show, shape))

    def save(self, folder: str | Path, *, page: bool = False, overwrite: bool = False) -> Path:
        """Write all results into a folder, all or nothing.

        Args:
            folder: A new or empty folder.
            page: Write `index.html` too, see `to_html`.
            overwrite: The folder may hold files: saved files are replaced unless they were
                changed, all others stay.

        Raises:
            ResultError: the folder cannot be written, or holds files that would be lost.
        """
        files = paths_of(self.results, page=page, prompts=bool(self.prompts))
        with Folder(folder, overwrite=overwrite, files=files) as place:
            self.save_into(place, page=page)
        return Path(expanduser(folder))

    def save_into(self, place: Folder, *, page: bool = False) -> None:
        """Write all results into an open folder, see `save`."""
        content, fault = None, None
        if page:
            try:
                content = page_bytes(self.page())
            except Exception as error:  # noqa: BLE001 - a figure must not cost minutes of measuring
                fault = error
        write_results(place, self.results, self.about(), content)
        if fault is not None:
            raise ResultError(
                f"The results are saved, but their page could not be made "
                f"({type(fault).__name__}: {fault}); load them with icl_mech.load."
            ) from fault

    @classmethod
    def load(cls, folder: str | Path) -> "Analysis":
        """Read what `save` wrote, or `measure(..., out=folder)`.

        Raises:
            ResultError: missing or damaged files, or a newer layout.
        """
        saved, about = read_results(folder)
        # Rename only results of the type that belongs to the new name (custom measurements keep theirs), and only
        # if no saved result has the new name.
        now = {
            name: new_name
            if type(result).__name__
            == f"{(new_name := key_now(name)).title().replace('_', '')}Result"
            and new_name not in saved
            else name
            for name, result in saved.items()
        }
        results = {now[name]: result for name, result in saved.items()}
        prompts = batches_of(about.prompts, results, folder)
        return cls(results, about.title, tuple(about.notes), prompts, dict(about.made))

    def about(self) -> About:
        """The data that is saved once for all results."""
        prompts = [batch.to_dict() for batch in self.prompts]
        return About(self.title, self.notes, self.made, prompts)

    def sections(self) -> list[Section]:
        """Figures for a page, each with its text."""
        return sections_of(self)

    def page(self) -> Page:
        """The page, which `to_html` writes."""
        return page_of(self)


# --- plain values, for programs ---


def in_lines(analysis: Analysis) -> str:
    """The summary, then one line per claim of its study: status, name, finding."""
    lines = [
        f"  {verdict.status:<16} {verdict.claim.partition(':')[0]}: {verdict.line}"
        for verdict in analysis.verdicts()
    ]
    return "\n".join([analysis.summary(), *(["Claims", *lines] if lines else [])])


def described(analysis: Analysis) -> dict[str, Any]:
    """Title, notes, verdicts on the claims of its study, and results of a run."""
    return {
        "title": analysis.title,
        "notes": list(analysis.notes),
        "verdicts": [asdict(verdict) | {"line": verdict.line} for verdict in analysis.verdicts()],
        "results": {name: result_values(result) for name, result in analysis.results.items()},
    }


def result_values(result: Result) -> dict[str, Any]:
    """Type, summary, and every quantity by cell: value, low and high with the labels of the axes.

    Results without estimates over prompts have no quantities.
    """
    estimates = result.estimates() if result.quantities() else {}
    return {
        "kind": type(result).__name__,
        "summary": result.summary(),
        "variants": result.provenance.get("variants", {}),
        "quantities": {str(name): _cells(estimate) for name, estimate in estimates.items()},
    }


def _cells(estimate: "xr.DataArray") -> dict[str, Any]:
    axes = {str(dim): estimate.coords[dim].values.tolist() for dim in estimate.dims if dim != "end"}
    ends = {end: estimate.sel(end=end).values.tolist() for end in ENDS}
    return {"unit": estimate.attrs["unit"], "axes": axes, **ends}


# --- prompts on which the results were measured ---

SIDES = ("prompts", "false_prompts")
"""Keys of the provenance of a result."""


class PromptSets(tuple[PromptBatch, ...]):
    """The prompts of a study: one batch, or true and false ones; a notebook shows their text."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        names = ("True demonstrations", "False demonstrations") if len(self) > 1 else ("",)
        return "".join(
            (f"<h4>{name}</h4>" if name else "") + batch._repr_html_()
            for name, batch in zip(names, self, strict=False)
        )


def check_prompts(prompts: object, results: Mapping[str, Result]) -> PromptSets:
    """The prompts, if the results can come from them.

    Some results may come from other prompts, such as heads chosen on another task.

    Raises:
        ResultError: not batches of prompts, or results that record prompts, but none of these.
    """
    batches = (prompts,) if isinstance(prompts, PromptBatch) else prompts
    if not isinstance(batches, tuple | list) or len(batches) > len(SIDES):
        raise ResultError(
            f"prompts is a {type(prompts).__name__}; give a PromptBatch, or the pair (true, false)."
        )
    for batch in batches:
        if not isinstance(batch, PromptBatch):
            raise ResultError(
                f"prompts holds a {type(batch).__name__}; give a PromptBatch, or the pair "
                "(true, false)."
            )
    known = {
        result.provenance.get(side, {}).get("digest")
        for result in results.values()
        for side in SIDES
    } - {None}
    if batches and known and known.isdisjoint({batch.digest for batch in batches}):
        raise ResultError(
            "The results were not measured on these prompts (their provenance has other digests). Give the "
            "prompts they were measured on, or leave out prompts."
        )
    return PromptSets(batches)


def batches_of(
    saved: Sequence[Mapping[str, Any]], results: Mapping[str, Result], folder: str | Path
) -> PromptSets:
    """Batches from the saved values of a folder.

    Raises:
        ResultError: they are damaged, or not the prompts of the results.
    """
    try:
        return check_prompts(tuple(PromptBatch.from_dict(values) for values in saved), results)
    except IclMechError as error:
        raise ResultError(f"{Path(folder) / PROMPTS} is damaged: {error}") from error
