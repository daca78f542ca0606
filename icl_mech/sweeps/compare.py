"""`compare`: runs side by side on one page: the papers' claims, figures and tables."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.errors import SweepError
from icl_mech.metrics import Interval
from icl_mech.reports import ClaimMatrix, ClaimRow, Finding, Origin, Page, Paged, Sign
from icl_mech.results.judging import FEWEST_PROMPTS, HOLM
from icl_mech.results.wording import counted, listed, said
from icl_mech.studies.competence import ABLE, ADDS, HELP, QUESTION, answered
from icl_mech.studies.facts import origin_of
from icl_mech.studies.pages import levels
from icl_mech.sweeps.result import Joined, Sweep, as_sweep
from icl_mech.sweeps.sections import facts, failures, judging, sections
from icl_mech.sweeps.verdicts import ALL, Judged, among_all, by_model

if TYPE_CHECKING:
    import pandas as pd

ABOUT = ("Task", "Tasks", "Seed", "Seeds", "Prompts", "Demonstrations per class")
"""Facts shown below the heading, in one line."""

LONGEST = 200
"""Maximum length of a remark on a claim in characters, about two lines; the appendix has all of it."""

COLUMNS = ("paper", "claim", "model", "task", "status", "quantity")
"""Columns of the table of claims, before the columns of their effects."""

UNSAID = {"cannot be judged"}
"""Statuses that do not disagree with any other."""

NESTED = (
    "Square brackets hold hierarchical 95 % intervals: over seeds and, for means over tasks, over tasks first. More "
    "seeds do not narrow the part due to shared queries, if runs record how many queries the task has."
)


@dataclass(frozen=True, eq=False)
class Comparison(Paged):
    """One or more runs side by side.

    Attributes:
        sweep: All their runs, as one sweep.
        names: Names of the runs.
    """

    sweep: Sweep
    names: tuple[str, ...] = ()

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """Every claim of the papers that the runs bear on, for each model.

        Statuses are corrected for all claims and models that can be judged (Holm).
        """
        results = [
            replace(result, paper=study.source or study.name)
            for study in judging(self.sweep)
            for claim in study.claims
            for result in by_model(self.sweep, claim)
        ]
        return among_all(results)

    @cached_property
    def able(self) -> tuple[Judged, ...]:
        """Whether each model does the task, if the runs hold its answers; not a claim of a paper."""
        return tuple(by_model(self.sweep, ABLE))

    @cached_property
    def helped(self) -> tuple[Judged, ...]:
        """Whether demonstrations help each model, if that was measured; not a claim of a paper."""
        return tuple(by_model(self.sweep, ADDS))

    def to_pandas(self) -> "pd.DataFrame":
        """One row for each effect of a claim, model and task: status, and the effect with its interval.

        Task `all tasks` is the mean over tasks, if there are several; its status is corrected for
        all claims (Holm), the status of a single task is not.
        """
        import pandas as pd

        rows = []
        for result in self.judged:
            place = {"paper": result.paper, "claim": result.text, "model": result.model}
            rows += [
                {**place, "task": task, "status": judged.status, "quantity": name, **ends._asdict()}
                for task, judged in result.places.items()
                for name, ends in judged.effects.items()
            ]
        return pd.DataFrame(rows, columns=[*COLUMNS, *Interval._fields])

    def summary(self) -> str:
        """Every claim in one line."""
        lines = [self.sweep.summary()]
        lines += [f"  {o.text} ({o.model}): {o.status}. {o.finding}" for o in self.judged]
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The summary."""
        return f"<Comparison {self.summary()}>"

    def page(self) -> Page:
        """The page, which `to_html` writes.

        Raises:
            SweepError: nothing can be drawn.
        """
        every = (*self.able, *self.helped, *self.judged)
        content = sections(self.sweep)
        if not content.sections:
            raise SweepError(
                "The runs hold no result that the page could show; finish the sweep (icl-mech sweep STUDY.YAML --out FOLDER "
                "--resume), or give other runs."
            )
        known = facts(self.sweep)
        origin = Origin(
            findings(every, {section.key for section in content.sections}),
            known,
            self.sweep.made.get("command", ""),
            [NESTED, f"{HOLM}.", *failures(self.sweep), *self.sweep.skipped, *content.notes],
        )
        tasks = len({item.task for item, _ in self.sweep})
        names = self.names or tuple(dict.fromkeys(item.model for item in self.sweep.plan))
        first = [
            name for row in zip_longest(*(s.first for s in judging(self.sweep))) for name in row
        ]
        return Page(
            f"Which claims hold for {listed(names)}{f' on {tasks} tasks' if tasks > 1 else ''}?",
            levels(content.sections, [name for name in first if name]),
            kicker="Comparison of runs" if self.names else "Sweep",
            lead=lead(self.able, self.judged),
            origin=origin,
            about=" · ".join(f"{fact.name}: {fact.value}" for fact in known if fact.name in ABOUT),
            matrix=matrix(every) if every else None,
        )


