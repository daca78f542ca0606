"""Coverage of intervals of means of values that are not yes or no, by simulation.

    python -m tests.benchmarks.mean_coverage [--repeats 2000] [--seed 0] [--sizes 6 12 48]

Prints a table in Markdown. For every distribution and number of prompts: the share of samples
whose interval holds the true mean, as it was (the studentised bootstrap alone) and as it is; how
often it lies above and below the true mean; its width beside what it was; how many samples a note
calls too skewed for so few, and how many intervals miss without such a note. A second table has
calibrated accuracies of two classes.
"""

import argparse
from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.stats import t

from icl_mech.metrics import prompts_needed
from icl_mech.metrics.calibration import score_interval
from icl_mech.metrics.intervals import quantiles, resample_weights
from icl_mech.metrics.means import FEWEST_VALUES, student_ends
from tests.benchmarks.coverage import scores, tensor

SIZES = (6, 8, 10, 12, 24, 48, 96)
RESAMPLES = 4000
BIG = 2_000_000
"""Values that stand for all there are, for skewness; means are known."""

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]


def tenth(draw: Draw) -> Draw:
    """A tenth of the values ten times as large."""
    return lambda rng, size: draw(rng, size) * np.where(rng.random(size) < 0.1, 10, 1)


def zeros(draw: Draw) -> Draw:
    """70 % zeros."""
    return lambda rng, size: draw(rng, size) * (rng.random(size) < 0.3)


CASES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, size: rng.normal(size=size), 0.0),
    "uniform": (lambda rng, size: rng.random(size), 0.5),
    "Student's t, 3 degrees": (lambda rng, size: rng.standard_t(3, size), 0.0),
    "log-normal, sigma 0.5": (lambda rng, size: rng.lognormal(0, 0.5, size), np.exp(0.125)),
    "log-normal, sigma 1": (lambda rng, size: rng.lognormal(0, 1, size), np.exp(0.5)),
    "left-skewed (minus exponential)": (lambda rng, size: -rng.exponential(size=size), -1.0),
    "fractions near 1, beta(19, 1)": (lambda rng, size: rng.beta(19, 1, size), 0.95),
    "fractions near 1, beta(4, 0.2)": (lambda rng, size: rng.beta(4, 0.2, size), 4 / 4.2),
    "70 % zeros, others normal(1, 0.5)": (zeros(lambda rng, size: rng.normal(1, 0.5, size)), 0.3),
    "70 % zeros, others half-normal": (
        zeros(lambda rng, size: np.abs(rng.normal(size=size))),
        0.3 * (2 / np.pi) ** 0.5,
    ),
    "10 % outliers, normal(0, 1)": (tenth(lambda rng, size: rng.normal(size=size)), 0.0),
    "10 % outliers, normal(1, 1)": (tenth(lambda rng, size: rng.normal(1, 1, size)), 1.9),
    "10 % outliers, log-normal, sigma 0.5": (
        tenth(lambda rng, size: rng.lognormal(0, 0.5, size)),
        1.9 * np.exp(0.125),
    ),
    "10 % outliers, exponential": (tenth(lambda rng, size: rng.exponential(size=size)), 1.9),
    "constant": (lambda rng, size: np.full(size, 0.1), 0.1),
}
"""What is drawn, and its mean."""

WITHOUT_SKEWNESS = ("Student's t, 3 degrees",)
"""Whose third moment is infinite."""


def before(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The studentised bootstrap alone, no farther than three times Student's t."""
    n, mean = len(values), values.mean(0)
    centred = values - mean
    error = (centred.square().sum(0) / (n - 1) / n).sqrt()
    weights = resample_weights(n, resamples=RESAMPLES)
    shift = weights @ centred
    spread = ((weights @ centred.square() - shift.square()).clamp(min=0) / (n - 1)).sqrt()
    far = 3 * float(t.ppf(0.975, n - 1))
    ratio = (shift / spread.clamp(min=1e-6 * error)).nan_to_num(0.0).clamp(-far, far)
    least, most = quantiles(ratio, 0.025, 0.975)
    return mean - most.clamp(min=0) * error, mean - least.clamp(max=0) * error


def row(name: str, n: int, repeats: int, seed: int) -> dict[str, float]:
    """The rates of one distribution and number of prompts."""
    draw, truth = CASES[name]
    parts = []
    rng = np.random.default_rng(seed)
    for _ in range(0, repeats, 500):
        values = tensor(draw(rng, (n, 500)))
        old, new = before(values), student_ends(values, resamples=RESAMPLES)
        above, below = new[0] > truth + 1e-12, new[1] < truth - 1e-12
        missed_before = (old[0] > truth + 1e-12) | (old[1] < truth - 1e-12)
        noted = (prompts_needed(values) > n) | (n < FEWEST_VALUES)
        parts.append(
            torch.stack(
                [
                    missed_before, above, below, noted, (above | below) & ~noted,
                    old[1] - old[0], new[1] - new[0],
                ]
            ).double()
        )  # fmt: skip
    found = torch.cat(parts, 1).mean(1).tolist()
    names = ("missed_before", "above", "below", "noted", "silent", "width_before", "width")
    return dict(zip(names, found, strict=True))


def skewness(name: str) -> float:
    values = CASES[name][0](np.random.default_rng(1), (BIG, 1))
    centred = values - values.mean()
    spread = float(centred.std())
    return float((centred**3).mean()) / spread**3 if spread > 1e-9 else 0.0


def table(sizes: tuple[int, ...], repeats: int, seed: int) -> Iterator[str]:
    yield "| values | skewness | n | coverage before | coverage | above | below | width | noted | silent |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name in CASES:
        own = "none" if name in WITHOUT_SKEWNESS else f"{abs(skewness(name)):.1f}"
        for n in sizes:
            found = row(name, n, repeats, seed)
            held = 1 - found["above"] - found["below"]
            moving = found["width_before"] > 1e-9
            width = found["width"] / found["width_before"] if moving else 1.0
            yield (
                f"| {name} | {own} | {n} | {1 - found['missed_before']:.3f} | {held:.3f} | "
                f"{found['above']:.3f} | {found['below']:.3f} | {width:.2f} | "
                f"{found['noted']:.2f} | {found['silent']:.3f} |"
            )


def two_classes(strength: float, n: int, repeats: int, seed: int) -> tuple[float, float, float]:
    """Coverage of a calibrated accuracy without and with the step of its means; their widths."""
    truth = float(scores(60_000, 1, 2, (strength,), np.random.default_rng(5))[0].mean())
    own = scores(n, repeats, 2, (strength,), np.random.default_rng(seed))[0].double()
    rates, widths = [], []
    for labels in (None, 2):
        low, high = score_interval(own, n_labels=labels)
        rates.append(float(((low <= truth) & (truth <= high)).double().mean()))
        widths.append(float((high - low).mean()))
    return rates[0], rates[1], widths[1] / widths[0]


def calibrated_table(repeats: int, seed: int) -> Iterator[str]:
    yield "| two classes, strength | n | coverage before | coverage | width |"
    yield "|---|---|---|---|---|"
    for strength in (0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5):
        for n in (24, 48, 96):
            old, new, width = two_classes(strength, n, repeats, seed)
            yield f"| {strength:g} | {n} | {old:.3f} | {new:.3f} | {width:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    given = parser.parse_args()
    for line in table(tuple(given.sizes), given.repeats, given.seed):
        print(line, flush=True)
    print()
    for line in calibrated_table(given.repeats, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
