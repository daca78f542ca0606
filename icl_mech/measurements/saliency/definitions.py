"""Formulas of saliency and what is made from it, for pages and the reference."""

from icl_mech.results import Definition

SECTION = "Wang et al. 2023, Label Words are Anchors, §2.1"

SALIENCY = Definition(
    "saliency",
    r"I_l = \left| \sum_h A_{l,h} \odot \frac{\partial \mathcal{L}}{\partial A_{l,h}} \right|",
    "How much an attention edge moves the loss, to first order: attention of layer l and head h "
    "times the gradient of the loss at it, added over heads, then the absolute value "
    "(sum_then_abs; abs_then_sum takes the absolute value of each head first). The loss is the "
    "cross-entropy at the target over the label words.",
    SECTION,
)

FLOW = (
    SALIENCY,
    Definition(
        "texts to label words",
        r"S_{wp} = \frac{1}{\sum_p p} \sum_p \sum_{j<p} I_l[p, j]",
        "Mean saliency of the edges into the first tokens p of the demonstrations' label words, "
        "from all tokens j before them.",
        SECTION,
    ),
    Definition(
        "label words to target",
        r"S_{pq} = \frac{1}{|P|} \sum_{p \in P} I_l[q, p]",
        "Mean saliency of the edges from the label words P to the target q, the token whose next "
        "token is the answer.",
        SECTION,
    ),
    Definition(
        "everything else",
        r"S_{ww} = \frac{\sum_{j<i} I_l[i, j] - \sum_p \sum_{j<p} I_l[p, j] - \sum_p I_l[q, p]}"
        r"{q(q+1)/2 - \sum_p p - |P|}",
        "Mean saliency of all other edges below the diagonal.",
        SECTION,
    ),
    Definition(
        "share per edge",
        r"\frac{\bar S_k}{\bar S_{wp} + \bar S_{pq} + \bar S_{ww}}",
        "Of each kind k, from means over prompts. A mean per edge does not grow with the number of "
        "edges, so few strong edges outweigh many.",
        SECTION,
    ),
    Definition(
        "share of all saliency by role",
        r"\frac{\sum_{i \in a} \sum_{j \in b,\, j<i} I_l[i, j]}{\sum_{j<i} I_l[i, j]}",
        "Of the edges into tokens of role a from tokens of role b; sums, not means, from means over "
        "prompts. All shares of a layer add up to 1.",
    ),
    Definition(
        "random tokens",
        r"S_{wp}(R),\; S_{pq}(R),\quad |R| = |P|",
        "The same scores with random tokens R in the label words' place: for each label word one at "
        "most 16 positions away, in no label word, not the first token, before the target. Mean "
        "over the draws.",
    ),
)

MAP = (
    SALIENCY,
    Definition(
        "saliency between segments",
        r"M_l[a, b] = \frac{1}{n_{ab}} \sum_{i \in a} \sum_{j \in b,\, j<i} I_l[i, j]",
        "Mean over the n edges into the tokens of segment a from those of segment b; a segment is a "
        "run of tokens of one role.",
    ),
)
