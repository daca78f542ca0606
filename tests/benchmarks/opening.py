"""How long it takes until the first prediction: importing, loading, prompts, one `predict`.

    python -m tests.benchmarks.opening                  # the working tree
    python -m tests.benchmarks.opening --root OTHER     # beside it another checkout, in turn

Seconds of the processor (all threads of the process), medians over fresh processes; other work on the
machine moves them less than the time on the clock. `first ever` checks the model (`check=True`, where
the checkout has it), `opened before` finds that it passed; the GGUF file is converted before.
"""

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = ("import", "load", "prompts", "predict", "again")


def steps(check: bool) -> dict[str, float]:
    """Seconds of each step, in this process; the last is a second `predict`."""
    marks = [time.process_time()]

    def done() -> None:
        marks.append(time.process_time())

    import icl_mech as icl

    done()
    knows = "check" in inspect.signature(icl.load_model).parameters
    model = icl.load_model(**({"check": check} if knows else {}))
    done()
    prompts = icl.build_prompts(icl.load_task("reviews"), model, shots=1, n=2)
    done()
    for _ in range(2):
        icl.predict(model, prompts)
        done()
    return {
        name: after - before for name, before, after in zip(STEPS, marks, marks[1:], strict=False)
    }


def opened(root: Path, check: bool) -> dict[str, float]:
    """The steps of a fresh process that takes the package from a checkout."""
    file = ["--steps", *(["--check"] if check else [])]
    done = subprocess.run(
        [sys.executable, __file__, *file],
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True, capture_output=True, text=True, cwd=root,
    )  # fmt: skip
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.steps:
        print(json.dumps(steps(given.check)))
        return
    cases = {
        f"{name}, {how}": (root, how == "first ever")
        for name, root in (("other", given.root), ("this", ROOT))
        for how in ("first ever", "opened before")
        if root is not None
    }
    opened(ROOT, check=False)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for _ in range(given.rounds):
        for name, case in cases.items():
            found[name].append(opened(*case))
    print(f"| CPU seconds | {' | '.join(STEPS[:-1])} | first prediction | {STEPS[-1]} |")
    print("|---|" + "---:|" * (len(STEPS) + 1))
    for name, rounds in found.items():
        middle = {step: statistics.median(own[step] for own in rounds) for step in STEPS}
        first = statistics.median(sum(own[step] for step in STEPS[:-1]) for own in rounds)
        cells = [*(middle[step] for step in STEPS[:-1]), first, middle[STEPS[-1]]]
        print(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |")


if __name__ == "__main__":
    main()
