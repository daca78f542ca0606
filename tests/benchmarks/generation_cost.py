"""What reading attention adds to writing: `python -m tests.benchmarks.generation_cost`.

The same texts are written with and without it, in turn; CPU time of this process is compared, the
least of all rounds each. `generate` is not to take more than `MOST` times as long for reading.
"""

import argparse
import time
from typing import Any

import icl_mech as icl

MOST = 1.5


def seconds(model: Any, prompts: icl.PromptBatch, new: int, *, attention: bool) -> float:
    """CPU time of writing `new` tokens behind each prompt."""
    before = time.process_time()
    icl.generate(model, prompts, max_new_tokens=new, attention=attention, progress=False)
    return time.process_time() - before


def ratio(model: Any, prompts: icl.PromptBatch, new: int, rounds: int) -> tuple[float, float]:
    """CPU time without reading, and how many times as much with it."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds + 1):
        for attention, own in times.items():
            found = seconds(model, prompts, new, attention=attention)
            if number:  # the first round warms up
                own.append(found)
    return min(times[False]), min(times[True]) / min(times[False])


def main() -> None:
    """Print one line for each size of the batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--task", default="reviews")
    parser.add_argument("--new", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    model = icl.load_model(given.model)
    for n in (1, 4):
        prompts = icl.build_prompts(given.task, model, shots=1, n=n)
        plain, times = ratio(model, prompts, given.new, given.rounds)
        print(
            f"{n} prompts of {int(prompts.lengths.max())} tokens, {given.new} new ones: "
            f"{plain:.2f} s of CPU without reading, {times:.2f} times as much with (at most {MOST})"
        )


if __name__ == "__main__":
    main()
