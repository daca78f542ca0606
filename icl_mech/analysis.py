"""`Analysis`: the results of one study, saved, drawn and reported together."""

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeVar

from icl_mech.errors import ResultError
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.maps import SaliencyMaps
from icl_mech.reports import Section, write_page
from icl_mech.results import (
    FORMAT,
    Result,
    atomic_folder,
    jsonable,
    load_result,
    read_json,
    write_result,
)
from icl_mech.sections import sections

AnyResult = TypeVar("AnyResult", bound=Result)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The results of one study, by name; `analysis.flow` is `analysis.results["flow"]`.

    Attributes:
        results: Results in reading order.
        title: Model and task.
        notes: What was left out and why, and what limits the numbers.
    """

    results: dict[str, Result]
    title: str
    notes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Result:
        """A result by its name."""
        results: dict[str, Result] = self.__dict__.get("results", {})
        if name in results:
            return results[name]
        raise AttributeError(f"This analysis has no {name!r}; it holds {', '.join(results)}.")

    @property
    def flow(self) -> FlowScores:
        """Information flow by layer."""
        return self._typed("flow", FlowScores)

    @property
    def predictions(self) -> Predictions:
        """What the model predicts."""
        return self._typed("predictions", Predictions)

    @property
    def saliency(self) -> SaliencyMaps:
        """Saliency maps of the first prompts."""
        return self._typed("saliency", SaliencyMaps)

    def _typed(self, name: str, kind: type[AnyResult]) -> AnyResult:
        result = self.results.get(name)
        if not isinstance(result, kind):
            raise ResultError(f"This analysis has no {name!r}; it holds {', '.join(self.results)}.")
        return result

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

    def save(self, folder: str | Path) -> Path:
        """Write all results into a folder, all or nothing.

        Raises:
            ResultError: the folder cannot be written, or holds other files.
        """
        with atomic_folder(folder) as staging:
            for name, result in self.results.items():
                (staging / name).mkdir()
                write_result(result, staging / name)
            document = {
                "format": FORMAT,
                "title": self.title,
                "results": list(self.results),
                "notes": self.notes,
            }
            text = json.dumps(jsonable(document), indent=1)
            (staging / "analysis.json").write_text(text, encoding="utf-8")
        return Path(folder).expanduser()

    def sections(self) -> list[Section]:
        """Figures with the sentence each one shows, for a page."""
        return [
            section for name, result in self.results.items() for section in sections(name, result)
        ]

    def to_html(self, path: str | Path, *, offline: bool = True) -> Path:
        """Write one self-contained page with all figures.

        Args:
            path: Of the page.
            offline: Put the plotly script into the page (about 5 MB); else load it from its CDN.

        Raises:
            ResultError: the page cannot be written.
        """
        return write_page(
            path, self.title, self.sections(), lead=" ".join(self.notes), offline=offline
        )


def load_analysis(folder: str | Path) -> Analysis:
    """What `Analysis.save` wrote.

    Raises:
        ResultError: missing or damaged files, or a newer layout.
    """
    folder = Path(folder).expanduser()
    document = read_json(folder / "analysis.json")
    if not {"title", "results"} <= document.keys():
        raise ResultError(f"{folder / 'analysis.json'} is damaged: it has no title or no results.")
    results = {name: load_result(folder / name) for name in document["results"]}
    return Analysis(results, document["title"], tuple(document.get("notes", ())))
