"""Figures of the logit lens: probabilities over layers, and a table of the top words."""

from icl_mech.looks.lenses import AFTER, class_curves, word_table
from icl_mech.measurements.lens.logit_lens import LogitLensResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import LensTable, Shape


def drawing(result: LogitLensResult, show: str = "curves", prompt: int = 0) -> Shape:
    """Probability of the true label after each layer, or the top words of one prompt.

    If the true classes are not known, the probability of each label; at demonstrations, the
    probability of the demonstrated label.

    Args:
        result: The result to draw.
        show: `curves`, `classes` (each class over all queries and over its own) or `words`.
        prompt: Index of the prompt whose words are shown.

    Raises:
        ResultError: no such prompt, no words in the result, or no known classes.
    """
    if show == "classes":
        return class_curves(result.by_class, note=basis(result))
    if show == "words":
        return _table(result, prompt)
    samples = result.sel()
    if not result.at_target:
        return samples.drawing()
    known, chance = result.answers is not None, 1 / len(result.labels)
    return samples.curves(
        f"{result.page_title}: what each layer would answer",
        ("true label",) if known else result.labels,
        x_title=AFTER,
        note=basis(result),
        meanings=("label",) if known else (),
        levels=((chance, f"chance {told(chance)}"),),
        y_range=(-0.03, 1.05),
    )


def _table(result: LogitLensResult, prompt: int) -> LensTable:
    tokens, probs = result.likeliest(prompt)
    return word_table(
        result.places,
        tokens,
        probs,
        result.words,
        title="Most probable next word after each layer",
        labels=result.label_words,
        note=f"prompt {prompt + 1} of {result.count}",
    )
