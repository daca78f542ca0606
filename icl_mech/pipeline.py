"""`analyze`: one pass over the prompts, all default readings, one `Analysis`."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeVar

from icl_mech.analyses import FlowScores, Predictions, SaliencyMaps
from icl_mech.analyses._provenance import provenance
from icl_mech.analyses._saliency import (
    Reduction,
    check_variants,
    default_loss,
    warn_if_processed,
)
from icl_mech.analyses.flow import FlowReading, check_flow_prompts, flow_result
from icl_mech.analyses.predictions import PredictionReading, prediction_result
from icl_mech.analyses.saliency import SaliencyReading, maps_result
from icl_mech.engine import Loss, run
from icl_mech.errors import ResultError
from icl_mech.interventions import Intervention
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
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

AnyResult = TypeVar("AnyResult", bound=Result)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The results of one study, by name; `analysis.flow` is `analysis.results["flow"]`.

    Attributes:
        results: Results in reading order.
        title: Model and task.
    """

    results: dict[str, Result]
    title: str

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
        lines = [self.title]
        lines += [f"  {name:<12} {result.summary()}" for name, result in self.results.items()]
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
        import json

        with atomic_folder(folder) as staging:
            for name, result in self.results.items():
                (staging / name).mkdir()
                write_result(result, staging / name)
            document = {"format": FORMAT, "title": self.title, "results": list(self.results)}
            text = json.dumps(jsonable(document), indent=1)
            (staging / "analysis.json").write_text(text, encoding="utf-8")
        return Path(folder).expanduser()

    def sections(self) -> list[Section]:
        """Figures with the sentence each one shows, for a page."""
        return [
            Section(name, result.summary(), result.plot(), result.provenance)
            for name, result in self.results.items()
        ]

    def to_html(self, path: str | Path, *, offline: bool = True) -> Path:
        """Write one self-contained page with all figures.

        Args:
            path: Of the page.
            offline: Put the plotly script into the page (about 5 MB); else load it from its CDN.

        Raises:
            ResultError: the page cannot be written.
        """
        return write_page(path, self.title, self.sections(), offline=offline)


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
    return Analysis(results, document["title"])


def analyze(
    model: Any,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    maps: int = 1,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Analysis:
    """Predictions and information flow of all prompts in one pass; maps of the first few.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        interventions: Made during the pass.
        maps: Number of prompts whose whole saliency maps are kept (0: none).
        reduction: See `saliency_maps`.
        loss: See `saliency_maps`.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        IclMechError: model, prompts or variants that would give wrong numbers.
    """
    chosen: Loss = loss or default_loss(prompts)
    check_variants(chosen, reduction, prompts)
    check_flow_prompts(prompts)
    adapted = adapt(model)
    warn_if_processed(adapted)
    sums, read = run(
        adapted, prompts, [FlowReading(chosen, reduction), PredictionReading()], interventions,
        batch_size=batch_size, progress=progress, title="analysis",
    )  # fmt: skip
    origin = provenance(adapted, prompts, interventions, loss=chosen, reduction=reduction)
    results: dict[str, Result] = {
        "predictions": prediction_result(read, prompts, origin),
        "flow": flow_result(sums, prompts, origin),
    }
    if maps:
        first = prompts[: min(maps, len(prompts))]
        (kept,) = run(
            adapted, first, [SaliencyReading(chosen, reduction)], interventions,
            batch_size=batch_size, progress=False,
        )  # fmt: skip
        results["saliency"] = maps_result(kept, first, origin)
    task = prompts.source.get("task", {}).get("name", "prompts")
    return Analysis(results, f"{adapted.info.name} on {task} ({len(prompts)} prompts)")
