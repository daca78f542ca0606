"""Coverage of means over seeds that draw their queries from one pool, by simulation.

    python -m tests.benchmarks.pool_coverage [--repeats 2000] [--seed 0]

Prints a table in Markdown: how often intervals hold the true value where seeds are taken to share no queries, and
where it is known which share of the pool each of them draws, with the mean half-width of both. The pool itself is
drawn anew in each repeat: a statement about the task is one about queries like these.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch

from icl_mech.metrics import mean_ends, over_units
from icl_mech.metrics.means import Kind
from tests.benchmarks.coverage import covered, tensor

POOL = 140
SIZES = (24, 48, 100, 128, 140)


def drawn(
    case: str, n: int, seeds: int, repeats: int, rng: np.random.Generator
) -> tuple[list[torch.Tensor], float, Kind]:
    """Values of each seed `[prompt, repeat]`, the true mean, and their kind."""
    own = rng.random((POOL, repeats))
    found = []
    for _ in range(seeds):
        queries = np.argsort(rng.random((POOL, repeats)), axis=0)[:n]
        level = np.take_along_axis(own, queries, axis=0)
        if case == "demonstrations count":  # 0.7 on average, sd 0.07 over seeds
            level = level + rng.uniform(-0.12, 0.12, repeats)
            found.append(tensor(level < 0.7))
        elif case == "paired differences":  # 20 % gained, 10 % lost
            found.append(tensor((level < 0.2) * 1.0 - (level > 0.9)))
        elif case == "half by chance":
            found.append(tensor(0.5 * level + 0.5 * rng.random(level.shape)))
        else:
            found.append(tensor(level < 0.7))
    truth = {"paired differences": 0.1, "half by chance": 0.5}.get(case, 0.7)
    kind: Kind = {"paired differences": "change", "half by chance": "value"}.get(case, "outcome")
    return found, truth, kind


def rates(
    case: str, n: int, seeds: int, repeats: int, rng: np.random.Generator
) -> Iterator[tuple[float, float]]:
    """Share held and mean half-width, without and with the pool."""
    values, truth, kind = drawn(case, n, seeds, repeats, rng)
    low, high = (
        torch.stack(side) for side in zip(*(mean_ends(own, kind) for own in values), strict=True)
    )
    means = torch.stack([own.mean(0) for own in values])
    for share in (0.0, n / POOL):
        found = over_units(means, low, high, drawn=share)
        yield covered((found.low, found.high), truth), float((found.high - found.low).mean() / 2)


def table(repeats: int, seed: int) -> Iterator[str]:
    yield f"| answers | seeds | {' | '.join(f'n = {n}' for n in SIZES)} |"
    yield "|---|---|" + "---|" * len(SIZES)
    cases = ("the query alone", "demonstrations count", "half by chance", "paired differences")
    for case in cases:
        for seeds in (2, 5, 10):
            rng = np.random.default_rng(seed)
            cells = []
            for n in SIZES:
                (before, narrow), (after, wide) = rates(case, n, seeds, repeats, rng)
                cells.append(f"{before:.2f} → {after:.2f}, {wide / narrow:.1f}")
            yield f"| {case} | {seeds} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in table(given.repeats, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
