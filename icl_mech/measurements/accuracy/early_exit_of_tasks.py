"""One early-exit layer for several tasks, from accuracies at hand; see
`icl_mech.measurements.accuracy.early_exit`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from icl_mech.checking import conformed
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.early_exit import EarlyExit, EarlyExitResult, task_name
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.demonstrations import check_one_way
from icl_mech.measurements.lens.residuals import LensVariant


def early_exit(
    results: LayerAccuracyResult | Sequence[LayerAccuracyResult],
    *,
    chosen_on: LayerAccuracyResult | Sequence[LayerAccuracyResult] | None = None,
    variant: LensVariant = "sound",
    seed: int = 0,
) -> EarlyExitResult:
    """The early-exit layer of one or several tasks.

    Args:
        results: One `LayerAccuracyResult`, or several of one model.
        chosen_on: Results of the same queries with another label setting, one for each of `results`:
            the layer that is best on their one half is reported on the other half of `results`. So the
            paper takes the layer chosen with permuted labels for half permuted and for random ones.
        variant: `sound` splits the prompts, `reference` does not.
        seed: Of the split.

    Raises:
        ResultError: no results, or of models with different numbers of layers; too few
            prompts; demonstrations per class and in all; `chosen_on` of other queries.
        RunError: unknown variant.
    """
    kind = LayerAccuracyResult | Sequence[LayerAccuracyResult]
    results = conformed("results", results, kind, ResultError)
    several = _listed(results)
    choosing = None
    if chosen_on is not None:
        choosing = _listed(conformed("chosen_on", chosen_on, kind, ResultError))
    entries = {result.true_probs.shape[1] for result in (*several, *(choosing or ()))}
    if len(entries) != 1:
        raise ResultError(
            f"Results of models with {sorted(entries)} entries; give those of one model."
        )
    check_one_way(several)
    measurement = EarlyExit(variant, seed)
    origins = [result.provenance for result in several]
    setting = "" if choosing is None else _other_setting(several, choosing)
    names = [task_name(origin.get("prompts", {})) for origin in origins]
    found = measurement.exit(several, names, choosing, setting)
    origin = _provenance(measurement, origins)
    if choosing is not None:
        origin["chosen_on"] = [own.provenance.get("false_prompts", {}) for own in choosing]
    return replace(found, provenance=origin)


def _listed(
    results: LayerAccuracyResult | Sequence[LayerAccuracyResult],
) -> list[LayerAccuracyResult]:
    return list(results) if isinstance(results, Sequence) else [results]


def _other_setting(
    several: Sequence[LayerAccuracyResult], choosing: Sequence[LayerAccuracyResult]
) -> str:
    """Label setting of the results that choose.

    Raises:
        ResultError: other queries, or none known: a half that chose might then be reported.
    """
    if len(several) != len(choosing):
        raise ResultError(
            f"{len(several)} results and {len(choosing)} in chosen_on; give one for each, of the same task."
        )
    for number, (own, by) in enumerate(zip(several, choosing, strict=True)):
        digests = [one.provenance.get("prompts", {}).get("digest") for one in (own, by)]
        if None in digests or digests[0] != digests[1]:
            raise ResultError(
                f"Result {number} and its chosen_on are not of the same true prompts, so what chose the "
                "layer might be reported; build both pairs with the same task, n, seed and demonstrations, "
                "and other false_labels."
            )
        told = [(one.provenance.get("model", {}).get("weights"), one.variant) for one in (own, by)]
        if told[0] != told[1]:
            raise ResultError(
                f"Result {number} and its chosen_on are of other models or variants (weights and variant "
                f"{told[0]} and {told[1]}); measure both pairs on one model, in one way."
            )
    kinds = {str(own.provenance.get("false_prompts", {}).get("labels", "")) for own in choosing}
    return " and ".join(sorted(kinds))


def _provenance(measurement: EarlyExit, origins: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """That of the accuracies, with the prompts of all tasks."""
    first = origins[0]
    origin = {
        **first,
        "measurement": measurement.name,
        "variants": measurement.variants(),
        "layer_accuracy": first.get("variants", {}),
    }
    for side in ("prompts", "false_prompts"):
        sets = [own.get(side, {}) for own in origins]
        if len(sets) > 1:
            digests = [own.get("digest") for own in sets]
            known = all(isinstance(digest, str) for digest in digests)
            origin[side] = {
                "tasks": sets,
                "count": sum(own.get("count", 0) for own in sets),
                "digest": " ".join(digests) if known else None,
            }
    return origin
