"""The top tokens of lens entries: their texts, and the entry from which the final top token stays on top."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from icl_mech._typing import Float, Int, Tensor
from icl_mech.prompts.encoding import TextTokenizer


class Ending(NamedTuple):
    """The final prediction of a lens and the entry where it settles.

    Attributes:
        token: Id of the last entry's top token.
        word: Its text; None if unknown.
        prob: Its probability.
        layer: First entry from which it stays on top.
    """

    token: int
    word: str | None
    prob: float
    layer: int


def ending(
    tokens: Int[Tensor, "layer k"], probs: Float[Tensor, "layer k"], words: Mapping[str, str]
) -> Ending:
    """The last entry's top token; the given tokens are ordered by falling probability.

    Args:
        tokens: Ids.
        probs: Their probabilities.
        words: Their texts, by id.
    """
    last = int(tokens[-1, 0])
    return Ending(last, words.get(str(last)), float(probs[-1, 0]), settled(tokens[:, 0]))


def settled(tokens: Int[Tensor, " layer"]) -> int:
    """First layer from which the top word is the last layer's."""
    same = (tokens == tokens[-1]).flip(0).int().cummin(0).values
    return len(tokens) - int(same.sum())


def decoded(tokens: Int[Tensor, "*rows"] | None, tokenizer: Any) -> dict[str, str]:
    """The text of every token that occurs, by its id; empty without a tokenizer."""
    if tokens is None or tokenizer is None:
        return {}
    ids = tuple(int(token) for token in tokens.unique())
    return dict(zip(map(str, ids), TextTokenizer(tokenizer).words(ids), strict=True))


def in_order(tokens: Int[Tensor, " label"], tokenizer: Any) -> tuple[str, ...]:
    """Texts of tokens, in their order; empty without a tokenizer."""
    words = decoded(tokens, tokenizer)
    return tuple(words[str(int(token))] for token in tokens) if words else ()
