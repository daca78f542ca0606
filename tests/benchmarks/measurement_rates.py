"""How often single measurements support their claims on networks where these are false, and where they are true.

    python -m tests.benchmarks.measurement_rates FOLDER [--minutes 8] [--networks 100] [--only CLAIM ...]
    python -m tests.benchmarks.measurement_rates FOLDER --write

Beside `null_rates`, which judges the claims of studies. Each claim has the networks on which it must not be supported and
those on which it must be, written down before anything was measured. Every network is drawn from its number and kept in
FOLDER; the same command goes on where it was stopped. `--write` writes `docs/benchmarks/measurement_rates.md`.
"""

import argparse
import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.measurements import CircuitFaithfulness, DemonstrationSteering, Stability
from icl_mech.measurements.by_demonstration.one_false_demonstration import (
    OneFalseDemonstrationResult,
)
from icl_mech.measurements.heads.task_heads import TaskHeads
from icl_mech.metrics import wilson_interval
from icl_mech.planted.heads import (
    FALSE_INDUCTION_HEADS,
    FUNCTION_VECTOR_HEADS,
    GATHERING_HEAD,
    INDUCTION_HEADS,
    LEARNING_HEAD,
)
from icl_mech.planted.model import READING_HEAD
from icl_mech.planted.rationales import KINDS, rationale_model, rationale_task
from icl_mech.results.judging import Status
from tests.benchmarks.null_rates import NULLS, network
from tests.measurements.by_demonstration.cases import routed_model

N = 24
PLACE = Path("docs") / "benchmarks" / "measurement_rates.md"


@dataclass(frozen=True)
class Drawn:
    """A network of its number, with its prompts.

    Attributes:
        name: Of `NULLS`, a circuit of `planted_model`, or `routed` (`routed_model` of the tests).
        seed: Its number.
    """

    name: str
    seed: int

    @cached_property
    def model(self) -> Any:
        """The network."""
        if self.name in NULLS:
            return network(NULLS[self.name], self.seed)
        if self.name == "routed":
            return routed_model(self.seed)
        return icl.planted_model(circuit=self.name, seed=self.seed)  # type: ignore[arg-type]

    def prompts(self, **options: Any) -> icl.PromptBatch:
        """Prompts with demonstrations drawn for each."""
        return icl.build_prompts(icl.planted_task(), self.model, **self._how(options))

    def pair(self, **options: Any) -> tuple[icl.PromptBatch, icl.PromptBatch]:
        """True and false demonstrations of the same queries."""
        return icl.build_prompt_pairs(icl.planted_task(), self.model, **self._how(options))

    def _how(self, options: Mapping[str, Any]) -> dict[str, Any]:
        how = {"shots": 1, "n": N, "seed": self.seed, "demonstrations": "per_prompt"}
        return {**how, **options}


class Judged(NamedTuple):
    """A claim of a measurement.

    Attributes:
        status: Its status on a network.
        must_not: Networks on which it is false.
        must: Networks on which it is true.
    """

    status: Callable[[Drawn], Status]
    must_not: tuple[str, ...]
    must: tuple[str, ...] = ()


CLAIMS: dict[str, Judged] = {}

QUIET: dict[str, Any] = {"progress": False, "batch_size": 64}


def steered(claim: str) -> Callable[[Drawn], Status]:
    """Status of a claim about the vector of demonstrations."""

    return lambda drawn: _steering(drawn).status_of(claim)  # type: ignore[arg-type]


@lru_cache(maxsize=16)
def _steering(drawn: Drawn) -> Any:
    """Steering by demonstrations on a network, once for all of its claims."""
    # At the default strengths any direction that points towards *task* saturates what `heads` does with it.
    weak = {"strengths": (0.05, 0.1)} if drawn.name == "heads" else {}
    measurement = DemonstrationSteering(seed=drawn.seed, **weak)
    return measurement(drawn.model, drawn.prompts(), **QUIET)


