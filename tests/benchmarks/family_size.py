"""How often a page of claims supports any where there is nothing to find, by simulation.

    python -m tests.benchmarks.family_size [--families 4000] [--seed 1] [--sizes 6 24 48 96] [--shared 0 0.5]

Prints tables in Markdown. Every claim says that a mean over prompts lies above its true value, or below it (`rising` false:
skewed values count on both sides); intervals are those of `mean_ends`, p-values those of `p_value`, and `holm` goes over
1, 5, 10 or 15 such claims, independent or correlated over prompts. Sizes are shares of 2.5 %: 1 is nominal.
`before` is Student's t with n - 1 degrees of freedom at every distance. A last table has the power of 10 claims of which one
is true. The constants of `leaning` were set on the kinds in `SET_ON` with seed 0; the others were looked at afterwards.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from scipy.stats import beta, norm, t

from icl_mech.metrics import mean_ends
from icl_mech.metrics.means import PER_SQUARE, Kind, student_ends
from icl_mech.results.judging import CHANCE, ROUNDING, SCORED_FREEDOM, leaning, tail
from tests.benchmarks.coverage import tensor

CLAIMS = (1, 5, 10, 15)
RESAMPLES = 2000
AT_ONCE = 512
"""Claims that share their resamples; the library draws five times as many."""

Quantile = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Values from two numbers between 0 and 1: where they lie, and which part of a mixture they are of."""

GRID = np.linspace(0, 1, 20_001)
NEAR_ONE = beta.ppf(GRID, 4, 0.2)


@dataclass(frozen=True)
class Values:
    """What claims are means of.

    Attributes:
        draw: Quantiles.
        mean: The true one.
        kind: See `mean_ends`.
        skewness: Of all values; 0 for those with score intervals, which need none.
        rising: What the claims say.
    """

    draw: Quantile
    mean: float
    kind: Kind = "value"
    skewness: float = 0.0
    rising: bool = True

    def few(self, n: int) -> bool:
        """Too few prompts for the interval of one mean to hold, see `prompts_needed`."""
        return n < PER_SQUARE * self.skewness**2


def lognormal(sigma: float, sign: int) -> Values:
    spread = np.exp(sigma**2)
    skewness = (spread + 2) * (spread - 1) ** 0.5
    return Values(
        lambda u, _: sign * np.exp(sigma * norm.ppf(u)),
        sign * float(np.exp(sigma**2 / 2)),
        skewness=float(skewness),
    )


def share(p: float, rising: bool = True) -> Values:
    return Values(lambda u, _: (u < p) * 1.0, p, "outcome", rising=rising)


def change(gained: float, lost: float) -> Values:
    return Values(lambda u, _: (u < gained) * 1.0 - (u > 1 - lost), gained - lost, "change")


def zeros(sign: int) -> Values:
    """70 % zeros."""
    return Values(lambda u, v: sign * (v > 0.7) * (1 + 0.5 * norm.ppf(u)), 0.3 * sign, skewness=1.6)


def outliers(own: float, sign: int, skewness: float) -> Values:
    """A tenth ten times as large."""
    return Values(
        lambda u, v: sign * (own + norm.ppf(u)) * np.where(v > 0.9, 10, 1),
        1.9 * own * sign,
        skewness=skewness,
    )


CASES: dict[str, Values] = {
    "normal": Values(lambda u, _: norm.ppf(u), 0.0),
    "uniform": Values(lambda u, _: u, 0.5),
    "Student's t, 3 degrees": Values(lambda u, _: t.ppf(u, 3), 0.0),
    "log-normal, sigma 0.5": lognormal(0.5, 1),
    "left-skewed (minus log-normal, sigma 0.5)": lognormal(0.5, -1),
    "left-skewed (minus log-normal, sigma 1)": lognormal(1.0, -1),
    "left-skewed (minus exponential)": Values(lambda u, _: np.log(u), -1.0, skewness=2.0),
    "fractions near 1, beta(19, 1)": Values(lambda u, _: u ** (1 / 19), 0.95, skewness=1.7),
    "fractions near 1, beta(4, 0.2)": Values(
        lambda u, _: np.interp(u, GRID, NEAR_ONE), 4 / 4.2, skewness=3.1
    ),
    "70 % zeros, others normal(1, 0.5)": zeros(1),
    "70 % zeros, others -normal(1, 0.5)": zeros(-1),
    "10 % outliers, normal(0, 1)": outliers(0, 1, 0.0),
    "10 % outliers, -normal(1, 1)": outliers(1, -1, 3.8),
    "outcomes, half right": share(0.5),
    "outcomes, a quarter right": share(0.25),
    "outcomes, .8 right": share(0.8),
    "outcomes, .8 right (below)": share(0.8, rising=False),
    "fractions with ties (of five draws)": Values(
        lambda u, _: np.minimum(np.floor(6 * u**0.7), 5) / 5,
        float(sum(1 - (k / 6) ** (1 / 0.7) for k in range(1, 6)) / 5),
        "outcome",
    ),
    "changes, 10 % gained, 10 % lost": change(0.1, 0.1),
    "changes, 30 % gained, 10 % lost": change(0.3, 0.1),
    "changes, 2 % gained, 2 % lost": change(0.02, 0.02),
}
"""What is drawn; where nothing else is said, claims say that the mean lies above the true one."""

