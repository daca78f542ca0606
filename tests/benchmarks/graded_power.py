"""How often claims are supported, by the strength of a planted circuit and prompts.

    python -m tests.benchmarks.graded_power FOLDER [--circuits lessons] [--seeds 10] [--write]

Each cell is a planted model and prompts of its own, kept in FOLDER; the same command goes on where it was
stopped, and prints the table of what is there. `--write` also writes it to `icl_mech/studies/power.json`
and, for the docs, to `docs/power_table.md`; circuits that were not measured keep their rows there.
Strength 0 is the rate of false positives.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.measurements import EdgeCuts, Gain, Isolation, Predict, Transplant
from icl_mech.measurements.heads.conditions import CHOSEN
from icl_mech.metrics import wilson_interval
from icl_mech.studies import CAUSAL, CONTEXTUALISE, LABEL_WORDS, OVERTHINKING
from icl_mech.studies.causal import EXPECTED
from icl_mech.studies.hand_over import HAND_OVER
from icl_mech.studies.judge import of_run
from icl_mech.studies.overthinking import LATE
from icl_mech.studies.overthinking_heads import LATE_ATTENTION
from icl_mech.studies.shares import share_of_gain


class Circuit(NamedTuple):
    """What is measured of a planted circuit.

    Attributes:
        strengths: Of the circuit.
        prompts: Numbers of prompts, or of pairs.
        claims: By name, their study and the measure whose size is told.
    """

    strengths: tuple[float, ...]
    prompts: tuple[int, ...]
    claims: dict[str, tuple[str, str]]


REMOVED = {
    own.claim.split(":")[0].replace("False induction heads", "False induction heads (removal)"): own
    for own in EXPECTED
}

CIRCUITS = {
    "anchors": Circuit(
        (0.0, 0.1, 0.25, 0.5, 0.75, 1.0),
        (12, 24, 48),
        {
            "Shallow aggregation": ("label_words", "isolation"),
            "Reading": ("label_words", "share"),
            "Deep extraction": ("label_words", "share"),
        },
    ),
    "heads": Circuit(
        (0.0, 0.25, 0.5, 0.75, 1.0),
        (24, 48),
        {
            "Harm": ("overthinking", "harm"),
            "Critical layer": ("overthinking", "growth"),
            "Overthinking": ("overthinking", "leaving"),
            "False induction heads (matching)": ("overthinking", "matching"),
            "Removing false induction heads": ("overthinking", "ablation"),
            "Late attention": ("overthinking", "late"),
            **dict.fromkeys(REMOVED, ("causal", "removal")),
            "Function vector": ("causal", "steering"),
            "Override": ("causal", "override"),
        },
    ),
    "hand-over": Circuit(
        (0.0, 0.25, 0.5, 0.75, 1.0), (24, 48), {"Hand-over": ("causal", "moved")}
    ),
    "lessons": Circuit(
        (0.0, 0.25, 0.5, 0.75, 1.0),
        (24, 48),
        dict.fromkeys(("Contextualise", "Aggregate", "Then"), ("contextualise", "needed")),
    ),
}  # fmt: skip

Cell = dict[str, dict[str, Any]]
"""By claim: `status`, and the `values` on prompts that the size of the effect is taken from."""


def anchors(strength: float, n: int, seed: int) -> Cell:
    """Claims of the label words."""
    model = icl.planted_model(strength=strength, seed=seed)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
    )
    cuts = EdgeCuts(("collect", "anchors"), rows="target", seed=seed)
    measured = (Predict(), Gain(seed=seed), Isolation(seed=seed), cuts)
    report = icl.measure(model, prompts, *measured, progress=False)
    windows = report.isolation.compared
    assert windows is not None
    isolated = report.isolation.difference(windows.early, windows.others["random tokens"])
    sizes = {
        "Shallow aggregation": -isolated.value,
        **{name: _share(report, window) for name, window in READ.items()},
    }
    return _cell(LABEL_WORDS.verdicts(report), sizes)


def heads(strength: float, n: int, seed: int) -> Cell:
    """Claims of what acts, and of overthinking."""
    model = icl.planted_model(circuit="heads", strength=strength, seed=seed)
    task = icl.planted_task()
    options: dict[str, Any] = {"shots": 1, "n": n, "demonstrations": "per_prompt"}
    pair = icl.build_prompt_pairs(task, model, seed=seed, **options)
    others = icl.build_prompt_pairs(task, model, seed=seed + 1000, **options)[1]
    how: dict[str, Any] = {"seed": seed, "progress": False}
    acting = icl.analyze(model, pair, study="causal", **how)
    truth = icl.analyze(model, pair, study="overthinking", heads_from=others, nulls=0, **how)
    return _cell(CAUSAL.verdicts(acting), _acting(acting)) | _cell(
        OVERTHINKING.verdicts(truth), _overthinking(truth)
    )


def hand_over(strength: float, n: int, seed: int) -> Cell:
    """The claim of a hand-over, on the circuit of the anchors, at the two depths it asks for."""
    model = icl.planted_model(strength=strength, seed=seed)
    pair = icl.build_prompt_pairs(
        icl.planted_task(), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
    )
    layers = Transplant(at=("anchors", "target"), layers=(2, 5), draws=2, seed=seed)
    report = icl.measure(model, pair, layers, progress=False)
    moved = report["transplant"].flips[:, 0].nan_to_num(0.0)
    return _cell(of_run([HAND_OVER], report), {"Hand-over": moved.tolist()})


def lessons(strength: float, n: int, seed: int) -> Cell:
    """Claims of edges between demonstrations and to the target."""
    model = icl.planted_model(circuit="lessons", strength=strength, seed=seed)
    prompts = icl.build_prompts(
        icl.planted_task(), model, shots=1, n=n, seed=seed, demonstrations="per_prompt"
    )
    cuts = EdgeCuts(("contextualise", "exchange", "aggregate"), seed=seed)
    report = icl.measure(model, prompts, Predict(), Gain(seed=seed), cuts, progress=False)
    needed = -report["edge_cuts"].changes
    early, late = needed[:, 0, 0], needed[:, 2, 2]
    sizes = {"Contextualise": early, "Aggregate": late, "Then": torch.minimum(early, late)}
    return _cell(
        CONTEXTUALISE.verdicts(report), {name: own.tolist() for name, own in sizes.items()}
    )


READ = {"Reading": "all", "Deep extraction": "late"}
"""Claims of what the target reads from label words, and in which layers."""


def _share(report: Any, window: str) -> float:
    """Of what demonstrations add; 0 where they add nothing clear."""
    share = share_of_gain(report, "anchors", window)
    return 0.0 if share is None or not isfinite(share.value) else share.value


def _acting(report: Any) -> dict[str, Any]:
    sets, vector = report["compare_heads"], report["steer"]
    sizes: dict[str, Any] = {
        "Function vector": vector.changes[:, vector.layers.index(vector.third)].tolist(),
        "Override": report["alignment"].taught_above_truth.value,
    }
    for name, own in REMOVED.items():
        if own.name in sets.ablated:
            side, place = ("true", "false").index(own.side), sets.sets.index(own.name)
            change = sets.change[:, 0, side, place]
            sizes[name] = (change if own.rising else -change).tolist()
    return sizes


def _overthinking(report: Any) -> dict[str, Any]:
    layers, found = report.layer_accuracy, report.false_induction
    gaps = layers.pair_scores[:, 0] - layers.pair_scores[:, 1]
    sizes = {
        "Harm": layers.final_gap.value,
        "Critical layer": float((gaps[:, -1] - gaps[:, (gaps.shape[1] - 1) // 4]).mean()),
        "Overthinking": report.early_exit.overthinking().value,
        "Removing false induction heads": report.ablation.interval(
            "change", condition=CHOSEN, side="false"
        ).value,
        "False induction heads (matching)": max(
            (own[0].value for own in (found.held_out() or {}).values()), default=0.0
        ),
    }
    if LATE in report:
        late = report[LATE].interval("change", condition=LATE_ATTENTION, side="false")
        sizes["Late attention"] = late.value
    return sizes


def _cell(verdicts: Sequence[Any], sizes: dict[str, Any]) -> Cell:
    """Status of each claim, and the values its size is taken from, by the claims' names in the table."""
    removed = {own.claim for own in EXPECTED}
    found: Cell = {}
    for own in verdicts:
        claim = own.claim.split(":")[0]
        if claim == "False induction heads":
            claim += " (removal)" if own.claim in removed else " (matching)"
        if claim.startswith("Removing these heads"):
            claim = "Removing false induction heads"
        values = sizes.get(claim)
        found[claim] = {
            "status": own.status,
            "values": values if isinstance(values, list | None) else [values],
        }
    return found


