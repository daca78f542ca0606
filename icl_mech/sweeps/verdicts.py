"""`Judged`: a claim and its verdict for one model, by means over tasks and seeds and task by task."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import nan

from icl_mech.errors import IclMechError
from icl_mech.metrics import Interval
from icl_mech.metrics.ratios import nested_ratio
from icl_mech.results.judging import Controlled, Status, would_do
from icl_mech.results.wording import listed, said
from icl_mech.studies import Analysis
from icl_mech.studies.claim import Claim, Effect, Evidence
from icl_mech.studies.competence import OF_TASKS
from icl_mech.studies.judge import Judgement, Verdict, bears, judge
from icl_mech.studies.judge import among_all as stand_together
from icl_mech.sweeps.averages import Averages
from icl_mech.sweeps.cells import Cell
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.reading import share_drawn
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.sections import ends_of, fixed_of

OVER = ("task", "seed")

ALL = "all tasks"
"""Name used instead of a task's: the mean over tasks."""


@dataclass(frozen=True)
class Judged:
    """A claim and its verdict for one model or one run.

    Attributes:
        model: Model or run.
        claim: The claim.
        verdict: What the intervals show, and what they are averaged over.
        paper: The paper behind the claim.
        tasks: Verdicts on each task alone, which are not part of Holm's family.
    """

    model: str
    claim: Claim
    verdict: Verdict
    paper: str = ""
    tasks: dict[str, "Judged"] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """Status of the claim, corrected for all claims that are judged together."""
        return self.verdict.status

    @property
    def p(self) -> float | None:
        """One-sided p-value; None if it cannot be judged."""
        return self.verdict.p

    @property
    def finding(self) -> str:
        """Effects with their intervals, and what they are averaged over."""
        return self.verdict.finding

    @property
    def remark(self) -> str:
        """What the status does not say, in a few words."""
        return self.verdict.remark

    @property
    def effects(self) -> dict[str, Interval]:
        """Intervals of the effects, by name."""
        return self.verdict.effects

    @property
    def text(self) -> str:
        """The claim as worded for means over tasks and seeds."""
        return self.claim.averaged or self.claim.text

    @property
    def places(self) -> dict[str, "Judged"]:
        """Verdicts by task, and for the mean over them as `all tasks`; a single task has this verdict."""
        if len(self.tasks) > 1:
            return {**self.tasks, ALL: self}
        return dict.fromkeys(self.tasks, self)


def by_model(sweep: Sweep, claim: Claim) -> Iterator[Judged]:
    """Judge the claim by the mean over tasks and seeds, for each model with runs that bear on it."""
    for model, revision in dict.fromkeys((item.model, item.revision) for item in sweep.plan):
        part = sweep.select(model=model, revision=revision)
        name = model if revision is None else f"{model} at {revision}"
        if not any(bears(claim, run) for _, run in part):
            continue
        tasks = list(dict.fromkeys(item.task for item, _ in part))
        alone = {
            task: Judged(name, claim, _verdict(part.select(task=task), claim)) for task in tasks
        }
        verdict = alone[tasks[0]].verdict if len(tasks) == 1 else _of_tasks(part, claim, alone)
        yield Judged(name, claim, verdict, tasks=alone)


def _of_tasks(part: Sweep, claim: Claim, alone: dict[str, Judged]) -> Verdict:
    """Judge the claim by the mean over the tasks that the model can do, if these do not contradict each other."""
    able = [task for task in alone if not _undone(part.select(task=task), claim)]
    verdict = _verdict(part.select(task=able) if 0 < len(able) < len(alone) else part, claim)
    remarks = []
    if 0 < len(able) < len(alone):
        # A task on which demonstrations do not help gives no evidence on how they help.
        others = listed([task for task in alone if task not in able])
        remarks.append(
            f"left out, because demonstrations are not shown to help the model do the task: {others}"
        )
    statuses = {task: judged.status for task, judged in alone.items() if task in able or not able}
    if len(set(statuses.values())) > 1:
        remarks.append(
            f"by task: {', '.join(f'{task} {status}' for task, status in statuses.items())}"
        )
    if verdict.status != "cannot be judged" and {"supported", "opposite"} <= set(statuses.values()):
        verdict = replace(verdict, status="mixed", p=1.0)
    sentences = " ".join(f"{remark[:1].upper()}{remark[1:]}." for remark in remarks)
    return replace(
        verdict,
        finding=f"{verdict.finding} {sentences}".strip(),
        remark=", ".join(filter(None, [verdict.remark, *remarks])),
    )


def _verdict(part: Sweep, claim: Claim) -> Verdict:
    """Judge the claim by one model's runs.

    If runs differ in more than tasks and seeds, their usual setting counts: the first one.
    """
    judgement = judge(claim, lambda effect: _evidence(part, effect, claim.part))
    words = "; ".join(
        f"{name} {said(interval, sign=True)}" for name, interval in judgement.effects.items()
    )
    averages = [
        average for effect in claim.effects if (average := _average(part, effect)) is not None
    ]
    basis = (
        "".join([averages[-1][0].basis(averages[-1][1]), _setting(*averages[-1])])
        if averages
        else ""
    )
    text = f"{words[:1].upper()}{words[1:]} ({basis})." if averages else ""
    if judgement.lacking:
        text = f"{judgement.lacking} {text}".strip()
    elif judgement.remark:
        text = f"{text} Required measures: {judgement.remark}."
    if judgement.status in ("not shown", "cannot be judged") and averages and not judgement.lacking:
        counts = _counts(part, averages[-1][1])
        text = f"{text} {would_do(judgement.measures, *counts[1:])}".strip()
    return _said(judgement, text)


