"""The status of a claim given intervals: one rule for the answers of results and for verdicts.

Accepted effects and their meaning (`as_interval`):

* Three real numbers, value, low and high, as an `Interval`, a tuple, a list, an array or a tensor; numbers of NumPy and
  torch are converted to plain ones.
* None is a missing effect, and NaN or infinity in any of the three an unknown one: neither can be judged, and
  neither has a p-value or a distance.
* Zero width means n equal values: clear if they differ from the null and there are enough of them. The distance is
  infinite and the p-value 2⁻ⁿ, that of a sign test; 1 where n is unknown. At the null it shows nothing, like any interval
  that includes or touches it.
* Fewer than `FEWEST_PROMPTS` prompts cannot be judged, whatever their interval. They still have a p-value: n may
  also count the seeds or tasks of a mean, which is judged by its prompts.
* A value outside its ends, as may happen with bootstrap percentiles, is judged by the interval extended to it.
* Rejected (`ResultError`): ends the wrong way round by more than rounding; anything but three real numbers.
"""

from collections.abc import Iterable, Sequence
from math import copysign, inf, isfinite, isnan, nan
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from icl_mech.checking import conformed, shown
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, one_more
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.metrics.means import scored

Status = Literal[
    "supported", "present, not used", "mixed", "not shown", "opposite", "cannot be judged"
]
"""Status of a claim. `present, not used`: the claimed effect is there, but the fraction of the answer that depends on
it is below the claim's minimum."""

FEWEST_PROMPTS = 6
"""Fewer prompts show nothing: five that all change in the same direction occur by chance once in 16 times."""

CHANCE = round(1 - ONE_SIDED, 9)
"""Largest p-value of a positive statement: 0.025, one side of a 95 % interval."""

OPENINGS: dict[Status, str] = {
    "supported": "Yes",
    "present, not used": "Present, not used",
    "mixed": "Mixed",
    "not shown": "Not shown",
    "opposite": "No",
    "cannot be judged": "Cannot be judged",
}
"""Opening word of the answer to a question, by status."""


def opening(status: Status, few: str = "", **words: str) -> str:
    """Opening words of the sentence that answers a question, `Yes:` or `Not shown:`.

    Args:
        status: Status of the answer.
        few: The sample behind an answer that cannot be judged, such as `4 prompts`.
        **words: Other words for a status (`not_shown="In no layer:"`), used verbatim.
    """
    chosen = words.get(status.replace(" ", "_"))
    if chosen is not None:
        return chosen
    return f"{OPENINGS[status]}{f' from {few}' if few and status == 'cannot be judged' else ''}:"


HOLM = (
    "Claims are tested together: if there is no effect, one page in 40 supports any of its claims "
    "(Holm over all claims of the page that can be judged, one-sided 2.5 %)"
)

ROUNDING = 1e-9

SINGLE = 1e-6
"""Relative rounding error of an interval: means in float32 compared with ends in float64."""

Float64: TypeAlias = NDArray[np.float64] | np.float64

Given: TypeAlias = Interval | Sequence[float] | None
"""An effect in any form that `as_interval` accepts."""


def as_interval(effect: Given) -> Interval | None:
    """An effect as plain numbers, see the top of this module; None if there is none.

    Args:
        effect: Value, low and high.

    Raises:
        ResultError: not three real numbers, or the low end above the high end.
    """
    if effect is None:
        return None
    try:
        entries = list(effect)
    except TypeError:
        entries = []
    if isinstance(effect, str | bytes | set | dict) or len(entries) != 3:
        raise ResultError(
            f"effect={shown(effect)} is not a value with the ends of its interval; give "
            "Interval(value, low, high), or None if there is none."
        )
    names = ("value", "low", "high")
    value, low, high = (number(name, entry) for name, entry in zip(names, entries, strict=True))
    interval = Interval(value, low, high)
    if not all(map(isfinite, interval)):
        return interval
    if low > high + rounding_of(interval):
        raise ResultError(
            f"The interval {shown(tuple(interval))} has its low end above its high end; give "
            f"Interval(value, low, high). Did you mean ({value:.4g}, {high:.4g}, {low:.4g})?"
        )
    return Interval(value, min(low, value), max(high, value))


def rounding_of(effect: Interval) -> float:
    """Distance between two numbers of an interval below which it is rounding error."""
    return ROUNDING + SINGLE * max(map(abs, effect))


