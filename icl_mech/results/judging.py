"""The status of a claim from intervals: one rule for the answers of results and for verdicts."""

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Literal, NamedTuple

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


HOLM = (
    "Claims stand together: where there is nothing to find, one page in 40 supports any of them "
    "(Holm over all claims of the page that can be judged, one-sided 2.5 %)"
)

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


def jointly(*comparisons: Status) -> Status:
    """The status of one measure that is compared with several controls, or taken in several ways.

    It is clear where every comparison is, in the same direction, and not shown otherwise.
    """
    found = set(comparisons)
    if not found or "cannot be judged" in found:
        return "cannot be judged"
    return found.pop() if len(found) == 1 else "not shown"


def together(*required: Status) -> Status:
    """The status of a claim that requires several measures.

    One that cannot be judged: the claim cannot be judged. Supported and opposite: every one is.
    Not shown: none is clear. Mixed: they disagree.
    """
    found = set(required)
    if not found or "cannot be judged" in found:
        return "cannot be judged"
    return found.pop() if len(found) == 1 else "mixed"


class Required(NamedTuple):
    """One measure that a claim requires.

    Attributes:
        name: Of the measure.
        status: What it says of the claim.
        p: One-sided p-value of that statement; None where it cannot be judged.
    """

    name: str
    status: Status
    p: float | None


def p_value(
    effect: Interval | None, *, null: float = 0.0, prompts: int | None = None
) -> float | None:
    """The one-sided p-value that a 95 % interval implies.

    P(T > t₀.₉₇₅ |value − null| / reach) with T of Student's distribution with n − 1 degrees of freedom,
    where reach goes from the value to the end that faces the null: 0.025 where that end is the null.

    Args:
        effect: Estimate with its interval; None if there is none.
        null: What no effect would give.
        prompts: Their number n; None: the normal distribution.
    """
    from scipy.stats import norm, t

    if effect is None or not all(map(isfinite, effect)):
        return None
    distance = abs(effect.value - null)
    if distance <= ROUNDING:
        return 0.5
    reach = effect.value - effect.low if effect.value > null else effect.high - effect.value
    if reach <= ROUNDING:
        return 0.0
    spread = norm if prompts is None else t(max(1, prompts - 1))
    return float(spread.sf(spread.ppf(ONE_SIDED) * distance / reach))


def required(
    name: str,
    *effects: Interval | None,
    null: float = 0.0,
    rising: bool = True,
    prompts: int | None = None,
) -> Required:
    """A measure that needs all these effects to lie above (`rising`) or below `null`."""
    status = jointly(*(judged(own, null=null, rising=rising, prompts=prompts) for own in effects))
    return Required(
        name, status, largest(p_value(own, null=null, prompts=prompts) for own in effects)
    )


def largest(p_values: Iterable[float | None]) -> float | None:
    """That of a statement which needs all of them; None where one is missing."""
    found = list(p_values)
    known = [own for own in found if own is not None]
    return max(known) if found and len(known) == len(found) else None


def holm(p_values: Sequence[float | None], level: float = CHANCE) -> tuple[bool, ...]:
    """Which statements stand when no more than one in 1 / `level` families may hold a false one.

    The smallest of m p-values is compared with level / m, the next with level / (m - 1), and so on up
    to the first that is larger. None is no statement and does not count (Holm 1979).
    """
    order = sorted((own, place) for place, own in enumerate(p_values) if own is not None)
    stands = [False] * len(p_values)
    for left, (own, place) in zip(range(len(order), 0, -1), order, strict=True):
        # As in `judged`, ends that touch the null to rounding are no statement.
        if own * left > level + ROUNDING:
            break
        stands[place] = True
    return tuple(stands)


def disagreeing(measures: Sequence[Required]) -> str:
    """Which measures say what, for a claim on which they disagree; else which cannot be judged."""
    by_status: dict[str, list[str]] = {}
    for name, status, _ in measures:
        by_status.setdefault(status, []).append(name)
    lacking = by_status.get("cannot be judged")
    if lacking:
        return f"{' and '.join(lacking)} cannot be judged, and the claim requires all its measures"
    said_so = {"supported": "says so", "opposite": "says the opposite", "mixed": "is divided"}
    return "; ".join(
        f"{' and '.join(names)}: {said_so.get(status, 'does not show it')}"
        for status, names in by_status.items()
    )
