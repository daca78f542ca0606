"""What a page says about confusion, written from its numbers."""

import math

from icl_mech.measurements.confusion.numbers import ConfusionNumbers
from icl_mech.results.figures import Definition, Figure
from icl_mech.results.judging import CHANCE, OPENINGS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.3"

DEFINITIONS = (
    Definition(
        "predicted confusion",
        r"d_{a,b} = \frac{\lVert \tilde{k}_a - \tilde{k}_b \rVert}{\max_{a', b'} "
        r"\lVert \tilde{k}_{a'} - \tilde{k}_{b'} \rVert}",
        "Distance between the keys k of two classes' label words in one layer, all heads together, "
        "projected on the principal directions of the target's queries and multiplied by their "
        "singular values; averaged over prompts and divided by the largest. 0 is most confusable.",
        SOURCE,
    ),
    Definition(
        "measured confusion",
        r"\text{ROC-AUC}\left(\frac{P(a)}{P(b)}\right)",
        "How well the ratio of the two label words' probabilities tells prompts whose true class is "
        "a from those whose true class is b: 1 always, 0.5 no better than chance.",
        SOURCE,
    ),
    Definition(
        "rank correlation",
        r"\rho = \text{corr}\left(\text{rank}(d_{a,b}), \text{rank}(\text{AUC}_{a,b})\right)",
        "Spearman correlation of both over the pairs of classes that were measured.",
        SOURCE,
    ),
    Definition(
        "permutation p-value",
        r"p = \frac{1}{C!} \sum_{\pi} \left[\rho(d_{a,b}, \text{AUC}_{\pi(a),\pi(b)}) \geq "
        r"\rho(d_{a,b}, \text{AUC}_{a,b})\right]",
        "Share of all orders of the C classes (more than 10 000: of as many drawn ones, seed 0, and the "
        "given one) in which one table with its classes renamed agrees with the other at least as well. "
        "One-sided. The interval is over prompts, with these classes; the p-value is over classes, "
        "with these prompts. A positive statement needs both.",
        "Mantel 1967",
    ),
)


def matrices(result: ConfusionNumbers) -> Figure:
    """Both matrices; not drawn where nothing can be compared."""
    n = counted(len(result.answers), "prompt")
    why = _why_not(result)
    notes = () if why and result.told_apart else result.notes
    layer = result.layer
    return Figure(
        "matrices",
        "Do label words that lie close together get confused?",
        f"Cannot be judged: {why}." if why else _answer(result),
        f"**Predicted confusion (left): distance of the label words' keys in layer {layer}**, divided "
        "by the largest. **Measured confusion (right): AUC with which the ratio of two label words' "
        "probabilities tells prompts of the two classes apart** (1: always, 0.5: chance). Dark cells "
        f"are near, or hard to tell apart. Intervals (on pointing): 95 % over {n}"
        f"{given(result)}.",
        limits="that near keys cause confusion; intervals take distances and classes as fixed, the "
        "p-value takes the prompts so."
        + "".join(f" {note[:1].upper()}{note[1:]}." for note in notes),
        short="Confusable classes",
        drawn=bool(result.pairs) and not result.told_apart,
    )


def layers(result: ConfusionNumbers) -> Figure:
    """The correlation by layer."""
    best = result.layers[int(result.correlation.nan_to_num(-math.inf).argmax())]
    above, known = int((result.low > 0).sum()), int(result.correlation.isfinite().sum())
    where = f"in {above} of {counted(known, 'layer')}" if above else "in no layer"
    if above:
        both = int(((result.low > 0) & (result.relabelled.above <= CHANCE)).sum())
        where += f" ({both or 'none'} of these with a permutation p-value of at most {CHANCE:g})"
    return Figure(
        "layers",
        "In which layers do distances of keys predict confusion?",
        f"The interval of the correlation lies above 0 {where}; it is largest, "
        f"{said(result.rank_correlation(best), sign=True)}, in layer {best}, which was picked for that.",
        f"**Spearman correlation of predicted and measured confusion** over "
        f"{counted(len(result.pairs), 'pair')} of classes, by layer of the keys. Band: 95 % bootstrap "
        f"interval over {counted(len(result.answers), 'prompt')}{given(result)}; distances and classes "
        "are fixed.",
        limits="which layer matters: intervals are those of single layers, and there are many.",
        short="Confusion by layer",
    )


def _why_not(result: ConfusionNumbers) -> str:
    """Why distances cannot be compared with confusion; empty where they can."""
    n, pairs = counted(len(result.answers), "prompt"), counted(len(result.pairs), "pair")
    if not result.pairs:
        return f"no two classes occur among the true classes of {n}"
    if result.told_apart:
        which = "the two classes" if len(result.pairs) == 1 else f"all {pairs} of classes"
        return (
            f"the label words' probabilities tell {which} apart perfectly (AUC 1, {n}), so there is no "
            "order of confusion to compare distances with"
        )
    if math.isnan(result.rank_correlation().value):
        return f"there is no rank correlation over {pairs} of classes ({n})"
    smallest = float(result.relabelled.smallest[result.index(result.layer)])
    if smallest > CHANCE:
        found = said(result.rank_correlation(), sign=True)
        return (
            f"{pairs} of classes may agree in rank by chance, since no agreement has a permutation "
            f"p-value below {told(smallest)}, where {CHANCE:g} is needed (rank correlation {found} in "
            f"layer {result.layer}, p-value {told(result.p_value())}, {n})"
        )
    return ""


def _answer(result: ConfusionNumbers) -> str:
    own, n = result.status, counted(len(result.answers), "prompt")
    if own == "cannot be judged":
        opening, than = f"{OPENINGS[own]} from {n}:", "and its interval shows nothing"
    else:
        opening = f"{OPENINGS[own]}."
        low, high = result.rank_correlation()[1:]
        than = "above 0" if low > 0 else "below 0" if high < 0 else "not clearly different from 0"
        if own == "not shown" and (low > 0 or high < 0):
            than += ", but renamed classes agree as well too often"
    return (
        f"{opening} {'the' if opening.endswith(':') else 'The'} rank correlation of the distances in "
        f"layer {result.layer} with measured confusion over {counted(len(result.pairs), 'pair')} of "
        f"classes is {said(result.rank_correlation(), sign=True)} ({n}), {than}; permutation p-value "
        f"over classes {told(result.p_value())}."
    )
