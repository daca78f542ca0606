"""Formulas behind scores of heads and their ablation, for pages and the reference."""

from icl_mech.results import Definition

NONE, CHOSEN, RANDOM = "none", "chosen heads", "random heads"
"""Conditions with names of their own: unablated, the heads in question, their control."""


PAPER = "Halawi et al. 2023, Overthinking the Truth, §5"

MATCHING = Definition(
    "prefix matching",
    r"\mathrm{PM}_h = \sum_{j \in S} A_h[q, j] - \frac{1}{C - 1} \sum_{j \in P \setminus S} A_h[q, j]",
    "Attention of head h from the last token q to the label words P of the demonstrations: to those "
    "that show the label taught for the query (S), minus a share of that to the others. In a set with "
    "true labels that label is the true class. 1 is all attention on matching labels.",
    PAPER,
)

SHUFFLED = Definition(
    "shuffled control",
    r"\mathbb{E}_\pi\,\mathrm{PM}_h(\pi(\text{labels}))",
    "Prefix matching with the labels of the demonstrations permuted in the score only: what recency "
    "alone gives, without the model being run again.",
)

ATTENDING = Definition(
    "attention to label words", r"\sum_{j \in P} A_h[q, j]", "To all label words together.", PAPER
)

PROMOTING = Definition(
    "label promoting",
    r"\operatorname{lens}(z_h W_{O,h})[\tilde y] - \operatorname{lens}(z_h W_{O,h})[y]",
    "What the head's own output adds to the logit of the false label ỹ above the true one y. “frozen” "
    "takes the scale of the run's own final norm, so that all parts of the model add up; “own” norms "
    "the output alone.",
    PAPER,
)

FAMILY = Definition(
    "above its control, among all heads",
    r"\frac{\bar d_h}{\operatorname{se}(d_h)} > Q_{0.95}\left(\max_{h'} t^*_{h'}\right)",
    "A head counts as clear if prefix matching minus its shuffled control, d, over its standard error "
    "is larger than the largest such ratio t* of all heads in 95 % of the resamples drawn as if no "
    "head had any (max-T): one statement about all heads at once.",
)

REDUCTION = Definition(
    "share of the gap closed",
    r"1 - \frac{\operatorname{acc}(\text{true}) - \operatorname{acc}_{-H}(\text{false})}"
    r"{\operatorname{acc}(\text{true}) - \operatorname{acc}(\text{false})}",
    "Calibrated accuracy with false demonstrations and the parts H ablated, beside both unablated "
    "accuracies, all over the same pairs of prompts. Not defined where the interval of the gap "
    "includes 0.",
    PAPER,
)

ABLATION = Definition(
    "ablation",
    r"z_h[q] = 0",
    "At the last token of the prompt the output of a head (or of whole attention layers, MLPs or "
    "blocks) is set to 0; biases of the layer stay. The variant “uniform attention” lets the head "
    "attend to all earlier tokens alike, “mean” puts its mean over the prompts in.",
    PAPER,
)

GAP_SHARE = Definition(
    "share of the final gap",
    r"g_\ell / g_L, \quad g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "How much of the gap between true and false demonstrations is open after each layer.",
)
