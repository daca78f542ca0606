"""The three kinds of edges, and the thirds of the layers they are told for."""

from icl_mech.errors import ResultError
from icl_mech.shapes import Meaning

SCORES = ("wp", "pq", "ww")

NAMES = {
    "wp": "S_wp: texts → label words",
    "pq": "S_pq: label words → target",
    "ww": "S_ww: everything else",
}

MEANINGS: tuple[Meaning, ...] = ("text", "label", "other")


def third_of(n_layers: int, third: str) -> slice:
    """The layers of the first or last third, at least one.

    Raises:
        ResultError: another third.
    """
    size = max(1, n_layers // 3)
    if third not in ("first", "last"):
        raise ResultError(f"third={third!r}; expected 'first' or 'last'.")
    return slice(0, size) if third == "first" else slice(n_layers - size, n_layers)


def thirds(n_layers: int) -> tuple[tuple[float, float, str], ...]:
    """The first and last third as stretches of a figure; none where they are single layers."""
    size = max(1, n_layers // 3)
    if size < 2:
        return ()
    last = float(n_layers - 1)
    return (0.0, size - 1.0, "first third"), (last - size + 1, last, "last third")


def score_index(score: str) -> int:
    """Place of a score.

    Raises:
        ResultError: it is none.
    """
    if score not in SCORES:
        raise ResultError(f"Unknown score {score!r}; expected one of {', '.join(SCORES)}.")
    return SCORES.index(score)
