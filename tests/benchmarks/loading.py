"""How long 100,000 rows take to become a task, and prompts.

    python -m tests.benchmarks.loading                  # the working tree
    python -m tests.benchmarks.loading --root OTHER     # beside it another checkout, in turn, and the ratio

Seconds of the processor, medians over fresh processes. Beside each time stands a digest of the examples in
their order: it must be the same for both, since a seed gives the same parts whatever the speed.
"""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
N = 100_000
PATTERN = "Review: {text}\nSentiment: {label}"
PAIR = "{text}\nSo: {text2}? {label}"


def made(folder: Path) -> Iterator[tuple[str, object, dict[str, Any]]]:
    """Name, data and options of each case."""
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    words = np.array([f"w{n}" for n in range(5000)] + ["café", "naïve"])
    texts = [" ".join(row) for row in words[generator.integers(0, len(words), (N, 8))]]
    frame = pd.DataFrame({"text": texts, "label": ["good", "bad"] * (N // 2)})
    file = folder / "rows.csv"
    frame.to_csv(file, index=False)
    two = {"template": PATTERN, "labels": ("good", "bad")}
    yield "CSV", file, two
    yield "frame", frame, two
    many = [f"class {n}" for n in range(150)]
    yield "frame, 150 classes", frame.assign(label=np.arange(N) % 150), {**two, "labels": many}
    yield "frame, pairs", frame.assign(text2=texts[::-1]), {**two, "template": PAIR}
    answers = [[f"answer {n}", "other"] for n in range(N)]
    open_ones = {"template": PATTERN, "answers": "answer"}
    yield "frame, open answers", frame.assign(answer=answers), open_ones


def seconds() -> dict[str, tuple[float, float, str]]:
    """Of each case loading, building 200 prompts, and a digest of the examples, in this process."""
    import icl_mech as icl
    from tests.tiny import tiny_tokenizer

    tokenizer, found = tiny_tokenizer("bpe"), {}
    with tempfile.TemporaryDirectory() as folder:
        for name, data, options in made(Path(folder)):
            started = time.process_time()
            task = icl.load_task(data, **options)
            loaded = time.process_time()
            if len(task.labels) == 2:
                icl.build_prompts(task, tokenizer, n=200, total=2)
            built = time.process_time()
            digest = hashlib.sha256(repr((task.train, task.test)).encode()).hexdigest()[:8]
            found[name] = (loaded - started, built - loaded, digest)
    return found


def of(root: Path) -> dict[str, tuple[float, float, str]]:
    """The same of a fresh process that takes the package from a checkout."""
    done = subprocess.run(
        [sys.executable, __file__, "--here"],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{ROOT}"},
        check=True, capture_output=True, text=True, cwd=root,
    )  # fmt: skip
    found: dict[str, tuple[float, float, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print a row for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        warnings.simplefilter("ignore")
        print(json.dumps(seconds()))
        return
    roots = [ROOT, *filter(None, [options.root])]
    runs: list[list[dict[str, tuple[float, float, str]]]] = [[] for _ in roots]
    for _ in range(options.repeats):
        for root, own in zip(roots, runs, strict=True):
            own.append(of(root))
    for name in runs[0][0]:
        for part, what in enumerate(("load", "200 prompts")):
            times = [statistics.median(run[name][part] for run in own) for own in runs]
            ratio = f"  {times[1] / times[0]:5.1f} ×" if options.root and times[0] else ""
            shown = "".join(f"{time:8.2f} s" for time in times)
            digests = {own[0][name][2] for own in runs}
            print(f"{name:22}{what:12}{shown}{ratio}  {' '.join(sorted(digests))}")


if __name__ == "__main__":
    main()