MEASURED = {"anchors": anchors, "heads": heads, "hand-over": hand_over, "lessons": lessons}

IN_LOGITS = ("removal", "steering", "needed")
"""Measures whose size is told as the share of prompts on which they are one logit or more."""


def size(measure: str, cells: Sequence[dict[str, Any]]) -> float:
    """Mean over models; of logits the share of prompts with one or more."""
    values = [torch.tensor(own["values"]) for own in cells if own["values"] is not None]
    if measure in IN_LOGITS:
        values = [(own >= 1).float() for own in values]
    return float(torch.stack([own.mean() for own in values]).mean()) if values else 0.0


def table(rows: list[dict[str, Any]]) -> str:
    """What was counted, one line for each claim and strength, a column for each number of prompts."""
    prompts = sorted({row["n"] for row in rows})
    lines = [f"| claim | strength | effect | {' | '.join(f'n = {n}' for n in prompts)} |"]
    lines.append("|---|---|---|" + "---|" * len(prompts))
    for claim, strength in dict.fromkeys((row["claim"], row["strength"]) for row in rows):
        own = {
            row["n"]: row for row in rows if row["claim"] == claim and row["strength"] == strength
        }
        effect = sum(row["effect"] for row in own.values()) / len(own)
        counts = [f"{own[n]['supported']} of {own[n]['of']}" if n in own else "–" for n in prompts]
        lines.append(
            f"| {claim} | {strength:g} | {round(effect, 2) + 0:.2f} | {' | '.join(counts)} |"
        )
    return "\n".join(lines) + "\n"


