"""Figure of the top words: layers as rows, kinds of context before the query as columns."""

from icl_mech.looks.lenses import word_table
from icl_mech.measurements.lens.top_words import TopWordsResult
from icl_mech.shapes import LensTable


def drawing(result: TopWordsResult, show: str = "words", prompt: int = 0) -> LensTable:
    """The top words of one prompt: layers as rows, sides as columns.

    Args:
        result: The result to draw.
        show: `words`.
        prompt: Index of the prompt.

    Raises:
        ResultError: no such prompt.
    """
    result.check_number("prompt", prompt, result.count)
    note = f"prompt {prompt + 1} of {result.count}"
    if result.answers is not None and result.labels:
        note += f", true class {result.labels[int(result.answers[prompt])]}"
    return word_table(
        result.sides,
        result.top_tokens[prompt],
        result.top_probs[prompt],
        result.words,
        title="Most probable next word after each layer",
        labels=result.label_words,
        note=note,
    )
