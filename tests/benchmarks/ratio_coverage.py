"""Coverage of intervals of ratios of paired means, by simulation: which kind of interval holds.

    python -m tests.benchmarks.ratio_coverage [--repeats 2000] [--seed 0] [--sizes 12 24 48 128]

Values of a prompt are what it gains and what it loses when a path is cut. For true shares 0, .1, .5, 1 and gains 3, 6 and 12
standard errors from 0, of the samples whose gain is clear: how often each kind of interval holds the share, and how
often it lies wholly above or below it. A ratio is held where `numerator - share * denominator` has an interval that includes 0,
which is how `ratio_ends` finds its ends. The first table has the range over shares and gains, the second one how many of these
settings are held in .93 to .97 with at most .035 on either side.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.stats import norm, t

from icl_mech.metrics.intervals import quantile_ends, resample_weights
from icl_mech.metrics.means import student_ends
from tests.benchmarks.coverage import Ends, tensor

SIZES = (12, 24, 48, 128)
SHARES = (0.0, 0.1, 0.5, 1.0)
CLEAR = (3, 6, 12)
"""How many standard errors the mean gain lies above 0."""

RESAMPLES = 1000
AT_ONCE = 500

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
"""Deviations with mean 0 and standard deviation 1."""


def exponential(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.exponential(size=size) - 1


def normal(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return rng.normal(size=size)


def left(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    return -exponential(rng, size)


def tied(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """60 % of the values the same."""
    return (rng.exponential(size=size) * (rng.random(size) < 0.4) - 0.4) / 0.8


NOISE: dict[str, tuple[Draw, Draw, float]] = {
    "normal, uncorrelated": (normal, normal, 0.0),
    "normal, loss follows gain": (normal, normal, 1.0),
    "right-skewed": (exponential, exponential, 0.5),
    "left-skewed": (left, left, 0.5),
    "right-skewed gain, left-skewed loss": (exponential, left, 0.0),
    "60 % of the losses the same": (exponential, tied, 0.0),
}
"""Of the gain, of the loss, and how far the loss of a prompt follows its gain (1: the share of it, and little else)."""


def pairs(
    name: str, n: int, repeats: int, share: float, clear: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Numerators and denominators [prompt, repeat]; the mean gain is 1."""
    of_gain, of_loss, follows = NOISE[name]
    spread = n**0.5 / clear
    gain = 1 + spread * of_gain(rng, (n, repeats))
    own = 0.1 if follows == 1 else 0.5
    loss = share * (1 + follows * (gain - 1)) + own * spread * of_loss(rng, (n, repeats))
    return tensor(loss), tensor(gain)


def fieller(loss: torch.Tensor, gain: torch.Tensor, share: float) -> Ends:
    """Ends of `loss - share * gain` by Student's t."""
    values = loss - share * gain
    half = float(t.ppf(0.975, len(values) - 1)) * values.std(0) / len(values) ** 0.5
    return values.mean(0) - half, values.mean(0) + half


def bootstrap(loss: torch.Tensor, gain: torch.Tensor, weights: torch.Tensor) -> dict[str, Ends]:
    """Ends of the ratio: percentiles, and BCa."""
    drawn = (weights @ loss) / (weights @ gain)
    n, ratio = len(loss), loss.mean(0) / gain.mean(0)
    left_out = (loss.sum(0) - loss) / (gain.sum(0) - gain)
    centred = left_out.mean(0) - left_out
    speed = (centred**3).sum(0) / (6 * (centred**2).sum(0) ** 1.5)
    below = (drawn < ratio).double().mean(0).clamp(1 / RESAMPLES, 1 - 1 / RESAMPLES)
    bias = torch.from_numpy(norm.ppf(below.numpy()))
    ends = []
    for z in (-1.96, 1.96):
        level = norm.cdf((bias + (bias + z) / (1 - speed * (bias + z))).numpy())
        places = torch.from_numpy(np.clip(level * RESAMPLES, 0, RESAMPLES - 1).astype(int))
        ends.append(drawn.sort(0).values.gather(0, places[None])[0])
    return {"percentile": quantile_ends(drawn, n), "BCa": (ends[0], ends[1])}


METHODS = ("ours", "Fieller", "percentile", "BCa")


def rates(
    name: str, n: int, share: float, clear: int, repeats: int, seed: int
) -> dict[str, tuple[float, float]]:
    """How often each interval lies above and below the true share, of samples whose gain is clear."""
    rng = np.random.default_rng([seed, n, clear, round(10 * share)])
    parts: dict[str, list[torch.Tensor]] = {method: [] for method in METHODS}
    for part in range(0, repeats, AT_ONCE):
        loss, gain = pairs(name, n, AT_ONCE, share, clear, rng)
        known = student_ends(gain, resamples=RESAMPLES, seed=part)[0] > 0
        loss, gain = loss[:, known], gain[:, known]
        ours = student_ends(loss - share * gain, resamples=RESAMPLES, seed=part)
        ends = {"ours": ours, "Fieller": fieller(loss, gain, share)}
        weights = resample_weights(n, resamples=RESAMPLES, seed=part)
        drawn = bootstrap(loss, gain, weights)
        ends |= {method: (low - share, high - share) for method, (low, high) in drawn.items()}
        for method, (low, high) in ends.items():
            parts[method].append(torch.stack([low > 1e-9, high < -1e-9]).double())
    found = {method: torch.cat(own, 1).mean(1).tolist() for method, own in parts.items()}
    return {method: (own[0], own[1]) for method, own in found.items()}


def good(sides: tuple[float, float]) -> bool:
    """Held in .93 to .97, at most .035 on either side."""
    return 0.03 <= sum(sides) <= 0.07 and max(sides) <= 0.035


def table(sizes: tuple[int, ...], repeats: int, seed: int) -> Iterator[str]:
    yield "| values | " + " | ".join(f"n = {n}" for n in sizes) + " |"
    yield "|---|" + "---|" * len(sizes)
    counts = {(method, n): 0 for method in METHODS for n in sizes}
    for name in NOISE:
        row = []
        for n in sizes:
            settings = [rates(name, n, s, c, repeats, seed) for s in SHARES for c in CLEAR]
            held = [1 - sum(own["ours"]) for own in settings]
            most = max(max(own["ours"]) for own in settings)
            row.append(f"{min(held):.3f}–{max(held):.3f}, {most:.3f}")
            for method in METHODS:
                counts[method, n] += sum(good(own[method]) for own in settings)
        yield f"| {name} | {' | '.join(row)} |"
    yield ""
    yield (
        f"| interval, of {len(NOISE) * len(SHARES) * len(CLEAR)} settings | "
        + " | ".join(f"n = {n}" for n in sizes)
        + " |"
    )
    yield "|---|" + "---|" * len(sizes)
    for method in METHODS:
        yield f"| {method} | {' | '.join(str(counts[method, n]) for n in sizes)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    for line in table(tuple(given.sizes), given.repeats, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
