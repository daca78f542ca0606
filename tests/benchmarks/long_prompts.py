"""Flow scores of long prompts that share their demonstrations: seconds and peak memory.

`python -m tests.benchmarks.long_prompts [--tokens 2048 4096] [--queries 4]` runs each length in
processes of its own: `shared` runs the common beginning once, `whole` every prompt from its first
token. Seconds are per prompt, memory is above the loaded model; `--memory 4GB` sets the budget.
"""

import argparse
import subprocess
import sys
import time

import torch

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.measurements.saliency.flow import FlowReading
from tests.benchmarks.memory import long_prompt, peak

QUERY = 40
"""Tokens of a query."""


def prompts_of(vocabulary: int, length: int, queries: int) -> icl.PromptBatch:
    """Prompts that differ in their last tokens only."""
    (first,) = long_prompt(vocabulary, length)
    generator = torch.Generator().manual_seed(1)
    own = torch.randint(100, vocabulary, (queries, QUERY), generator=generator).tolist()
    beginning = list(first.tokens[:-QUERY])
    return icl.PromptBatch(
        tuple(
            icl.Prompt.from_positions(
                [*beginning, *query],
                label_positions=list(first.label_positions),
                label_classes=first.label_classes,
                label_tokens=[10, 11],
                answer=number % 2,
            )
            for number, query in enumerate(own)
        )
    )


def side(path: str, length: int, queries: int, memory: str | None) -> None:
    """Print seconds per prompt and peak bytes of one way."""
    model = icl.load_model()
    run(model, prompts_of(model.cfg.d_vocab, 64, 2), [FlowReading()], progress=False)
    prompts = prompts_of(model.cfg.d_vocab, length, queries)
    before, start = peak(), time.perf_counter()
    (sums,) = run(model, prompts, [FlowReading()], path=path, memory=memory, progress=False)
    seconds = time.perf_counter() - start
    print(seconds / queries, peak() - before, float(sums.double().sum()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--queries", type=int, default=4)
    parser.add_argument("--memory")
    parser.add_argument("--sides", nargs="+", default=["auto", "whole"])
    parser.add_argument("--side")
    options = parser.parse_args()
    if options.side:
        side(options.side, options.tokens[0], options.queries, options.memory)
        return
    print("| tokens | queries | way | seconds a prompt | peak memory (GB) | sum of scores |")
    print("|---|---|---|---|---|---|")
    for length in options.tokens:
        for path in options.sides:
            command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.long_prompts"]
            command += ["--side", path, "--tokens", str(length), "--queries", str(options.queries)]
            command += ["--memory", options.memory] if options.memory else []
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            seconds, size, total = map(float, printed.split()[-3:])
            way = "shared" if path == "auto" else path
            print(
                f"| {length} | {options.queries} | {way} | {seconds:.1f} | {size / 1e9:.2f} "
                f"| {total:.6g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
