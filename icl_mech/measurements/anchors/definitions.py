"""Formulas of anchors in any text, for pages and the reference."""

from icl_mech.measurements.saliency.definitions import SALIENCY
from icl_mech.results import Definition

THOUGHT_ANCHORS = "Bogdan et al. 2025, Thought Anchors"

SPANS = (
    Definition(
        "span matrix",
        r"M_{lh}[a, b] = \frac{1}{|a|\,|b|} \sum_{i \in a} \sum_{j \in b} A_{lh}[i, j]",
        "Mean attention from the tokens of span a to those of span b in head h of layer l. Zeros "
        "above the diagonal count in a diagonal cell. Of saliency the same with I_l, which is one "
        "number for all heads of a layer.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    Definition(
        "vertical score",
        r"v_{lh}[b] = \frac{1}{|\{a : a \geq b + p\}|} \sum_{a \geq b + p} M_{lh}[a, b]",
        "How much the spans that follow b at a distance of p spans or more read it; undefined for "
        "the last p spans. Also with the median, and with each row replaced by its ranks.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    Definition(
        "receiver heads",
        r"k_{lh} = \frac{m_4(v_{lh})}{m_2(v_{lh})^2} - 3",
        "Heads whose vertical scores are most peaked: the largest mean over texts of Fisher's "
        "kurtosis (biased moments) over the spans of a text.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    SALIENCY,
)

SUPPRESSION = (
    Definition(
        "effect on a later span",
        r"E[r, s] = \frac{1}{|r|} \sum_{i \in r} \mathrm{KL}\left(P_i \,\|\, P_i^{\setminus s}\right)",
        "Mean over the positions i of span r of the divergence between the next-token distribution "
        "and the one with span s hidden from attention in all layers and heads, before the softmax; "
        "over the whole vocabulary, in float64, in nats.",
        f"{THOUGHT_ANCHORS}, §6",
    ),
    Definition(
        "change of log-probability",
        r"\Delta[r, s] = \frac{1}{|r|} \sum_{i \in r} \log P_{i-1}^{\setminus s}(x_i) - \log P_{i-1}(x_i)",
        "Of the tokens x of span r itself, per token, in nats; negative where hiding span s makes "
        "them less likely. The first token of a text is not predicted and left out.",
        f"{THOUGHT_ANCHORS}, §6",
    ),
)

TOKENS = (
    Definition(
        "column mass",
        r"m_l[j] = \frac{1}{q - j} \sum_{i = j+1}^{q} I_l[i, j]",
        "Mean saliency (or attention, averaged over heads) that the tokens between j and the target "
        "q put on token j, the diagonal left out.",
    ),
    Definition(
        "anchor tokens",
        r"\frac{1}{s}\left(\log\frac{\bar m[j]}{u[j]} - \mathrm{median}\left\{\log\frac{\bar m[k]}"
        r"{u[k]} : 0 < |k - j| \leq w\right\}\right) > c_n",
        "Tokens whose mass, averaged over the chosen layers (the last third) and divided by the mass u "
        "that uniform attention would give their place, lies further above the median of the tokens at "
        "most w = 16 positions away than the largest of a text without anchors does in 95 % of cases. "
        "The spread s is the 0.84 quantile of these distances; the limit c for n tokens comes from "
        "normal values. Tokens found are left out of medians and spread, until no more are found. The "
        "first token is left out throughout: it attracts attention whatever it is.",
    ),
    Definition(
        "anchors by a ratio",
        r"\bar m[j] > c \cdot \mathrm{median}\{\bar m[k] : 0 < |k - j| \leq w\}",
        "The variant `ratio`: tokens whose mass exceeds so many times the median nearby. No "
        "rate of errors belongs to it.",
    ),
    Definition(
        "p-value over words",
        r"p = P\left(\bar z_{\mathrm{chosen}} \geq \bar z_{\mathrm{compared}}\right)",
        "The score z of a word is the mean over its places (at most as many as the rarest word compared has), "
        "in spreads. As many words as are compared are chosen among all, in all ways or in 9999 drawn ones "
        "(seed 0): p is the share of the choices whose mean score is as high. The "
        "interval is over prompts, with these words; a positive statement needs both.",
    ),
    SALIENCY,
)

AGREEMENT = (
    Definition(
        "agreement",
        r"\rho\left(v^{\mathrm{KL}},\; v^{A}\right)",
        "Spearman's rank correlation, over the spans of one text, of the vertical score of the "
        "effects of suppression and the vertical score of attention or saliency.",
    ),
    *SUPPRESSION,
    *SPANS[:3],
)
