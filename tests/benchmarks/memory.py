"""Peak memory of flow scores of one long prompt, above the loaded model.

`python -m tests.benchmarks.memory [--tokens 2048] [--sides default retained]` runs each side in
a process of its own and prints the ratios; with `--side` it is that process. `--prompts 200
1000` measures the flow of so many short prompts instead: memory must not grow with them.
"""

import argparse
import resource
import subprocess
import sys

import torch

import icl_mech as icl
from icl_mech.engine import run
from icl_mech.measurements.saliency.flow import FlowReading
from tests.benchmarks import baselines

SIDES = ("default", "unlimited", "recomputed", "retained")
MEMORY = {"default": None, "unlimited": "1TB", "recomputed": 1}


def long_prompt(vocabulary: int, length: int) -> icl.PromptBatch:
    """One prompt of random tokens with eight label words."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(100, vocabulary, (length,), generator=generator).tolist()
    positions = [length * (i + 1) // 9 for i in range(8)]
    return icl.PromptBatch(
        (
            icl.Prompt.from_positions(
                tokens,
                label_positions=positions,
                label_classes=[i % 2 for i in range(8)],
                label_tokens=[10, 11],
                answer=0,
            ),
        )
    )


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def side(name: str, length: int) -> None:
    """Peak bytes above those of the loaded, warmed-up model."""
    model = icl.load_model()
    run(model, long_prompt(model.cfg.d_vocab, 64), [FlowReading()], progress=False)
    before = peak()
    prompts = long_prompt(model.cfg.d_vocab, length)
    if name == "retained":
        baselines.retained_flow(model, prompts, 1)
    else:
        run(model, prompts, [FlowReading()], memory=MEMORY[name], progress=False)
    print(peak() - before)


def many(count: int) -> None:
    """Peak bytes of the flow of so many prompts, above the loaded, warmed-up model."""
    model = icl.load_model()
    task = icl.load_task("unnatural")
    prompts = icl.build_prompts(task, model, shots=1, n=99, seed=0)
    longest_first = sorted(range(len(prompts)), key=lambda i: -len(prompts[i]))
    run(model, prompts[longest_first[:2]], [FlowReading()], progress=False)
    before = peak()
    repeated = prompts[[i % len(prompts) for i in range(count)]]
    run(model, repeated, [FlowReading()], progress=False)
    print(peak() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--sides", choices=SIDES, nargs="+", default=SIDES)
    parser.add_argument("--prompts", type=int, nargs="+")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--many", type=int)
    options = parser.parse_args()
    if options.side:
        side(options.side, options.tokens)
    elif options.many:
        many(options.many)
    elif options.prompts:
        for count in options.prompts:
            print(f"{count:<6} prompts {measured('--many', count) / 1e9:6.3f} GB", flush=True)
    else:
        sizes = {}
        for name in options.sides:
            sizes[name] = measured("--side", name, "--tokens", options.tokens)
            print(f"{name:<12} {sizes[name] / 1e9:6.2f} GB", flush=True)
        for name in sizes.keys() - {"retained"} if "retained" in sizes else ():
            print(f"{name} / retained: {sizes[name] / sizes['retained']:.3f}")


def measured(*options: object) -> int:
    """What a process of this script with these options prints."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.memory"]
    command += [str(option) for option in options]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(printed.split()[-1])


if __name__ == "__main__":
    main()
