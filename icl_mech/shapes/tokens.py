"""Shapes with tokens along their axes."""

from dataclasses import dataclass

from icl_mech._typing import Float, Tensor

MANY = 12
"""Up to this many heads, all are reported and share one slider."""


def shortened(text: str, most: int = 18) -> str:
    """The text truncated to `most` characters with …, between words unless that leaves less than half of the room."""
    if len(text) <= most:
        return text
    words = text[:most].rpartition(" ")[0]
    kept = words if 2 * len(words) >= most else text[: most - 1]
    return f"{kept.rstrip(' ,;:')}…"


@dataclass(frozen=True)
class TokenSegment:
    """A run of consecutive tokens of one role.

    Attributes:
        name: What it is: `text 1`, a label word, the template's tokens.
        role: Role of its tokens.
        start: Position of its first token.
        stop: Position after its last token.
    """

    name: str
    role: str
    start: int
    stop: int


@dataclass(frozen=True)
class TokenMatrix:
    """One destination x source matrix per layer over the tokens of one prompt.

    Attributes:
        title: Title of the figure.
        values: Values by layer, destination and source.
        tokens: Text of each token.
        roles: Role of each token.
        quantity: Name of the value in hover texts.
        layer: Layer shown first.
        segments: Runs of tokens; with `means`, the figure shows these for all layers.
        means: Means by layer, destination and source segment; None: one layer of all tokens is shown.
        telling: Layers worth looking at, and what they show.
        note: How to read it, shown below the title.
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
    """Rows of numbers over the tokens of one prompt, drawn on its text, one row at a time.

    Attributes:
        title: Title of the figure.
        names: Names of the rows of `values`, as the slider shows them.
        values: One number per row and token, 0 or more.
        tokens: Text of each token.
        marks: Label of the frame of each token, or "".
        quantity: Name of the value in hover texts.
        note: How to read it, shown below the title.
        first: Row shown first.
        heads: (layer, head) of each row, if rows are heads; colours are then on a square-root scale.
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
    """The top word after each layer, at one or several tokens.

    Attributes:
        title: Title of the figure.
        columns: What was read out, such as `true demonstrations` or a token.
        words: The top words by column and layer, most likely first.
        probs: Their probabilities over the vocabulary.
        bold: Words in bold: the label words.
        quantity: Name of the value that sets the colour.
        note: Which prompt, shown below the title.
        shades: Values of `quantity` by column and layer; None: the probability of the top word.
    """

    title: str
    columns: tuple[str, ...]
    words: tuple[tuple[tuple[str, ...], ...], ...]
    probs: Float[Tensor, "column layer word"]
    bold: tuple[str, ...] = ()
    quantity: str = "probability"
    note: str = ""
    shades: Float[Tensor, "column layer"] | None = None