def compare(*runs: object, names: Sequence[str] | None = None) -> Comparison:
    """Two or more runs side by side: the papers' claims with hierarchical intervals, figures and tables.

    Args:
        *runs: Sweeps, analyses, or the folders of either.
        names: Names of the runs; by default the models' names, with the folders' names if a model occurs twice. Runs of
            one model on different tasks need none: they are compared by task.

    Raises:
        SweepError: fewer than two runs, something that is not a run, or not one name for each run.
    """
    if len(runs) < 2:
        raise SweepError("compare needs at least two runs: compare('runs/a', 'runs/b').")
    sweeps = [as_sweep(run) for run in runs]
    if names is None and (model := _one_model(sweeps)):
        every = dict(zip(map(str, range(len(sweeps))), sweeps, strict=True))
        return Comparison(Joined(every, one_model=True), (model,))
    called = list(names) if names is not None else _names(runs, sweeps)
    if len(called) != len(runs) or len(set(called)) < len(called):
        raise SweepError(f"names={called}; give {len(runs)} different names, one for each run.")
    return Comparison(Joined(dict(zip(called, sweeps, strict=True))), tuple(called))


def comparison(sweep: Sweep) -> Comparison:
    """The models of one sweep side by side."""
    return Comparison(sweep)


def _one_model(sweeps: Sequence[Sweep]) -> str:
    """The model that all runs share, if no two of them have a task in common; else empty."""
    models = {item.model for sweep in sweeps for item in sweep.plan}
    tasks = [task for sweep in sweeps for task in {item.task for item in sweep.plan}]
    runs = (next(iter(sweep), None) for sweep in sweeps)
    weights = {
        origin_of(run[1].results).get("model", {}).get("weights") for run in runs if run is not None
    }
    return (
        models.pop() if len(models) == len(weights) == 1 and len(set(tasks)) == len(tasks) else ""
    )


def _names(runs: Sequence[Any], sweeps: Sequence[Sweep]) -> list[str]:
    names = [sweep.plan[0].model for sweep in sweeps]
    if len(set(names)) < len(names):
        places = [Path(run).name if isinstance(run, str | Path) else "" for run in runs]
        if "" in places or len(set(places)) < len(places):
            places = [str(number) for number in range(1, len(runs) + 1)]
        names = [f"{name} ({place})" for name, place in zip(names, places, strict=True)]
    return names


# --- the first level of the page ---


def findings(found: Sequence[Judged], keys: Container[str] = ()) -> list[Finding]:
    """One finding for each claim and model, in full; findings link to sections of these keys."""
    several = len({result.model for result in found}) > 1
    return [
        Finding(
            f"{result.text} – **{result.model}**" if several else result.text,
            result.status,
            result.finding,
            result.claim.part if result.claim.part in keys else "",
            word=answered(result.claim.text, result.status),
        )
        for result in found
    ]


def matrix(found: Sequence[Judged]) -> ClaimMatrix:
    """Claims by models and tasks, the mean over tasks last."""
    models: dict[str, tuple[str, ...]] = {result.model: (*result.places,) for result in found}
    claims: dict[str, dict[str, Judged]] = {}
    for result in found:
        claims.setdefault(result.text, {})[result.model] = result
    rows = []
    for text, models_of in claims.items():
        first = next(iter(models_of.values())).claim
        names = [
            o.name for o in first.effects if any(o.name in m.effects for m in models_of.values())
        ]
        signs = [
            _sign(models_of[model].places[place], names) if model in models_of else Sign("")
            for model, places in models.items()
            for place in places
        ]
        rows.append(ClaimRow(text, tuple(names), tuple(signs), first.part))
    several = any(len(places) > 1 for places in models.values())
    caption = "What the intervals show about each claim."
    caption += " Tasks are judged separately, all by their mean." * several
    alike: dict[str, list[str]] = {}
    for text, models_of in claims.items():
        if text not in (QUESTION, HELP) and (
            remark := _remark([*models_of.values()], len(models) > 1)
        ):
            alike.setdefault(remark, []).append(_short(text))
    remarks = tuple(f"**{_few(names)}** – {remark}." for remark, names in alike.items())
    columns = tuple((model, tuple(places)) for model, places in models.items())
    return ClaimMatrix(caption, columns, tuple(rows), remarks, ALL * several)


