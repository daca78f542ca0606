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
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

import icl_mech as icl
from icl_mech.measurements.heads.task_heads import TaskHeads
from icl_mech.metrics import Interval, wilson_interval
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


CLAIMS: dict[str, Judged] = {}


@lru_cache(maxsize=32)
def _task_heads(drawn: Drawn) -> Any:
    """Both claims are read from one result; half of the prompts test them."""
    heads = TaskHeads(seed=drawn.seed)
    return heads(drawn.model, drawn.prompts(n=2 * N), progress=False, batch_size=64)


# No head of these writes label words that the demonstrations teach, or what one writes does not decide the answer. Left
# out: `decorative, 100 %`, one head of which decides the answer, and `lessons`, where an MLP does. Recognition heads are only in `task`; elsewhere the embedding of `:` does it,
# or whatever raises the right label, which goes to learning.
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
