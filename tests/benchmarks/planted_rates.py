"""How often something is found in planted controls, where there is nothing.

    python -m tests.benchmarks.planted_rates [--seeds 200]

Every seed is a control model of its own (noise in all heads, no anchors) with prompts of its own.
"""

import argparse
from collections import Counter

import icl_mech as icl
from icl_mech.measurements.isolation.texts import status
from icl_mech.studies.claims.label_words import verdicts
from tests.test_planted_anchors import measures


def main() -> None:
    """Print how often each statement was made, by its status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    found: dict[str, Counter[str]] = {}
    for seed in range(seeds):
        model = icl.planted_model(anchors=False, seed=seed)
        prompts, isolated, read = measures(model, seed)
        flow = icl.flow_scores(model, prompts, progress=False)
        early, late = verdicts({"flow": flow, "isolation": isolated, "extraction": read})
        statements = {
            "isolation": status(isolated),
            "extraction": read.status,
            "verdict on early layers": early.status,
            "verdict on late layers": late.status,
        }
        for name, own in statements.items():
            found.setdefault(name, Counter())[own] += 1
    for name, counts in found.items():
        print(f"| {name} | {counts['supported']} of {seeds} | {dict(counts)} |")


if __name__ == "__main__":
    main()
