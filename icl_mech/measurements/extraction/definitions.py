"""What extraction measures, as formulas and in words."""

from icl_mech.results.figures import Definition

SOURCE = "Wang et al. 2023, Label Words are Anchors, §2.3"

DEFINITIONS = (
    Definition(
        "attention to a class",
        r"A_l(q, c) = \sum_h \sum_{p \in c} A_{l,h}[q, p]",
        "Attention of the target q to the first tokens p of the label words that display class c, "
        "summed over the heads h of layer l.",
        SOURCE,
    ),
    Definition(
        "AUC of a layer",
        r"\text{AUC}_l = \frac{2}{C (C-1)} \sum_{a < b} \text{ROC-AUC}_{a,b}\left("
        r"\frac{A_l(q, \cdot)}{\sum_c A_l(q, c)}, \hat{y}\right)",
        "How well attention tells the predicted class ŷ: rows normalised to sum 1, ROC-AUC one "
        "class against one other, averaged over pairs of classes. 0.5 is chance, 1 means that the "
        "predicted class always gets more attention. Classes never predicted are left out.",
        SOURCE,
    ),
    Definition(
        "cumulative share R",
        r"R_l = \frac{\sum_{i \le l} (\text{AUC}_i - 0.5)}{\sum_i (\text{AUC}_i - 0.5)}",
        "Share of the whole that the layers up to l (included) give. R ends at 1 and may leave "
        "[0, 1]; where the denominator is not clearly above 0 it is undefined.",
        SOURCE,
    ),
)