def _said(judgement: Judgement, text: str) -> Verdict:
    return Verdict(
        judgement.claim.text,
        judgement.status,
        text,
        judgement.claim.part,
        judgement.measures,
        judgement.status,
        judgement.p,
        effects=judgement.effects,
        lacking=judgement.lacking,
        remark=judgement.remark,
    )


def _evidence(part: Sweep, effect: Effect, of: str) -> Evidence | None:
    """Evidence on an effect in the usual setting: as on the page of its only run, else the mean over runs."""
    average = _average(part, effect)
    if average is None:
        return None
    _, cell = average
    runs = _runs(part, cell, effect)
    if len(runs) == 1:
        return effect.evidence(runs[0][1], of)
    interval = _ratio(effect, runs) or _with_controls(effect, runs, ends_of(cell))
    return Evidence(interval, cell.prompts, _rests_on(part, cell), _counts(part, cell)[0])


def _runs(part: Sweep, cell: Cell, effect: Effect) -> list[tuple[Item, Analysis]]:
    """Finished runs that an average is taken over."""
    return [
        (item, run)
        for item, run in part
        if all(getattr(item, dim) == place for dim, place in cell.dims.items())
        and effect.interval(run) is not None
    ]


def _ratio(effect: Effect, runs: Sequence[tuple[Item, Analysis]]) -> Interval | None:
    """The ratio of means over runs, which may be undefined for a single run; None for effects that are not ratios."""
    if effect.parts is None:
        return None
    parts = [pair for _, run in runs if (pair := effect.parts(run)) is not None]
    drawn = max(share_drawn(item, run) for item, run in runs)
    return nested_ratio(*map(list, zip(*parts, strict=True)), drawn=drawn)


def _with_controls(
    effect: Effect, runs: Sequence[tuple[Item, Analysis]], mean: Interval
) -> Interval:
    """A mean of effects with the means of their controls; not-a-number ends if these have none.

    Randomly initialised models are averaged as the effect is, seeds first; p-values over the words of single runs have no mean.
    """
    by_task: dict[str, list[tuple[float, ...] | None]] = defaultdict(list)
    controlled = False
    for item, run in runs:
        interval = effect.interval(run)
        controlled |= isinstance(interval, Controlled)
        by_task[item.task].append(getattr(interval, "networks", None))
    if not controlled:
        return mean
    known = {
        task: [networks for networks in each if networks is not None]
        for task, each in by_task.items()
    }
    sizes = {len(networks) for each in known.values() for networks in each}
    if len(sizes) != 1 or any(None in each for each in by_task.values()):
        return Interval(mean.value, nan, nan)
    return Controlled.of(mean, networks=_means([_means(each) for each in known.values()]))


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each column."""
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _counts(part: Sweep, cell: Cell) -> tuple[int, str, int]:
    """Number of units that would narrow an interval, their kind (task, seed or prompt), and number of their groups."""
    tasks, seeds = cell.counts.get("task", 1), cell.counts.get("seed", 1)
    if len(cell.units) > 1 and tasks > 1 and not fixed_of(part):
        return len(cell.units), "task", 1
    return (seeds, "seed", tasks) if seeds > 1 else (cell.prompts, "prompt", 1)


def _rests_on(part: Sweep, cell: Cell) -> int:
    """Number of units behind an interval: the few tasks or seeds it averages over, or else prompts."""
    if fixed_of(part):
        return cell.items if cell.counts.get("seed", 1) > 1 else cell.prompts
    return len(cell.units) if len(cell.units) > 1 else cell.prompts


def among_all(judged: Sequence[Judged]) -> tuple[Judged, ...]:
    """The same with verdicts corrected for all claims and models that can be judged (Holm)."""
    verdicts = stand_together([result.verdict for result in judged])
    return tuple(
        replace(result, verdict=verdict) for result, verdict in zip(judged, verdicts, strict=True)
    )


def _undone(part: Sweep, claim: Claim) -> bool:
    """True if a claim on how a task is done lacks evidence that demonstrations help the model to do it."""
    names = {need.name for need in OF_TASKS}
    of_tasks = [need for need in claim.needed if need.name in names]
    return bool(
        judge(Claim("", needs=of_tasks), lambda effect: _evidence(part, effect, "")).lacking
    )


def _average(part: Sweep, effect: Effect) -> tuple[Averages, Cell] | None:
    try:
        average = part.average(effect, OVER, fixed=fixed_of(part))
    except IclMechError:
        return None
    return average, average.cells[-1] if "false_share" in average.varied else average.cells[0]


def _setting(averages: Averages, cell: Cell) -> str:
    named = [f"{d.replace('_', ' ')} {cell.dims[d]}" for d in averages.varied if cell.dims[d] != ""]
    if averages.fixed and cell.counts.get("task", 0) > 1:
        named.append("for these tasks only")
    return f"; {', '.join(named)}" if named else ""
