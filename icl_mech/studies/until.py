"""`until=`: stages with more and more prompts until intervals are as narrow as requested.

The coverage of these intervals, and how the constants were chosen: `docs/benchmarks/until.md`.

Sources: Stein 1945, *A two-sample test for a linear hypothesis whose power is independent of the variance*;
Chow and Robbins 1965, *On the asymptotic theory of fixed-width sequential confidence intervals*.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import Parameter, signature
from math import ceil, inf, isfinite, sqrt
from os.path import isdir
from pathlib import Path
from typing import Any

from icl_mech.checking import shown
from icl_mech.errors import RunError, near_matches
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.running import Prompts
from icl_mech.models.rehearsal import stage
from icl_mech.prompts.given import drawn_again, room
from icl_mech.results import given_path, is_vacant
from icl_mech.results.wording import listed
from icl_mech.studies.analysis import Analysis
from icl_mech.studies.bench import Bench, prepared_folder
from icl_mech.studies.claim import Effect
from icl_mech.studies.study import Study, quantities

FIRST = 48
"""Minimum number of prompts in the first stage: widths of fewer skewed values are often too small by chance."""

LACKING = 12
"""Number of prompts added in the correction for stopping early at a width that is small by chance."""

MARGIN = 1.1
"""Factor on the number of prompts that a width requires, so that the next stage is mostly the last."""

GROWTH = 4
"""Maximum growth factor from one stage to the next; by default also from the first stage to the whole run."""

STEP = 8
"""Later stages have a multiple of this number of prompts."""

STAGES = "stages"
"""Folder of the stages, in the folder of the run."""

OF_EVERY = ("until", "most")
"""Options of `analyze` for every study."""


def narrow(n: int, ratio: float) -> bool:
    """True if the run may stop after n prompts with half-widths of `ratio` times the requested ones.

    Stopping at the first small width favours widths that are too small by chance; requiring
    `ratio * sqrt(1 + 12/n) <= 1` corrects for that.
    """
    return ratio * sqrt(1 + LACKING / n) <= 1


def following(n: int, ratio: float, most: int) -> int:
    """Number of prompts in the stage after one with n: `1.1 * (n + 12) * ratio^2`, within bounds."""
    wanted = MARGIN * (n + LACKING) * min(ratio, 1e3) ** 2
    return min(STEP * ceil(wanted / STEP), GROWTH * n, most)


@dataclass(frozen=True)
class Goal:
    """The requested precision.

    Attributes:
        halves: Maximum half-width of the interval of each effect.
        most: Maximum number of prompts measured at once; None: four times the first stage.
    """

    halves: Mapping[Effect, float]
    most: int | None = None

    def widths(self, bench: Bench, prompts: Prompts) -> dict[str, float | None]:
        """Half-width of the interval of each effect; None if it has no interval."""
        batches = prompts if isinstance(prompts, tuple) else (prompts,)
        run = Analysis(bench.results, "", prompts=batches)
        intervals = {effect.name: effect.interval(run) for effect in self.halves}
        known = {
            name: (interval.high - interval.low) / 2
            for name, interval in intervals.items()
            if interval
        }
        return {
            name: width if isfinite(width := known.get(name, inf)) else None for name in intervals
        }

    def ratio(self, widths: Mapping[str, float | None]) -> float:
        """The largest ratio of a half-width to the requested one; 0 if no effect has an interval."""
        return max((widths[effect.name] or 0.0) / half for effect, half in self.halves.items())


def goal_of(
    study: Study, besides: Sequence[AnyMeasurement[Any, Any]], until: object, most: int | None
) -> Goal | None:
    """The goal that `until=` and `most=` of `analyze` set; None without them.

    Raises:
        RunError: an invalid width, or an effect that the study does not have.
    """
    if until is None and most is None:
        return None
    if until is None:
        raise RunError(
            f"most={most} limits the prompts of until=, which was not given; give until=, or leave out most=."
        )
    halves: dict[Effect, Any] = {}
    if isinstance(until, Mapping) and until:
        halves = {_effect(name, study, besides): half for name, half in until.items()}
    else:
        effects = study.claims[0].effects if study.claims else study.quantities
        halves = dict.fromkeys(effects, until)
    if not halves:
        raise RunError(
            f"until={shown(until)}: the {study.name} study has no claim with an effect; name the quantity whose "
            "interval should be narrow, such as until={'predictions.accuracy': 0.1}."
        )
    for half in halves.values():
        if isinstance(half, bool) or not isinstance(half, int | float) or not 0 < half < inf:
            raise RunError(
                f"until={shown(half)} is not a width; give the maximum half-width of the 95 % interval, a number above "
                "0 such as 0.1, or {effect: number}."
            )
    return Goal(halves, most)


def _effect(name: object, study: Study, besides: Sequence[AnyMeasurement[Any, Any]]) -> Effect:
    effects = {effect.name: effect for effect in study.effects}
    effect = effects.get(str(name)) or quantities().get(str(name)) or Effect(str(name), str(name))
    parts = {*study.parts, *(measurement.name for measurement in besides)}
    if isinstance(effect.of, str):
        part, _, quantity = effect.of.partition(".")
        if part in parts and (part not in study.gives or _number(study.gives[part], quantity)):
            return effect
    elif effect.name in effects:
        return effect
    near = near_matches(name, [*effects, *(f"{part_name}.…" for part_name in parts)])
    raise RunError(
        f"until= names {shown(name)}, which is not an effect of the {study.name} study. {near}"
    )


def _number(kind: type, quantity: str) -> bool:
    """True if the quantity is a property of the result, or a method without required arguments."""
    member = getattr(kind, quantity, None)
    if not callable(member):
        return isinstance(member, property | cached_property)
    needed = list(signature(member).parameters.values())[1:]
    return all(parameter.default is not Parameter.empty for parameter in needed)


def in_stages(
    goal: Goal,
    prompts: Prompts,
    model: object,
    run: Callable[[Prompts, Path | None], Bench],
    out: str | Path | None,
) -> tuple[Bench, Prompts, dict[str, Any]]:
    """Run the stages; return the bench and prompts of the last one, and a record of all.

    Fixed-width sequential sampling (Chow and Robbins 1965) in the few stages of Stein's rule (1945). The rule looks
    only at widths, never at the position of an interval. A forecast counts the first stage and the most prompts.

    Args:
        goal: The requested precision.
        prompts: The given prompts, at most as many as in the first stage.
        model: The model for which they were built.
        run: Measures prompts, with a folder for finished results.
        out: Folder of the run; every stage has a subfolder, `stages/48`.

    Raises:
        RunError: a budget smaller than the first stage, or a folder of a run without stages.
        PromptError: no more prompts can be drawn.
    """
    n = max(FIRST, len(prompts[0] if isinstance(prompts, tuple) else prompts))
    asked = goal.most or GROWTH * n
    if asked < n:
        raise RunError(
            f"most={asked} is less than the {n} prompts of the first stage of until=; give a larger number."
        )
    most = room(prompts, model, n, asked)
    folder = None if out is None else given_path(out, option="out")
    if folder is not None and not (is_vacant(folder) or isdir(folder / STAGES)):
        raise RunError(
            f"{str(out)!r} holds a run that was made without until=; choose another folder."
        )
    kept, stages = prepared_folder(folder), list[dict[str, Any]]()
    if (rehearsal := stage()) is not None:
        rehearsal.depends[f"until=, the last stage counted with {most} prompts"] = None
    while True:
        data = drawn_again(prompts, model, n)
        bench = run(data, folder and folder / STAGES / str(n))
        stages.append({"n": n, "half_widths": goal.widths(bench, data)})
        ratio = inf if rehearsal else goal.ratio(stages[-1]["half_widths"])
        if narrow(n, ratio) or n == most:
            break
        n = most if rehearsal else following(n, ratio, most)
    halves = {effect.name: half for effect, half in goal.halves.items()}
    reached = ratio <= 1 and None not in stages[-1]["half_widths"].values()
    record = {"half_widths": halves, "most": asked, "stages": stages, "reached": reached}
    bench = replace(bench, out=kept, notes=[*bench.notes, _told(record, most)])
    for name, result in bench.results.items():
        bench.keep(name, result)
    return bench, data, record


def _told(record: Mapping[str, Any], most: int) -> str:
    """A note on the requested and the reached precision."""

    def reached(step: Mapping[str, Any]) -> str:
        halves = ("no interval" if w is None else f"{w:.3g}" for w in step["half_widths"].values())
        return f"{listed(halves)} with {step['n']} prompts"

    asked = listed(f"{name} (at most {half:g})" for name, half in record["half_widths"].items())
    last = record["stages"][-1]["half_widths"]
    text = f"until: the half-width of the 95 % interval of {asked} is {', '.join(map(reached, record['stages']))}."
    if none := [name for name, width in last.items() if width is None]:
        text += f" No interval, so the target was not reached: {listed(none)}."
    if all((last[name] or 0.0) <= half for name, half in record["half_widths"].items()):
        return text
    more = (
        "a larger most= allows more prompts"
        if most == record["most"]
        else "the task has no more examples"
    )
    return f"{text} The target was not reached; {more}."
