"""`compare`: runs side by side on one page: the papers' claims, figures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.errors import IclMechError, SweepError
from icl_mech.metrics import Interval
from icl_mech.reports import Fact, Finding, Origin, Page, write_page
from icl_mech.results.judging import (
    HOLM,
    Required,
    Status,
    disagreeing,
    holm,
    jointly,
    judged,
    largest,
    p_value,
    together,
)
from icl_mech.results.wording import counted, listed, said
from icl_mech.sweeps.averaged import Averages
from icl_mech.sweeps.cells import Cell, plural
from icl_mech.sweeps.item import DIMS
from icl_mech.sweeps.joined import Joined, as_sweep
from icl_mech.sweeps.papers import CLAIMS, Claim
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.sections import fixed_of, sections

if TYPE_CHECKING:
    import pandas as pd

OVER = ("task", "seed")


@dataclass(frozen=True)
class Judged:
    """A claim beside what one model, or one run, shows of it.

    Attributes:
        model: Model or run.
        claim: The claim.
        status: What the intervals say.
        finding: Effects with their intervals, and over how much.
        effects: By quantity.
        p: One-sided p-value; None where it cannot be judged.
    """

    model: str
    claim: Claim
    status: Status
    finding: str
    effects: dict[str, Interval]
    p: float | None = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """One or more runs side by side.

    Attributes:
        sweep: All their items.
        names: Of the runs.
    """

    sweep: Sweep
    names: tuple[str, ...] = ()

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Every claim of the papers that the items bear on, for each model.

        A claim stands if it stands among all claims and models that can be judged (Holm).
        """
        models = list(dict.fromkeys(item.model for item in self.sweep.plan))
        each = (_judge(self.sweep, model, claim) for claim in CLAIMS for model in models)
        found = [own for own in each if own is not None]
        count = sum(own.p is not None for own in found)
        stand = holm([own.p for own in found])
        return tuple(
            own if stands else _demoted(own, count)
            for own, stands in zip(found, stand, strict=True)
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row a claim and model: its status, and the effects with their intervals."""
        import pandas as pd

        rows = []
        for own in self.judged:
            row: dict[str, Any] = {
                "paper": own.claim.paper, "claim": own.claim.text, "model": own.model,
                "status": own.status,
            }  # fmt: skip
            for name, interval in own.effects.items():
                row |= {"quantity": name, **interval._asdict()}
                rows.append(dict(row))
        return pd.DataFrame(rows)

    def summary(self) -> str:
        """Every claim in one line."""
        lines = [self.sweep.summary()]
        lines += [f"  {o.claim.text} ({o.model}): {o.status}. {o.finding}" for o in self.judged]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The summary."""
        return f"<Comparison {self.summary()}>"

    def page(self) -> Page:
        """The page, which `to_html` writes."""
        several = len({own.model for own in self.judged}) > 1
        found = sections(self.sweep)
        keys = {section.key for section in found.sections}
        findings = [
            Finding(
                f"{own.claim.text} – **{own.model}**" if several else own.claim.text, own.status,
                own.finding, own.claim.part if own.claim.part in keys else "",
            )
            for own in self.judged
        ]  # fmt: skip
        origin = Origin(findings, _facts(self.sweep), self.sweep.made.get("command", ""), [
            "Square brackets hold nested 95 % intervals: over seeds and, of means over tasks, over "
            "tasks first; never narrower than those over prompts.",
            f"{HOLM}.",
            *_failures(self.sweep), *self.sweep.skipped, *found.notes,
        ])  # fmt: skip
        tasks = len({item.task for item, _ in self.sweep})
        names = self.names or tuple(dict.fromkeys(item.model for item in self.sweep.plan))
        return Page(
            f"What holds for {listed(names)}{f' on {tasks} tasks' if tasks > 1 else ''}?",
            found.sections, kicker="Comparison of runs" if self.names else "Sweep",
            lead=_lead(self.judged), origin=origin,
        )  # fmt: skip

    def to_html(self, path: str | Path, *, offline: bool = True, overwrite: bool = False) -> Path:
        """Write the page.

        Args:
            path: Of the page.
            offline: Put the plotly script into the page (about 5 MB); else load it from its CDN.
            overwrite: Replace whatever file is there; without it, only a page that this package
                wrote and nobody edited.

        Raises:
            ResultError: the page cannot be written, or another file is there.
            SweepError: nothing can be drawn.
        """
        page = self.page()
        if not page.sections:
            raise SweepError("The items hold nothing that the page could show.")
        return write_page(path, page, offline=offline, overwrite=overwrite)


def compare(*runs: Any, names: Sequence[str] | None = None) -> Comparison:
    """Two or more runs side by side: the papers' claims with nested intervals, figures and tables.

    Args:
        *runs: Sweeps, analyses, or the folders of either.
        names: What to call them; by default the folders' names, or the models'.

    Raises:
        SweepError: fewer than two runs, no run, or other names than there are runs.
    """
    if len(runs) < 2:
        raise SweepError("Give two runs at least: compare('runs/a', 'runs/b').")
    found = [as_sweep(run) for run in runs]
    called = list(names) if names is not None else _names(runs, found)
    if len(called) != len(runs) or len(set(called)) < len(called):
        raise SweepError(f"names={called}; give {len(runs)} different names, one for each run.")
    return Comparison(Joined(dict(zip(called, found, strict=True))), tuple(called))


def comparison(sweep: Sweep) -> Comparison:
    """The models of one sweep side by side."""
    return Comparison(sweep)


def _names(runs: Sequence[Any], found: Sequence[Sweep]) -> list[str]:
    names = []
    for run, own in zip(runs, found, strict=True):
        folder = isinstance(run, str | Path)
        names.append(Path(run).name if folder else own.plan[0].model)
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, start=1)]
    return names


