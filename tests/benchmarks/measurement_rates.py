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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.planted.rationales import KINDS, rationale_model, rationale_task
from icl_mech.results.judging import Status
from tests.benchmarks.null_rates import NULLS, network

N = 24
PLACE = Path("docs") / "benchmarks" / "measurement_rates.md"


@dataclass(frozen=True)
class Drawn:
    """A network of its number, with its prompts.

    Attributes:
        name: Of `NULLS`, or a circuit of `planted_model`.
        seed: Its number.
    """

    name: str
    seed: int

    @cached_property
    def model(self) -> Any:
        """The network."""
        if self.name in NULLS:
            return network(NULLS[self.name], self.seed)
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


def _with_rationales(measured: Callable[..., Any]) -> Callable[[Drawn], Status]:
    """Status of a measurement of rationales, on `rationale_task`."""

    def status(drawn: Drawn) -> Status:
        untrained = drawn.name not in KINDS
        model = rationale_model("carries" if untrained else drawn.name, seed=drawn.seed)  # type: ignore[arg-type]
        model = icl.untrained(model, seed=drawn.seed) if untrained else model
        how: dict[str, Any] = {"shots": 1, "n": N, "seed": drawn.seed}
        prompts = icl.build_prompts(rationale_task(), model, demonstrations="per_prompt", **how)
        found: Status = measured(model, prompts, progress=False).status
        return found

    return status


CLAIMS: dict[str, Judged] = {
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


def table(folder: Path) -> str:
    """Rates of support in percent, with Wilson intervals, in Markdown."""
    lines = [
        "| claim | network | supported | networks | rate | otherwise |",
        "|---|---|---|---|---|---|",
    ]
    for claim, judged in CLAIMS.items():
        for says, names in (("must not be", judged.must_not), ("must be", judged.must)):
            for name in names:
                statuses = kept(folder, claim, name)
                if not statuses:
                    continue
                supported = torch.tensor([status == "supported" for status in statuses])
                rate = Interval(*(100 * end for end in wilson_interval(supported)))
                others = Counter(status for status in statuses if status != "supported")
                others_shown = ", ".join(
                    f"{count} {status}" for status, count in others.most_common()
                )
                lines.append(
                    f"| {claim} | {name} | {says} | {len(statuses)} | {rate.value:.1f} % "
                    f"[{rate.low:.1f}, {rate.high:.1f}] | {others_shown or '–'} |"
                )
    return "\n".join(lines) + "\n"


HEAD = f"""# Rates of single measurements

How often each claim of a measurement is *supported* on synthetic networks: those on which it is false (*must not be*), which do the
task in another way or not at all, and those on which it is true. {N} prompts each, 95 % Wilson intervals. Generated by
`python -m tests.benchmarks.measurement_rates`; the claims of studies are in [another table](claims.md).

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
