"""Formulas behind accuracies of true and false demonstrations, for pages and the reference."""

from icl_mech.results.figures import Definition

PAPER = "Halawi et al. 2023, Overthinking the Truth"

CALIBRATED = Definition(
    "calibrated accuracy",
    r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\!\left[\tilde p_n(y_n) > Q_{(C-1)/C}\big(\tilde p_{1\dots N}"
    r"(y_n)\big)\right], \quad \tilde p(c) = \frac{p(c) + 10^{-14}}{\sum_{c'} p(c') + C\,10^{-14}}",
    "A prompt counts as right if the probability of its true label y, normalised over the C label "
    "words, lies above that label's (C − 1)/C quantile Q over all prompts of the same kind and at the "
    "same layer; a tie counts 1/C. A model that always prefers one label word gains nothing: any "
    "constant answer scores 1/C.",
    f"{PAPER}, §2",
)

REACHABLE = Definition(
    "highest reachable calibrated accuracy",
    r"\frac{1}{N} \sum_{c} \min\!\left(N_c,\ \left\lfloor\tfrac{N-1}{C}\right\rfloor + \tau\right), \quad "
    r"\tau = \begin{cases} 1/C & C \mid N - 1 \\ 1 & \text{else} \end{cases}",
    "What a perfect classifier scores: no more prompts than lie above a label's quantile can count as "
    "right. N_c is the number of queries of class c; it is 1 only where the classes are balanced.",
    "follows from the definition of calibrated accuracy",
)

PERMUTED = Definition(
    "permuted score",
    r"\text{calibrated accuracy with } \tilde y_n \text{ in place of } y_n",
    "The same for the label that the false demonstrations teach for the query (ỹ).",
    f"{PAPER}, §3",
)

PLAIN = Definition(
    "accuracy over label words",
    r"\frac{1}{N} \sum_n \mathbb{1}\!\left[p_n(y_n) \ge \max_c p_n(c)\right]",
    "Share of prompts in which no label word is likelier than the true one.",
)

GAP = Definition(
    "accuracy gap",
    r"g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "Calibrated accuracy with true minus with false demonstrations of the same queries.",
    f"{PAPER}, §4",
)

CRITICAL = Definition(
    "critical layer",
    r"\min\{\ell : g_{\ell'} \ge g_L / 2 \text{ for all } \ell' \ge \ell\}",
    "The first layer from which the gap stays at or above half its final value. Not defined where "
    "the interval of the final gap includes 0.",
    f"{PAPER}, §4",
)

EXIT = Definition(
    "early-exit layer",
    r"\operatorname*{argmax}_{\ell < L}\ \frac{1}{T}\sum_{t=1}^{T} \left(\operatorname{acc}^{t}_\ell"
    r"(\text{false}) - \operatorname{acc}^{t}_L(\text{false})\right)",
    "The layer at which reading out helps most with false demonstrations, over T tasks; the first of "
    "equals. Chosen on one half of the prompts, reported on the other; every half has thresholds of "
    "its own.",
    f"{PAPER}, §4",
)

OVERTHINKING = Definition(
    "overthinking",
    r"\operatorname{acc}_{\ell^*}(\text{false}) - \operatorname{acc}_L(\text{false})",
    "Calibrated accuracy at the early-exit layer minus that at the last layer.",
    f"{PAPER}, §4",
)