CLAIMS |= {
    "A vector recovers part of the gain": Judged(
        steered("vector"),
        # The answer is read from label words that match the query, or demonstrations add nothing. In `lessons` the lesson is
        # written and used within a block, so no output of a block holds it.
        ("untrained", "prior only", "early", "copier", "anchors", "lessons"),
        # Demonstrations write one direction at the target, the same for every query. `reads the query` and `alarm` may: the
        # gain of the first, from answers that are wrong before, is rarely clear over 12 prompts.
        ("heads", "decorative, 0", "resting"),
    ),
    "The vector holds what labels teach": Judged(
        steered("labels"),
        # There, demonstrations with any labels switch the answer on.
        (
            *("untrained", "prior only", "early", "copier", "anchors", "lessons"),
            *("reads the query", "decorative, 0", "resting"),
        ),
        ("heads",),
    ),
}


@lru_cache(maxsize=64)
def contextualised(drawn: Drawn) -> Status:
    """Of the split into routing and values, with 24 prompts behind heads chosen on 24 others."""
    prompts = drawn.prompts(n=2 * N)
    return icl.function_vector_by_demonstration(drawn.model, prompts, progress=False).status


UNCONTEXTUALISED = (
    *("untrained", "reads the query", "prior only", "decorative, 10 %", "decorative, 100 %"),
    *("early", "resting", "copier", "alarm", "heads", "anchors"),
)
"""Demonstrations do not read one another, or nothing that they read reaches the answer."""

CLAIMS |= {
    "contextualised routing": Judged(
        contextualised, (*UNCONTEXTUALISED, "lessons"), must=("routed",)
    ),
    "contextualised values": Judged(
        lambda drawn: "supported" if (status := contextualised(drawn)) == "opposite"
        else "opposite" if status == "supported" else status,
        (*UNCONTEXTUALISED, "routed"), must=("lessons",),
    ),
}  # fmt: skip


@lru_cache(maxsize=32)
def one_false(drawn: Drawn) -> OneFalseDemonstrationResult:
    """One false demonstration of eight: the first, the fourth or the last."""
    prompts = drawn.prompts(shots=2)
    return icl.one_false_demonstration(drawn.model, prompts, places=[0, 3, 7], progress=False)


def exits(model: Any, seed: int) -> Status:
    """Early exit with a guarantee; half of the prompts calibrate."""
    how: dict[str, Any] = {"shots": 1, "n": 4 * N, "seed": seed, "demonstrations": "per_prompt"}
    prompts = icl.build_prompts(icl.planted_task(), model, **how)
    return icl.guaranteed_exit(model, prompts, progress=False).status


LABELS_CARRY_NOTHING = ("untrained", "reads the query", "prior only", "decorative, 0", "resting")
"""Networks whose answer does not depend on the labels that demonstrations display, or hardly."""

CLAIMS |= {
    "one false: harm": Judged(
        lambda drawn: one_false(drawn).status,
        LABELS_CARRY_NOTHING,
        ("anchors", "copier", "early", "alarm"),
    ),
    # Left out: lessons, where the last label word holds what all teach.
    "one false: beyond its label words": Judged(
        lambda drawn: one_false(drawn).beyond_status,
        LABELS_CARRY_NOTHING,
        ("anchors", "copier", "early", "alarm"),
    ),
    # No place counts more in any of them; where one does: test_one_false.py.
    "one false: recency": Judged(
        lambda drawn: one_false(drawn).recency_status,
        (*LABELS_CARRY_NOTHING, "anchors", "copier", "early", "alarm"),
    ),
    # Left out: alarm, where the right answer is written and suppressed by the same block.
    "one false: overthinking": Judged(
        lambda drawn: one_false(drawn).overthinking_status,
        (*LABELS_CARRY_NOTHING, "anchors", "copier", "early"),
    ),
    # Left out: prior only and resting, which are right without demonstrations, so that nothing can be gained over zero-shot.
    "guaranteed exit": Judged(
        lambda drawn: exits(drawn.model, drawn.seed),
        ("untrained",),
        ("anchors", "copier", "reads the query"),
    ),
    "guaranteed exit, answered in the last layer": Judged(
        lambda drawn: exits(icl.planted_model(seed=drawn.seed, hand_over=5), drawn.seed),
        ("anchors",),
    ),
}


