"""Threads on one model: wrong numbers, raw errors and refusals of many calls at once.

    python -m tests.benchmarks.threads --threads 8 --calls 500

Every thread makes the calls in its own order, plain and under interventions, forward and backward;
each answer is compared with that of the call made alone.
"""

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.models import waiting
from tests.tiny import tiny_model


def calls_of(model: Any) -> dict[str, Callable[[], torch.Tensor]]:
    """Calls by name, each giving a tensor."""
    prompts = icl.build_prompts("reviews", model, shots=1, n=3)
    texts = {"progress": False}
    cut = [icl.Isolate([0, 1])]
    return {
        "predict": lambda: icl.predict(model, prompts, **texts).label_logits,
        "predict, isolated": lambda: (
            icl.predict(model, prompts, interventions=cut, **texts).label_logits
        ),
        "flow": lambda: icl.flow_scores(model, prompts, **texts).per_prompt,
        "extraction": lambda: icl.extraction(model, prompts, **texts).attention,
        "lens": lambda: icl.logit_lens(model, prompts, **texts).label_logits,
    }


def table(model: Any, threads: int, calls: int, seconds: float | None) -> Counter[str]:
    """Outcomes of all calls of all threads."""
    made = calls_of(model)
    alone = {name: call() for name, call in made.items()}
    counts: Counter[str] = Counter()
    names = list(made)

    def work(number: int) -> None:
        with waiting(seconds):
            for turn in range(calls):
                name = names[(number + turn) % len(names)]
                try:
                    same = torch.equal(made[name](), alone[name])
                    counts["right" if same else "wrong"] += 1
                except IclMechError:
                    counts["refused"] += 1
                except Exception as error:  # noqa: BLE001 - counted
                    counts[f"raw {type(error).__name__}"] += 1

    own = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in own:
        thread.start()
    for thread in own:
        thread.join()
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--families", nargs="+", default=["llama"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    for family in given.families:
        for told, seconds in {"waiting": None, "refused at once": 0.0}.items():
            start = time.monotonic()
            counts = table(tiny_model(family), given.threads, given.calls, seconds)
            print(
                f"{family}, {given.threads} threads x {given.calls} calls, {told}: {dict(counts)} "
                f"({time.monotonic() - start:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