def counted(folder: Path, name: str, seeds: int) -> list[dict[str, Any]]:
    """Measure what is missing, and count."""
    circuit, rows = CIRCUITS[name], []
    for strength in circuit.strengths:
        for n in circuit.prompts:
            cells: list[Cell] = []
            for seed in range(seeds):
                place = folder / f"{name}-{n}-{strength}-{seed}.json"
                if not place.is_file():
                    place.write_text(
                        json.dumps(MEASURED[name](strength, n, seed)), encoding="utf-8"
                    )
                cells.append(json.loads(place.read_text(encoding="utf-8")))
            for claim, (study, measure) in circuit.claims.items():
                own = [cell[claim] for cell in cells if claim in cell]
                hits = torch.tensor([one["status"] == "supported" for one in own])
                effect = size(measure, own)
                rows.append(
                    {"study": study, "claim": claim, "measure": measure, "strength": strength, "n": n,
                     "effect": round(effect, 3), "supported": int(hits.sum()), "of": len(cells)}
                )  # fmt: skip
                rate = wilson_interval(hits)
                print(
                    f"| {claim} | {strength} | {effect:.2f} | {n} | {rate} | {len(cells)} |",
                    flush=True,
                )
    place_of = list(circuit.claims)
    return sorted(rows, key=lambda row: (place_of.index(row["claim"]), row["strength"], row["n"]))


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--circuits", nargs="+", default=list(CIRCUITS), choices=list(CIRCUITS))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    given.folder.mkdir(parents=True, exist_ok=True)
    print("| claim | strength | effect | n | supported | of |\n|---|---|---|---|---|---|")
    found = {name: counted(given.folder, name, given.seeds) for name in given.circuits}
    if given.write:
        target = Path(icl.__file__).parent / "studies" / "power.json"
        before = json.loads(target.read_text(encoding="utf-8"))
        rows = []
        for name, circuit in CIRCUITS.items():
            rows += found.get(name) or [row for row in before if row["claim"] in circuit.claims]
        target.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        (Path("docs") / "power_table.md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