def number(name: str, given: object) -> float:
    """A plain number, which may be infinite or NaN.

    Raises:
        ResultError: not a real number: complex, text, None, a boolean, several.
    """
    item = getattr(given, "item", None)
    plain = item() if callable(item) and getattr(given, "ndim", None) == 0 else given
    if isinstance(plain, bool) or not isinstance(plain, Real):
        raise ResultError(
            f"{name}={shown(given)} is not a real number; give a real number, or nan if there is none."
        )
    return float(plain)


def _side(null: float, rising: bool) -> tuple[float, bool]:
    """The null and the claimed side as plain values."""
    plain: bool = conformed("rising", rising, bool, ResultError)
    return number("null", null), plain


def _count(prompts: int | None) -> int | None:
    """The number of prompts as a plain value."""
    count: int | None = conformed("prompts", prompts, int | None, ResultError)
    return count


def judged(
    effect: Given,
    *,
    null: float = 0.0,
    rising: bool = True,
    prompts: int | None = None,
    opposite: float | None = None,
) -> Status:
    """The status of a claim that an effect lies above (`rising`) or below `null`.

    An interval that includes or touches the null shows nothing. A null that is NaN or infinite is unknown, so that
    nothing can be judged.

    Args:
        effect: Estimate with its 95 % interval, in a form that `as_interval` accepts; None if there is none.
        null: Value without an effect.
        rising: True if the claim says that it lies above.
        prompts: Number of prompts behind it; fewer than `FEWEST_PROMPTS` cannot be judged.
        opposite: Limit on the other side beyond which the claim is contradicted; None: the null.

    Raises:
        ResultError: see `as_interval`; a null that is not a number, a number of prompts that is not whole.
    """
    interval, (null, rising), prompts = as_interval(effect), _side(null, rising), _count(prompts)
    opposite_null = null if opposite is None else number("opposite", opposite)
    if interval is None or not all(map(isfinite, (*interval, null))) or isnan(opposite_null):
        return "cannot be judged"
    if prompts is not None and prompts < FEWEST_PROMPTS:
        return "cannot be judged"
    # An end within rounding error of the null touches it.
    low, high = (opposite_null, null) if rising else (null, opposite_null)
    above, below = interval.low > high + ROUNDING, interval.high < low - ROUNDING
    if not (above or below):
        return "not shown"
    return "supported" if above == rising else "opposite"


def judged_twice(
    effect: Interval | None, p_value: float, smallest: float, *, opposite: float, prompts: int
) -> Status:
    """The status of a claim that an effect lies above 0 for new prompts and for new units.

    An interval over prompts is conditional on the units (classes, words), a permutation p-value over
    units on the prompts; a positive claim needs both.

    Args:
        effect: Estimate with its 95 % interval over prompts.
        p_value: One-sided p-value over units.
        smallest: The smallest p-value attainable with so few units; above 0.025 nothing can be judged.
        opposite: The p-value of the other side.
        prompts: Number of prompts.
    """
    status = judged(effect, prompts=prompts)
    if status == "cannot be judged" or not smallest <= CHANCE:
        return "cannot be judged"
    by_chance = {"supported": p_value, "opposite": opposite}.get(status, 0.0)
    return status if by_chance <= CHANCE else "not shown"


def jointly(*comparisons: Status) -> Status:
    """The status of one measure that is compared with several controls, or computed in several ways.

    It is clear if every comparison is, in the same direction, and not shown otherwise.
    """
    statuses = set(comparisons)
    if not statuses or "cannot be judged" in statuses:
        return "cannot be judged"
    return statuses.pop() if len(statuses) == 1 else "not shown"


def together(*required: Status) -> Status:
    """The status of a claim that requires several measures.

    It cannot be judged if any measure cannot. Supported or opposite: every measure is. Not shown: none
    is clear. Mixed: they disagree.
    """
    statuses = set(required)
    if not statuses or "cannot be judged" in statuses:
        return "cannot be judged"
    return statuses.pop() if len(statuses) == 1 else "mixed"


class Controlled(Interval):
    """An effect with controls that its interval over prompts does not cover.

    Attributes:
        networks: The same effect in randomly initialised models; a claim must lie beyond their prediction interval.
        relabelled: p-values over relabelled units (classes, words): of an effect as large, of one as small, and
            the smallest attainable with so few units.
    """

    networks: tuple[float, ...] | None
    relabelled: tuple[float, float, float] | None

    @classmethod
    def of(
        cls,
        effect: Interval,
        *,
        networks: Sequence[float] | None = None,
        relabelled: tuple[float, float, float] | None = None,
    ) -> "Controlled":
        """The effect with these controls."""
        made = cls(*effect)
        made.networks = None if networks is None else tuple(map(float, networks))
        made.relabelled = relabelled
        return made


