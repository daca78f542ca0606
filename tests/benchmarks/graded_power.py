"""How often the two main claims are supported, by the strength of a planted circuit and prompts.

    python -m tests.benchmarks.graded_power FOLDER [--seeds 10] [--prompts 12 24 48] [--write]

Each cell is a planted model and prompts of its own, kept in FOLDER; the same command goes on where it was
stopped, and prints the table of what is there. `--write` also writes it to `icl_mech/studies/power.json`
and, for the docs, to `docs/power_table.md`.
Strength 0 is the rate of false positives.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import Extraction, Isolation
from icl_mech.measurements.isolation.texts import compared
from icl_mech.metrics import wilson_interval
from icl_mech.studies.claims import label_words

STRENGTHS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
CLAIMS = {"Shallow aggregation": "isolation", "Deep extraction": "attention"}
"""Claims, and the measure whose size is told."""


def cell(strength: float, n: int, seed: int) -> dict[str, Any]:
    """Statuses of the claims, and sizes of the effects they rest on."""
    model = icl.planted_model(strength=strength, seed=seed)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
    )
    report = icl.analyze(
        model,
        prompts,
        maps=0,
        nulls=3,
        progress=False,
        measurements=[Isolation(seed=seed), Extraction()],
    )
    found = {own.claim.split(":")[0]: own.status for own in label_words.verdicts(report.results)}
    windows = compared(report.isolation)
    assert windows is not None
    isolated = report.isolation.difference(windows.early, windows.others["random tokens"])
    sizes = {"isolation": -isolated.value, "attention": report.extraction.last_third.value - 0.5}
    return {"statuses": found, "effects": sizes}


def table(rows: list[dict[str, Any]]) -> str:
    """What was counted, one line for each claim and strength, a column for each number of prompts."""
    prompts = sorted({row["n"] for row in rows})
    lines = [f"| claim | strength | effect | {' | '.join(f'n = {n}' for n in prompts)} |"]
    lines.append("|---|---|---|" + "---|" * len(prompts))
    for claim in CLAIMS:
        for strength in STRENGTHS:
            own = {
                row["n"]: row
                for row in rows
                if row["claim"] == claim and row["strength"] == strength
            }
            effect = sum(row["effect"] for row in own.values()) / len(own)
            counts = " | ".join(f"{own[n]['supported']} of {own[n]['of']}" for n in prompts)
            lines.append(f"| {claim} | {strength:g} | {round(effect, 2) + 0:.2f} | {counts} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--prompts", type=int, nargs="+", default=[12, 24, 48])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    print("| claim | strength | effect | n | supported | of |\n|---|---|---|---|---|---|")
    for n in given.prompts:
        for strength in STRENGTHS:
            cells = []
            for seed in range(given.seeds):
                place = given.folder / f"{n}-{strength}-{seed}.json"
                if not place.is_file():
                    place.write_text(json.dumps(cell(strength, n, seed)), encoding="utf-8")
                cells.append(json.loads(place.read_text(encoding="utf-8")))
            for claim, measure in CLAIMS.items():
                hits = torch.tensor([own["statuses"][claim] == "supported" for own in cells])
                effect = sum(own["effects"][measure] for own in cells) / len(cells)
                rate = wilson_interval(hits)
                rows.append(
                    {"claim": claim, "measure": measure, "strength": strength, "n": n,
                     "effect": round(effect, 3), "supported": int(hits.sum()), "of": len(cells)}
                )  # fmt: skip
                print(
                    f"| {claim} | {strength} | {effect:.2f} | {n} | {rate} | {len(cells)} |",
                    flush=True,
                )
    if given.write:
        target = Path(icl.__file__).parent / "studies" / "power.json"
        target.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        (Path("docs") / "power_table.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
