"""Tokens along the axes."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor

MANY = 12
"""Heads up to which all are told of, and one slider holds all of them."""


def shortened(text: str, most: int = 18) -> str:
    """The beginning of a text with …, cut between words unless that leaves less than half of the room."""
    if len(text) <= most:
        return text
    words = text[:most].rpartition(" ")[0]
    kept = words if 2 * len(words) >= most else text[: most - 1]
    return f"{kept.rstrip(' ,;:')}…"


@dataclass(frozen=True)
class TokenSegment:
    """A run of tokens of one role.

    Attributes:
        name: What it is: `text 1`, a label word, the template's tokens.
        role: Of its tokens.
        start: Its first token.
        stop: After its last token.
    """

    name: str
    role: str
    start: int
    stop: int


@dataclass(frozen=True)
class TokenMatrix:
    """One destination x source matrix per layer over the tokens of one prompt.

    Attributes:
        title: Of the figure.
        values: Layer, destination, source.
        tokens: Text of each token.
        roles: Role of each token.
        quantity: Name of the value in hover texts.
        layer: Layer shown first.
        segments: The tokens in runs; with `means` the figure shows these, and all layers.
        means: Layer, destination and source segment; without them one layer of all tokens.
        telling: Layers worth looking at, and what they show.
        note: How to read it, below the title.
    """

    title: str
    values: Float[Tensor, "layer dest src"]
    tokens: tuple[str, ...]
    roles: tuple[str, ...]
    quantity: str
    layer: int = 0
    segments: tuple[TokenSegment, ...] = ()
    means: Float[Tensor, "layer dest_segment src_segment"] | None = None
    telling: tuple[tuple[int, str], ...] = ()
    note: str = ""


@dataclass(frozen=True)
class TokenStrips:
    """Numbers over the tokens of one prompt, drawn on its text; several, one shown at a time.

    Attributes:
        title: Of the figure.
        names: Of the rows of `values`, as the slider shows them.
        values: One number per row and token, 0 or more.
        tokens: Text of each token.
        marks: What each token is framed as, or "".
        quantity: Name of the value in hover texts.
        note: How to read it, below the title.
        first: Row shown first.
        heads: (layer, head) of each row, where it has one; colours are then on a square-root scale.
    """

    title: str
    names: tuple[str, ...]
    values: Float[Tensor, "row token"]
    tokens: tuple[str, ...]
    marks: tuple[str, ...]
    quantity: str
    note: str = ""
    first: int = 0
    heads: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class LensTable:
    """The likeliest word after each layer, at one or several tokens.

    Attributes:
        title: Of the figure.
        columns: What was read, such as `true demonstrations` or a token.
        words: By column and layer the likeliest words, best first.
        probs: Their probabilities over the vocabulary.
        bold: Words to stand out: the label words.
        quantity: Name of the value that gives the colour.
        note: Which prompt, below the title.
        shades: This value by column and layer; None: the probability of the likeliest word.
    """

    title: str
    columns: tuple[str, ...]
    words: tuple[tuple[tuple[str, ...], ...], ...]
    probs: Float[Tensor, "column layer word"]
    bold: tuple[str, ...] = ()
    quantity: str = "probability"
    note: str = ""
    shades: Float[Tensor, "column layer"] | None = None
