"""A run as plain values, for `--json`."""

from typing import Any

import icl_mech as icl
from icl_mech.results import Result


def described(analysis: icl.Analysis) -> dict[str, Any]:
    """Title, notes and results of a run."""
    return {
        "title": analysis.title,
        "notes": list(analysis.notes),
        "results": {name: result_values(result) for name, result in analysis.results.items()},
    }


def result_values(result: Result) -> dict[str, Any]:
    """Kind, sentence, and every quantity by cell: value, low and high with the labels of the axes.

    Results that estimate nothing over prompts have no quantities.
    """
    found: dict[str, Any] = {
        "kind": type(result).__name__,
        "summary": result.summary(),
        "variants": result.provenance.get("variants", {}),
        "quantities": {},
    }
    if not result.quantities():
        return found
    for name, own in result.estimates().items():
        dims = [str(dim) for dim in own.dims if dim != "end"]
        found["quantities"][str(name)] = {
            "unit": own.attrs["unit"],
            "axes": {dim: own.coords[dim].values.tolist() for dim in dims},
            **{end: own.sel(end=end).values.tolist() for end in ("value", "low", "high")},
        }
    return found