CLAIMS |= {
    # The other nulls have heads that attend to matching label words, in all seeds.
    "Stability, prefix matching": Judged(
        lambda drawn: Stability(over=["seed"])(drawn.model, drawn.pair(), progress=False).status,
        ("untrained", "resting"),
        ("heads", "anchors"),
    ),
    "Stability, head mediation": Judged(
        lambda drawn: (
            Stability("head_mediation", over=["seed"])(
                drawn.model, drawn.pair(), progress=False
            ).status
        ),
        ("untrained", "prior only"),
        ("heads",),
    ),
    "Stability, critical layer": Judged(
        lambda drawn: (
            Stability("layer_accuracy", over=["seed"])(
                drawn.model, drawn.pair(), progress=False
            ).status
        ),
        ("untrained", "prior only", "reads the query"),
        ("heads", "copier"),
    ),
}


@lru_cache(maxsize=32)
def _task_heads(drawn: Drawn) -> Any:
    """Both claims are read from one result; half of the prompts test them."""
    heads = TaskHeads(seed=drawn.seed)
    return heads(drawn.model, drawn.prompts(n=2 * N), progress=False, batch_size=64)


# No head of these writes label words that the demonstrations teach, or what one writes does not decide the answer. Left
# out: `decorative, 100 %`, one head of which decides the answer, and `lessons`, where an MLP does. Recognition heads are
# only in `task`; elsewhere the embedding of `:` does it, or whatever raises the right label, which goes to learning.
UNTAUGHT = (
    "untrained", "heads", "reads the query", "prior only", "decorative, 0", "decorative, .1 %",
    "decorative, 1 %", "decorative, 10 %", "resting", "alarm",
)  # fmt: skip
CLAIMS["task learning heads"] = Judged(
    lambda drawn: _task_heads(drawn).status_of("learning"),
    must_not=(*UNTAUGHT, "early"),
    must=("anchors", "copier", "task"),
)
CLAIMS["task recognition heads"] = Judged(
    lambda drawn: _task_heads(drawn).status_of("recognition"),
    must_not=(*UNTAUGHT, "early", "anchors", "copier"),
    must=("task",),
)


CARRYING: dict[str, tuple[tuple[int, int], ...]] = {
    "anchors": (READING_HEAD,),
    "heads": (*FUNCTION_VECTOR_HEADS, *INDUCTION_HEADS, *FALSE_INDUCTION_HEADS),
    "lessons": (GATHERING_HEAD, LEARNING_HEAD),
}
"""Heads that carry what false demonstrations change."""

NOISE: dict[str, tuple[tuple[int, int], ...]] = {
    "anchors": ((1, 0), (3, 0), (5, 1)),
    "heads": ((1, 1), (2, 0), (4, 0)),
    "lessons": ((1, 0), (2, 1), (5, 1)),
    "untrained": ((1, 0), (3, 0), (5, 1)),
}
"""Noise heads of the planted circuits, and any heads of a network that learned nothing."""


def circuit_of(drawn: Drawn, heads: Sequence[tuple[int, int]] | None) -> Status:
    """Whether heads, or those that EAP-IG selects, carry more of the answer than random ones."""
    measurement = CircuitFaithfulness(circuit=heads, fractions=(), seed=drawn.seed)
    return measurement(drawn.model, *drawn.pair(), progress=False).status


CLAIMS |= {
    "Circuit, carrying heads": Judged(
        lambda drawn: circuit_of(drawn, CARRYING[drawn.name]), (), tuple(CARRYING)
    ),
    "Circuit, noise heads": Judged(
        lambda drawn: circuit_of(drawn, NOISE[drawn.name]), tuple(NOISE)
    ),
    # Others may: with decorative label words and the copier, heads carry what false demonstrations change, however little,
    # and in `reads the query` false labels draw attention off the query.
    "Circuit by EAP-IG": Judged(
        lambda drawn: circuit_of(drawn, None),
        ("untrained", "prior only", "decorative, 0"),
        tuple(CARRYING),
    ),
}


def _with_rationales(measured: Callable[..., Any]) -> Callable[[Drawn], Status]:
    """Status of a measurement of rationales, on `rationale_task`."""

    def status(drawn: Drawn) -> Status:
        untrained = drawn.name not in KINDS
        model = rationale_model("carries" if untrained else drawn.name, seed=drawn.seed)  # type: ignore[arg-type]
        model = icl.untrained(model, seed=drawn.seed) if untrained else model
        how: dict[str, Any] = {"shots": 1, "n": N, "seed": drawn.seed}
        prompts = icl.build_prompts(rationale_task(), model, demonstrations="per_prompt", **how)
        judged: Status = measured(model, prompts, progress=False).status
        return judged

    return status