class Required(NamedTuple):
    """One measure that a claim requires.

    Attributes:
        name: Name of the measure.
        status: Status of the claim according to this measure.
        p: One-sided p-value of that statement; None if it cannot be judged.
        n: Number of units its interval averages over; None if more of them alone would not narrow it.
        far: Distance of its effect from the null, divided by the distance between the effect and the end of its
            interval that faces the null: clear from 1 on; negative if it contradicts the claim.
    """

    name: str
    status: Status
    p: float | None
    n: int | None = None
    far: float | None = None


LEAST_FREEDOM = 3.0
"""Smallest degrees of freedom: no tail is heavier than that of Student's t with so many."""

SCORED_FREEDOM = 10.0
"""Degrees of freedom for the tail of score intervals (Wilson, Tango): few means are attainable, and ends lie between them."""

PER_LEAN = 15.0
"""Rate at which degrees of freedom fall with the asymmetry of other intervals."""

OTHER_WAY = 0.2
"""Weight of leaning away from the null, relative to leaning towards it."""


def leaning(lean: Float64, prompts: int) -> NDArray[np.float64]:
    """Degrees of freedom for the tail of an asymmetric interval.

    `max(3, (n - 1) / (1 + 15 sqrt(n) a))`, at most n - 1, with `a = lean - 1` where it leans towards the null and
    `a = (1 - lean) / 5` where it leans away. Such intervals come from skewed values, whose .0025 quantiles lie farther
    beyond the .025 quantiles than normal ones do. The constants are calibrated in `tests.benchmarks.family_size`.

    Args:
        lean: Half-width towards the null divided by the half-width away from it.
        prompts: Number of prompts n.
    """
    most = float(max(1, prompts - 1))
    towards, away = np.maximum(lean, 1) - 1, 1 - np.minimum(lean, 1)
    fewer = most / (1 + PER_LEAN * prompts**0.5 * (towards + OTHER_WAY * away))
    return np.asarray(np.minimum(most, np.maximum(fewer, LEAST_FREEDOM)))


def tail(far: Float64, freedom: Float64, prompts: int) -> NDArray[np.float64]:
    """One-sided p-values of effects, given their distances from the null.

    `P(T > t(.975) far)` with T of Student's distribution, n - 1 degrees of freedom up to `far` = 1 and `freedom` beyond:
    0.025 at 1 for any degrees of freedom.

    Args:
        far: Distance from the null in half-widths towards it, at least 0.
        freedom: Degrees of freedom for p-values below 0.025.
        prompts: Number of prompts n.
    """
    from scipy.stats import t

    used = np.where(far > 1, freedom, float(max(1, prompts - 1)))
    return np.asarray(t.sf(t.ppf(ONE_SIDED, used) * far, used))


def p_value(effect: Given, *, null: float = 0.0, prompts: int | None = None) -> float | None:
    """The one-sided p-value that a 95 % interval implies, see `tail`.

    0.025 if the end that faces the null is at the null; smaller the farther away the null is. Holm's correction over
    the claims of a page compares p-values of .0025, for which a 95 % interval gives less support than Student's t with
    n − 1 degrees of freedom implies. So fewer degrees of freedom are used: 10 for score intervals, `leaning` for others
    (`docs/benchmarks/coverage.md`).
    For n equal values, whose interval has no width, it is 2⁻ⁿ, that of a sign test.

    Args:
        effect: Estimate with its interval; None if there is none.
        null: Value without an effect.
        prompts: Number of prompts n; None: the normal distribution.

    Raises:
        ResultError: see `judged`.
    """
    from scipy.stats import norm

    interval, prompts = as_interval(effect), _count(prompts)
    far = distance(interval, null=null)
    if far is None or interval is None:
        return None
    if far == 0 or abs(far) == inf:
        return 0.5 if far == 0 else 0.5 ** (prompts or 0)
    if prompts is None:
        return float(norm.sf(norm.ppf(ONE_SIDED) * abs(far)))
    if scored(interval, prompts):
        freedom = np.asarray(min(SCORED_FREEDOM, max(1.0, prompts - 1.0)))
    else:
        below, above = interval.value - interval.low, interval.high - interval.value
        facing, away = (below, above) if far > 0 else (above, below)
        freedom = leaning(
            np.float64(facing / away if away > rounding_of(interval) else inf), prompts
        )
    return float(tail(np.float64(abs(far)), freedom, prompts))


