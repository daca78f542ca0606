"""`Analysis`: the results of one study, saved, drawn and reported together."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Generic, Literal, TypeVar, overload

from icl_mech.errors import MissingResult, ResultError, near_matches
from icl_mech.measurements.accuracy.context import ContextAccuracy
from icl_mech.measurements.accuracy.early_exit import EarlyExit
from icl_mech.measurements.accuracy.layers import LayerAccuracy
from icl_mech.measurements.compression.table import CompressionTable
from icl_mech.measurements.confusion.result import ConfusionDiagnosis
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
from icl_mech.reports import Section, page_bytes, write_page
from icl_mech.results import Folder, Result, check_names, paths_of, read_results, write_results
from icl_mech.studies.published import PublishedNumbers

R = TypeVar("R", bound=Result)


class Part(Generic[R]):
    """An attribute of an analysis: the result of that name, of a known kind."""

    def __init__(self, kind: type[R]) -> None:
        self.kind = kind

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the name."""
        self.name = name

    @overload
    def __get__(self, analysis: None, owner: type) -> "Part[R]": ...
    @overload
    def __get__(self, analysis: "Analysis", owner: type) -> R: ...
    def __get__(self, analysis: "Analysis | None", owner: type) -> "Part[R] | R":
        """The result.

        Raises:
            MissingResult: there is none of that name.
            ResultError: it is of another kind.
        """
        if analysis is None:
            return self
        result = analysis[self.name]
        if not isinstance(result, self.kind):
            raise ResultError(
                f"{self.name!r} of this analysis is a {type(result).__name__}, not a "
                f"{self.kind.__name__}; take it as analysis[{self.name!r}]."
            )
        return result


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """The results of one study, by name: `analysis["flow"]`, or `analysis.flow`.

    Attributes:
        results: Results in reading order.
        title: Model and task.
        notes: What was left out and why, and what limits the numbers.

    Raises:
        ResultError: a name that cannot be the name of a folder.
    """

    results: dict[str, Result]
    title: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not be saved."""
        if not isinstance(self.results, dict):
            raise ResultError(f"results={self.results!r}; give results by name, {{'flow': ...}}.")
        check_names(self.results)
        for name, result in self.results.items():
            if not isinstance(result, Result):
                raise ResultError(f"{name!r} is a {type(result).__name__}, expected a Result.")

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
        width = max(map(len, self.results), default=0) + 1
        lines = [self.title]
        lines += [f"  {name:<{width}} {result.summary()}" for name, result in self.results.items()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The summary."""
        return self.summary()

    def _repr_html_(self) -> str:
        shown = "".join(result._repr_html_() for result in self.results.values())
        return f"<h3>{escape(self.title)}</h3>{shown}"

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
        with Folder(folder, overwrite=overwrite, files=paths_of(self.results, page=page)) as place:
            self.save_into(place, page=page)
        return Path(folder).expanduser()

    def save_into(self, place: Folder, *, page: bool = False) -> None:
        """As `save`, into a folder that is open already."""
        content = None
        if page:
            content = page_bytes(self.title, self.sections(), lead=" ".join(self.notes))
        write_results(place, self.results, self.title, self.notes, content)

    def sections(self) -> list[Section]:
        """Figures with the sentence each one shows, for a page."""
        return [
            Section(
                f"{result.page_title}: {figure.title}" if figure.title else result.page_title,
                figure.sentence,
                result.plot(figure.show),
                result.provenance,
            )
            for result in self.results.values()
            for figure in result.figures()
        ]

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
        return write_page(
            path, self.title, self.sections(), lead=" ".join(self.notes), offline=offline,
            overwrite=overwrite,
        )  # fmt: skip


def load_analysis(folder: str | Path) -> Analysis:
    """What `Analysis.save` wrote, or `measure(..., out=folder)`.

    Raises:
        ResultError: missing or damaged files, or a newer layout.
    """
    return Analysis(*read_results(folder))


PARTS = tuple(name for name, value in vars(Analysis).items() if isinstance(value, Part))
"""Names of the results that the studies give."""
