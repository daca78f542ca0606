"""Coverage of the intervals of a mean overlap of heads for new runs, as a table in Markdown.

    python -m tests.benchmarks.stability_coverage [--draws 400]

Rankings of 60 heads (6 layers of 10), the first five with scores of 1.5 to 1 and the others of 0, with normal noise; the
truth is the mean overlap of two new runs.
"""

import argparse

import numpy as np
import torch

from icl_mech.metrics import stability

NOISE = (0.1, 0.3, 0.5, 1.0, 2.0)
RUNS = (3, 5, 10)
K = 5


def chosen(count: int, noise: float, draws: np.random.Generator) -> torch.Tensor:
    """The top heads of some runs, as one group."""
    scores = noise * draws.standard_normal((count, 60))
    scores[:, :K] += np.linspace(1.5, 1, K)
    return torch.from_numpy(scores.argsort(-1).argsort(-1) >= 60 - K).reshape(1, count, 60).double()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    options = parser.parse_args()
    print("| true overlap | " + " | ".join(f"{runs} runs" for runs in RUNS) + " |")
    print("|---|" + "---|" * len(RUNS))
    for noise in NOISE:
        draws = np.random.default_rng(0)
        many = chosen(4000, noise, draws)[0]
        shared = (many[:2000] * many[2000:]).sum(1)
        truth, cells = float((shared / (2 * K - shared)).mean()), []
        for runs in RUNS:
            inside, width = 0, 0.0
            for _ in range(options.draws):
                pairs = stability._masked(
                    stability._jaccard(chosen(runs, noise, draws)),
                    torch.ones(1, runs, dtype=torch.bool),
                )
                _, low, high = stability._interval(pairs, 0.0, 1.0)
                inside += low - 1e-9 <= truth <= high + 1e-9
                width += (high - low) / options.draws
            cells.append(f"{inside / options.draws:.3f} (width {width:.2f})")
        print(f"| {truth:.2f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
