"""The status of a claim from intervals: one rule for the answers of results and for verdicts."""

from collections.abc import Mapping
from math import isfinite
from typing import Literal

from icl_mech.metrics import ONE_SIDED, Interval

Status = Literal["supported", "mixed", "not shown", "opposite", "cannot be judged"]

FEWEST_PROMPTS = 6
"""Fewer show nothing: even if all of them change alike, chance alone does that once in 16 times."""

CHANCE = round(1 - ONE_SIDED, 9)
"""Largest p-value of a positive statement: 0.025, one side of a 95 % interval."""

OPENINGS: dict[Status, str] = {
    "supported": "Yes",
    "mixed": "Mixed",
    "not shown": "Not shown",
    "opposite": "No",
    "cannot be judged": "Cannot be judged",
}
"""With which word the answer to a question opens."""


ROUNDING = 1e-9


def judged(
    effect: Interval | None, *, null: float = 0.0, rising: bool = True, prompts: int | None = None
) -> Status:
    """The status of a claim that says an effect lies above (`rising`) or below `null`.

    An interval that includes or touches the null shows nothing.

    Args:
        effect: Estimate with its 95 % interval; None if there is none.
        null: What no effect would give.
        rising: The claim says it lies above.
        prompts: On how many it rests; fewer than `FEWEST_PROMPTS` cannot be judged.
    """
    if effect is None or not all(map(isfinite, effect)):
        return "cannot be judged"
    if prompts is not None and prompts < FEWEST_PROMPTS:
        return "cannot be judged"
    # Ends that rounding alone moved off the null touch it.
    above, below = effect.low > null + ROUNDING, effect.high < null - ROUNDING
    if not (above or below):
        return "not shown"
    return "supported" if above is rising else "opposite"


def judged_twice(
    effect: Interval | None, p_value: float, smallest: float, *, opposite: float, prompts: int
) -> Status:
    """The status of a claim that an effect lies above 0 for other prompts and for other units.

    An interval over prompts takes the units (classes, words) as given, a permutation p-value over
    units takes the prompts so; a statement needs both.

    Args:
        effect: Estimate with its 95 % interval over prompts.
        p_value: One-sided, over units.
        smallest: The smallest that so few units can give; above 0.025 nothing can be judged.
        opposite: The p-value of the other side.
        prompts: How many there are.
    """
    own = judged(effect, prompts=prompts)
    if own == "cannot be judged" or not smallest <= CHANCE:
        return "cannot be judged"
    by_chance = {"supported": p_value, "opposite": opposite}.get(own, 0.0)
    return own if by_chance <= CHANCE else "not shown"


def together(*required: Status) -> Status:
    """The status of a claim that requires several measures.

    One that cannot be judged: the claim cannot be judged. Supported and opposite: every one is.
    Not shown: none is clear. Mixed: they disagree.
    """
    found = set(required)
    if not found or "cannot be judged" in found:
        return "cannot be judged"
    return found.pop() if len(found) == 1 else "mixed"


def disagreeing(measures: Mapping[str, Status]) -> str:
    """Which measures say what, for a claim on which they disagree; else which cannot be judged."""
    by_status: dict[str, list[str]] = {}
    for name, status in measures.items():
        by_status.setdefault(status, []).append(name)
    lacking = by_status.get("cannot be judged")
    if lacking:
        return f"{' and '.join(lacking)} cannot be judged, and the claim requires all its measures"
    said_so = {"supported": "says so", "opposite": "says the opposite", "mixed": "is divided"}
    return "; ".join(
        f"{' and '.join(names)}: {said_so.get(status, 'does not show it')}"
        for status, names in by_status.items()
    )