def distance(effect: Given, *, null: float = 0.0, rising: bool = True) -> float | None:
    """Signed distance of an effect from `null` on the claimed side, see `Required.far`; None if there is none."""
    effect, (null, rising) = as_interval(effect), _side(null, rising)
    if effect is None or not all(map(isfinite, (*effect, null))):
        return None
    beyond = effect.value - null
    if abs(beyond) <= ROUNDING:
        return 0.0
    reach = effect.value - effect.low if beyond > 0 else effect.high - effect.value
    size = abs(beyond) / reach if reach > rounding_of(effect) else inf
    return copysign(size, beyond if rising else -beyond)


def required(
    name: str,
    *effects: Given,
    null: float = 0.0,
    rising: bool = True,
    prompts: int | None = None,
    opposite: float | None = None,
    sample: int | None = None,
) -> Required:
    """A measure that requires all these effects to lie above (`rising`) or below `null`, see `judged`.

    Args:
        name: Name of the measure.
        *effects: Estimates with 95 % intervals; a `Controlled` one must also lie beyond its controls.
        null: Value without an effect.
        rising: True if the claim says that it lies above.
        prompts: Number of prompts behind each; fewer than `FEWEST_PROMPTS` cannot be judged.
        opposite: Limit on the other side beyond which the claim is contradicted; None: the null.
        sample: Number of units the interval averages over; None: the prompts.

    Raises:
        ResultError: see `judged`.
    """
    (null, rising), prompts = _side(null, rising), _count(prompts)
    each = [
        _required(name, effect, null, rising, prompts, opposite, sample or prompts)
        for effect in effects
    ]
    return combined(name, each)


def _required(
    name: str,
    effect: Given,
    null: float,
    rising: bool,
    prompts: int | None,
    opposite: float | None,
    sample: int | None,
) -> Required:
    """The measure for one effect with its controls."""
    p_values = [p_value(effect, null=null, prompts=sample)]
    far = distance(effect, null=null, rising=rising)
    status = judged(effect, null=null, rising=rising, prompts=prompts, opposite=opposite)
    if isinstance(effect, Controlled) and effect.networks is not None:
        beside = _networks(effect, effect.networks)
        if beside is None:
            return Required(name, "cannot be judged", None, sample, far)
        low, high, p = beside
        near, opposite_end = (
            (max(null, high), min(null, low)) if rising else (min(null, low), max(null, high))
        )
        status = judged(effect, null=near, rising=rising, prompts=prompts, opposite=opposite_end)
        p_values.append(p)
    if isinstance(effect, Controlled) and effect.relabelled is not None:
        above, below, smallest = effect.relabelled
        status = judged_twice(effect, above, smallest, opposite=below, prompts=prompts or 0)
        p_values.append(below if status == "opposite" else above)
    return Required(name, status, largest(p_values), sample, far)


def _networks(effect: Interval, values: Sequence[float]) -> tuple[float, float, float] | None:
    """The 95 % prediction interval for one more network, and the p-value of the effect under that distribution.

    Given k networks with mean m and standard deviation s, one more lies within m ± t s sqrt(1 + 1/k); p is one-sided,
    at the end of the effect's interval that faces them. None for fewer than two, or if a value is not finite.
    """
    from scipy.stats import t as student

    if len(values) < 2 or not all(map(isfinite, values)) or not all(map(isfinite, effect)):
        return None
    mean, freedom = sum(values) / len(values), len(values) - 1
    reach = one_more(torch.tensor(values, dtype=torch.float64))
    spread = max(reach / float(student.ppf(ONE_SIDED, freedom)), 1e-12)
    end = max(effect.low - mean, 0.0) if effect.value > mean else max(mean - effect.high, 0.0)
    return mean - reach, mean + reach, float(student.sf(end / spread, freedom))


def combined(name: str, comparisons: Sequence[Required]) -> Required:
    """Combine several comparisons, which must all be clear, into one measure; it is as far as the weakest."""
    none = Required(name, "cannot be judged", None)
    weakest = min(
        comparisons,
        key=lambda comparison: -inf if comparison.far is None else comparison.far,
        default=none,
    )
    status = jointly(*(comparison.status for comparison in comparisons))
    return weakest._replace(
        name=name, status=status, p=largest(comparison.p for comparison in comparisons)
    )


MOST_TIMES = 100
"""Largest multiple of the present number of prompts that is suggested."""


