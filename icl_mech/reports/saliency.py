"""Compact maps over the tokens of a prompt: the data a page needs from a `TokenMatrix`.

Values below the diagonal are stored as 256 steps of a logarithmic scale over four decades (error
below 2 %), compressed; means between segments are stored to three digits.
"""

import base64
import gzip
import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icl_mech.plots.pieces import in_text
from icl_mech.shapes import TokenMatrix, TokenSegment

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS = 8000
"""Maximum number of rows of a table of means; for larger maps it holds only the most informative layers."""

DECADES = 4
"""Decades of the colour scale, below the power of ten at or above the largest value."""

STEPS = 255
"""Steps of the colour scale."""

MOST = 3_000_000
"""Maximum number of values of single tokens on a page; of larger maps, only segments are shown."""


def packed(shape: TokenMatrix) -> dict[str, Any]:
    """The data from which the script of a page draws a map."""
    values = np.nan_to_num(shape.values.float().numpy(), posinf=0.0, neginf=0.0)
    n_layers, n = values.shape[:2]
    below = np.tril_indices(n, k=-1)
    edges = values[:, below[0], below[1]]
    largest = float(edges.max(initial=0.0))
    high = math.ceil(math.log10(largest)) if largest > 0 else 0
    low = high - DECADES
    data: dict[str, Any] = {
        "names": [token.name for token in in_text(shape.tokens)],
        "roles": list(shape.roles),
        "quantity": shape.quantity,
        "layers": n_layers,
        "low": low,
        "high": high,
        "runs": [vars(run) for run in shape.segments or _runs(shape.roles)],
        "means": _rows(shape),
        "telling": [list(pair) for pair in shape.telling],
        "shares": _shares(values, shape.roles),
        "open": shape.layer,
        "blob": "",
    }
    if edges.size <= MOST:
        with np.errstate(divide="ignore"):
            logs = np.log10(edges)
        codes = np.clip(np.rint((logs - low) / DECADES * STEPS), 0, STEPS).astype(np.uint8)
        data["blob"] = base64.b64encode(gzip.compress(codes.tobytes(), 9, mtime=0)).decode()
    return data


def numbers(shape: TokenMatrix) -> "pd.DataFrame | None":
    """Means between segments, one row per layer and pair; None without segments."""
    import pandas as pd

    if shape.means is None:
        return None
    names = [f"{place}: {segment.name}" for place, segment in enumerate(shape.segments)]
    pairs = list(zip(*np.tril_indices(len(names)), strict=True))
    layers = set(range(len(shape.values)))
    if len(layers) * len(pairs) > MOST_ROWS:
        layers = {shape.layer, *(layer for layer, _ in shape.telling)}
    rows = [
        (layer, names[to], names[source], value)
        for layer, means in enumerate(_rows(shape))
        if layer in layers
        for (to, source), value in zip(pairs, means, strict=True)
        if value is not None
    ]
    return pd.DataFrame(rows, columns=["layer", "to", "from", f"mean {shape.quantity} per edge"])


def _runs(roles: Sequence[str]) -> list[TokenSegment]:
    """Runs of tokens with the same role, for the bands along the axes of a map without segments."""
    runs: list[TokenSegment] = []
    start = 0
    for role, run in groupby(roles):
        stop = start + len(list(run))
        runs.append(TokenSegment(role.replace("_", " "), role, start, stop))
        start = stop
    return runs


def _rows(shape: TokenMatrix) -> list[list[float | None]]:
    """Means between segments of each layer, the lower triangle row by row."""
    if shape.means is None:
        return []
    rows, columns = np.tril_indices(len(shape.segments))
    means = shape.means.double().numpy()[:, rows, columns]
    return [[_rounded(value) for value in layer] for layer in means.tolist()]


def _rounded(value: float) -> float | None:
    return float(f"{value:.3g}") if math.isfinite(value) else None


def _shares(values: NDArray[np.float32], roles: tuple[str, ...]) -> list[list[float]]:
    """Per layer: the target row's fraction of the total, and its fractions from label words, text and the rest."""
    if "target" not in roles or "label_word" not in roles:
        return []
    target = roles.index("target")
    kinds = np.array(roles)
    from_label = kinds == "label_word"
    from_text = np.isin(kinds, ("demo_text", "rationale", "query_text"))
    shares = []
    for layer in values:
        total = float(np.tril(layer, k=-1).sum())
        row = layer[target, :target].astype(np.float64)
        whole = float(row.sum())
        parts = [float(row[mask[:target]].sum()) for mask in (from_label, from_text)]
        share = [part / whole if whole else 0.0 for part in parts]
        of_all = whole / total if total else 0.0
        rest = 1 - sum(share) if whole else 0.0
        shares.append([round(v, 4) for v in (of_all, share[0], share[1], rest)])
    return shares
