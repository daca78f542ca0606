"""Checks of a saved run before it is shown with others: its origin is known, and it agrees with its samples.

Checksums find damage. But a number can be edited together with its checksum, so numbers are compared with their source:
interval ends and means with the per-prompt samples, choices with scores, results with each other and with
the prompts. Only `remeasured` finds samples that were invented as a whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from icl_mech.errors import IclMechError, ResultError
from icl_mech.interventions.base import load_intervention
from icl_mech.measurements.accuracy.early_exit import EarlyExit, EarlyExitResult
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.extraction.extraction import ExtractionResult
from icl_mech.measurements.heads.false_induction import FalseInductionResult
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.metrics import bootstrap_interval, calibrated_scores, normalised_flow
from icl_mech.metrics.auc import curve_fields, resampled
from icl_mech.metrics.intervals import known_mean
from icl_mech.metrics.means import RANGES
from icl_mech.models import adapt
from icl_mech.names import VERSIONED, version
from icl_mech.results import Result
from icl_mech.studies import Analysis, measure
from icl_mech.studies.analysis import SIDES
from icl_mech.studies.published import PublishedNumbers, label_words_numbers, overthinking_numbers
from icl_mech.sweeps.config import measurement
from icl_mech.sweeps.reading import bounds_of

TOLERANCE = 1e-4
"""Largest difference between a number and its recomputed value, relative to the largest value of its tensor."""

REMEASURED = 1e-3
"""The same for numbers that were measured again, perhaps on another processor."""

FLIPPED = 0.05
"""Fraction of choices that may differ between two runs, because near ties may go either way."""

NEEDED = [
    "measurement",
    "date",
    "model.name",
    "model.weights",
    "model.n_layers",
    "prompts.digest",
    "prompts.count",
]
NEEDED += [f"versions.{name}" for name in VERSIONED]
DRAWN = ["prompts.seed", "prompts.task.name"]
"""Entries of the provenance that identify what was measured; `DRAWN` only if prompts were drawn."""


OUTCOMES = {"outcome": (0.0, 1.0), "change": (-1.0, 1.0), **RANGES}
"""Bounds of per-prompt values, by their kind."""


def examined(folder: str | Path) -> Analysis:
    """Load a saved run that passes every check and may be shown.

    Raises:
        ResultError: damaged files, provenance that is incomplete or from other versions, or numbers that are
            impossible or do not follow from their samples.
    """
    run = Analysis.load(folder)
    refuse(folder, [*_origins(run), *_values(run), *_agreement(run)])
    return run


def refuse(folder: object, faults: Sequence[str]) -> None:
    """Reject a run that has faults.

    Raises:
        ResultError: names the first three.
    """
    if faults:
        raise ResultError(
            f"{str(folder)!r} cannot be part of an atlas: {'; '.join(faults[:3])}. Nothing was written; "
            "measure it again with this version, and add the new run."
        )


def measured(run: Analysis) -> dict[str, Result]:
    """The results that hold samples of the model itself: neither published numbers nor randomly initialised models."""
    return {
        name: result
        for name, result in run.results.items()
        if not isinstance(result, PublishedNumbers) and "networks" not in result.provenance
    }


def entry(origin: object, path: str) -> Any:
    """The entry at a path such as `model.weights` of a provenance; None if there is none."""
    for part in path.split("."):
        origin = origin.get(part) if isinstance(origin, Mapping) else None
    return origin


def _origins(run: Analysis) -> Iterator[str]:
    """Faults of the provenance of its results: missing entries, and entries that disagree."""
    if not run.prompts or not measured(run):
        yield "it holds no measurement or no prompts, but both are needed"
        return
    current, saved = version("icl-mech"), {batch.digest for batch in run.prompts}
    whole, first = len(run.prompts[0]), next(iter(measured(run)))
    for name, result in run.results.items():
        origin = result.provenance
        if isinstance(result, PublishedNumbers):
            continue
        drawn = {"shots", "total"} & {*(origin.get("prompts") or ())}
        for path in (*NEEDED, *(DRAWN if drawn else ())):
            if entry(origin, path) in (None, ""):
                yield f"the provenance of {name} lacks {path}"
        made = str(entry(origin, "versions.icl-mech"))
        if made.split(".")[:2] != current.split(".")[:2]:
            yield f"{name} was made by icl-mech {made}, but the studies of version {current} judge it"
        for what in ("versions", "model.weights", "model.name"):
            if entry(origin, what) != entry(run.results[first].provenance, what):
                yield f"{what} of {name} and of {first} differ, but a run has one model and environment"
        digest, count = entry(origin, "prompts.digest"), entry(origin, "prompts.count")
        if digest not in saved and count == whole and not isinstance(result, FalseInductionResult):
            yield f"{name} was measured on prompts {digest}, but the saved prompts are {', '.join(saved)}"


def _values(run: Analysis) -> Iterator[str]:
    """Quantities outside of their bounds, and fields that do not follow from the samples."""
    for name, result in run.results.items():
        for key, quantity in result.quantities().items():
            if quantity.statistic is not None:
                continue
            bounds = OUTCOMES.get("outcome" if quantity.outcomes else quantity.kind)
            for values, ends in (
                (quantity.per_prompt, bounds),
                (quantity.value(), bounds_of(quantity.unit)),
            ):
                low, high = ends or (-torch.finfo().max, torch.finfo().max)
                known = values.double().nan_to_num(low, torch.inf, -torch.inf)
                if not low - TOLERANCE <= known.min() <= known.max() <= high + TOLERANCE:
                    yield f"{key} of {name} has values outside the range {low:g} to {high:g}"
        try:
            again = REMADE[type(result)](result, run) if type(result) in REMADE else {}
        except (IclMechError, LookupError, ValueError, RuntimeError) as error:
            yield f"{name} cannot be computed from its samples ({error})"
            continue
        for field, expected in again.items():
            if not alike(getattr(result, field), expected, TOLERANCE):
                yield f"{field} of {name} does not follow from its samples, {_few(expected)}"


# --- fields that follow from samples, or from other results of the run; claims depend on these ---


def _flow(result: FlowScores, _: Analysis) -> Mapping[str, Any]:
    low, high = bootstrap_interval(result.per_prompt, normalised_flow)
    return {"values": normalised_flow(known_mean(result.per_prompt, 0)), "low": low, "high": high}


def _extraction(result: ExtractionResult, _: Analysis) -> Mapping[str, Any]:
    auc, drawn, _redrawn = resampled(result.attention, result.truth_classes, result.two_classes)
    return curve_fields(auc, drawn, len(result.truth_classes))


def _layers(result: LayerAccuracyResult, _: Analysis) -> Mapping[str, Any]:
    """The calibrated scores of both sides, from the probabilities of the label words."""
    if result.own_choices:
        return {}
    scores, exact = result.scores.clone(), result.variant == "reference"
    for side, probs in enumerate((result.true_probs, result.false_probs)):
        classes = result.answers[:, None].expand(-1, probs.shape[1])
        calibrated = calibrated_scores(probs, classes, exact_ties=exact)
        scores[METRICS.index("calibrated"), side] = calibrated.to(scores)
    return {"scores": scores}


def _exit(result: EarlyExitResult, run: Analysis) -> Mapping[str, Any]:
    variants = result.provenance["variants"]
    if variants.get("lens") is not None or result.chosen_with or "layer_accuracy" not in run:
        return {}
    again = EarlyExit(variants["variant"], variants["seed"]).exit(
        [run.layer_accuracy], result.tasks
    )
    return {name: getattr(again, name) for name in ("layer", "change", "low", "high", "changes")}


def _predictions(result: Predictions, run: Analysis) -> Mapping[str, Any]:
    """Classes from scores, and log-probabilities, whose differences between label words equal those of the logits."""
    if result.provenance.get("variants", {}).get("score") != "first":
        return {}
    shift = (result.log_probs - result.label_logits).mean(-1, keepdim=True)
    remade: dict[str, Any] = {"log_probs": (result.label_logits + shift).clamp(max=0.0)}
    if run.prompts and run.prompts[0].answer_kind != "vocabulary":
        remade["predicted"] = result.label_logits.argmax(-1)
    return remade


def _published(result: PublishedNumbers, run: Analysis) -> Mapping[str, Any]:
    made = overthinking_numbers if "Halawi" in result.source else label_words_numbers
    return {"rows": made(run.results).rows}


REMADE: dict[type[Any], Callable[[Any, Analysis], Mapping[str, Any]]] = {
    FlowScores: _flow,
    ExtractionResult: _extraction,
    LayerAccuracyResult: _layers,
    EarlyExitResult: _exit,
    Predictions: _predictions,
    PublishedNumbers: _published,
}
"""Functions by type of result: fields with the values that follow from the samples."""


# --- agreement ---


def _few(value: object) -> str:
    text = str(value.flatten()[:4].tolist() if isinstance(value, torch.Tensor) else value)
    return f"expected {text[:80]}{'...' if len(text) > 80 else ''}"


def alike(found: object, expected: object, tolerance: float) -> bool:
    """True for equal values; floats may differ by rounding, and a few choices may differ if measured again."""
    if not (isinstance(expected, torch.Tensor) and isinstance(found, torch.Tensor)):
        return bool(found == expected)
    if found.shape != expected.shape:
        return False
    first, second = found.double(), expected.double()
    if not found.is_floating_point():
        flipped = FLIPPED if tolerance >= REMEASURED else 0.0
        return bool((first != second).double().mean().nan_to_num() <= flipped)
    most = max([1.0, *second[second.isfinite()].abs().flatten().tolist()])
    return torch.allclose(first, second, rtol=tolerance, atol=tolerance * most, equal_nan=True)


def _agreement(run: Analysis) -> Iterator[str]:
    """Results that disagree with the prompts they name, or with each other about predictions."""
    batches = {batch.digest: batch for batch in run.prompts}
    seen: dict[str, tuple[str, object]] = {}
    for name, result in measured(run).items():
        digest = str(entry(result.provenance, "prompts.digest"))
        batch, answers = batches.get(digest), getattr(result, "answers", None)
        whole = batch and batch.has_answers and answers is not None and len(answers) == len(batch)
        if batch and whole and not alike(answers, batch.answers, 0.0):
            yield f"answers of {name} differ from those of its prompts"
        predicted = getattr(result, "predicted", getattr(result, "full_predicted", None))
        if (
            batch
            and predicted is not None
            and predicted.ndim == 1
            and not result.provenance["interventions"]
        ):
            first, theirs = seen.setdefault(digest, (name, predicted))
            if not alike(predicted, theirs, REMEASURED):
                yield f"{name} and {first} disagree about the predictions on the same prompts"


def remeasured(run: Analysis, models: Sequence[object]) -> Iterator[str]:
    """Differences after measuring everything again that can be, on its model; none if all agrees.

    Results on prompts that are not saved, and of fitted lenses, are left out.
    """
    batches = {batch.digest: batch for batch in run.prompts}
    known = {adapt(model).fingerprint(exact=True): model for model in models}
    for name, result in measured(run).items():
        origin = result.provenance
        model = known.get(entry(origin, "model.weights"))
        digests = [entry(origin, f"{side}.digest") for side in SIDES if side in origin]
        if model is None:
            yield f"{name} has the weights {entry(origin, 'model.weights')}, but the given models have {[*known]}"
        elif {*digests} <= {*batches}:
            data: Any = tuple(batches[digest] for digest in digests)
            with suppress(IclMechError):
                value = measurement({str(origin["measurement"]): origin["variants"]})
                changes = [load_intervention(dict(edit)) for edit in origin["interventions"]]
                data = data if len(data) > 1 else data[0]
                analysis = measure(model, data, value, interventions=changes, progress=False)
                for field in fields(again := analysis[type(result)]):
                    expected = getattr(again, field.name)
                    same = alike(getattr(result, field.name), expected, REMEASURED)
                    if isinstance(expected, torch.Tensor) and not same:
                        yield f"{field.name} of {name} differs from what its model gives, {_few(expected)}"
