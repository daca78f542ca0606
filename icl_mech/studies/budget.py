"""`budget=`: as many of the prompts, and as many untrained networks, as a time allows.

Two stages: the first few prompts show what a prompt costs and give a first figure; then as many as fit are measured
from scratch, so that the numbers are those of one run with that many prompts. The choice depends on times alone,
never on a result.
"""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

from icl_mech.bars import duration
from icl_mech.checking import shown
from icl_mech.errors import IclMechError, PromptError, RunError
from icl_mech.frontend import in_notebook
from icl_mech.measurements.running import Prompts
from icl_mech.models.rehearsal import stage
from icl_mech.results import given_path, is_vacant
from icl_mech.results.wording import counted
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.nulls import LEFT_OUT, first_of, missing_share

FIRST = 8
"""Number of prompts of the first stage."""

ENOUGH = 24
"""Number of prompts that come before untrained networks."""

PLANNED = 0.85
"""Fraction of the time left for which the second stage is planned: eight prompts give a rough estimate."""

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}

Run = Callable[[Prompts, Path | None, int], Bench]
"""Measures prompts, with a folder for finished results and a number of untrained networks."""


def seconds_of(budget: object) -> float:
    """Seconds of a budget such as `"2 min"`, `"90 s"`, `"1.5 h"` or 90.

    Raises:
        RunError: another text, or no positive number.
    """
    text = (
        re.fullmatch(r"\s*([0-9.]+)\s*(s|min|h)?\s*", budget) if isinstance(budget, str) else None
    )
    seconds: Any = budget
    if text is not None and text[1].count(".") <= 1 and text[1] != ".":
        seconds = float(text[1]) * UNITS[text[2] or "s"]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < inf:
        raise RunError(
            f"budget={shown(budget)} is not a time; write for example budget='2 min', '90 s', '1 h', or seconds as "
            "a number above 0."
        )
    return float(seconds)


def check_budget(budget: object, until: object) -> None:
    """Reject what is no time, and two rules for the number of prompts.

    Raises:
        RunError: says which.
    """
    if budget is None:
        return
    seconds_of(budget)
    if until is not None:
        raise RunError(
            "until= adds prompts until intervals are narrow, and budget= limits the time; give one of them."
        )


@dataclass(frozen=True)
class Costs:
    """What the first stage shows about the rest.

    Attributes:
        each: Seconds of a prompt: costs that do not depend on their number are counted in.
        network: Seconds of an untrained network, which repeats some of the measurements of the first stage; 0 if
            earlier runs measured it.
    """

    each: float
    network: float

    def fitting(self, left: float, total: int, networks: int) -> tuple[int, int]:
        """The number of prompts and of untrained networks that fit into some seconds; 0 prompts if none do."""
        able, with_networks = left / self.each, (left - networks * self.network) / self.each
        if with_networks >= min(total, ENOUGH) or not self.network:
            return min(total, int(with_networks)), networks
        return min(total, int(able)), 0


def in_budget(
    budget: object,
    prompts: Prompts,
    networks: int,
    run: Run,
    out: str | Path | None,
    preview: Callable[[Bench, Prompts], None],
) -> tuple[Bench, Prompts, dict[str, Any]]:
    """Measure as many prompts as fit; return the bench, its prompts, and a record.

    A forecast counts the first stage and all prompts.

    Args:
        budget: The time, for both stages.
        prompts: All prompts; the first ones are measured.
        networks: Number of untrained networks, if there is time for them.
        run: Measures prompts.
        out: Folder of the run.
        preview: Shows the first stage.

    Raises:
        RunError: a budget that is no time, or a folder that holds a run.
    """
    seconds, began = seconds_of(budget), time.monotonic()
    if out is not None and not is_vacant(given_path(out, option="out")):
        raise RunError(
            f"{str(out)!r} is not empty, and budget= begins anew, with as many prompts as fit now. Give a new folder, or "
            "leave out budget= to continue what is there."
        )
    total = len(prompts[0] if isinstance(prompts, tuple) else prompts)
    made, kept = 0, prepared_folder(out)
    n, data, bench = _first_stage(prompts, total, run)
    taken = time.monotonic() - began
    costs = Costs(taken / n, taken * missing_share(bench, prompts, networks) if networks else 0.0)
    more, made = costs.fitting(PLANNED * (seconds - taken), total, networks)
    if made and not costs.network and missing_share(bench, first_of(prompts, more), networks):
        # Those that are kept were measured on more prompts.
        costs = replace(costs, network=taken)
        more, made = costs.fitting(PLANNED * (seconds - taken), total, networks)
    if (rehearsal := stage()) is not None:
        rehearsal.depends[f"budget=, counted with all {total} prompts"] = None
        more, made = total, networks
    if more > n or (made and more == n):
        if rehearsal is None:
            preview(bench, data)
        n, data = more, first_of(prompts, more)
        bench = run(data, kept, made)
    else:
        made = 0
        bench = replace(bench, out=kept)
        for name, result in bench.results.items():
            bench.keep(name, result)
    record: dict[str, Any] = {
        "seconds": seconds,
        "spent": time.monotonic() - began,
        "n": n,
        "of": total,
        "networks": made,
        "networks_of": networks,
        "all_prompts": costs.each * total,
        "all_networks": costs.network * networks,
    }
    if made < networks and LEFT_OUT in bench.notes:
        bench.notes.remove(LEFT_OUT)  # said by the other note
    bench.notes.append(_note(record))
    return bench, data, record


def _first_stage(prompts: Prompts, total: int, run: Run) -> tuple[int, Prompts, Bench]:
    """Measure a few prompts: eight, or twice and four times as many where these are too few for the study."""
    n = min(FIRST, total)
    while True:
        data = first_of(prompts, n)
        try:
            return n, data, run(data, None, 0)
        except PromptError:
            if n == total:
                raise
        n = min(2 * n, total)


def show_first(analysis: Analysis, named: Sequence[str]) -> None:
    """In a notebook, show a first figure while the other prompts are measured.

    Args:
        analysis: The results of the first stage.
        named: Results whose figures come first.
    """
    if not in_notebook():
        return
    from icl_mech.plots import show

    name = next((name for name in (*named, *analysis) if name in analysis), "")
    with suppress(IclMechError):  # it costs no more than the preview
        show(f"First {analysis.title}", analysis.plot(name))


def _note(record: dict[str, Any]) -> str:
    """What was measured, what was left out, and what more time would buy."""
    n, total = record["n"], record["of"]
    text = (
        f"budget: {n} of {counted(total, 'prompt')} were measured in {duration(record['spent'])}, of "
        f"{duration(record['seconds'])} allowed."
    )
    if record["spent"] > record["seconds"] and n <= FIRST:
        text += " No smaller number of prompts is measured."
    if n < total:
        text += (
            f" All {total} would take about {duration(record['all_prompts'])}, and intervals would be about "
            f"{sqrt(n / total):.2f} times as wide."
        )
    if left := record["networks_of"] - record["networks"]:
        cost = record["all_networks"]
        much = (
            f"would take about {duration(cost)} more" if cost else "were measured by earlier runs"
        )
        text += f" {counted(left, 'untrained network')} to compare flow and attention with {much}."
    return text
