"""Peak memory of flow scores of one long prompt, above the loaded model.

`python -m tests.benchmarks.memory [--tokens 2048]` runs each side in a process of its own and
prints the ratio; with `--side` it is that process.
"""

import argparse
import resource
import subprocess
import sys

import torch

import icl_mech as icl
from icl_mech.analyses.flow import FlowReading
from icl_mech.engine import run
from tests.benchmarks import baselines

SIDES = ("ours", "recomputed", "retained")


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
        memory = 1 if name == "recomputed" else "1TB"
        run(model, prompts, [FlowReading()], memory=memory, progress=False)
    print(peak() - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--side", choices=SIDES)
    options = parser.parse_args()
    if options.side:
        side(options.side, options.tokens)
        return
    sizes = {}
    for name in SIDES:
        command = [sys.executable, "-W", "ignore", "-m", "tests.benchmarks.memory"]
        command += ["--side", name, "--tokens", str(options.tokens)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        sizes[name] = int(printed.split()[-1])
        print(f"{name:<12} {sizes[name] / 1e9:6.2f} GB", flush=True)
    for name in ("ours", "recomputed"):
        print(f"{name} / retained: {sizes[name] / sizes['retained']:.3f}")


if __name__ == "__main__":
    main()
