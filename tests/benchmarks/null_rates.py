"""How often each claim is supported on networks that do the task another way: writes docs/claims_table.md.

    python -m tests.benchmarks.null_rates FOLDER [--minutes 10] [--networks 100] [--prompts 24 48] [--only KIND ...]
    python -m tests.benchmarks.null_rates FOLDER --write

Every network is drawn from its number and judged once, as its page would be; its statuses are kept in FOLDER, and the
same command goes on where it was stopped, after so many minutes at the latest. *Gated* is the verdict; *ungated* the
status of the same effects and share of the answer without what the claim needs. What must not be supported was
written down before anything was measured (`MAY`).
"""

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.measurements import CompareCompression, EdgeCuts, Gain, Isolation, Predict
from icl_mech.metrics import wilson_interval
from icl_mech.planted import nonsense_labels, null_model
from icl_mech.prompts import moved_anchors
from icl_mech.studies import CAUSAL, CONTEXTUALISE, LABEL_WORDS, OVERTHINKING
from icl_mech.studies.judge import judge, of_run

STUDIES: dict[str, Any] = {
    own.name: own for own in (LABEL_WORDS, CONTEXTUALISE, OVERTHINKING, CAUSAL)
}
LW, CTX, OT, ACT = STUDIES


class Null(NamedTuple):
    """Networks of one kind.

    Attributes:
        kind: Of `null_model`, or a planted circuit.
        studies: By which they are judged.
        options: Of the kind.
        may: Claims that may be supported, or should: what they say is true of the network, in part at least.
    """

    kind: str
    studies: tuple[str, ...]
    options: dict[str, Any]
    may: frozenset[str] = frozenset()


READS = {"Shallow aggregation", "Reading", "Anchors suffice"}
"""True where label words collect their texts early and the target reads them, wherever it does."""
FOLLOWS = {"Harm", "Override"}
"""True where false labels are copied."""

NULLS = {
    "reads the query": Null("reads_query", (LW, CTX, ACT), {}, frozenset({"Function vector"})),
    "prior only": Null("prior", (LW,), {}),
    "decorative, 0": Null("decorative", (LW,), {"share": 0.0}),
    "decorative, .1 %": Null("decorative", (LW,), {"share": 0.001}),
    "decorative, 1 %": Null("decorative", (LW, CTX, OT), {"share": 0.01}),
    "decorative, 10 %": Null("decorative", (LW, CTX, OT), {"share": 0.1}),
    "decorative, 100 %": Null(
        "decorative", (LW, OT), {"share": 1.0},
        frozenset(READS | FOLLOWS | {"Deep extraction", "Critical layer", "False induction heads"}),
    ),
    "early": Null("early", (LW, CTX, OT, ACT), {}, frozenset(READS | FOLLOWS | {"False induction heads"})),
    "resting": Null("resting", (LW, CTX), {}),
    "copier": Null(
        "copier", (LW, OT, ACT), {},
        frozenset(READS | FOLLOWS | {"Deep extraction", "Critical layer", "False induction heads"}),
    ),
    "alarm": Null("alarm", (OT, ACT), {}, frozenset({"Harm", "Critical layer", "Overthinking"})),
    "shuffled lessons": Null("anchors", (LW,), {"labels": "shuffled"}),
    "nonsense labels": Null("anchors", (LW,), {"nonsense": True}, frozenset(READS | {"Deep extraction"})),
    "nonsense labels, shuffled": Null("anchors", (LW,), {"nonsense": True, "labels": "shuffled"}),
    "moved anchors": Null("anchors", (LW,), {"moved": True}, frozenset({"Reading", "Deep extraction"})),
}  # fmt: skip

MAY = {name: own.may for name, own in NULLS.items()}

NEVER_FROM_HERE = {"Re-weighting", "Confusion", "Calibration", "Hand-over"}
"""Claims that are not about the path a null imitates, or that these measurements do not bear on."""


def network(null: Null, seed: int) -> Any:
    """A network of its number."""
    if null.kind == "anchors":
        return icl.planted_model(seed=seed)
    return null_model(null.kind, seed=seed, **null.options)


