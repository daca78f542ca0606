"""`Judged`: a claim beside what one model shows of it, by means over tasks and seeds and task by task."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from icl_mech.errors import IclMechError
from icl_mech.metrics import Interval
from icl_mech.results.judging import (
    ROUNDING,
    Required,
    Status,
    disagreeing,
    holm,
    of_statement,
    together,
    would_do,
)
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.claim import Claim, Effect
from icl_mech.studies.competence import ABOVE_CONSTANT, QUESTION
from icl_mech.sweeps.averages import Averages
from icl_mech.sweeps.cells import Cell
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.sections import ends_of, fixed_of

OVER = ("task", "seed")

ALL = "all tasks"
"""In the place of a task's name: the mean over tasks."""

ABLE = Claim(QUESTION, (ABOVE_CONSTANT,))


@dataclass(frozen=True)
class Judged:
    """A claim beside what one model, or one run, shows of it.

    Attributes:
        model: Model or run.
        claim: The claim.
        paper: Whose it is.
        status: What the intervals say.
        finding: Effects with their intervals, and over how much.
        effects: By quantity.
        p: One-sided p-value; None where it cannot be judged.
        remark: What the status cannot say, in a few words.
        tasks: What each task alone shows, which is no part of Holm's family.
    """

    model: str
    claim: Claim
    status: Status
    finding: str
    effects: dict[str, Interval]
    p: float | None = None
    paper: str = ""
    remark: str = ""
    tasks: dict[str, "Judged"] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What the claim says of means over tasks and seeds."""
        return self.claim.averaged or self.claim.text

    @property
    def places(self) -> dict[str, "Judged"]:
        """By task, and `all tasks`, the mean over them; of one task that is its own."""
        if len(self.tasks) > 1:
            return {**self.tasks, ALL: self}
        return dict.fromkeys(self.tasks, self)


def by_model(sweep: Sweep, claim: Claim) -> Iterator[Judged]:
    """The claim by the mean over tasks and seeds, for each model that any item bears on."""
    for model, revision in dict.fromkeys((item.model, item.revision) for item in sweep.plan):
        part = sweep.select(model=model, revision=revision)
        name = model if revision is None else f"{model} at {revision}"
        own, done = _judge(part, name, claim), [i for i in part.plan if part.state(i) == "done"]
        tasks = list(dict.fromkeys(item.task for item in done))
        if not own.effects:
            continue
        if len(tasks) == 1:
            yield replace(own, tasks={tasks[0]: own})
            continue
        alone = {task: _judge(part.select(task=task), name, claim) for task in tasks}
        able = [task for task in tasks if not _undone(part.select(task=task), claim)]
        if 0 < len(able) < len(tasks):
            # A task that the model does not do speaks for and against nothing that is said of how it does.
            text = (
                f"left out, as the model does not do {listed([o for o in tasks if o not in able])}"
            )
            own = _judge(part.select(task=able), name, claim)
            words = f"{own.finding} {text[:1].upper()}{text[1:]}."
            own = replace(own, finding=words, remark=", ".join(filter(None, [own.remark, text])))
        found = {task: one.status for task, one in alone.items() if task in able or not able}
        if len(set(found.values())) > 1:
            # A mean speaks for tasks only where they agree.
            text = ", ".join(f"{task} {status}" for task, status in found.items())
            own = replace(
                own,
                finding=f"{own.finding} By task: {text}.",
                remark=", ".join(filter(None, [own.remark, f"by task {text}"])),
            )
        if own.status != "cannot be judged" and {"supported", "opposite"} <= set(found.values()):
            own = replace(own, status="mixed", p=1.0)
        yield replace(own, tasks=alone)


def _judge(part: Sweep, model: str, claim: Claim) -> Judged:
    """The claim by one model's items, without effects if none bears on it.

    Where items differ in more than tasks and seeds, their usual setting counts: the first one.
    """
    each: list[Required] = []
    effects: dict[str, Interval] = {}
    basis = setting = remark = ""
    counts = (0, "prompt", 1)
    for own in claim.effects:
        found = _effect(part, own)
        if found is None:
            each.append(Required(own.name, "cannot be judged", None))
            continue
        averages, cell = found
        effects[own.name] = interval = ends_of(cell)
        status = own.required(interval, cell.prompts).status
        counts = _counts(part, cell)
        measure = own.required(interval, _rests_on(part, cell))
        each.append(measure._replace(status=status, n=counts[0]))
        basis, setting = averages.basis(cell), _setting(averages, cell)
    measures = claim.measures(each)
    status = together(*(own.status for own in measures))
    words = "; ".join(f"{name} {said(one, sign=True)}" for name, one in effects.items())
    text = f"{words[:1].upper()}{words[1:]} ({basis}{setting})."
    if status in ("mixed", "cannot be judged") and len(measures) > 1:
        remark = disagreeing(measures)
        text = f"{text} Required measures: {remark}."
    if status in ("not shown", "cannot be judged"):
        text = f"{text} {would_do(measures, *counts[1:])}".strip()
    if claim.needs and (lacking := _lacking(part, claim)) is not None:
        status = "cannot be judged"
        remark = f"there is no clear {claim.needs.name}: {said(lacking, sign=True)}"
        text = f"T{remark[1:]}. {text}"
    p = of_statement(status, (own.p for own in measures))
    return Judged(model, claim, status, text, effects, p, remark=remark)


def _counts(part: Sweep, cell: Cell) -> tuple[int, str, int]:
    """How many tasks, seeds of each, or prompts narrow an interval, which these are, and of how many groups."""
    tasks, seeds = cell.counts.get("task", 1), cell.counts.get("seed", 1)
    if len(cell.units) > 1 and tasks > 1 and not fixed_of(part):
        return len(cell.units), "task", 1
    return (seeds, "seed", tasks) if seeds > 1 else (cell.prompts, "prompt", 1)


def _rests_on(part: Sweep, cell: Cell) -> int:
    """Of how many an interval is a mean: the few tasks or seeds it goes over, or else prompts."""
    if fixed_of(part):
        return cell.items if cell.counts.get("seed", 1) > 1 else cell.prompts
    return len(cell.units) if len(cell.units) > 1 else cell.prompts


def among_all(found: Sequence[Judged]) -> tuple[Judged, ...]:
    """The same; a claim stands if it stands among all claims and models that can be judged (Holm)."""
    count = sum(own.p is not None for own in found)
    stand = holm([own.p for own in found])
    return tuple(
        own if stands else _demoted(own, count) for own, stands in zip(found, stand, strict=True)
    )


def _demoted(own: Judged, count: int) -> Judged:
    """A claim that does not stand among all."""
    if own.p is None or own.status not in ("supported", "opposite"):
        return own
    among = f"among {counted(count, 'claim')} (Holm)"
    text = f"{own.finding} Alone it would be {own.status} (p = {own.p:.2g}, one-sided), but not {among}."
    told = [*filter(None, [own.remark]), f"{own.status} alone, but not {among}"]
    return replace(own, status="not shown", finding=text, remark=", ".join(told))


def _lacking(part: Sweep, claim: Claim) -> Interval | None:
    """What the claim needs, where it is known and not clear."""
    found = _effect(part, claim.needs) if claim.needs else None
    interval = None if found is None else ends_of(found[1])
    return None if interval is None or interval.low > ROUNDING else interval


def _undone(part: Sweep, claim: Claim) -> bool:
    """True if the claim is of how a task is done, and the model is not shown to do it."""
    of_how = claim.needs is not None and claim.needs.name == ABOVE_CONSTANT.name
    return of_how and _lacking(part, claim) is not None


def _effect(part: Sweep, effect: Effect) -> tuple[Averages, Cell] | None:
    try:
        found = part.average(effect, OVER, fixed=fixed_of(part))
    except IclMechError:
        return None
    return found, found.cells[-1] if "false_share" in found.varied else found.cells[0]


def _setting(averages: Averages, cell: Cell) -> str:
    named = [f"{d.replace('_', ' ')} {cell.dims[d]}" for d in averages.varied if cell.dims[d] != ""]
    if averages.fixed and cell.counts.get("task", 0) > 1:
        named.append("of just these tasks")
    return f"; {', '.join(named)}" if named else ""
