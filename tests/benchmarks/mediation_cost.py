"""What patching one head costs, beside a single-token pass of the same prompts.

`python -m tests.benchmarks.mediation_cost [--prompts 8] [--heads 30] [--repeats 5]`: the two take turns. A
single-token pass computes the targets behind kept keys and values; a whole pass computes every token. The
whole of `head_mediation` stands below, divided by its heads.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.measurements.causal.answers import AnswerReading
from icl_mech.measurements.causal.head_maps import heads_of
from icl_mech.models import adapt

AIM = 1.5


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--heads", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    model = icl.load_model()
    info = adapt(model).info
    how = {"shots": 1, "n": options.prompts, "demonstrations": "per_prompt"}
    true, shuffled = (
        icl.build_prompts("headlines", model, labels=labels, **how)
        for labels in ("correct", "random")
    )
    kept, reading = prepare(model, shuffled), AnswerReading()
    heads = heads_of((info.n_layers, info.n_heads))
    heads = heads[:: max(1, len(heads) // options.heads)][: options.heads]
    means = torch.zeros(1, info.d_head)
    patches = [[icl.Patch("z", [head], values=means)] for head in heads]
    ways = {
        "single-token pass": lambda: run(model, kept, [reading], progress=False),
        "whole pass": lambda: run(model, shuffled, [reading], path="whole", progress=False),
        "patched heads": lambda: run_variants(model, kept, [reading], patches, progress=False),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(options.repeats + 1):
        for name, way in ways.items():
            spent = seconds(way)
            if repeat:
                times[name].append(spent / (len(patches) if name == "patched heads" else 1))
    single = statistics.median(times["single-token pass"])
    length = int(shuffled.lengths.float().mean())
    print(f"{info.name}, {options.prompts} prompts of about {length} tokens")
    for name, own in times.items():
        median = statistics.median(own)
        print(f"{name:<22} {1e3 * median:8.1f} ms   {median / single:6.2f} x a single-token pass")
    ratio = statistics.median(
        patched / plain
        for patched, plain in zip(times["patched heads"], times["single-token pass"], strict=True)
    )
    print(f"per patched head {ratio:.2f} x (aim: at most {AIM})")
    # The machine may be busier now than before: single passes on both sides.
    around = [seconds(ways["single-token pass"]) for _ in range(3)]
    whole = seconds(lambda: icl.head_mediation(model, true, shuffled, progress=False))
    around += [seconds(ways["single-token pass"]) for _ in range(3)]
    count, single = info.n_layers * info.n_heads, statistics.median(around)
    print(
        f"head_mediation: {whole:.1f} s for {count} heads, {1e3 * whole / count:.1f} ms each, "
        f"{whole / count / single:.2f} x"
    )


if __name__ == "__main__":
    main()
