"""Shared or drawn per prompt: how far seeds lie apart, in half widths of one seed's interval.

    python -m tests.benchmarks.demonstrations [--seeds 8] [--n 24] [--tasks reviews headlines]

For each way to draw demonstrations one line a quantity: 1.96 standard deviations over seeds, the mean
half width of a seed's own 95 % interval, their ratio, and the share of pairs of seeds of which one's
interval holds the other's value. Two independent values of one quantity with a 95 % interval of n
prompts have a ratio of 1, and .83 of such pairs.
"""

import argparse
import itertools
from collections.abc import Callable

import torch

import icl_mech as icl
from icl_mech.measurements import Flow, Predict

Values = Callable[[icl.Analysis], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""Value, low and high of some cells."""


def accuracy(found: icl.Analysis) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    value, low, high = found["predictions"].accuracy
    return torch.tensor([value]), torch.tensor([low]), torch.tensor([high])


def flow(score: int, first: bool) -> Values:
    def cells(found: icl.Analysis) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        own = found["flow"]
        third = own.values.shape[-1] // 3
        layers = slice(0, third) if first else slice(-third, None)
        return own.values[score, layers], own.low[score, layers], own.high[score, layers]

    return cells


QUANTITIES: dict[str, Values] = {
    "accuracy": accuracy,
    "S_wp fraction, first third of the layers": flow(0, True),
    "S_pq fraction, last third of the layers": flow(1, False),
}


def line(found: list[icl.Analysis], cells: Values) -> str:
    """Of one quantity over seeds."""
    value, low, high = (torch.stack(own).double() for own in zip(*map(cells, found), strict=True))
    apart = 1.96 * value.std(0, correction=1)
    half = ((high - low) / 2).mean(0)
    pairs = [
        (value[other] >= low[one]) & (value[other] <= high[one])
        for one, other in itertools.permutations(range(len(found)), 2)
    ]
    held = torch.stack(pairs).double().mean()
    return f"{apart.mean():.3f} | {half.mean():.3f} | {(apart / half).mean():.1f} | {held:.2f}"


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--shots", type=int, default=1)
    parser.add_argument("--tasks", nargs="+", default=["reviews", "headlines"])
    given = parser.parse_args()
    model = icl.load_model()
    print(
        "| task | demonstrations | quantity | 1.96 sd over seeds | half-width | ratio | contained |"
    )
    print("|---|---|---|---|---|---|---|")
    for task, drawn in itertools.product(given.tasks, ("shared", "per_prompt")):
        study = icl.sweep(
            model, task, [Predict(), Flow()], shots=given.shots, n=given.n,
            seeds=range(given.seeds), demonstrations=drawn, progress=False,
        )  # fmt: skip
        found = [analysis for _, analysis in study]
        for name, cells in QUANTITIES.items():
            print(f"| {task} | {drawn} | {name} | {line(found, cells)} |", flush=True)


if __name__ == "__main__":
    main()