def runs(null: Null, n: int, seed: int) -> Iterator[tuple[str, Any]]:
    """What each study's claims are judged by."""
    model, task = network(null, seed), icl.planted_task()
    task = nonsense_labels(task, seed) if null.options.get("nonsense") else task
    how: dict[str, Any] = {"shots": 1, "n": n, "seed": seed, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(task, model, labels=null.options.get("labels", "correct"), **how)
    if null.options.get("moved"):
        prompts = moved_anchors(prompts, model)
    quiet: dict[str, Any] = {"progress": False, "batch_size": 64}
    if LW in null.studies:
        cuts = EdgeCuts(("collect", "anchors"), rows="target", seed=seed)
        stand_ins = CompareCompression(seed=seed, measure_speed=False)
        measured = (Predict(), Gain(seed=seed), Isolation(seed=seed), cuts, stand_ins)
        yield LW, icl.measure(model, prompts, *measured, **quiet)
    if CTX in null.studies:
        cuts = EdgeCuts(("contextualise", "exchange", "aggregate"), seed=seed)
        yield CTX, icl.measure(model, prompts, Predict(), Gain(seed=seed), cuts, **quiet)
    if OT in null.studies or ACT in null.studies:
        pair = icl.build_prompt_pairs(task, model, **how)
        quiet |= {"seed": seed}
    if OT in null.studies:
        others = icl.build_prompt_pairs(task, model, **{**how, "seed": seed + 1000})[1]
        yield OT, icl.analyze(model, pair, study=OT, heads_from=others, nulls=0, **quiet)
    if ACT in null.studies:
        yield ACT, icl.analyze(model, pair, study=ACT, **quiet)


def statuses(null: Null, n: int, seed: int) -> dict[str, dict[str, Any]]:
    """By claim: its verdict, its status without what it needs, and the intervals both rest on."""
    found: dict[str, dict[str, Any]] = {}
    for name, run in runs(null, n, seed):
        claims = {claim.text: claim for claim in STUDIES[name].claims}
        for verdict in of_run(tuple(claims.values()), run):
            claim = claims[verdict.claim]
            free = judge(
                replace(claim, needs=None),
                lambda effect, own=claim, run=run: effect.evidence(run, own.part),
            )
            needs = {own.name: own.interval(run) for own in claim.needed}
            short = verdict.claim.split(":")[0].replace(
                "Removing these heads closes part of the gap, with no clear loss with true demonstrations",
                "Removing false induction heads",
            )
            short = (
                f"{short} (removal)"
                if verdict.claim.startswith("False induction heads: without")
                else short
            )
            found[short] = {"gated": verdict.status, "ungated": free.status, "p": free.p}
            found[short] |= {"effects": verdict.effects, "needs": needs}
    return found


def place_of(folder: Path, name: str, n: int, seed: int) -> Path:
    """Where a network is kept."""
    return folder / f"{name.replace(' ', '_').replace(',', '').replace('%', 'pc')}-{n}-{seed}.json"


def counted(folder: Path) -> list[str]:
    """The rows of the table: null, claim, n, networks, rate supported gated and ungated, other statuses."""
    rows = []
    for name in NULLS:
        for n in (24, 48):
            known = [
                json.loads(own.read_text())
                for own in sorted(
                    folder.glob(place_of(folder, name, n, 0).name.replace("-0.json", "-*.json"))
                )
            ]
            for claim in dict.fromkeys(own for cell in known for own in cell):
                if claim in NEVER_FROM_HERE:
                    continue
                each = [cell[claim] for cell in known if claim in cell]
                rates = [
                    _rate([own[kind] == "supported" for own in each])
                    for kind in ("gated", "ungated")
                ]
                others = {
                    s: sum(own["gated"] == s for own in each)
                    for s in dict.fromkeys(own["gated"] for own in each)
                    if s != "supported"
                }
                told = ", ".join(
                    f"{count} {status}"
                    for status, count in sorted(others.items(), key=lambda own: -own[1])
                )
                may = "may be" if claim in MAY[name] else "must not"
                rows.append(
                    f"| {name} | {claim} | {may} | {n} | {len(each)} | {rates[0]} | {rates[1]} | {told} |"
                )
    return rows


def _rate(hits: list[bool]) -> str:
    rate = wilson_interval(torch.tensor(hits))
    return f"{100 * rate.value:.1f} % [{100 * rate.low:.1f}, {100 * rate.high:.1f}]"


HEAD = """| network | claim | supported | n | networks | gated | ungated | otherwise |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Measure for some minutes, or write the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--prompts", type=int, nargs="+", default=[48, 24])
    parser.add_argument("--only", nargs="+", default=list(NULLS), choices=list(NULLS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * given.minutes
    for seed in range(given.first, 0 if given.write else given.networks):
        for name in given.only:
            for n in given.prompts:
                place = place_of(given.folder, name, n, seed)
                if place.is_file() or time.monotonic() > end:
                    continue
                place.write_text(json.dumps(statuses(NULLS[name], n, seed)), encoding="utf-8")
    table = HEAD + "\n".join(counted(given.folder)) + "\n"
    print(table)
    if given.write:
        (Path("docs") / "claims_table.md").write_text(table, encoding="utf-8")


if __name__ == "__main__":
    main()
