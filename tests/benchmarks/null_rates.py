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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.measurements import CompareCompression, EdgeCuts, Gain, Isolation, Predict
from icl_mech.metrics import Interval, wilson_interval
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
    "untrained": Null("untrained", (LW, CTX, OT, ACT), {}),
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

PROMPTS = (24, 48)

NEVER_FROM_HERE = {"Re-weighting", "Confusion", "Calibration", "Hand-over"}
"""Claims that are not about the path a null imitates, or that these measurements do not bear on."""


def network(null: Null, seed: int) -> Any:
    """A network of its number."""
    if null.kind == "anchors":
        return icl.planted_model(seed=seed)
    if null.kind == "untrained":
        return icl.untrained(icl.planted_model(), seed)
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
        stand_ins = CompareCompression(seed=seed)
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


def short_name(claim: str) -> str:
    """How tables call a claim."""
    if claim.startswith("Removing these heads"):
        return "Removing false induction heads"
    removed = " (removal)" * claim.startswith("False induction heads: without")
    return claim.partition(":")[0] + removed


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
            short = short_name(verdict.claim)
            found[short] = {"gated": verdict.status, "ungated": free.status, "p": free.p}
            found[short] |= {"effects": verdict.effects, "needs": needs}
    return found


def place_of(folder: Path, name: str, n: int, seed: int) -> Path:
    """Where a network is kept."""
    return folder / f"{name.replace(' ', '_').replace(',', '').replace('%', 'pc')}-{n}-{seed}.json"


Cells = dict[tuple[str, str, int], list[dict[str, Any]]]
"""What each network gave, by null, claim and number of prompts."""


def kept(folder: Path) -> Cells:
    """Everything that is there."""
    found: Cells = {}
    for name in NULLS:
        for n in PROMPTS:
            pattern = place_of(folder, name, n, 0).name.replace("-0.json", "-*.json")
            for place in sorted(folder.glob(pattern)):
                for claim, one in json.loads(place.read_text(encoding="utf-8")).items():
                    if claim not in NEVER_FROM_HERE:
                        found.setdefault((name, claim, n), []).append(one)
    return found


def supported(cells: Sequence[dict[str, Any]], kind: str = "gated") -> Interval:
    """Share of networks on which the claim is supported, in percent."""
    rate = wilson_interval(torch.tensor([own[kind] == "supported" for own in cells]))
    return Interval(*(100 * end for end in rate))


def matrices(cells: Cells) -> Iterator[str]:
    """A table for each study: nulls by claims, percent of networks with 24 and with 48 prompts."""
    for study in STUDIES.values():
        names = [short_name(claim.text) for claim in study.claims]
        claims = [own for own in names if any(key[1] == own for key in cells)]
        yield f"**{study.name.replace('_', ' ').capitalize()}**"
        yield ""
        yield f"| null | networks | {' | '.join(claims)} |"
        yield "|---|---|" + "---|" * len(claims)
        for name in NULLS:
            if study.name not in NULLS[name].studies:
                continue
            known = [[cells.get((name, claim, n), []) for n in PROMPTS] for claim in claims]
            sizes = " · ".join(str(max(map(len, of_n))) for of_n in zip(*known, strict=True))
            shown = (_cell(name, claim, of) for claim, of in zip(claims, known, strict=True))
            yield f"| {name} | {sizes} | {' | '.join(shown)} |"
        yield ""


def _cell(name: str, claim: str, known: Sequence[Sequence[dict[str, Any]]]) -> str:
    rates = " · ".join(f"{supported(own).value:.0f}" if own else "–" for own in known)
    return f"*{rates}*" if claim in MAY[name] else rates


def worst(cells: Cells) -> str:
    """The highest rate among those that must be low, in a sentence."""
    rates = {
        key: supported(own)
        for key, own in cells.items()
        if key[1] not in MAY[key[0]] and NULLS[key[0]].kind != "untrained"
    }
    free = {
        key: supported(own, "ungated")
        for key, own in cells.items()
        if NULLS[key[0]].kind == "untrained"
    }
    parts = []
    for what, own in (
        ("null networks on which it must not be supported", rates),
        ("untrained networks, with its needs ignored", free),
    ):
        if own:
            (name, claim, n), rate = max(own.items(), key=lambda one: (one[1].value, one[1].high))
            if rate.value == 0.0:
                parts.append(
                    f"All {len(own)} rates of support on {what} are 0 % (intervals end at {rate.high:.1f} % at most)"
                )
                continue
            parts.append(
                f"The highest of {len(own)} rates of support on {what} is {rate.value:.1f} % "
                f"[{rate.low:.1f}, {rate.high:.1f}] (*{claim}*, {name}, {n} prompts)"
            )
    return ". ".join(parts) + "."


def listed(cells: Cells) -> Iterator[str]:
    """The rows of the long table: null, claim, n, networks, rate supported gated and ungated, other statuses."""
    for (name, claim, n), own in cells.items():
        rates = []
        for kind in ("gated", "ungated"):
            value, low, high = supported(own, kind)
            rates.append(f"{value:.1f} % [{low:.1f}, {high:.1f}]")
        statuses = Counter(one["gated"] for one in own)
        others = [f"{k} {s}" for s, k in statuses.most_common() if s != "supported"]
        may = "may be" if claim in MAY[name] else "must not"
        yield (
            f"| {name} | {claim} | {may} | {n} | {len(own)} | {' | '.join(rates)} | "
            f"{', '.join(others)} |"
        )


LIST = """# Rates of claims on every null

The full version of the table in [What a claim has to survive](../claims.md#how-often-each-claim-is-supported): for each null, claim and
number of prompts, the percentage of networks on which the claim is supported in a full report (*gated*) and if its needs are
ignored (*ungated*), with 95 % Wilson intervals, and its status on the others. Generated by `python -m tests.benchmarks.null_rates`.

| null | claim | supported | n | networks | gated | ungated | otherwise |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    """Measure for some minutes, or write the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--prompts", type=int, nargs="+", default=list(PROMPTS))
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
    cells = kept(given.folder)
    short = "\n".join([worst(cells), "", *matrices(cells)])
    print(short)
    if given.write:
        docs = Path("docs")
        (docs / "claims_table.md").write_text(short, encoding="utf-8")
        whole = LIST + "\n".join(listed(cells)) + "\n"
        (docs / "benchmarks" / "claims.md").write_text(whole, encoding="utf-8")


if __name__ == "__main__":
    main()
