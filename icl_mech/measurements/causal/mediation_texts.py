"""What a page says about effects of single heads, from their numbers."""

from collections.abc import Mapping, Sequence

from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, listed, said

SHOWN = 5


def mediating(
    top: Mapping[str, Interval],
    raising: Sequence[tuple[int, int]],
    lowering: Sequence[tuple[int, int]],
    *,
    heads: int,
    prompts: int,
    plain: Interval,
    by_class: bool,
    given: str,
) -> Figure:
    """Which heads, at their mean output over true demonstrations, bring the right answer back?

    Args:
        top: Effects on the logit difference of the heads with the largest, largest first.
        raising: Heads clearly above 0, corrected for looking at all.
        lowering: Heads clearly below 0.
        heads: Number of heads of the model.
        prompts: Number of prompts.
        plain: Probability of the right answer without any patch.
        by_class: Means are over other queries of the same class.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    best, effect = next(iter(top.items()))
    if prompts < FEWEST_PROMPTS:
        answer = (
            f"Cannot be judged from {counted(prompts, 'prompt')}: the largest effect is that of {best}, "
            f"{said(effect, sign=True)} logits."
        )
    elif raising:
        answer = (
            f"Yes: {named(raising)} ({len(raising)} of {heads} heads) raise the right answer, corrected for "
            f"looking at all heads; most of all {best}, by {said(effect, sign=True)} logits."
        )
    else:
        answer = (
            f"Not shown: no head of {heads} clearly raises the right answer; the largest effect is that of "
            f"{best}, {said(effect, sign=True)} logits."
        )
    if lowering and prompts >= FEWEST_PROMPTS:
        answer += f" {named(lowering)} lower{'s' * (len(lowering) == 1)} it."
    which = "prompts with true labels" + by_class * " and other queries of the same class"
    return Figure(
        "maps",
        "Do single heads carry what the demonstrations teach?",
        answer,
        "**Effect of every head: its output at the last token of prompts with other labels, replaced by "
        f"its mean over {which}.** Means over {counted(prompts, 'prompt')}; above, change of "
        f"the right label word's probability ({said(plain)} without a patch), below, of its logit above the "
        f"other label words. Framed: the largest effects (layer.head). Intervals (when pointing): 95 % "
        f"over prompts{given}, for each head alone.",
        "that the mean output of these heads at the last token is enough to move the answer towards what "
        "true demonstrations teach."
        if raising and prompts >= FEWEST_PROMPTS
        else "",
        "that the heads are needed: with several of them doing the same, leaving one out may change "
        "nothing. A head may also carry which labels are possible, not which text has which. Heads chosen "
        "here are to be tested on other prompts.",
        "Effects of heads",
    )


def named(heads: Sequence[tuple[int, int]]) -> str:
    """The first few by name, the others by number."""
    names = [head_name(head) for head in heads[:SHOWN]]
    more = len(heads) - len(names)
    return listed([*names, *([counted(more, "other")] if more else [])])
