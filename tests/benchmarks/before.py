"""Is this checkout slower than another one? `python -m tests.benchmarks.before OTHER_CHECKOUT`.

Both checkouts are loaded in a process of their own and take turns at the same public calls on the
offline model, so that a ratio compares two neighbouring moments of the machine.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CALLS = {
    "flow": lambda icl, model, prompts: icl.flow_scores(model, prompts, progress=False),
    "isolation": lambda icl, model, prompts: icl.isolation(
        model, prompts, depths=(1, 3), draws=2, progress=False
    ),
    "analyze": lambda icl, model, prompts: icl.analyze(model, prompts, maps=0, progress=False),
    "lens": lambda icl, model, prompts: icl.logit_lens(model, prompts, progress=False),
}


def serve(count: int) -> None:
    """Answer each name on standard input with the seconds its call takes."""
    import torch

    import icl_mech as icl

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    model = icl.load_model()
    prompts = icl.build_prompts("headlines", model, n=count)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        CALLS[line.strip()](icl, model, prompts)
        print(time.perf_counter() - start, flush=True)


def started(checkout: Path, count: int) -> "subprocess.Popen[str]":
    """A process that serves one checkout; this file alone is the same for both."""
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).resolve()), "--serve", "--prompts", str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout), "HF_HUB_OFFLINE": "1"},
        cwd=checkout,
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "ready":
        if process.poll() is not None:
            raise SystemExit(f"{checkout} does not run")
    return process


def timed(process: "subprocess.Popen[str]", call: str) -> float:
    """Seconds of one call in one checkout."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(call + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(CALLS), choices=list(CALLS))
    options = parser.parse_args()
    if options.serve:
        serve(options.prompts)
        return
    here = Path(__file__).parents[2]
    processes = [started(checkout, options.prompts) for checkout in (here, options.other)]
    for call in options.only:
        pairs = []
        for turn in range(options.repeats + 1):
            # The order changes, so that neither always runs on the warmer machine.
            order = (0, 1) if turn % 2 else (1, 0)
            seconds = {number: timed(processes[number], call) for number in order}
            if turn:
                pairs.append((seconds[0], seconds[1]))
        ratios = sorted(mine / theirs for mine, theirs in pairs)
        print(
            f"{call}: this / other {statistics.median(ratios):.3f} "
            f"[{ratios[0]:.3f}, {ratios[-1]:.3f}], this {min(p[0] for p in pairs):.2f} s"
        )
    for process in processes:
        process.kill()


if __name__ == "__main__":
    main()