def _sign(result: Judged, names: Sequence[str]) -> Sign:
    effects = (result.effects.get(name) for name in names)
    return Sign(
        result.status, tuple(said(o, sign=True) if o else "" for o in effects), result.finding
    )


def _remark(results: Sequence[Judged], several: bool) -> str:
    """What the signs of a claim do not say, in at most about two lines; empty if there is nothing."""
    by_words: dict[str, list[str]] = {}
    for result in results:
        if result.remark:
            by_words.setdefault(result.remark, []).append(result.model)
    remarks = [
        f"{listed(models)}: {words}" if several else words for words, models in by_words.items()
    ]
    kept = remarks
    while len(kept) > 1 and len("; ".join(kept)) > LONGEST:
        kept = kept[:-1]
    return "; ".join([*kept, *["more below"] * (len(kept) < len(remarks))])


def _short(text: str) -> str:
    return text.partition(":")[0]


def lead(able: Sequence[Judged], found: Sequence[Judged]) -> str:
    """Whether models do their tasks, where verdicts differ between tasks or models, and what the means show."""
    if not found:
        return f"{_able(able)} None of the papers' claims can be judged from these runs.".strip()
    statuses: dict[str, set[str]] = {}
    known = [result for result in found if result.status not in UNSAID]
    for result in known:
        statuses.setdefault(_short(result.text), set()).add(result.status)
    by_task = [
        (_short(result.text), {o.status for o in result.tasks.values()} - UNSAID)
        for result in found
    ]
    tasks = [name for name, verdicts in by_task if len(verdicts) > 1]
    apart = {
        "tasks": tasks,
        "models": [name for name, verdicts in statuses.items() if len(verdicts) > 1],
    }
    differ = "; ".join(
        f"verdicts differ between {who} on {_few(dict.fromkeys(names))}"
        for who, names in apart.items()
        if names
    )
    shown = sum(result.status == "supported" for result in found)
    means = "from means over tasks" if any(len(result.tasks) > 1 for result in found) else "here"
    summary = f"{shown} of {counted(len(known), 'verdict')} {means} {'is' if shown == 1 else 'are'} “supported”."
    summary = summary if known else f"No claim can be judged {means}."
    differ = f"{differ[:1].upper()}{differ[1:]}." * bool(differ)
    return " ".join(filter(None, (_able(able), differ, summary)))


def _able(able: Sequence[Judged]) -> str:
    """A sentence on which models exceed the majority-class baseline on which tasks."""
    every = [
        (result.model, t, o.status)
        for result in able
        for t, o in result.places.items()
        if t != ALL and o.effects
    ]
    few = [f"{model} on {task}" for model, task, status in every if status == "cannot be judged"]
    lacking = [f"{model} on {task}" for model, task, status in every if status != "supported"]
    lacking = [name for name in lacking if name not in few]
    if not every:
        return ""
    if not lacking and not few:
        return f"Accuracy is above the majority-class baseline on {'every task' if len(every) > 1 else every[0][1]}."
    if len(few) == len(every):
        return f"With fewer than {FEWEST_PROMPTS} prompts, accuracy cannot be compared with the majority-class baseline."
    if len(lacking) == len(every):
        return "Accuracy is nowhere shown to be above the majority-class baseline."
    sentences = (
        ("Not shown to be above the majority-class baseline", lacking),
        (f"Cannot be judged from fewer than {FEWEST_PROMPTS} prompts", few),
    )
    return " ".join(f"{words}: {_few(names)}." for words, names in sentences if names)


def _few(names: Iterable[str], most: int = 4) -> str:
    every = [*names]
    more = [f"{len(every) - most + 1} more"] if len(every) > most else []
    return listed([*every[: most - 1], *more] if more else every)