CLAIMS |= {
    # `switch` and `alarm` need a rationale, too: it makes the answer more probable, but does not carry it.
    "the rationale makes the right answer more probable": Judged(
        _with_rationales(icl.rationale_answers),
        must_not=("decorative", "untrained rationales"),
        must=("carries", "switch", "alarm"),
    ),
    "the rationale carries part of the answer": Judged(
        _with_rationales(icl.rationale_use),
        must_not=("decorative", "switch", "alarm", "untrained rationales"),
        must=("carries",),
    ),
}


def place_of(folder: Path, claim: str, drawn: Drawn) -> Path:
    """Where the status of a claim on a network is kept."""
    names = (claim, drawn.name, str(drawn.seed))
    return folder / (
        "-".join(name.replace(" ", "_").replace("%", "pc") for name in names) + ".json"
    )


def kept(folder: Path, claim: str, name: str) -> list[Status]:
    """Statuses of a claim on the networks of one kind."""
    pattern = place_of(folder, claim, Drawn(name, 0)).name.replace("-0.json", "-*.json")
    return [json.loads(place.read_text(encoding="utf-8")) for place in sorted(folder.glob(pattern))]


def rate(statuses: Sequence[Status]) -> str:
    """How many support the claim, in percent, with Wilson's interval."""
    supported = torch.tensor([status == "supported" for status in statuses])
    value, low, high = (100 * end for end in wilson_interval(supported))
    return f"{value:.1f} % [{low:.1f}, {high:.1f}]"


def table(folder: Path) -> str:
    """Rates of support over all networks on which a claim is false or true, then by kind of network, in Markdown."""
    pooled = ["| claim | false: networks | supported | true: networks | supported |", "|---|---|---|---|---|"]  # fmt: skip
    lines = ["| claim | network | supported | networks | rate | otherwise |", "|---|---|---|---|---|---|"]  # fmt: skip
    for claim, judged in CLAIMS.items():
        cells = [claim]
        for says, names in (("must not be", judged.must_not), ("must be", judged.must)):
            every = {name: kept(folder, claim, name) for name in names}
            together = [status for statuses in every.values() for status in statuses]
            cells += [str(len(together)), rate(together)] if together else ["–", "–"]
            for name, statuses in every.items():
                others = Counter(status for status in statuses if status != "supported")
                rest = ", ".join(f"{count} {status}" for status, count in others.most_common())
                if statuses:
                    lines.append(f"| {claim} | {name} | {says} | {len(statuses)} | {rate(statuses)} | {rest or '–'} |")  # fmt: skip
        pooled.append(f"| {' | '.join(cells)} |")
    return "\n".join([*pooled, "", "## By kind of network", "", *lines, ""])


HEAD = f"""# Rates of single measurements

How often each claim of a measurement is *supported* on synthetic networks: those on which it is false (*must not be*), which do the
task in another way or not at all, and those on which it is true. {N} prompts each, 95 % Wilson intervals. Generated by
`python -m tests.benchmarks.measurement_rates`; the claims of studies are in [another table](claims.md).

*Circuit by EAP-IG* takes a tenth of the heads: of the 24 to 28 heads of these networks two, too few for the nine of `heads`; and where one head carries
the answer, random pairs contain it now and then. Both make the claim weak, not wrong.

"""


def main() -> None:
    """Measure for some minutes, or write the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=list(CLAIMS), choices=list(CLAIMS))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    end = time.monotonic() + 60 * options.minutes
    for seed in range(0 if options.write else options.networks):
        for claim in options.only:
            for name in (*CLAIMS[claim].must_not, *CLAIMS[claim].must):
                drawn = Drawn(name, seed)
                place = place_of(options.folder, claim, drawn)
                if place.is_file() or time.monotonic() > end:
                    continue
                place.write_text(json.dumps(CLAIMS[claim].status(drawn)), encoding="utf-8")
    print(text := table(options.folder))
    if options.write:
        PLACE.write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
