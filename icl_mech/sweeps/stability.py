"""Stability over a sweep: over which seeds, formats, tasks or other settings heads, layers and claims recur."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from icl_mech.errors import ResultError, SweepError
from icl_mech.measurements.stability.agreement import Lines, Seen, lines_over, seen
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.metrics.stability import Within
from icl_mech.results import Result
from icl_mech.studies import Analysis
from icl_mech.sweeps.item import DIMS, Item, short_names

AXES = tuple(dim for dim in DIMS if dim != "study")
"""Dimensions along which runs are compared, if they differ in nothing else."""

CLAIMS = "claims"
"""Name under which the verdicts on a study's claims are kept."""


def stability_of(
    finished: Iterable[tuple[Item, Analysis]],
    *,
    k: int,
    within: Within,
    seed: int,
    quantity: str | None = None,
) -> StabilityResult:
    """Agreement between runs that differ in a single dimension, see `Sweep.stability`.

    Raises:
        SweepError: no two finished runs differ in a single dimension, nothing in them can be compared, or too many heads.
    """
    runs = [(item, _shown(analysis, quantity)) for item, analysis in finished]
    names = short_names(item.model for item, _ in runs)
    several = len({(item.model, item.revision) for item, _ in runs}) > 1
    found: list[Lines] = []
    for axis in AXES:
        places = dict.fromkeys(_place(item, axis) for item, _ in runs)
        for place in places:
            model, *revision = place
            here = [(item, shown) for item, shown in runs if _place(item, axis) == place]
            groups = _groups(here, axis)
            values = list(dict.fromkeys(value for group in groups for value in group))
            if len(values) > 1:
                called = " at ".join([names[model], *(r for r in revision if r)]) if model else ""
                try:
                    found.append(
                        lines_over(
                            axis,
                            [_name(value) for value in values],
                            [[group.get(value) for value in values] for group in groups],
                            k=k,
                            within=within,
                            seed=seed,
                            place=called if several else "",
                            comparable=axis != "model",
                        )
                    )
                except ResultError as error:
                    raise SweepError(str(error)) from error
    if not any(lines.lines for lines in found):
        raise SweepError(
            "No two finished runs differ in a single dimension and rank heads, have a critical layer or support claims, "
            "so nothing can be compared. Run more seeds, formats or tasks."
        )
    return StabilityResult.of(
        found, k=k, within=within, provenance={"measurement": "stability", "runs": len(runs)}
    )


def _place(item: Item, axis: str) -> tuple[Any, ...]:
    """Model and revision; without what the axis varies."""
    return tuple("" if dim == axis else getattr(item, dim) or "" for dim in ("model", "revision"))


def _groups(
    runs: Sequence[tuple[Item, Mapping[str, Seen]]], axis: str
) -> list[dict[Any, Mapping[str, Seen]]]:
    """Runs that differ in this dimension alone, by its value; groups of at least two."""
    groups: dict[str, dict[Any, Mapping[str, Seen]]] = {}
    for item, shown in runs:
        # What identifies a model, task or prompts follows from the dimensions.
        rest = {k: v for k, v in item.to_dict().items() if k not in (axis, "sources")}
        same = json.dumps(rest, sort_keys=True)
        groups.setdefault(same, {})[getattr(item, axis)] = shown
    return [group for group in groups.values() if len(group) > 1]


def _shown(analysis: Analysis, quantity: str | None) -> dict[str, Seen]:
    """What each result of a run shows, and its study's verdicts."""
    verdicts = analysis.verdicts()
    judged = {verdict.result for verdict in verdicts}
    shown = {CLAIMS: Seen(claims={verdict.claim: verdict.status for verdict in verdicts})}
    for name, result in analysis.results.items():
        what = _seen(name, result, quantity)
        if what is not None:
            # A study's claims are judged together; the statuses of their results are not repeated.
            shown[name] = what._replace(claims={}) if name in judged else what
    return shown


def _seen(name: str, result: Result, quantity: str | None) -> Seen | None:
    """What a result shows; None if it does not have the quantity."""
    try:
        return seen(result, name, quantity)
    except ResultError:
        return None


def _name(value: object) -> str:
    return "original" if value in ("", None) else str(value)
