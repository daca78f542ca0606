"""Coverage of every kind of 95 % interval the package reports, by simulation.

    python -m tests.benchmarks.coverage [--repeats 2000] [--seed 0]

Prints a table in Markdown: the share of simulated prompt sets whose interval holds the true
value, for 24, 48 and 96 prompts, and how often verdicts are positive where there is nothing.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import norm

from icl_mech.metrics import (
    above_together,
    bootstrap_interval,
    calibrated_scores,
    early_exit_layer,
    ends_together,
    macro_auc,
    mean_ends,
    nested_interval,
    one_more,
    over_units,
)
from icl_mech.metrics.auc import auc_ends, class_resamples, resampled_auc
from icl_mech.metrics.calibration import score_interval
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.metrics.layers import stratified_halves

SIZES = (24, 48, 96)
BIG = 60_000
"""Prompts that stand for all there are, where the true value has no formula."""

RESAMPLES = 2000

Ends = tuple[torch.Tensor, torch.Tensor]
Simulated = Callable[[int, int, np.random.Generator], float]
"""The rate for n prompts and so many repeats."""


@dataclass(frozen=True)
class Row:
    """One line of the table: what was simulated, and its rate."""

    kind: str
    case: str
    rate: Simulated
    null: bool = False


def covered(ends: Ends, truth: float) -> float:
    low, high = ends
    return float(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).double().mean())


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, dtype=float))


def proportion(p: float) -> Simulated:
    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        return covered(mean_ends(tensor(rng.random((n, repeats)) < p), "outcome"), p)

    return rate


def changes(gained: float, lost: float) -> Simulated:
    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        drawn = rng.choice([1.0, -1.0, 0.0], (n, repeats), p=[gained, lost, 1 - gained - lost])
        return covered(mean_ends(tensor(drawn), "change"), gained - lost)

    return rate


def draws_mean(p: float, draws: int = 5) -> Simulated:
    """Prompts that keep their answer with a probability of their own, averaged over draws."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        own = rng.beta(2 * p, 2 * (1 - p), (n, repeats))
        return covered(mean_ends(tensor(rng.binomial(draws, own) / draws), "outcome"), p)

    return rate


def draws_difference(p: float, q: float, draws: int = 5) -> Simulated:
    """Label words (one run) minus random tokens (mean over draws)."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        own = rng.beta(2 * q, 2 * (1 - q), (n, repeats))
        found = (rng.random((n, repeats)) < p) - rng.binomial(draws, own) / draws
        return covered(mean_ends(tensor(found), "change"), p - q)

    return rate


def skewed(sigma: float) -> Simulated:
    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        found = mean_ends(tensor(rng.lognormal(0, sigma, (n, repeats))), "value")
        return covered(found, float(np.exp(sigma**2 / 2)))

    return rate


def share(sigma: float) -> Simulated:
    """The share of one of three kinds, all skewed and with a common factor of the prompt."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        common = rng.lognormal(0, 0.5, (n, 1, repeats))
        kinds = tensor(rng.lognormal(0, sigma, (n, 3, repeats)) * common)
        kinds = kinds * torch.tensor([1.0, 2, 4])[None, :, None]
        parts = [
            bootstrap_interval(part, lambda m: m[:, 0] / m.sum(1), resamples=RESAMPLES)
            for part in kinds.split(100, dim=-1)
        ]
        low, high = (torch.cat(ends) for ends in zip(*parts, strict=True))
        return covered((low, high), 1 / 7)

    return rate


def label_probs(
    n: int, repeats: int, classes: int, strengths: tuple[float, ...], rng: np.random.Generator
) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Label probabilities of the same balanced prompts under several conditions.

    The model prefers some labels, and the conditions share half of their noise.
    """
    truth = np.resize(np.arange(classes), n)
    right = np.eye(classes)[truth][:, None]
    shared = rng.normal(size=(n, repeats, classes))
    found = []
    for strength in strengths:
        noise = (shared + rng.normal(size=shared.shape)) / 2**0.5
        logits = tensor(noise + strength * right + np.linspace(0, 2, classes))
        found.append(logits.softmax(-1))
    return found, torch.from_numpy(truth)


def scores(
    n: int, repeats: int, classes: int, strengths: tuple[float, ...], rng: np.random.Generator
) -> list[torch.Tensor]:
    """Calibrated scores with thresholds from the same prompts, one per condition."""
    probs, truth = label_probs(n, repeats, classes, strengths, rng)
    return [calibrated_scores(own, truth[:, None].expand(-1, repeats)) for own in probs]


def calibrated(classes: int, *strengths: float) -> Simulated:
    """Accuracy of one condition, or the first minus the second."""
    kind = "outcome" if len(strengths) == 1 else "change"

    def one(n: int, repeats: int, rng: np.random.Generator) -> torch.Tensor:
        found = scores(n, repeats, classes, strengths, rng)
        return found[0] - found[1] if len(found) > 1 else found[0]

    truth = float(one(BIG, 1, np.random.default_rng(12345)).mean())
    if len(set(strengths)) == 1 and len(strengths) > 1:
        truth = 0.0

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        found = one(n, repeats, rng)
        if kind == "outcome":
            return covered(score_interval(found, n_labels=classes), truth)
        return covered(mean_ends(found, "change"), truth)

    return rate


def auc(true: float, first: float = 0.5) -> Simulated:
    """Two classes, the first with this share of the prompts."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        truth = torch.arange(n) >= n * first
        logits = tensor(rng.normal(size=(n, repeats))) + truth[:, None] * 2**0.5 * norm.ppf(true)
        both = torch.stack([-logits, logits], dim=-1)
        weights, _ = class_resamples(truth.long(), resamples=RESAMPLES)
        assert weights is not None
        drawn = resampled_auc(both, truth.long(), weights)
        return covered(auc_ends(macro_auc(both, truth.long()), drawn, n), true)

    return rate


