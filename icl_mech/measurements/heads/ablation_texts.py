"""What a page says about ablations at the target, from their numbers."""

from collections.abc import Mapping

import numpy as np

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.heads.definitions import CHOSEN, RANDOM
from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import OPENINGS, Status, jointly, judged, together
from icl_mech.results.wording import counted, listed, said, spelled, told

Changes = Mapping[str, tuple[Interval, Interval]]
"""Change of accuracy with false and with true demonstrations, by condition."""


def heads_close(change: Interval, beside: Interval | None, gap: Interval, prompts: int) -> Status:
    """Of the claim that ablating the chosen heads closes part of the gap.

    Accuracy with false demonstrations must rise, and more than without random heads.

    Args:
        change: Of accuracy with false demonstrations.
        beside: The same minus that of random heads; None if none were drawn.
        gap: Between true and false demonstrations, unablated.
        prompts: Number of pairs of prompts.
    """
    if gap.low <= 0:
        return "cannot be judged"
    own = judged(change, prompts=prompts)
    return own if beside is None else jointly(own, judged(beside, prompts=prompts))


def removed(
    changes: Changes,
    closed: Mapping[str, Interval | None],
    gap: Interval,
    chosen: tuple[str, ...],
    beside: Interval | None,
    draws: Float[Tensor, " draw"] | None,
    prompts: int,
    *,
    given: str,
) -> Figure:
    """Does removing heads (or late layers) close the gap?

    Args:
        changes: What each condition changes.
        closed: Share of the gap that each condition closes; None without a clear gap.
        gap: Between true and false demonstrations, unablated.
        chosen: Names of the chosen heads.
        beside: Change without the chosen heads minus that without random ones.
        draws: Share of the gap that each random draw closes; None if none were drawn.
        prompts: Number of pairs of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    of_heads = CHOSEN in changes
    named = f" ({listed(chosen)})" if chosen else ""
    count = f"the {spelled(len(chosen))} heads" if len(chosen) != 1 else "the head"
    whom = f"{count if chosen else 'the chosen heads'}{named}"
    if of_heads:
        false, true = changes[CHOSEN]
        status = heads_close(false, beside, gap, prompts)
        effect = (
            f"without {whom} accuracy changes by {said(false, sign=True)} with false and by "
            f"{said(true, sign=True)} with true demonstrations"
        )
        share = closed.get(CHOSEN)
    else:
        own = {name: pair for name, pair in changes.items() if name != RANDOM}
        statuses = [judged(false, prompts=prompts) for false, _ in own.values()]
        status = together(*statuses) if gap.low > 0 else "cannot be judged"
        effect = "accuracy changes " + "; ".join(
            f"without {name} by {said(false, sign=True)} with false and by {said(true, sign=True)} "
            "with true demonstrations"
            for name, (false, true) in own.items()
        )
        share = None
    if gap.low <= 0:
        answer = f"Cannot be judged, since there is no clear gap to close ({said(gap)}): {effect}."
    else:
        few = f" from {counted(prompts, 'pair')} of prompts" if status == "cannot be judged" else ""
        answer = f"{OPENINGS[status]}{few}: {effect}"
        if share is not None:
            answer += f"; that closes {said(share)} of the gap of {said(gap)}"
        if draws is not None and bool(draws.isfinite().all()):
            low, high = np.quantile(draws.numpy(), [0.025, 0.975])
            answer += (
                f", random heads of the same layers close {told(float(draws.mean()))} (95 % of "
                f"{counted(len(draws), 'draw')} in {told(float(low))} to {told(float(high))})"
            )
        if beside is not None:
            answer += f"; beyond random heads that is {said(beside, sign=True)}"
        answer += "."
        if of_heads and status == "mixed":
            answer += " It is not clear that this is more than random heads do."
    caption = (
        "**Change of calibrated accuracy when parts of the model are set to 0 at the last token of the "
        "prompt**, for true and for false demonstrations; right of the line it helps, left of it it "
        f"hurts. Bars: 95 % score intervals, paired over {counted(prompts, 'pair')} of prompts{given}."
    )
    if of_heads and chosen:
        caption += f" Chosen heads (layer.head): {', '.join(chosen)}."
    if RANDOM in changes:
        caption += (
            " Random heads: as many from the same layers; the filled mark is the mean of the draws, "
            "hollow grey ones are single draws."
        )
    limits = "what the parts do at other positions, or together with others: the model is cut at one token."
    if gap.low <= 0:
        limits = f"the share of the gap that is closed: the gap itself, {said(gap)}, includes 0. Nor {limits}"
    return Figure(
        "change",
        "Does removing the heads close the gap?"
        if of_heads
        else "Does removing parts of the model close the gap?",
        answer,
        caption,
        "that these heads are one cause of the errors under false demonstrations."
        if of_heads and status == "supported"
        else "",
        limits,
        "Ablations",
    )


def before_and_after(gaps: Mapping[str, Interval], prompts: int, *, given: str) -> Figure:
    """Accuracies under every condition beside the unablated ones.

    Args:
        gaps: Between true and false demonstrations under each condition, the unablated one first.
        prompts: Number of pairs of prompts.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    (_, plain), *others = gaps.items()
    parts = [f"{said(gap)} with {name} ablated" for name, gap in others]
    return Figure(
        "accuracy",
        "How wide is the gap before and after?",
        f"Unablated the gap between true and false demonstrations is {said(plain)}; it is "
        f"{listed(parts)}.",
        "**Calibrated accuracy under every condition, unablated on top**, each with thresholds of its "
        f"own. Bars: 95 % score intervals over {counted(prompts, 'pair')} of prompts{given}. Dashes: "
        "chance, and the most a perfect classifier can reach, where known."
        + (" Hollow grey marks: single draws of random heads." if RANDOM in gaps else ""),
        "",
        "whether two conditions differ: overlapping bars of paired prompts may hide a clear difference; "
        "see the figure of changes.",
        "Gap before and after",
    )
