"""Results computed in half precision, and how far that moved the numbers of a small model.

`half_precision.json` holds the measurements of `tests/benchmarks/formats.py --moves`: SmolLM2-135M in bfloat16
and float16 compared with float32, on the same prompts of three offline tasks (docs/benchmarks/formats.md).
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from icl_mech.results.wording import told

HALF = ("bfloat16", "float16")


def half_of(origin: Mapping[str, Any]) -> str:
    """The number format in a provenance if it is half precision, else an empty string."""
    model = origin.get("model")
    dtype = str(model.get("dtype", "")) if isinstance(model, Mapping) else ""
    return dtype if dtype in HALF else ""


def half_precision(origins: Iterable[Mapping[str, Any]]) -> list[str]:
    """One sentence for each half-precision format that results were computed in."""
    dtypes = [dtype for origin in origins if (dtype := half_of(origin))]
    return [_moved(dtype) for dtype in dict.fromkeys(dtypes)]


def _moved(dtype: str) -> str:
    every = measured()
    moves = every[dtype]
    return (
        f"The model ran in {dtype}; sums, means and probabilities were computed in float32. On "
        f"{every['model']}, {dtype} left {moves['same']} of {every['prompts']} predictions the same as in float32, and "
        f"moved label logits by up to {told(moves['logit'])}, flow fractions by up to {told(moves['flow'], digits=3)}, "
        f"the AUC of attention by up to {told(moves['auc'])} and label loyalty by up to {told(moves['loyalty'])}. "
        "Other models may shift further: if a number is close to a threshold, measure again in float32."
    )


@cache
def measured() -> Mapping[str, Any]:
    """Measured facts: model and prompts, and the largest differences from float32 for each format."""
    path = Path(__file__).with_name("half_precision.json")
    facts: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return facts