def nested(seeds: int, between: float, tasks: int = 0) -> Simulated:
    """Normal prompts (sd 1) in seeds (sd `between`), in tasks (the same) if there are any."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        def one_task() -> list[torch.Tensor]:
            middle = rng.normal(0, between, repeats) if tasks else np.zeros(repeats)
            return [
                tensor(middle + rng.normal(0, between, repeats) + rng.normal(size=(n, repeats)))
                for _ in range(seeds)
            ]

        found = nested_interval([one_task() for _ in range(tasks)] if tasks else one_task())
        return covered((found.low, found.high), 0.0)

    return rate


def nested_outcomes(seeds: int) -> Simulated:
    """Outcomes whose probability depends on the seed: mean .8, sd .12."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        own = rng.beta(8, 2, (seeds, repeats))
        values = [tensor(rng.random((n, repeats)) < p) for p in own]
        found = nested_interval(values, kind="outcome")
        return covered((found.low, found.high), 0.8)

    return rate


def of_results(seeds: int, between: float) -> Simulated:
    """Seeds known by their means and intervals alone, as a sweep has them."""

    def rate(n: int, repeats: int, rng: np.random.Generator) -> float:
        own = [
            tensor(rng.normal(0, between, repeats) + rng.normal(size=(n, repeats)))
            for _ in range(seeds)
        ]
        ends = [mean_ends(values) for values in own]
        low, high = (torch.stack(side) for side in zip(*ends, strict=True))
        found = over_units(torch.stack([values.mean(0) for values in own]), low, high)
        return covered((found.low, found.high), 0.0)

    return rate


def critical(n: int, repeats: int, rng: np.random.Generator) -> float:
    """A critical layer is given although false demonstrations do as well as true ones."""
    true, false = scores(n, repeats, 4, (1.0, 1.0), rng)
    return float((mean_ends(true - false, "change")[0] > 0).double().mean())


def leaving(n: int, repeats: int, rng: np.random.Generator, entries: int = 13) -> float:
    """Leaving early is said to help although all layers are alike."""
    probs, truth = label_probs(n, repeats, 4, (0.7,) * entries, rng)
    stacked = torch.stack(probs, dim=2)
    choosing, testing = stratified_halves(truth)
    found = 0
    for repeat in range(repeats):
        halves = []
        for part in (choosing, testing):
            classes = truth[part][:, None].expand(-1, entries)
            halves.append(calibrated_scores(stacked[part, repeat], classes))
        layer = early_exit_layer(halves[0].mean(0)[None])
        found += bool(mean_ends(halves[1][:, layer] - halves[1][:, -1], "change")[0] > 0)
    return found / repeats


def heads_of(n: int, rng: np.random.Generator, heads: int = 144) -> torch.Tensor:
    """Skewed scores of heads, mean 0, correlated over heads."""
    noise = rng.normal(size=(n, 1)) + rng.normal(size=(n, heads))
    return tensor(np.exp(0.5 * noise) - np.exp(0.25))