SET_ON = (
    "normal",
    "Student's t, 3 degrees",
    "log-normal, sigma 0.5",
    "left-skewed (minus log-normal, sigma 0.5)",
    "fractions near 1, beta(19, 1)",
    "10 % outliers, normal(0, 1)",
    "fractions with ties (of five draws)",
    "changes, 10 % gained, 10 % lost",
    "outcomes, half right",
)

POWER = {
    "normal": 0.5,
    "Student's t, 3 degrees": 0.8,
    "log-normal, sigma 0.5": 0.3,
    "left-skewed (minus exponential)": 0.6,
    "outcomes, half right": 0.25,
    "changes, 30 % gained, 10 % lost": 0.3,
}
"""How far above the null one mean of 48 prompts lies in the last table; of outcomes .75 are right, of changes .5 gained."""


@dataclass(frozen=True)
class Claimed:
    """Effects by family and claim: distance on the claimed side (negative on the other), and how they lean."""

    far: np.ndarray
    lean: np.ndarray
    n: int
    scored: bool

    def p(self, *, before: bool = False) -> np.ndarray:
        """As `p_value` gives them."""
        most = np.full(self.lean.shape, float(self.n - 1))
        if before:
            freedom = most
        else:
            freedom = (
                np.minimum(most, SCORED_FREEDOM) if self.scored else leaning(self.lean, self.n)
            )
        size = np.abs(self.far)
        known = np.where(np.isinf(size), 1.0, size)
        found = np.where(np.isinf(size), 0.5**self.n, tail(known, freedom, self.n))
        return np.where(size == 0, 0.5, found)


def drawn(case: Values, n: int, families: int, claims: int, shared: float, seed: int) -> np.ndarray:
    """Values [prompt, family * claim]; claims of a family share a part of each prompt."""
    rng = np.random.default_rng([seed, n, round(100 * shared)])

    def numbers() -> np.ndarray:
        common = rng.normal(size=(n, families, 1)) * shared**0.5
        own = rng.normal(size=(n, families, claims)) * (1 - shared) ** 0.5
        return norm.cdf(common + own).reshape(n, families * claims)

    return np.asarray(case.draw(numbers(), numbers()), dtype=float)


