"""How much of the answer goes through label words in real models: writes docs/benchmarks/real_models.md.

    python -m tests.benchmarks.real_amounts FOLDER --models smollm2-135m [--tasks questions] [--seeds 5] [--n 128]
    python -m tests.benchmarks.real_amounts FOLDER --write

Every cell (model, task, seed) is kept in FOLDER; the same command goes on where it was stopped. All prompts of a seed
share one set of demonstrations, one of each class, four of open answers.
"""

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

import icl_mech as icl
from icl_mech.measurements import EdgeCuts, Gain

MODELS = ("smollm2-135m", "gemma-3-270m")
TASKS = (
    *("questions", "headlines", "reviews", "unnatural"),
    *("antonyms", "plurals", "past_tense", "capitals", "english_french"),
)
WINDOWS = ("all", "early", "middle", "late")


def cell(folder: Path, name: str, task: str, seed: int) -> Path:
    """Where it is kept."""
    return folder / name / f"{task}-{seed}"


def measure(folder: Path, name: str, tasks: Sequence[str], seeds: int, n: int) -> None:
    """Everything of one model that is not there yet, all tasks of one seed after the other."""
    model = icl.load_model(name)
    for seed in range(seeds):
        for task in tasks:
            place = cell(folder, name, task, seed)
            if (place / "analysis.json").is_file():
                continue
            shots = 1 if task in TASKS[:4] else 4
            prompts = icl.build_prompts(
                task, model, shots=shots, n=n, seed=seed, demonstrations="shared"
            )
            cuts = EdgeCuts(edges="anchors", rows="target", draws=2, seed=seed)
            icl.measure(model, prompts, Gain(seed=seed), cuts, progress=False).save(place)
            print(name, task, seed, flush=True)


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", nargs="*", default=[], choices=MODELS)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=128)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in given.models:
        measure(given.folder, name, given.tasks, given.seeds, given.n)


if __name__ == "__main__":
    main()
