"""`Analysis`: the results of one study, saved, drawn and reported together."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from icl_mech.at_home import at_home
from icl_mech.errors import MissingResult, ResultError, near_matches
from icl_mech.frontend import in_notebook
from icl_mech.measurements.accuracy.context import ContextAccuracy
from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.confusion.diagnosis import ConfusionDiagnosis
from icl_mech.measurements.extraction.label_words import ExtractionResult
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.by_layer import MatchingByLayer
from icl_mech.measurements.heads.false_induction import FalseInductionHeads
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.tokens import HeadAttention
from icl_mech.measurements.isolation.loyalty import IsolationResult
from icl_mech.measurements.isolation.map import IsolationMap
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.reweighting.result import ReweightingResult
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.maps import SaliencyMaps
from icl_mech.prompts import PromptBatch
from icl_mech.reports import Page, Section, page_bytes, write_page
from icl_mech.results import (
    About,
    Folder,
    Result,
    check_names,
    paths_of,
    read_results,
    write_results,
)
from icl_mech.studies.kept import batches_of, check_prompts
from icl_mech.studies.null_bands import PREFIX, UntrainedCurves, with_band
from icl_mech.studies.pages import page_of, sections_of
from icl_mech.studies.part import Part
from icl_mech.studies.published import PublishedNumbers

if TYPE_CHECKING:
    import plotly.graph_objects as go

R = TypeVar("R", bound=Result)


@at_home
@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """The results of one study, by name: `analysis["flow"]`, or `analysis.flow`.

    Attributes:
        results: Results in reading order.
        title: Model and task.
        notes: What was left out and why, and what limits the numbers.
        prompts: The prompts: one batch, or true and false ones; none in runs saved by earlier
            versions. Heads may have been chosen on others, which are not kept.
        made: How it was made: `date` (ISO 8601 with the zone), `call` (the Python line), `setup`
            (lines that make model and prompts, where known), `command` (the command line, "" if it
            was none), `device`, `seconds`, and `resumed` (how many results an earlier call left).

    Raises:
        ResultError: a name that cannot be the name of a folder, or prompts of another study.
    """

    results: dict[str, Result]
    title: str
    notes: tuple[str, ...] = ()
    prompts: tuple[PromptBatch, ...] = ()
    made: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what could not be saved."""
        if not isinstance(self.results, dict):
            raise ResultError(f"results={self.results!r}; give results by name, {{'flow': ...}}.")
        check_names(self.results)
        for name, result in self.results.items():
            if not isinstance(result, Result):
                raise ResultError(f"{name!r} is a {type(result).__name__}, expected a Result.")
        object.__setattr__(self, "prompts", check_prompts(self.prompts, self.results))

    predictions = Part(Predictions)
    flow = Part(FlowScores)
    saliency = Part(SaliencyMaps)
    isolation = Part(IsolationResult)
    isolation_map = Part(IsolationMap)
    extraction = Part(ExtractionResult)
    compression = Part(CompressionTable)
    confusion = Part(ConfusionDiagnosis)
    reweighting = Part(ReweightingResult)
    layer_accuracy = Part(LayerAccuracy)
    context_accuracy = Part(ContextAccuracy)
    early_exit = Part(EarlyExit)
    head_scores = Part(HeadScores)
    matching_by_layer = Part(MatchingByLayer)
    head_attention = Part(HeadAttention)
    false_induction = Part(FalseInductionHeads)
    ablation = Part(Ablation)
    published = Part(PublishedNumbers)

    @overload
    def __getitem__(self, key: Literal["predictions"]) -> Predictions: ...
    @overload
    def __getitem__(self, key: Literal["flow"]) -> FlowScores: ...
    @overload
    def __getitem__(self, key: Literal["saliency"]) -> SaliencyMaps: ...
    @overload
    def __getitem__(self, key: Literal["isolation"]) -> IsolationResult: ...
    @overload
    def __getitem__(self, key: Literal["isolation_map"]) -> IsolationMap: ...
    @overload
    def __getitem__(self, key: Literal["extraction"]) -> ExtractionResult: ...
    @overload
    def __getitem__(self, key: Literal["compression"]) -> CompressionTable: ...
    @overload
    def __getitem__(self, key: Literal["confusion"]) -> ConfusionDiagnosis: ...
    @overload
    def __getitem__(self, key: Literal["reweighting"]) -> ReweightingResult: ...
    @overload
    def __getitem__(self, key: Literal["layer_accuracy"]) -> LayerAccuracy: ...
    @overload
    def __getitem__(self, key: Literal["context_accuracy"]) -> ContextAccuracy: ...
    @overload
    def __getitem__(self, key: Literal["early_exit"]) -> EarlyExit: ...
    @overload
    def __getitem__(self, key: Literal["head_scores"]) -> HeadScores: ...
    @overload
    def __getitem__(self, key: Literal["matching_by_layer"]) -> MatchingByLayer: ...
    @overload
    def __getitem__(self, key: Literal["head_attention"]) -> HeadAttention: ...
    @overload
    def __getitem__(self, key: Literal["false_induction"]) -> FalseInductionHeads: ...
    @overload
    def __getitem__(self, key: Literal["ablation"]) -> Ablation: ...
    @overload
    def __getitem__(self, key: Literal["late_ablation"]) -> Ablation: ...
    @overload
    def __getitem__(self, key: Literal["published"]) -> PublishedNumbers: ...
    @overload
    def __getitem__(self, key: str) -> Result: ...
    @overload
    def __getitem__(self, key: type[R]) -> R: ...
    def __getitem__(self, key: str | type[R]) -> "Result | R":
        """A result by its name, or the first of a kind: `analysis[FlowScores]`.

        Raises:
            MissingResult: there is none.
        """
        if isinstance(key, str):
            if key in self.results:
                return self.results[key]
            raise self._missing(key)
        if not isinstance(key, type):
            raise self._missing(repr(key))
        for result in self.results.values():
            if isinstance(result, key):
                return result
        raise self._missing(key.__name__)

    def __getattr__(self, name: str) -> Result:
        """A result by its name; those of your own measurements too."""
        if name.startswith("__") or "results" not in vars(self):
            raise AttributeError(name)
        return self[name]

    def __contains__(self, name: object) -> bool:
        """True if there is a result of that name."""
        return name in self.results

    def __iter__(self) -> Iterator[str]:
        """Names of the results, in reading order."""
        return iter(self.results)

    def __len__(self) -> int:
        """Number of results."""
        return len(self.results)

    def __dir__(self) -> list[str]:
        """What is there: attributes of results that are not are left out."""
        parts = {name for name, value in vars(type(self)).items() if isinstance(value, Part)}
        return sorted((set(super().__dir__()) - parts) | set(self.results))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.results)

    def _missing(self, name: str) -> MissingResult:
        return MissingResult(
            f"This analysis has no {name!r}; it holds {', '.join(self.results) or 'nothing'}. "
            f"{near_matches(name, self.results) if self.results else ''}".rstrip()
        )

    def summary(self) -> str:
        """A few lines that say what came out."""
        told = self._told()
        width = max(map(len, told), default=0) + 1
        lines = [self.title]
        lines += [f"  {name:<{width}} {result.summary()}" for name, result in told.items()]
        lines += [f"  note: {note}" for note in self.notes]
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
        """The results that are told of themselves; others lie behind their figures."""
        return {
            name: own for name, own in self.results.items() if not isinstance(own, UntrainedCurves)
        }

    def plot(self, name: str, show: str | None = None) -> "go.Figure":
        """The figure of one result, with untrained networks behind its curves where they were measured.

        Args:
            name: Of the result.
            show: One of its `shows`.

        Raises:
            MissingResult: no result of that name.
            ResultError: unknown `show`, or a result without a figure.
        """
        from icl_mech.plots import figure

        result = self[name]
        show = result.shows[0] if show is None else show
        drawing: Any = result.drawing
        shape = drawing(show=show) if show else drawing()
        return figure(with_band(self.results, name, show, shape))

    def save(self, folder: str | Path, *, page: bool = False, overwrite: bool = False) -> Path:
        """Write all results into a folder, all or nothing.

        Args:
            folder: A new or empty folder.
            page: Write `index.html` too, see `to_html`.
            overwrite: The folder may hold files: those saved before are replaced as long as nobody
                changed them, all others stay.

        Raises:
            ResultError: the folder cannot be written, or holds files that would be lost.
        """
        files = paths_of(self.results, page=page, prompts=bool(self.prompts))
        with Folder(folder, overwrite=overwrite, files=files) as place:
            self.save_into(place, page=page)
        return Path(folder).expanduser()

    def save_into(self, place: Folder, *, page: bool = False) -> None:
        """As `save`, into a folder that is open already."""
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
                f"({type(fault).__name__}: {fault}); load them with load_analysis."
            ) from fault

    def about(self) -> About:
        """What is saved once for all results."""
        prompts = [batch.to_dict() for batch in self.prompts]
        return About(self.title, self.notes, self.made, prompts)

    def sections(self) -> list[Section]:
        """Figures with what each one shows, for a page."""
        return sections_of(self.results, self.prompts)

    def page(self) -> Page:
        """The page, which `to_html` writes."""
        return page_of(self.results, self.title, self.notes, self.prompts, self.made)

    def to_html(self, path: str | Path, *, offline: bool = True, overwrite: bool = False) -> Path:
        """Write one self-contained page with all figures.

        Args:
            path: Of the page.
            offline: Put the plotly script into the page (about 5 MB); else load it from its CDN.
            overwrite: Replace whatever file is there; without it, only a page that this package
                wrote and nobody edited.

        Raises:
            ResultError: the page cannot be written, or another file is there.
        """
        return write_page(path, self.page(), offline=offline, overwrite=overwrite)


def load_analysis(folder: str | Path) -> Analysis:
    """What `Analysis.save` wrote, or `measure(..., out=folder)`.

    Raises:
        ResultError: missing or damaged files, or a newer layout.
    """
    results, about = read_results(folder)
    prompts = batches_of(about.prompts, results, folder)
    return Analysis(results, about.title, tuple(about.notes), prompts, dict(about.made))


PARTS = tuple(name for name, value in vars(Analysis).items() if isinstance(value, Part))
"""Names of the results that the studies give."""
