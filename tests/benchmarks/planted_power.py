"""How often each claim is supported where it is planted.

    python -m tests.benchmarks.planted_power FOLDER [--seeds 10] [--prompts 24 48] [--studies label_words]

Prompts differ from seed to seed, and the model of the anchor circuit too. A study's statuses are kept in
FOLDER; the same command goes on where it was stopped, and prints the table of what is there.
"""

import argparse
import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.studies import CAUSAL, LABEL_WORDS, OVERTHINKING
from tests import planted

STUDIES = {study.name: study for study in (LABEL_WORDS, OVERTHINKING, CAUSAL)}


def statuses(study: Any, n: int, seed: int) -> dict[str, str]:
    """What the verdicts of one study of a planted model say, by claim."""
    options: dict[str, Any] = {"n": n, "seed": seed, "shots": 1}
    prompts: Any
    if study == "label_words":
        model = icl.planted_model(seed=seed)
        prompts = icl.build_prompts(icl.planted_task(), model, **options)
        more: dict[str, Any] = {}
    else:
        model = planted.planted_model()
        options["demonstrations"] = "per_prompt"
        task = planted.planted_task()
        prompts = icl.build_prompt_pairs(task, model, **options)
        of_heads = icl.build_prompt_pairs(task, model, **options | {"seed": seed + 1000})[1]
        more = {"heads_from": of_heads} if study == "overthinking" else {}
    report = icl.analyze(model, prompts, study=study, seed=seed, progress=False, **more)
    found = STUDIES[study].verdicts(report)
    return {own.claim.split(":")[0]: own.status for own in found}


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--prompts", type=int, nargs="+", default=[24, 48])
    parser.add_argument("--studies", nargs="+", default=list(STUDIES))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| study | claim | n | supported | other |\n|---|---|---|---|---|")
    for study in given.studies:
        for n in given.prompts:
            counts: dict[str, Counter[str]] = {}
            for seed in range(given.seeds):
                place = given.folder / f"{study}-{n}-{seed}.json"
                if not place.is_file():
                    place.write_text(json.dumps(statuses(study, n, seed)), encoding="utf-8")
                for claim, status in json.loads(place.read_text(encoding="utf-8")).items():
                    counts.setdefault(claim, Counter())[status] += 1
            for claim, own in counts.items():
                other = ", ".join(
                    f"{status} {k}" for status, k in own.items() if status != "supported"
                )
                print(f"| {study} | {claim} | {n} | {own['supported']} | {other} |", flush=True)


if __name__ == "__main__":
    main()
