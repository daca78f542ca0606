"""Pairs of prompts that chose a layer, and pairs on which it is reported: in words, and what they show."""

from collections.abc import Sequence

from icl_mech.metrics import Interval
from icl_mech.results.judging import Status, judged, together
from icl_mech.results.wording import counted

Halves = tuple[int, int] | None
"""Pairs of prompts that chose the layer, and pairs that are reported; None if not known."""


def said_halves(halves: Halves) -> str:
    """On how many it was chosen and is reported; empty if nobody knows."""
    if halves is None:
        return ""
    if halves[0] > 0:
        return (
            f"chosen on {counted(halves[0], 'pair')} of prompts, reported on the other {halves[1]}"
        )
    return f"reported on {counted(halves[1], 'pair')} that did not choose it"


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
