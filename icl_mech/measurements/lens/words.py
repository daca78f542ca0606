"""The likeliest words of lens entries: decoded, and as a table."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech._typing import Float, Int, Tensor
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.shapes import LensTable

AFTER = "read after layer … (0: the embedding)"
"""The axis of lens entries: one convention for all figures of a page."""

MOST = 12
"""Columns of a table at most."""


def decoded(tokens: Int[Tensor, "*rows"] | None, tokenizer: Any) -> dict[str, str]:
    """The text of every token that occurs, by its id; nothing without a tokenizer."""
    if tokens is None or tokenizer is None:
        return {}
    ids = tuple(int(token) for token in tokens.unique())
    return dict(zip(map(str, ids), PieceTokenizer(tokenizer).words(ids), strict=True))


def in_order(tokens: Int[Tensor, " label"], tokenizer: Any) -> tuple[str, ...]:
    """Texts of tokens, in their order; nothing without a tokenizer."""
    words = decoded(tokens, tokenizer)
    return tuple(words[str(int(token))] for token in tokens) if words else ()


def word_table(
    columns: Sequence[str],
    tokens: Int[Tensor, "column layer k"],
    probs: Float[Tensor, "column layer k"],
    words: Mapping[str, str],
    *,
    title: str,
    labels: Sequence[str] = (),
    note: str = "",
) -> LensTable:
    """The likeliest words after each layer, one column for each thing that was read."""
    kept = min(len(columns), MOST)
    return LensTable(
        title=title,
        columns=tuple(columns[:kept]),
        words=tuple(
            tuple(tuple(words.get(str(token), f"token {token}") for token in row) for row in column)
            for column in tokens[:kept].tolist()
        ),
        probs=probs[:kept].double(),
        bold=tuple(labels),
        note=note,
    )


def settled(tokens: Int[Tensor, " layer"]) -> int:
    """First layer from which the likeliest word stays the last layer's."""
    same = (tokens == tokens[-1]).flip(0).int().cummin(0).values
    return len(tokens) - int(same.sum())