def _judge(sweep: Sweep, model: str, claim: Claim) -> Judged | None:
    """The claim by the mean over tasks and seeds; None if no item bears on it.

    Where items differ in more than tasks and seeds, their usual setting counts: the first one.
    """
    part = sweep.select(model=model)
    measures: list[Required] = []
    effects: dict[str, Interval] = {}
    basis = setting = ""
    for name, null, rising in claim.effects:
        found = _effect(part, name)
        if found is None:
            measures.append(Required(name, "cannot be judged", None))
            continue
        averages, cell = found
        effects[name] = interval = _interval(cell)
        status = judged(interval, null=null, rising=rising, prompts=cell.prompts)
        measures.append(
            Required(name, status, p_value(interval, null=null, prompts=_rests_on(part, cell)))
        )
        basis, setting = averages.basis(cell), _setting(averages, cell)
    if not effects:
        return None
    status = (jointly if claim.one else together)(*(own.status for own in measures))
    words = "; ".join(f"{name} {said(own, sign=True)}" for name, own in effects.items())
    text = f"{words[0].upper()}{words[1:]} ({basis}{setting})."
    if status in ("mixed", "cannot be judged"):
        text = f"{text} Required measures: {disagreeing(measures)}."
    alone = _by_task(part, claim)
    if {"supported", "opposite"} <= set(alone.values()):
        status = "mixed"
    if len(set(alone.values())) > 1:
        # A mean speaks for tasks only where they agree.
        text = f"{text} By task: {', '.join(f'{task} {own}' for task, own in alone.items())}."
    if claim.needs and (needed := _effect(part, claim.needs)) is not None:
        interval = _interval(needed[1])
        if interval.low <= 0:
            status = "cannot be judged"
            text = f"There is no clear {claim.needs} to close: {said(interval, sign=True)}. {text}"
    p = {"cannot be judged": None, "mixed": 1.0}.get(status, largest(own.p for own in measures))
    return Judged(model, claim, status, text, effects, p)


def _rests_on(part: Sweep, cell: Cell) -> int:
    """Of how many an interval is a mean: the few tasks or seeds it goes over, or else prompts."""
    if fixed_of(part):
        return max(cell.items, 2)
    return len(cell.units) if len(cell.units) > 1 else cell.prompts


def _demoted(own: Judged, count: int) -> Judged:
    """A claim that does not stand among all."""
    if own.p is None or own.status not in ("supported", "opposite"):
        return own
    text = f"{own.finding} Alone it would be {own.status} (p = {own.p:.2g}, one-sided), but not "
    return replace(
        own, status="not shown", finding=f"{text}among {counted(count, 'claim')} (Holm)."
    )


def _by_task(part: Sweep, claim: Claim) -> dict[str, Status]:
    """What each task alone says, where there are several."""
    tasks = list(dict.fromkeys(item.task for item in part.plan))
    found: dict[str, Status] = {}
    for task in tasks if len(tasks) > 1 else ():
        own = part.select(task=task)
        each: list[Status] = []
        for name, null, rising in claim.effects:
            cell = None if (effect := _effect(own, name)) is None else effect[1]
            interval, n = (None, None) if cell is None else (_interval(cell), cell.prompts)
            each.append(judged(interval, null=null, rising=rising, prompts=n))
        found[task] = (jointly if claim.one else together)(*each)
    return found


def _effect(part: Sweep, name: str) -> tuple[Averages, Cell] | None:
    try:
        found = part.average(name, OVER, fixed=fixed_of(part))
    except IclMechError:
        return None
    return found, found.cells[-1] if "false_share" in found.varied else found.cells[0]


def _interval(cell: Cell) -> Interval:
    return Interval(float(cell.value), float(cell.low), float(cell.high))


def _setting(averages: Averages, cell: Cell) -> str:
    named = [f"{d.replace('_', ' ')} {cell.dims[d]}" for d in averages.varied if cell.dims[d] != ""]
    if averages.fixed and cell.counts.get("task", 0) > 1:
        named.append("of just these tasks")
    return f"; {', '.join(named)}" if named else ""


def _lead(found: Sequence[Judged]) -> str:
    if not found:
        return "None of the papers' claims can be judged from these items."
    shown = sum(own.status == "supported" for own in found)
    return f"Of {counted(len(found), 'claim')} judged, {shown} {'is' if shown == 1 else 'are'} supported."


def _failures(sweep: Sweep, most: int = 3) -> list[str]:
    failed = sweep.failures()
    shown = [f"Failed: {text}" for text in failed[:most]]
    return [*shown, f"{len(failed) - most} more reasons."] if len(failed) > most else shown


FACTS = {
    "n": "Prompts",
    "shots": "Demonstrations per class",
    "false_share": "Share of false labels",
}
"""What dimensions are called, where their name does not say it."""


def _facts(sweep: Sweep) -> list[Fact]:
    facts = []
    for dim in DIMS:
        values = [str(getattr(item, dim)) for item in sweep.plan]
        named = [o.replace("_", " ") for o in dict.fromkeys(values) if o not in ("", "None")]
        if named:
            text = listed(named) if len(named) < 7 else f"{len(named)}: {', '.join(named[:6])}, …"
            usual = plural(dim) if len(named) > 1 else dim.replace("_", " ")
            facts.append(Fact(FACTS.get(dim, usual.capitalize()), text))
    states = {
        own: sum(sweep.state(i) == own for i in sweep.plan)
        for own in ("done", "failed", "unfinished")
    }
    facts.append(
        Fact("Items", ", ".join(f"{count} {own}" for own, count in states.items() if count))
    )
    if sweep.made.get("date"):
        facts.append(Fact("Made", str(sweep.made["date"])))
    return facts
