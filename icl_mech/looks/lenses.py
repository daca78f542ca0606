"""Shared parts of figures of lenses: names, the axis of entries, the table of top words."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech._typing import Float, Int, Tensor
from icl_mech.shapes import LensTable

AFTER = "read after layer … (0: the embedding)"
"""Title of the axis of lens entries: one convention for all figures of a page."""

NAMES = {"logit": "logit lens", "tuned": "tuned lens", "jacobian": "Jacobian lens"}
"""Names of the lenses."""


def noted(lens: str) -> str:
    """Prefix of a figure's note that names a fitted lens; empty for the logit lens."""
    return "" if lens == "logit" else f"{NAMES[lens]}; "


def word_table(
    columns: Sequence[str],
    tokens: Int[Tensor, "column layer k"],
    probs: Float[Tensor, "column layer k"],
    words: Mapping[str, str],
    *,
    title: str,
    labels: Sequence[str] = (),
    **more: Any,
) -> LensTable:
    """A table of the top words after each layer, one column per readout."""
    return LensTable(
        title=title,
        columns=tuple(columns),
        words=tuple(
            tuple(tuple(words.get(str(token), f"token {token}") for token in row) for row in column)
            for column in tokens.tolist()
        ),
        probs=probs.double(),
        bold=tuple(labels),
        **more,
    )
