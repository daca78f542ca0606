"""What a page says about leaving the model early, from its numbers."""

from collections.abc import Mapping, Sequence

from icl_mech.metrics import Interval
from icl_mech.results.figures import Figure
from icl_mech.results.judging import OPENINGS, Status, judged, together
from icl_mech.results.wording import counted, said

Halves = tuple[int, int] | None
"""Pairs of prompts that chose the layer, and pairs that are reported; None if not known."""


def rescued(
    layer: int,
    tasks: Mapping[str, tuple[Interval, Interval, Halves]],
    *,
    same: bool,
    given: str = "",
) -> Figure:
    """Would leaving early rescue the answer?

    Args:
        layer: After which the model is left.
        tasks: Change with false demonstrations, with true ones, and how many pairs, by task.
        same: The layer was chosen on the prompts it is reported on.
        given: What the intervals take as given, with a comma before it, or nothing.
    """
    status = exit_status([(false, sizes) for false, _, sizes in tasks.values()], same=same)
    verb = {"supported": "raises", "opposite": "lowers"}.get(status, "changes")
    parts = [
        (f"{name}: " if len(tasks) > 1 else "")
        + f"{said(false, sign=True)} with false and {said(true, sign=True)} with true demonstrations"
        for name, (false, true, _) in tasks.items()
    ]
    opening = OPENINGS[status]
    if status == "opposite":
        opening += ", it hurts"
    if status == "cannot be judged" and same:
        opening += " (the layer was chosen on the prompts it is reported on)"
    elif status == "cannot be judged":
        fewest = min((sizes[1] for _, _, sizes in tasks.values() if sizes), default=0)
        opening += f" from {counted(fewest, 'pair')} of prompts"
    where = "the embedding" if layer == 0 else f"layer {layer}"
    under = " under false demonstrations" if status in ("supported", "opposite") else ""
    answer = (
        f"{opening}: reading out after {where} instead of the last layer {verb} calibrated accuracy"
        f"{under}; the change is {'; '.join(parts)}."
    )
    harmed = [name for name, (_, true, _) in tasks.items() if true.high < 0]
    if status == "supported" and harmed:
        answer += " With true demonstrations it costs accuracy."
    return Figure(
        "",
        "Would leaving early rescue the answer?",
        answer,
        f"**Calibrated accuracy after {where} minus that after the last layer**, with true and with "
        f"false demonstrations. {_halves(tasks, same=same)} Bars: 95 % paired score intervals over the "
        f"reported pairs{given}.",
        "that under false demonstrations the model ends with a worse answer than it had on the way "
        "(overthinking)."
        if status == "supported"
        else "",
        _limits(layer, status, same=same),
        "Leaving early",
    )


def exit_status(changes: Sequence[tuple[Interval, Halves]], *, same: bool) -> Status:
    """Of the claim that leaving early helps under false demonstrations, over all tasks.

    Args:
        changes: With false demonstrations, and how many pairs, by task.
        same: The layer was chosen on the prompts it is reported on, which shows nothing.
    """
    if same:
        return "cannot be judged"
    return together(
        *(judged(false, prompts=sizes[1] if sizes else None) for false, sizes in changes)
    )


def _halves(tasks: Mapping[str, tuple[Interval, Interval, Halves]], *, same: bool) -> str:
    """On which prompts the layer was chosen, and on how many it is reported."""
    how = "the one that helps most with false demonstrations, the first of equals"
    if same:
        known = [sizes[1] for _, _, sizes in tasks.values() if sizes]
        count = f" ({counted(sum(known), 'pair')})" if known else ""
        return (
            f"The layer, {how}, is chosen and reported on the same prompts{count}, as in the paper."
        )
    parts = [
        (f"{name}: " if len(tasks) > 1 else "")
        + (
            f"chosen on {counted(sizes[0], 'pair')} of prompts, reported on the other {sizes[1]}"
            if sizes[0] > 0
            else f"reported on {counted(sizes[1], 'pair')} that did not choose it"
        )
        for name, (_, _, sizes) in tasks.items()
        if sizes
    ]
    if not parts:
        return f"The layer, {how}, is chosen on one half of the prompts and reported on the other."
    return f"The layer, {how}, is {'; '.join(parts)}; each half has thresholds of its own."


def _limits(layer: int, status: str, *, same: bool) -> str:
    if same:
        return (
            "an unbiased effect: of many layers the best was taken on the prompts it is reported on, "
            "which flatters it."
        )
    if status == "supported":
        return "that this layer is best on other tasks, or that it could be known in advance."
    if layer == 0:
        return (
            "that early layers know the answer: the embedding of the last token has seen nothing."
        )
    return (
        "that no layer would do better: the layer was chosen on few prompts, and a layer near chance can "
        "only lose."
    )
