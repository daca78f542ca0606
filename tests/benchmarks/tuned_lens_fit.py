"""Held-out KL of a tuned lens on SmolLM2-135M beside the logit lens', layer by layer.

`python -m tests.benchmarks.tuned_lens_fit`: fits on training prompts of the offline tasks, prints one
row per entry, and fails if fewer than `FEWEST` layers are better than under the logit lens.
"""

import sys
import time

import icl_mech as icl
from icl_mech.measurements.lens.tuned import fit_tuned_lens

TASKS = ("reviews", "headlines", "questions")
FEWEST = 28


def prompts_of(model, n: int) -> list[tuple[int, ...]]:
    """Prompts of all tasks as sequences of tokens."""
    found = []
    for task in TASKS:
        batch = icl.build_prompts(
            icl.load_task(task), model, shots=1, n=n, split="train", demonstrations="per_prompt"
        )
        found += [prompt.tokens for prompt in batch]
    return found


def main(n: int = 16, positions: int = 8, **options) -> int:
    """Fit, print, judge."""
    model = icl.load_model()
    rows = prompts_of(model, n)
    start = time.perf_counter()
    lens = fit_tuned_lens(model, rows, positions=positions, progress=False, **options)
    print(f"{lens.summary()}; {lens.training['rows']} rows, {time.perf_counter() - start:.0f} s")
    kl = lens.sel("kl").values
    low = lens.quantities()["saved"].ends()[0]
    print("layer  tuned  logit  less, clearly")
    for layer, (tuned, logit) in enumerate(kl.T.tolist()):
        print(f"{layer:5d}  {tuned:5.2f}  {logit:5.2f}  {bool(low[layer] > 0)}")
    return 0 if lens.better >= FEWEST else 1


if __name__ == "__main__":
    sys.exit(main())