def confirmed(n: int, repeats: int, rng: np.random.Generator, chosen: int = 5) -> float:
    """A chosen head is confirmed on the other half, although none promotes the false label."""
    found = 0
    for _ in range(repeats):
        matching = heads_of(n, rng)
        testing = matching[n // 2 :] * 0.5 + heads_of(n - n // 2, rng)
        best = matching[: n // 2].mean(0).topk(chosen).indices
        found += bool((ends_together(testing[:, best], resamples=500)[0] > 0).any())
    return found / repeats


def together(n: int, repeats: int, rng: np.random.Generator) -> float:
    """Any of 144 heads is clear of its control although none is above it."""
    drawn = (
        above_together(heads_of(n, rng), resamples=500, level=ONE_SIDED) for _ in range(repeats)
    )
    return float(np.mean([bool(own.any()) for own in drawn]))


def random_null(n: int, repeats: int, rng: np.random.Generator, draws: int = 20) -> float:
    """Chosen heads are said to do more than random ones, although they are one more draw."""
    strength = rng.normal(0.6, 0.15, (1, draws + 1, repeats)).clip(0, 1)
    right = tensor(rng.random((n, draws + 1, repeats)) < strength)
    chosen, others = right[:, 0], right[:, 1:]
    low, _ = mean_ends(chosen - others.mean(1), "change")
    value = (chosen - others.mean(1)).mean(0)
    half = torch.tensor([one_more(own) for own in others.mean(0).unbind(-1)])
    return float(((low > 0) & (value - half > 0)).double().mean())


def rows() -> Iterator[Row]:
    for p in (0.5, 0.8, 0.95):
        yield Row("proportion (Wilson)", f"true fraction {p}", proportion(p))
    for gained, lost in ((0.02, 0.0), (0.01, 0.01), (0.1, 0.1), (0.3, 0.1)):
        case = f"{gained:.0%} gained, {lost:.0%} lost"
        yield Row("paired difference of outcomes (Tango)", case, changes(gained, lost))
    for p in (0.6, 0.9, 0.97):
        yield Row("loyalty, mean of 5 draws", f"true mean {p}", draws_mean(p))
    yield Row("loyalty, label minus random", "0.8 and 0.6", draws_difference(0.8, 0.6))
    for sigma in (0.3, 0.5, 1.0):
        yield Row("mean of skewed values", f"log-normal, sigma {sigma}", skewed(sigma))
    for sigma in (0.3, 0.5, 1.0):
        yield Row("fraction, as normalised flow", f"log-normal, sigma {sigma}", share(sigma))
    for classes, strength, word in ((2, 0.0, "chance"), (4, 0.0, "chance"), (2, 1.0, "middle"),
                                    (4, 1.5, "middle"), (2, 2.5, "near 1"), (4, 3.5, "near 1")):  # fmt: skip
        yield Row(
            "calibrated accuracy", f"{classes} classes, {word}", calibrated(classes, strength)
        )
    for classes, true, false in ((2, 0.0, 0.0), (4, 1.0, 1.0), (4, 1.5, 0.5), (2, 3.0, 0.0), (4, 4.0, 2.0)):  # fmt: skip
        case = f"{classes} classes, strengths {true:g} and {false:g}"
        yield Row("accuracy gap, early exit", case, calibrated(classes, true, false))
    for true, first in ((0.5, 0.5), (0.8, 0.5), (0.8, 0.25), (0.97, 0.5)):
        yield Row("AUC", f"{true}, first class {first:.0%}", auc(true, first))
    for seeds, between in ((3, 0.3), (5, 0.0), (5, 0.1), (5, 0.3), (10, 0.3)):
        yield Row(
            "hierarchical, seeds and prompts",
            f"{seeds} seeds, sd {between}",
            nested(seeds, between),
        )
    for seeds, between in ((3, 0.3), (5, 0.0), (5, 0.1), (5, 0.3)):
        case = f"{seeds} seeds, sd {between}"
        yield Row("hierarchical, from intervals of seeds", case, of_results(seeds, between))
    yield Row("hierarchical, outcomes", "5 seeds", nested_outcomes(5))
    yield Row("hierarchical, tasks, seeds, prompts", "4 tasks, 3 seeds, sd 0.3", nested(3, 0.3, 4))
    yield Row("critical layer", "no gap", critical, null=True)
    yield Row("early exit", "13 equal entries", leaving, null=True)
    yield Row("heads confirmed", "5 chosen of 144, other half", confirmed, null=True)
    yield Row("heads clear of their control", "any of 144", together, null=True)
    yield Row("chosen beyond random heads", "one more draw of 20", random_null, null=True)


def table(repeats: int, seed: int = 0) -> Iterator[str]:
    head = " | ".join(f"n = {n}" for n in SIZES)
    yield f"| interval | case | {head} |"
    yield "|---|---|" + "---|" * len(SIZES)
    null = False
    for row in rows():
        if row.null and not null:
            null = True
            yield ""
            yield f"| positive finding | under the null | {head} |"
            yield "|---|---|" + "---|" * len(SIZES)
        rng = np.random.default_rng(seed)
        found = " | ".join(f"{row.rate(n, repeats, rng):.3f}" for n in SIZES)
        yield f"| {row.kind} | {row.case} | {found} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in table(given.repeats, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
