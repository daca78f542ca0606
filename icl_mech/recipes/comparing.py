"""`Reproduction`: published numbers next to measured ones, with a verdict for each, and their HTML report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os.path import expanduser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._files import replace_file
from icl_mech.errors import IclMechError, SweepError
from icl_mech.export_text import as_bytes
from icl_mech.metrics import Interval
from icl_mech.recipes.foreseen import ELSEWHERE, Lack, by_reason, missing, short_reason
from icl_mech.recipes.recipe import MEAN, OF_SWEEPS, Number, Recipe, papers
from icl_mech.recipes.rows import INSIDE, OUTSIDE, UNDEFINED, Own, Row, shared_reasons
from icl_mech.recipes.table import Marks, caption, laid_out, latex
from icl_mech.reports import Fact, Origin, Page, Paged, Section
from icl_mech.results.wording import counted, listed
from icl_mech.shapes import Bars
from icl_mech.studies import Analysis
from icl_mech.studies.claim import Effect
from icl_mech.studies.pages import sections_of
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.averages import of_tasks
from icl_mech.sweeps.item import DIMS, Item, short_name
from icl_mech.sweeps.reading import Reading
from icl_mech.sweeps.result import NoValue
from icl_mech.sweeps.sections import facts, failures, sections

if TYPE_CHECKING:
    import pandas as pd

OVER = ("shots", "total", "format", "n")
"""Dimensions averaged in addition to seeds and tasks, if the items of one number differ in them."""

BRACKETS = (
    "Square brackets hold hierarchical 95 % intervals, over seeds and never narrower than those over prompts; "
    "a mean is over these particular tasks."
)
PRINTED = "Published numbers are taken as printed: papers rarely give their uncertainty."
ABOVE = "Numbers measured here stand above the published ones."
NO_NUMBERS = "The paper gives no numbers to compare with."
FAILED = "that a number outside the interval is a failed replication: see the notes at the top."
OTHERS = "Other tasks than the paper's, so no differences are given"
NOTHING = "the other tasks have no replacement"

DRAWN = 24
"""Rows of the figure; where there are more, it shows means alone."""


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(Paged):
    """The results of a recipe.

    Attributes:
        recipe: The recipe.
        sweep: All items.
        stand_ins: The task measured instead of each of the paper's; None: the paper's tasks, empty: no task replaces one.
        scale: Fraction of the paper's prompts and seeds.
        lacks: What the models cannot have, as it was found before the runs.
    """

    recipe: Recipe
    sweep: Sweep
    stand_ins: Mapping[str, str] | None = None
    scale: float = 1.0
    lacks: Sequence[Lack] = ()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every published number next to the measured one."""
        models = dict.fromkeys(
            [*(item.model for item in self.sweep.plan), *(lack.model for lack in self.lacks)]
        )
        numbers = self.recipe.numbers
        return tuple(
            row for number in numbers for model in models for row in self._rows(number, model)
        )

    def _rows(self, number: Number, model: str) -> Iterator[Row]:
        published = number.published
        ours = {task: task for task in number.tasks} if self.stand_ins is None else self.stand_ins
        wanted = [
            *(item.task for item in self.sweep.plan),
            *(lack.task for lack in self.lacks if lack.task),
        ]
        measured = list(dict.fromkeys(wanted))
        # If no measured task replaces one of the paper's, means stand side by side.
        for paper_task in number.tasks if ours else [MEAN]:
            task = MEAN if paper_task == MEAN else ours.get(paper_task, "")
            if not task or (
                self.stand_ins is None and paper_task not in published.get(model, ours)
            ):
                continue
            known = {
                name: tasks[paper_task] for name, tasks in published.items() if paper_task in tasks
            }
            reasons = [number.why_not] if number.why_not else []
            if not published:
                reasons.append("the paper gives no number")
            elif model not in known:
                reasons.append("another model")
            if self.stand_ins is not None:
                reasons.append("other tasks")
            for label, interval, basis, lacking, lost in self._own(number, model, task):
                why = (*reasons, *lacking)
                of = measured[0] if task == MEAN and len(measured) == 1 else task
                yield Row(number, model, of, paper_task, known, interval, basis, why, label, lost)

    def _own(self, number: Number, model: str, task: str) -> Iterator[Own]:
        """The measured values, what they are averaged over, and why they are missing or cannot be compared."""
        labels = {name: label for name, label in number.at.items() if name not in DIMS}
        if not number.has_meaning(model):
            yield "", UNDEFINED, "", [ELSEWHERE.format(number.theirs)], ()
            return
        part = self._runs(number, model, task)
        done = [item for item in part.plan if part.state(item) == "done"]
        refused = self._refused(number, model, task, part)
        if not done:
            why = [f"not measured ({by_reason(refused)})"] if task == MEAN else []
            why = why or [f"not measured: {short_reason(reason)}" for reason in refused.values()]
            yield "", UNDEFINED, "", why if refused else ["no run finished"], ()
            return
        try:
            quantity: Any = number.quantity
            if number.along:
                labels = _with_ends(labels, part.readings(quantity)[0])
            elif number.part:
                quantity, labels = _read(number, labels), {}
            fixed = ("task",) if task == MEAN else ()
            varied = [d for d in OVER if len({getattr(item, d) for item in part.plan}) > 1]
            over = [*fixed, *varied, "seed"]
            whole = OF_SWEEPS.get(number.quantity)
            lost: Sequence[Item] = ()
            if whole:
                averages = whole(part, over=over)
            else:
                defined, lost = _defined(part, quantity, labels)
                averages = defined.average(quantity, over, fixed=fixed, **labels)
            cell = averages.one()
        except NoValue:
            yield "", UNDEFINED, "", [_lacking("any run", number, part, done)], ()
            return
        except IclMechError as error:
            yield "", UNDEFINED, "", [f"no value ({error})"], ()
            return
        why = []
        if cell.items < len(done):
            where = listed(dict.fromkeys(item.task for item in lost))
            of = f"{len(done) - cell.items} of {counted(len(done), 'run')}"
            why.append(_lacking(f"{of} ({where})" if where else of, number, part, lost))
        if task == MEAN and refused:
            tasks = {item.task for item in part.plan} | {*refused}
            had = f"{len(tasks) - len(refused)} of {len(tasks)} tasks"
            why.append(
                f"only {had} {'was' if len(tasks) - len(refused) == 1 else 'were'} measured ({by_reason(refused)})"
            )
        if cell.counts["seed"] < 2 and any(item.demonstrations == "shared" for item in part.plan):
            why.append("one set of demonstrations for each task")
        factor, basis = 100.0 if number.percent else 1.0, averages.basis(cell)
        ends = torch.stack([cell.value, cell.low, cell.high]).reshape(3, -1).T * factor
        along = dict(zip(averages.axes, averages.labels, strict=True)).get(number.along, ("",))
        if {*averages.axes} != {*filter(None, [number.along])}:
            axes = listed(averages.axes) or "none"
            why = [f"no single value: the axes of the quantity are {axes}"]
            yield "", UNDEFINED, basis, why, ()
            return
        for label, value in zip(along, ends.tolist(), strict=True):
            words = f"{number.along} {label}" if isinstance(label, int | float) else str(label)
            if not math.isfinite(value[0]):
                runs = "at least one run" if number.along else "any run"
                yield words, UNDEFINED, basis, [_lacking(runs, number, part, done)], lost
            elif not all(map(math.isfinite, value)) or math.isclose(
                value[1], value[2], rel_tol=1e-6
            ):
                alone = Interval(value[0], math.nan, math.nan)
                yield words, alone, basis, ["it has no interval", *why], lost
            else:
                yield words, Interval(*value), basis, why, lost

    def _runs(self, number: Number, model: str, task: str) -> Sweep:
        """The runs that the number is averaged over; none if the model can do none of them."""
        places: dict[str, Any] = {"model": [model]} | ({} if task == MEAN else {"task": [task]})
        for name in {*DIMS} & number.at.keys():
            at = number.at[name]
            there = {getattr(item, name) for item in self.sweep.plan}
            places[name] = [
                place for place in (at if isinstance(at, list) else [at]) if place in there
            ]
        for item in self.sweep.plan:
            if all(getattr(item, name) in at for name, at in places.items()):
                return self.sweep.select(**places)
        return Sweep([])

    def _refused(self, number: Number, model: str, task: str, part: Sweep) -> dict[str, str]:
        """Why tasks of the number have no finished run, by task."""
        everywhere = {item.task for item in self.sweep.plan} | {lack.task for lack in self.lacks}
        tasks = everywhere - {""} if task == MEAN else {task}
        refused: dict[str, str] = {}
        for lack in self.lacks:
            if lack.meets(number, model, tasks):
                refused |= dict.fromkeys([lack.task] if lack.task else sorted(tasks), lack.why)
        done = {item.task for item in part.plan if part.state(item) == "done"}
        for item in part.plan:
            if item.task not in done and (why := part.error(item)):
                refused.setdefault(item.task, why)
        return {name: why for name, why in refused.items() if name not in done}

    # --- to be read ---

    @property
    def _published(self) -> bool:
        """True if there are published numbers beside those measured here."""
        return any(row.published for row in self.rows)

    @property
    def lead(self) -> str:
        """The outcome in a sentence or two."""
        every = [row.verdict for row in self.rows]
        inside, outside = every.count(INSIDE), every.count(OUTSIDE)
        if not inside + outside:
            why = (
                shared_reasons(self.rows)
                or list(dict.fromkeys(w for row in self.rows for w in row.why))[:3]
            )
            return f"This neither confirms nor contradicts the paper: {'; '.join(why)}."
        rest = len(every) - inside - outside
        return (
            f"{inside} of {counted(inside + outside, 'published number')} within the interval measured here, "
            f"{outside} outside it{f'; {rest} cannot be compared' * bool(rest)}."
        )

    def summary(self) -> str:
        """Every row in one line, followed by the reasons why runs failed; numbers along one axis share lines."""
        several = len({row.model for row in self.rows}) > 1
        lines: dict[object, list[str]] = {}
        marks = Marks(self.rows)
        for number, row in enumerate(self.rows):
            of = f"{row.of_task}{f' ({short_name(row.model)})' if several else ''}"
            if row.label:
                place = lines.setdefault((row.label, of), [f"{row.label}, {of}"])
                place.append(f"{row.number.name} {marks.measured(row)}")
                continue
            parts = [f"{row.name}, {of}: {marks.measured(row)}"]
            parts += [f"published {row.beside}"] if row.published else []
            if not row.why:
                apart = f"differs by {row.apart}"
                parts.append(apart if row.verdict == OUTSIDE else INSIDE)
            lines[number] = ["; ".join(parts)]
        shown = [
            f"{first}: {'; '.join(rest)}" if rest else first for first, *rest in lines.values()
        ]
        shown += marks.lettered()
        shown += [f"failed: {text}" for text in self.sweep.failures()]
        return "\n".join([f"{self.recipe.name}: {self.lead}", *(f"  {line}" for line in shown)])

    def __repr__(self) -> str:
        """The summary."""
        return f"<Reproduction {self.summary()}>"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per number, task and model, with all reasons why they cannot be compared."""
        import pandas as pd

        return pd.DataFrame(
            {
                "quantity": row.name,
                "task": row.of_task,
                "model": row.model,
                **row.own._asdict(),
                "paper": row.published.get(row.model, math.nan),
                "difference": row.difference,
                "verdict": row.verdict,
                "why": "; ".join(row.why),
                "over": row.basis,
            }
            for row in self.rows
        )

    def page(self) -> Page:
        """The HTML report that `to_html` writes."""
        of, first = papers()[self.recipe.paper], self.sweep.plan[0].shots
        # If tasks differ in their demonstrations, figures of the sweep show the first number alone.
        main = self.sweep.select(shots=first)
        lost = [item for item in main.plan if all(item in row.lost for row in self.rows)]
        main = _without(main, lost) if lost else main
        content = sections(main, of_tasks(main.plan))
        notes = [BRACKETS] if any(row.own.low == row.own.low for row in self.rows) else []
        notes += [PRINTED] if self._published else []
        notes += [*self.recipe.notes, *failures(self.sweep), *self.sweep.skipped]
        if lost:
            where = listed(dict.fromkeys(item.task for item in lost))
            notes.append(
                f"Figures of means leave out runs that have none of these numbers ({where})."
            )
        if self.stand_ins is not None:
            beside = [
                f"{self.stand_ins[task]} for {task}"
                for task in self.recipe.tasks
                if task in self.stand_ins
            ]
            rest = [NOTHING] if 0 < len(beside) < len(self.recipe.tasks) else []
            said = "; ".join([*([listed(beside)] if beside else []), *rest])
            notes.insert(0, f"{OTHERS}{f': {said}' * bool(said)}.")
        sizes = sorted({item.n for item in self.sweep.plan})
        used = f"{' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} "
        used += f"{'prompt' if sizes[-1] == 1 else 'prompts'} per run, "
        used += counted(len({item.seed for item in self.sweep.plan}), "seed")
        scale = Fact("Scale", f"{self.scale:g} of the paper's prompts and seeds requested; {used}")
        about = [Fact("Measured", self.recipe.measures), scale, *facts(self.sweep)]
        command = self.sweep.made.get("command", "")
        models = listed(dict.fromkeys(short_name(item.model) for item in self.sweep.plan))
        return Page(
            f"{self.recipe.title}: {models} compared with the paper",
            [self._table(), *self._figure(), *self._of_first_run(), *content.sections],
            kicker=f"Recipe {self.recipe.name} · {of['name']} · {self.recipe.source}",
            lead=self.lead,
            origin=Origin((), about, command, [*notes, *content.notes]),
        )

    def to_latex(self, path: str | Path | None = None) -> str | None:
        """The table for a paper, in LaTeX with its caption: written to a file, or returned.

        Rows and columns are those of the paper, with published numbers below the measured ones. The
        document needs the packages `booktabs` and `graphicx`.

        Raises:
            SweepError: the file cannot be written.
        """
        text = latex(self.recipe, self.sweep, self.rows)
        if path is None:
            return text
        replace_file(Path(expanduser(path)), as_bytes(text), SweepError)
        return None

    def _table(self) -> Section:
        table, notes = laid_out(self.rows, self.recipe.title)
        of, numbers = self.recipe, self.to_pandas()
        once = [name for name in ("verdict", "why", "model") if numbers[name].nunique() == 1]
        numbers["model"] = numbers["model"].map(short_name)
        return Section(
            "Which of the published numbers are reproduced here?"
            if self._published
            else "What is measured here?",
            ABOVE if self._published else NO_NUMBERS,
            table,
            {"recipe": of.name, "source": of.source},
            caption=" ".join([caption(self.recipe, self.sweep, self.rows), *notes]),
            limits=FAILED if self._published else "",
            short="Published and measured",
            key="published",
            numbers=numbers.drop(columns=once),
        )

    def _of_first_run(self) -> list[Section]:
        """Figures of the first finished run, where the recipe asks for them."""
        if not self.recipe.show:
            return []
        item, analysis = next(iter(self.sweep), (None, None))
        if item is None or analysis is None:
            return []
        return [
            replace(
                section,
                caption=f"{section.caption} Of one run: {item.title}.",
                key=f"first-{section.key}",
            )
            for section in sections_of(analysis)
            if section.figure is not None and section.key.startswith(tuple(self.recipe.show))
        ]

    def _figure(self) -> list[Section]:
        """The numbers as dots, published ones as hollow marks; percentages, if there are any."""
        every = [row for row in self.rows if row.number.percent]
        rows = [row for row in every if len(every) <= DRAWN or row.paper_task == MEAN]
        rows = [row for row in rows if not math.isnan(row.own.value)]
        if not rows:
            return []
        value, low, high = torch.tensor([row.own for row in rows])[:, None].unbind(-1)
        several = len({row.model for row in rows}) > 1
        groups = tuple(
            f"{row.name}, {row.of_task}{f', {short_name(row.model)}' * several}" for row in rows
        )
        marks = [row.published for row in rows]
        published = tuple((i, 0, mark) for i, at in enumerate(marks) for mark in at.values())
        of = self.recipe
        drawn = Bars(
            of.title,
            groups,
            ("here",),
            value,
            low,
            high,
            "%",
            published=published,
            source=of.source,
        )
        text = "Filled: measured here, with 95 % intervals. Hollow: published, for all models of the paper."
        return [
            Section("How large are the differences?", text, drawn, {"recipe": of.name}, key="drawn")
        ]


def _defined(
    part: Sweep, quantity: object, labels: Mapping[str, Any]
) -> tuple[Sweep, Sequence[Item]]:
    """The runs without those where the value is not defined, and these; all runs if it is nowhere.

    A mean over some of the runs is no mean over all: it is not compared, and the table says which are missing.
    """
    readings = [reading.at(labels) for reading in part.readings(quantity)]
    with_value = [reading.item for reading in readings if bool(reading.value.isfinite().any())]
    done = [item for item in part.plan if part.state(item) == "done"]
    lost = [item for item in done if item not in with_value]
    if not lost or not with_value:
        return part, ()
    return _without(part, lost), lost


def _without(part: Sweep, lost: Sequence[Item]) -> Sweep:
    return _only(part, [item for item in part.plan if item not in lost])


def _only(part: Sweep, items: Sequence[Item]) -> Sweep:
    return Sweep(items, folder=part.folder, skipped=part.skipped, made=part.made)


def _with_ends(labels: Mapping[str, Any], reading: Reading) -> dict[str, Any]:
    """The labels with the last one of an axis for `last`."""
    ends = dict(zip(reading.axes, reading.labels, strict=True))
    return {axis: ends[axis][-1] if at == "last" else at for axis, at in labels.items()}


def _read(number: Number, labels: Mapping[str, Any]) -> Effect:
    """The quantity of one run, by names of its result; not-a-number where it is not defined."""
    part, _, name = number.quantity.partition(".")

    def value(analysis: Analysis) -> Any:
        if part not in analysis:
            return None
        result = analysis[part]
        if name not in result.quantities():
            attribute = getattr(result, name)
            return UNDEFINED if attribute is None else attribute
        samples = result.sel(name)
        ends = samples.coordinates()
        return samples.interval(
            **{a: ends[a][-1] if at == "last" else at for a, at in labels.items()}
        )

    return Effect(number.name, value)


def _lacking(runs: str, number: Number, part: Sweep, items: Sequence[Item]) -> str:
    """That runs have no value, and why: what the recipe says, or what the runs say on what they left out."""
    why = [reason for item in items for reason in missing(part.analysis(item), number)]
    named = "; ".join(short_reason(reason) for reason in dict.fromkeys(why))
    return f"no value in {runs}{f': {named}' if named else ''}"
