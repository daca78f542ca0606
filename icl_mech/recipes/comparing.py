"""`Reproduction`: published numbers next to measured ones, with a verdict for each, and their HTML report."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from icl_mech.errors import IclMechError
from icl_mech.metrics import Interval
from icl_mech.recipes.recipe import MEAN, OF_SWEEPS, Number, Recipe, papers
from icl_mech.reports import Fact, Origin, Page, Paged, Section
from icl_mech.results.wording import counted, listed
from icl_mech.shapes import Bars, Table
from icl_mech.studies import Analysis
from icl_mech.studies.claim import Effect
from icl_mech.sweeps import Sweep
from icl_mech.sweeps.averages import of_tasks
from icl_mech.sweeps.item import DIMS
from icl_mech.sweeps.sections import facts, failures, sections

if TYPE_CHECKING:
    import pandas as pd

INSIDE, OUTSIDE, NEITHER = "within your interval", "differs", "cannot be compared"

OVER = ("shots", "total", "format", "n")
"""Dimensions averaged in addition to seeds and tasks, if the items of one number differ in them."""

HEADS = ("quantity", "task", "model", "published", "here", "difference", "verdict")
PRINTED = (
    "Square brackets hold hierarchical 95 % intervals, over seeds and never narrower than those over prompts; "
    "a mean is over these particular tasks. Published numbers are taken as printed: papers rarely give their "
    "uncertainty."
)
FAILED = "that a number outside the interval is a failed replication: see the notes at the top."
OTHERS = "Other tasks than the paper's, so no differences are given"

UNDEFINED = Interval(math.nan, math.nan, math.nan)
NAMED, DRAWN = 3, 24
"""Models that a cell names, and rows of the figure; where there are more, it shows means alone."""


@dataclass(frozen=True)
class Row:
    """A published number next to the measured one, both in the paper's unit.

    Attributes:
        number: The number.
        model: The model measured here.
        task: The task measured here, or `mean`.
        paper_task: Task of the published number, or `mean`; empty where there is none.
        published: Published values by model of the paper.
        own: The measured value with its 95 % interval; not-a-number where there is none.
        basis: What the measured value is averaged over.
        why: Reasons why they cannot be compared.
    """

    number: Number
    model: str
    task: str
    paper_task: str
    published: Mapping[str, float]
    own: Interval
    basis: str
    why: Sequence[str] = ()

    @property
    def verdict(self) -> str:
        """Whether the measured interval contains the published number of this model."""
        if self.why:
            return NEITHER
        return INSIDE if self.own.low <= self.published[self.model] <= self.own.high else OUTSIDE

    @property
    def difference(self) -> float:
        """The measured value minus the published one; not-a-number where they cannot be compared."""
        return math.nan if self.why else self.own.value - self.published[self.model]

    def texts(self) -> dict[str, str]:
        """The row as tables show it, by `HEADS`."""
        value, low, high = map(_decimal, self.own)
        apart = _decimal(self.difference, "+")
        named = [f"{_decimal(value)} ({name})" for name, value in self.published.items()]
        named[NAMED:] = [f"{len(named) - NAMED} more"] if len(named) > NAMED else []
        published = self.published.get(self.model)
        task = "mean over tasks" if self.task == MEAN else self.task
        words = {OUTSIDE: f"differs by {apart}", NEITHER: f"{NEITHER}: {', '.join(self.why)}"}
        cells = (
            self.number.name,
            task if self.paper_task in ("", self.task) else f"{task} (for {self.paper_task})",
            self.model,
            (", ".join(named) or "–") if published is None else _decimal(published),
            value if low == "–" else f"{value} [{low}, {high}]",
            apart,
            words.get(self.verdict, self.verdict),
        )
        return dict(zip(HEADS, cells, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Reproduction(Paged):
    """The results of a recipe.

    Attributes:
        recipe: The recipe.
        sweep: All items.
        stand_ins: The task measured instead of each of the paper's; None: the paper's tasks, empty: no task replaces one.
        scale: Fraction of the paper's prompts and seeds.
    """

    recipe: Recipe
    sweep: Sweep
    stand_ins: Mapping[str, str] | None = None
    scale: float = 1.0

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Every published number next to the measured one."""
        models = dict.fromkeys(item.model for item in self.sweep.plan)
        numbers = self.recipe.numbers
        return tuple(
            row for number in numbers for model in models for row in self._rows(number, model)
        )

    def _rows(self, number: Number, model: str) -> Iterator[Row]:
        published = number.published
        if number.only and model not in published:
            return
        ours = {task: task for task in number.tasks} if self.stand_ins is None else self.stand_ins
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
            interval, basis, lacking = self._own(number, model, task)
            yield Row(number, model, task, paper_task, known, interval, basis, (*reasons, *lacking))

    def _own(self, number: Number, model: str, task: str) -> tuple[Interval, str, list[str]]:
        """The measured value, what it is averaged over, and why it is missing or cannot be compared."""
        labels = {name: label for name, label in number.at.items() if name not in DIMS}
        places: dict[str, Any] = {"model": model} | ({} if task == MEAN else {"task": task})
        for name in {*DIMS} & number.at.keys():
            there, at = {getattr(item, name) for item in self.sweep.plan}, number.at[name]
            places[name] = [place for place in at if place in there] if isinstance(at, list) else at
        quantity, labels = (_read(number, labels), {}) if number.part else (number.quantity, labels)
        try:
            part = self.sweep.select(**places)
            if all(part.state(item) != "done" for item in part.plan):
                return UNDEFINED, "", ["no run finished"]
            fixed = ("task",) if task == MEAN else ()
            varied = [d for d in OVER if len({getattr(item, d) for item in part.plan}) > 1]
            over = [*fixed, *varied, "seed"]
            whole = OF_SWEEPS.get(number.quantity)
            averages = (
                whole(part, over=over)
                if whole
                else part.average(quantity, over, fixed=fixed, **labels)
            )
            cell = averages.one()
        except IclMechError as error:
            return UNDEFINED, "", [f"no value ({error})"]
        factor = 100.0 if number.percent else 1.0
        value = Interval(*(factor * float(end) for end in (cell.value, cell.low, cell.high)))
        if not math.isfinite(value.value):
            return UNDEFINED, averages.basis(cell), ["it is not defined"]
        why, tasks = [], {item.task for item in part.plan}
        if not all(map(math.isfinite, value)):
            why.append("it has no interval")
        if task == MEAN and cell.counts["task"] < len(tasks):
            why.append(f"only {cell.counts['task']} of {len(tasks)} tasks have a value")
        if cell.counts["seed"] < 2 and any(item.demonstrations == "shared" for item in part.plan):
            why.append("one set of demonstrations for each task")
        return value, averages.basis(cell), why

    # --- to be read ---

    @property
    def lead(self) -> str:
        """The outcome in a sentence or two."""
        every = [row.verdict for row in self.rows]
        inside, outside = every.count(INSIDE), every.count(OUTSIDE)
        if not inside + outside:
            why = list(dict.fromkeys(why for row in self.rows for why in row.why[:2]))
            return f"This neither confirms nor contradicts the paper: {'; '.join(why[:3])}."
        rest = len(every) - inside - outside
        return (
            f"{inside} of {counted(inside + outside, 'published number')} within the interval measured here, "
            f"{outside} outside it{f'; {rest} cannot be compared' * bool(rest)}."
        )

    def summary(self) -> str:
        """Every row in one line, followed by the reasons why runs failed."""
        template = (
            "  {quantity}, {task} ({model}): {here}; published {published}; {verdict}".format_map
        )
        lines = [template(row.texts()) for row in self.rows]
        failed = [f"  failed: {text}" for text in self.sweep.failures()]
        return "\n".join([f"{self.recipe.name}: {self.lead}", *lines, *failed])

    def __repr__(self) -> str:
        """The summary."""
        return f"<Reproduction {self.summary()}>"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per number, task and model."""
        import pandas as pd

        return pd.DataFrame(
            {
                **row.texts(),
                **row.own._asdict(),
                "paper": row.published.get(row.model, math.nan),
                "over": row.basis,
            }
            for row in self.rows
        )

    def page(self) -> Page:
        """The HTML report that `to_html` writes."""
        of, first = papers()[self.recipe.paper], self.sweep.plan[0].shots
        # If tasks differ in their demonstrations, figures of the sweep show the first number alone.
        main = self.sweep.select(shots=first)
        content = sections(main, of_tasks(main.plan))
        notes = [PRINTED, *self.recipe.notes, *failures(self.sweep), *self.sweep.skipped]
        if self.stand_ins is not None:
            beside = ((task, self.stand_ins.get(task, "nothing")) for task in self.recipe.tasks)
            notes.insert(
                0, f"{OTHERS}: {', '.join(f'{stand_in} for {task}' for task, stand_in in beside)}."
            )
        sizes = sorted({item.n for item in self.sweep.plan})
        used = f"{' to '.join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))} prompts per run, "
        used += counted(len({item.seed for item in self.sweep.plan}), "seed")
        scale = Fact("Scale", f"{self.scale:g} of the paper's prompts and seeds requested; {used}")
        about = [Fact("Measured", self.recipe.measures), scale, *facts(self.sweep)]
        command = self.sweep.made.get("command", "")
        models = listed(dict.fromkeys(item.model for item in self.sweep.plan))
        return Page(
            f"{self.recipe.title}: {models} compared with the paper",
            [self._table(), *self._figure(), *content.sections],
            kicker=f"Recipe {self.recipe.name} · {of['name']} · {self.recipe.source}",
            lead=self.lead,
            origin=Origin((), about, command, [*notes, *content.notes]),
        )

    def _table(self) -> Section:
        several = len({row.model for row in self.rows}) > 1
        heads = tuple(head for head in HEADS if several or head != "model")
        cells = tuple(tuple(row.texts()[head] for head in heads) for row in self.rows)
        of = self.recipe
        return Section(
            "Which of the published numbers are reproduced here?",
            self.lead,
            Table(of.title, heads, cells),
            {"recipe": of.name, "source": of.source},
            caption=f"**{of.title}.** Published: {of.source}. Brackets: 95 % intervals.",
            limits=FAILED,
            short="Published and measured",
            key="published",
            numbers=self.to_pandas(),
        )

    def _figure(self) -> list[Section]:
        """The numbers as dots, published ones as hollow marks; percentages, if there are any."""
        every = [row for row in self.rows if row.number.percent]
        rows = [row for row in every if len(every) <= DRAWN or row.task == MEAN]
        rows = [row for row in rows if not math.isnan(row.own.value)]
        if not rows:
            return []
        value, low, high = torch.tensor([row.own for row in rows])[:, None].unbind(-1)
        several = len({row.model for row in rows}) > 1
        template = f"{{quantity}}, {{task}}{', {model}' * several}".format_map
        groups, marks = (
            tuple(template(row.texts()) for row in rows),
            [row.published for row in rows],
        )
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


def _decimal(value: float, sign: str = "") -> str:
    return "–" if math.isnan(value) else f"{value:{sign}.2f}".replace("-", "−")
