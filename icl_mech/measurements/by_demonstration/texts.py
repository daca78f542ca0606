"""What a page says about single demonstrations, from their numbers."""

from collections.abc import Mapping

from icl_mech.measurements.saliency.definitions import SALIENCY, SECTION
from icl_mech.metrics import Interval
from icl_mech.results import Definition, Figure
from icl_mech.results.judging import judged
from icl_mech.results.wording import counted, layers_named, said, told

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


def read_most(
    effect: Interval,
    most: Mapping[str, tuple[int, float]],
    *,
    layers: slice,
    prompts: int,
    given: str,
) -> list[Figure]:
    """Which demonstrations are read, counted back from the query.

    Args:
        effect: How much more the later half has.
        most: By third of the layers, which demonstration back has most, and its share.
        layers: Of the last third.
        prompts: Number of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    n = prompts
    opening = {
        "supported": "The later ones.", "opposite": "The earlier ones.", "not shown": "Not shown:",
        "mixed": "Not shown:", "cannot be judged": f"Cannot be judged from {counted(n, 'prompt')}:",
    }[judged(effect, prompts=n)]  # fmt: skip
    return [
        Figure(
            "",
            "Which demonstrations does the target read?",
            f"{opening} Of the saliency from label words to the target in the last third of the layers, "
            f"the later half of the demonstrations has {said(effect, sign=True)} more than the earlier "
            "half.",
            "**What the target reads of each demonstration, counted back from the query**: share of the "
            "saliency from label words, and of all saliency that the target receives, mean of "
            f"{layers_named(layers.start, layers.stop - 1)}. Bands (each point for itself): 95 % bootstrap "
            f"intervals over {counted(n, 'prompt')}{given}. Dashes: all demonstrations alike.",
            "Which of many demonstrations matter for the loss, to first order.",
            "that the others could go: what leaving one out changes is measured by leaving it out.",
            "Flow by demonstration",
        ),
        Figure(
            "layers",
            "Does that change with depth?",
            f"In {_changes(most)}.",
            "**Share of each demonstration's label word in the saliency from label words to the target**, "
            f"by layer; demonstrations counted back from the query. {counted(n, 'prompt')}.",
            "",
            "how much saliency there is in a layer: each row adds up to 1.",
            "Flow by demonstration and layer",
        ),
    ]


def _changes(most: Mapping[str, tuple[int, float]]) -> str:
    return ", in ".join(
        f"the {third} third of the layers {_where(back)} has most ({told(share)})"
        for third, (back, share) in most.items()
    )


def _where(back: int) -> str:
    return "the one before the query" if back == 1 else f"number {back} back from the query"


def left_out(
    same: Interval | None, effect: Interval, back: int, *, prompts: int, given: str
) -> list[Figure]:
    """What leaving single demonstrations out changes.

    Args:
        same: Effect of demonstrations of the query's class minus that of others; None without both.
        effect: The largest mean effect of one demonstration.
        back: Which it is, counted back from the query.
        prompts: Number of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    n = prompts
    words = (
        f"demonstrations of the query's own class {said(same, sign=True)} nats more than the others"
        if same is not None
        else "no prompt has demonstrations of its own class and of others"
    )
    status = judged(same, prompts=n) if same is not None else "cannot be judged"
    opening = {"supported": "Yes:", "opposite": "No:", "not shown": "Not shown:"}.get(
        status, "Cannot be judged:"
    )
    return [
        Figure(
            "",
            "Do demonstrations of the right class help most?",
            f"{opening} leaving one out, {words}; the largest mean effect has {_where(back)} "
            f"({said(effect, sign=True)} nats; picked as the largest).",
            "**Log-probability of the true label with a demonstration minus without it**, counted back "
            "from the query; dots of one colour: those of the query's class, and all others. Bands (each "
            f"point for itself): 95 % intervals over {counted(n, 'prompt')}{given}.",
            "What single demonstrations change, the model run again without them.",
            "what they change together: demonstrations may stand in for each other.",
            "Leaving one out",
        )
    ]
