"""Figure of the lens table: layers as rows, tokens of a prompt as columns."""

from icl_mech.looks.lenses import NAMES, word_table
from icl_mech.measurements.lens.lens_table import SHADES, LensTableResult
from icl_mech.shapes import LensTable


def drawing(result: LensTableResult, show: str = "words", prompt: int = 0) -> LensTable:
    """The top next word at each layer (rows) and token (columns) of one prompt.

    Args:
        result: The result to draw.
        show: The value that colours a cell: `words`, the probability of its word; `entropy`; `kl`, the
            divergence from the last layer.
        prompt: Index of the prompt.

    Raises:
        ResultError: no such prompt.
    """
    result.check_number("prompt", prompt, len(result.tokens))
    shades = getattr(result, show)[prompt].double() if show in SHADES else None
    return word_table(
        result.tokens[prompt],
        result.top_tokens[prompt],
        result.top_probs[prompt],
        result.words,
        title=f"Most probable next word after each layer, by token ({NAMES[result.lens]})",
        labels=result.label_words[prompt],
        note=f"prompt {prompt + 1} of {result.count}; above each column the input token",
        quantity=SHADES.get(show, "probability"),
        shades=shades,
    )
