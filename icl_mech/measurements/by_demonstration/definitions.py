"""Formulas of single demonstrations, for pages and the reference."""

from icl_mech.measurements.saliency.definitions import SALIENCY, SECTION
from icl_mech.results import Definition

DEFINITIONS = (
    SALIENCY,
    Definition(
        "flow of one demonstration",
        r"S_{wp}^d = \frac{1}{p_d} \sum_{j<p_d} I_l[p_d, j], \qquad S_{pq}^d = I_l[q, p_d]",
        "Mean saliency of the edges into the label word p of demonstration d, and saliency of the edge "
        "from it to the target q. Means over demonstrations, weighted by their numbers of edges, are "
        "S_wp and S_pq.",
        SECTION,
    ),
    Definition(
        "what is read of a demonstration",
        r"\sum_{j \in d} I_l[q, j] \Big/ \sum_{j<q} I_l[q, j]",
        "Of all saliency that the target q receives, what comes from the tokens of demonstration d: its "
        "text, label word and template, but not the first token of the prompt, which models attend to "
        "whatever it is. From means over prompts.",
    ),
    Definition(
        "recency",
        r"\sum_{d > D/2} s_d - \sum_{d < D/2} s_d, \qquad s_d = S_{pq}^d \Big/ \sum_{d'} S_{pq}^{d'}",
        "Share of the later half of the D demonstrations in the saliency from label words to the target, "
        "minus that of the earlier half; mean over a third of the layers.",
    ),
)

LEFT_OUT = (
    Definition(
        "effect of a demonstration",
        r"\Delta_d = \log P(y \mid D) - \log P(y \mid D \setminus d)",
        "How much higher the log-probability of the true label y, among the label words, is with "
        "demonstration d than without it. The prompt without it is shorter; nothing stands in its place.",
    ),
)
