"""Figure of the top words: layers down, what stands before the query across."""

from icl_mech.looks.lenses import word_table
from icl_mech.measurements.lens.top_words import TopWordsResult
from icl_mech.shapes import LensTable


def drawing(result: TopWordsResult, show: str = "words", prompt: int = 0) -> LensTable:
    """Layers down, sides across, of one prompt.

    Args:
        result: What came out.
        show: `words`.
        prompt: Which prompt.

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
        title="Likeliest next word after each layer",
        labels=result.label_words,
        note=note,
    )
