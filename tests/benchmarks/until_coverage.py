"""How often intervals hold where `analyze(until=...)` decided how many prompts there are, by simulation.

    python -m tests.benchmarks.until_coverage [--repeats 4000] [--seed 0]

Prints a table in Markdown, in about two minutes. For every distribution and width that was asked for (half of
what `usual` prompts have on average): the share of runs whose interval holds the true mean, the same of runs with
just `usual` prompts, how often it lies above and below the true mean, prompts of the last stage, prompts of
all stages, and stages. Where the true mean is 0, above and below are false positive statements.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch

from icl_mech.metrics.means import Z, paired_ends, share_ends, student_ends
from icl_mech.studies.until import FIRST, following, narrow
from tests.benchmarks.mean_coverage import tenth

USUAL = (24, 48, 96, 192)
MOST = 512
RESAMPLES = 1500
TOUCHES = 1e-12

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
Ends = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def student(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return student_ends(values, resamples=RESAMPLES)


def outcomes(share: float) -> Draw:
    return lambda rng, size: (rng.random(size) < share).astype(float)


def changes(gained: float, lost: float) -> Draw:
    def draw(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
        one = rng.random(size)
        return (one < gained).astype(float) - (one > 1 - lost)

    return draw


CASES: dict[str, tuple[Ends, Draw, float, float]] = {
    "yes or no, 0.5 (Wilson)": (share_ends, outcomes(0.5), 0.5, 0.5),
    "yes or no, 0.8 (Wilson)": (share_ends, outcomes(0.8), 0.8, 0.4),
    "yes or no, 0.95 (Wilson)": (share_ends, outcomes(0.95), 0.95, 0.0475**0.5),
    "paired, 20 % gained, 20 % lost (Tango)": (paired_ends, changes(0.2, 0.2), 0.0, 0.4**0.5),
    "paired, 5 % gained, 5 % lost (Tango)": (paired_ends, changes(0.05, 0.05), 0.0, 0.1**0.5),
    "paired, 30 % gained, 10 % lost (Tango)": (paired_ends, changes(0.3, 0.1), 0.2, 0.6),
    "normal": (student, lambda rng, size: rng.normal(size=size), 0.0, 1.0),
    "exponential, minus its mean": (student, lambda rng, size: rng.exponential(size=size) - 1, 0.0, 1.0),
    "log-normal, sigma 0.5, minus its mean": (
        student, lambda rng, size: rng.lognormal(0, 0.5, size) - np.exp(0.125), 0.0, 0.604,
    ),
    "10 % outliers, normal(0, 1)": (student, tenth(lambda rng, size: rng.normal(size=size)), 0.0, 3.302),
    "10 % outliers, normal(1, 1), minus its mean": (
        student, lambda rng, size: tenth(lambda r, s: r.normal(1, 1, s))(rng, size) - 1.9, 0.0, 4.277,
    ),
}  # fmt: skip
"""Interval, values, their mean and spread."""


def stopped(ends: Ends, values: torch.Tensor, asked: float) -> tuple[np.ndarray, ...]:
    """Low and high ends, prompts of the last stage and of all, and stages, of each column of values."""
    most, runs = values.shape
    low, high, whole, stages = (np.zeros(runs) for _ in range(4))
    n, left = np.full(runs, FIRST), np.ones(runs, bool)
    while left.any():
        for count in np.unique(n[left]):
            here = np.flatnonzero(left & (n == count))
            found = ends(values[:count, here])
            low[here], high[here] = (one.numpy() for one in found)
        whole[left] += n[left]
        stages[left] += 1
        for run in np.flatnonzero(left):
            ratio = (high[run] - low[run]) / 2 / asked
            left[run] = not narrow(int(n[run]), ratio) and n[run] < most
            if left[run]:
                n[run] = following(int(n[run]), ratio, most)
    return low, high, n, whole, stages


def row(name: str, usual: int, repeats: int, seed: int) -> dict[str, float]:
    """The rates of one distribution and width."""
    ends, draw, truth, spread = CASES[name]
    values = torch.from_numpy(draw(np.random.default_rng(seed), (MOST, repeats))).double()
    low, high, n, whole, stages = stopped(ends, values, Z * spread / usual**0.5)
    above, below = low > truth + TOUCHES, high < truth - TOUCHES
    own_low, own_high = (one.numpy() for one in ends(values[:usual]))
    fixed = (own_low <= truth + TOUCHES) & (own_high >= truth - TOUCHES)
    found = {"held": ~(above | below), "fixed": fixed, "above": above, "below": below}
    found |= {"n": n, "all": whole, "stages": stages}
    return {key: float(own.mean()) for key, own in found.items()}


def table(repeats: int, seed: int) -> Iterator[str]:
    yield "| values | nominal n | coverage | coverage, fixed n | above | below | n | n, all stages | stages |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in CASES:
        for usual in USUAL:
            own = row(name, usual, repeats, seed)
            yield (
                f"| {name} | {usual} | {own['held']:.3f} | {own['fixed']:.3f} | {own['above']:.3f} | "
                f"{own['below']:.3f} | {own['n']:.0f} | {own['all']:.0f} | {own['stages']:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in table(given.repeats, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