def would_do(measures: Sequence[Required], unit: str = "prompt", groups: int = 1) -> str:
    """Sentences on how many prompts (seeds, tasks) would halve the intervals of measures that are not clear.

    Over prompts the width is assumed to fall as `1/sqrt(n)`, over the few seeds or tasks of a sweep as
    `t/sqrt(n)` with the .975 quantile of Student's t; an unchanged effect would be clear on its own
    once the width is `far` times the present one. Empty if the number of units behind an interval
    is unknown.

    Args:
        measures: Measures of a claim that is not shown, or cannot be judged for lack of prompts.
        unit: The units that `n` counts.
        groups: Number of groups of so many units, whose spread is pooled.
    """
    unclear = [measure for measure in measures if measure.status not in ("supported", "opposite")]
    sentences = []
    for measure in unclear or measures:
        few = measure.n is not None and measure.n < FEWEST_PROMPTS and unit == "prompt"
        if measure.n and (few or measure.status != "cannot be judged"):
            start = f"{measure.name[:1].upper()}{measure.name[1:]}: " if len(measures) > 1 else ""
            start += f"It can be judged from {FEWEST_PROMPTS} {unit}s on. " if few else ""
            how = "as 1/√n" if unit == "prompt" else "as Student's t implies"
            half = _narrowed(measure.n, 0.5, unit, groups)
            clear = _narrowed(
                measure.n, max(measure.far or 0.0, 0.0) * (1 - ROUNDING), unit, groups
            )
            halved = f"{half} {unit}s instead of {measure.n} would halve the interval"
            many = (
                f"about {clear}"
                if clear <= MOST_TIMES * measure.n
                else f"more than {MOST_TIMES * measure.n}"
            )
            then = _then(measure.far, "" if clear <= half else f"{many} {unit}s")
            sentences.append(f"{start}If the width falls {how}, {halved}{then}.")
    return " ".join(sentences)


def _narrowed(n: int, share: float, unit: str, groups: int) -> int:
    """The smallest number of units at which the width is at most this fraction; at most `MOST_TIMES` n + 1."""
    from scipy.stats import t

    def width(count: int) -> float:
        far = 1.0 if unit == "prompt" else t.ppf(ONE_SIDED, groups * (count - 1))
        return float(far / count**0.5)

    most, present = MOST_TIMES * n + 1, width(n)
    return next((m for m in range(n, most) if width(m) <= share * present * (1 + 1e-12)), most)


def _then(far: float | None, many: str) -> str:
    """Clause on whether half the width makes the same effect clear; `many` units would, "" if half is enough."""
    if far is None or far >= 1 or far == 0:
        return ""
    if far < 0:
        return "; the observed effect points in the direction opposite to the claim"
    if not many:
        return " and, for the same effect, make it clear on its own"
    return f" but, for the same effect, not make it clear on its own: that would take {many}"


def largest(p_values: Iterable[float | None]) -> float | None:
    """The p-value of a statement that needs all of them: the largest; None if one is missing or NaN."""
    numbers = [None if p is None else number("p-value", p) for p in p_values]
    known = [p for p in numbers if p is not None and not isnan(p)]
    return max(known) if numbers and len(known) == len(numbers) else None


def of_statement(status: Status, p_values: Iterable[float | None]) -> float | None:
    """The p-value of a claim that needs several measures: the largest of theirs.

    1 if they disagree, or if all are clear in different directions, which together state nothing;
    None if the claim cannot be judged.
    """
    if status == "cannot be judged":
        return None
    p = largest(p_values)
    nothing = status == "mixed" or (status == "not shown" and p is not None and p <= CHANCE)
    return 1.0 if nothing else p


def holm(p_values: Sequence[float | None], level: float = CHANCE) -> tuple[bool, ...]:
    """The statements that pass Holm's correction, with a family-wise error of `level`.

    The smallest of m p-values is compared with level / m, the next with level / (m - 1), and so on up
    to the first that is larger (Holm 1979). None is no statement and does not count.
    """
    each = [nan if p is None else number("p-value", p) for p in p_values]
    order = sorted((p, place) for place, p in enumerate(each) if not isnan(p))
    stands = [False] * len(p_values)
    for left, (p, place) in zip(range(len(order), 0, -1), order, strict=True):
        # As in `judged`, ends within rounding error of the null count as touching it.
        if p * left > level + ROUNDING:
            break
        stands[place] = True
    return tuple(stands)


def disagreeing(measures: Sequence[Required]) -> str:
    """Which measures cannot be judged; if all can, what each says about a claim on which they disagree."""
    by_status: dict[str, list[str]] = {}
    for measure in measures:
        by_status.setdefault(measure.status, []).append(measure.name)
    lacking = by_status.get("cannot be judged")
    if lacking:
        return f"{' and '.join(lacking)} cannot be judged"
    words = {
        "supported": ("supports it", "support it"),
        "opposite": ("shows the opposite", "show the opposite"),
        "mixed": ("is mixed", "are mixed"),
    }
    return ", ".join(
        f"{' and '.join(names)} {words.get(status, ('does not show it', 'do not show it'))[len(names) > 1]}"
        for status, names in by_status.items()
    )