def claimed(values: np.ndarray, case: Values, families: int, *, null: float) -> Claimed:
    """Effects as the judge sees them."""
    parts = []
    for place, part in enumerate(tensor(values).split(AT_ONCE, dim=1)):
        if case.kind == "value":
            ends = student_ends(part, resamples=RESAMPLES, seed=place)
        else:
            ends = mean_ends(part, case.kind)
        parts.append(torch.stack([part.mean(0), *ends]))
    mean, low, high = torch.cat(parts, 1).numpy().reshape(3, families, -1)
    beyond = np.where(np.abs(mean - null) <= ROUNDING, 0.0, mean - null)
    facing, other = (
        np.where(beyond > 0, a, b)
        for a, b in ((mean - low, high - mean), (high - mean, mean - low))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(facing > ROUNDING, np.abs(beyond) / facing, np.inf)
        lean = np.where(other > ROUNDING, facing / other, np.inf)
    far = np.where(beyond == 0, 0.0, far) * np.sign(beyond) * (1 if case.rising else -1)
    return Claimed(far, lean, len(values), case.kind != "value")


def stands(p: np.ndarray) -> np.ndarray:
    """`holm` of every row."""
    order = np.argsort(p, axis=1)
    left = np.arange(p.shape[1], 0, -1)
    kept = np.take_along_axis(p, order, 1) * left <= CHANCE + ROUNDING
    found = np.zeros(p.shape, dtype=bool)
    np.put_along_axis(found, order, np.logical_and.accumulate(kept, axis=1), 1)
    return found


def supported(found: Claimed, *, before: bool = False) -> np.ndarray:
    """Claims that stand on their side."""
    return stands(found.p(before=before)) & (found.far > 1)


@lru_cache(2)
def effects(name: str, n: int, families: int, shared: float, seed: int) -> Claimed:
    case = CASES[name]
    values = drawn(case, n, families, max(CLAIMS), shared, seed)
    return claimed(values, case, families, null=case.mean)


def size(found: Claimed, claims: int, *, before: bool = False) -> float:
    """How many times 2.5 % of the families support any; independent of how the 15 claims are split."""
    count = found.far.shape[1] // claims
    parts = [
        replace(found, far=found.far[:, own], lean=found.lean[:, own])
        for own in (slice(i * claims, (i + 1) * claims) for i in range(count))
    ]
    rates = [float(supported(part, before=before).any(1).mean()) for part in parts]
    return float(np.mean(rates)) / CHANCE


def cell(name: str, n: int, families: int, shared: float, seed: int) -> str:
    found = effects(name, n, families, shared, seed)
    before = [f"{size(found, m, before=True):.1f}" for m in CLAIMS[1:]]
    now = [f"{size(found, m):.2f}" for m in CLAIMS]
    few = " (few)" if CASES[name].few(n) else ""
    return f"{now[0]}; {', '.join(before)} → {', '.join(now[1:])}{few}"


def table(sizes: tuple[int, ...], families: int, shared: float, seed: int) -> Iterator[str]:
    yield "| values | " + " | ".join(f"n = {n}" for n in sizes) + " |"
    yield "|---|" + "---|" * len(sizes)
    for name in CASES:
        row = " | ".join(cell(name, n, families, shared, seed) for n in sizes)
        mark = "" if name in SET_ON else " \N{DAGGER}"
        yield f"| {name}{mark} | {row} |"


def power(name: str, n: int, repeats: int, seed: int, *, claims: int = 10) -> tuple[float, ...]:
    """How often one claim with an effect stands alone, among ten as before, and among ten."""
    case, above = CASES[name], POWER[name]
    if case.kind == "outcome":
        true = share(case.mean + above)
    elif case.kind == "change":
        true = change(0.3 + above, 0.1)
    else:
        true = case
    values = drawn(true, n, repeats, 1, 0.0, seed)
    # Values are moved by moving the null the other way.
    found = claimed(values, case, repeats, null=case.mean - (above if case.kind == "value" else 0))
    alone = float((found.far > 1).mean())
    rates = [
        float(((found.p(before=own) <= CHANCE / claims) & (found.far > 1)).mean())
        for own in (True, False)
    ]
    return alone, *rates


def power_table(repeats: int, seed: int, n: int = 48) -> Iterator[str]:
    yield f"| values, n = {n} | alone | first of ten claims |"
    yield "|---|---|---|"
    for name in POWER:
        alone, before, now = power(name, n, repeats, seed)
        yield f"| {name} | {alone:.2f} | {before:.2f} → {now:.2f} |"


def mended(n: int, repeats: int, seed: int) -> tuple[float, float]:
    """Of minus-exponential values: how many intervals lie above the mean, how many of these samples look left-skewed.

    That is, more than 95 % of normal samples do: only these could an interval of the sample put right.
    """
    rng = np.random.default_rng(seed)

    def skewness(values: np.ndarray) -> np.ndarray:
        centred = values - values.mean(0)
        return np.asarray((centred**3).mean(0) / (centred**2).mean(0) ** 1.5)

    values = np.log(rng.random((n, repeats)))
    above = student_ends(tensor(values), resamples=RESAMPLES)[0].numpy() > -1
    limit = np.quantile(skewness(rng.normal(size=values.shape)), 0.05)
    return float(above.mean()), float((skewness(values)[above] < limit).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="+", default=(6, 24, 48, 96))
    parser.add_argument("--shared", type=float, nargs="+", default=(0.0, 0.5))
    given = parser.parse_args()
    for shared in given.shared:
        print(f"\nclaims correlated {shared:g}\n")
        for line in table(tuple(given.sizes), given.families, shared, given.seed):
            print(line, flush=True)
    print()
    for line in power_table(5 * given.families, given.seed):
        print(line, flush=True)
    print(
        "\n| left-skewed, n | above | of these look left-skewed | of normal samples |\n|---|---|---|---|"
    )
    for n in given.sizes:
        above, looks, normal = mended(n, 5 * given.families, given.seed)
        print(f"| {n} | {above:.3f} | {looks:.2f} | {normal:.2f} |", flush=True)


if __name__ == "__main__":
    main()
