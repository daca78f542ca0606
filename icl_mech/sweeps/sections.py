"""Figures and tables of a sweep, as sections of its page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import IclMechError, SweepError
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.conditions import NONE
from icl_mech.metrics import Interval, early_exit_layer, mean_interval
from icl_mech.reports import Fact, Section
from icl_mech.results.wording import listed, said
from icl_mech.studies import Analysis, Study
from icl_mech.studies.pages import sections_of, study_of
from icl_mech.studies.study import FEW, OF_MEASUREMENTS, Mean, is_own, known_studies
from icl_mech.sweeps.averages import Averages
from icl_mech.sweeps.cells import Cell, plural
from icl_mech.sweeps.item import DIMS, STATES, short_names
from icl_mech.sweeps.result import Sweep
from icl_mech.sweeps.shown import ALONG, difference_of, note

FEWEST_TASKS = 3
"""With fewer tasks, means are of these tasks only: Student's interval for other tasks would cover everything."""


def fixed_of(sweep: Sweep) -> tuple[str, ...]:
    """Dimensions that are fixed in means over tasks and seeds: the mean is over their values only."""
    finished = {item.task for item in sweep.plan if sweep.state(item) == "done"}
    return ("task",) if len(finished) < FEWEST_TASKS else ()


def average(sweep: Sweep, mean: Mean, besides: Sequence[str] = ()) -> Averages:
    """The averages that a figure shows, also taken over the dimensions of `besides`.

    Raises:
        LookupError: nothing varies along its dimension.
        SweepError: no finished run has it.
    """
    if isinstance(mean.quantity, str) and mean.quantity in OF_SWEEPS:
        return OF_SWEEPS[mean.quantity](sweep)
    over = (*mean.over, *besides)
    if mean.by_task:
        places = {(item.model, item.task) for item in sweep.plan if sweep.state(item) == "done"}
        if len(places) == len({model for model, _ in places}):
            raise LookupError  # each model's only task is in the figure of the means
        return sweep.average(mean.quantity, over)
    return sweep.average(mean.quantity, over, fixed=fixed_of(sweep))


def means_of(sweep: Sweep) -> list[Mean]:
    """Figures of all built-in studies, and of custom studies that runs belong to."""
    swept = {item.study for item in sweep.plan}
    studies = [study for study in known_studies().values() if is_own(study) or study.name in swept]
    return [mean for study in studies for mean in study.means or _of_claims(study)]


def judging(sweep: Sweep) -> list[Study]:
    """The studies whose claims are judged by these runs: the studies of their pages."""
    studies = [study_of(run.results, run.made) for _, run in sweep]
    names = {study.name for study in studies if study is not None}
    return [study for study in known_studies().values() if study.name in names]


def _of_claims(study: Study) -> list[Mean]:
    """One figure for each effect of the claims."""
    return [
        Mean(claim.text, effect.name.capitalize(), claim.part, effect, limits=FEW)
        for claim in study.claims
        for effect in claim.effects
    ]


def _last_layer(sweep: Sweep) -> Averages:
    """Accuracy by number of demonstrations, read at the last layer."""
    first = sweep.readings("context_accuracy.calibrated")[0]
    last = first.labels[first.axes.index("layer")][-1]
    return sweep.average("context_accuracy.calibrated", "seed", layer=last)


def _doses(sweep: Sweep) -> Averages:
    if len({item.false_share for item in sweep.plan}) < 2:
        raise LookupError
    return sweep.average("final gap", ("task", "seed"), fixed=fixed_of(sweep))


@dataclass(frozen=True)
class Sections:
    """Sections of a page, and why others were left out."""

    sections: list[Section]
    notes: list[str]


def sections(sweep: Sweep, besides: Sequence[str] = ()) -> Sections:
    """Sections of everything the runs hold; means are also over the dimensions of `besides`."""
    drawn, notes = [], []
    parts = {name for _, analysis in sweep for name in analysis.results}
    for wanted in means_of(sweep):
        if not (wanted.always or any(wanted.key.startswith(part) for part in parts)):
            continue
        try:
            averages = average(sweep, wanted, besides)
            free = {*averages.varied, *averages.axes}
            options: dict[str, Any] = {
                k: value for k, value in wanted.options.items() if value in free
            }
            if "model" in averages.varied:  # each model has its own axes
                options.pop("panels", None)
                alone = free - {*ALONG, options.get("x")} == {"model"}
                options |= {"panels": "model"} if alone else {}
                options["beside"] = _difference(sweep, wanted, averages, besides)
            drawn.append(_section(wanted, averages, options, _summary(sweep, wanted, besides)))
        except LookupError:
            continue
        except IclMechError as error:
            if not wanted.always:
                notes.append(f"{wanted.short} left out: {error}")
    return Sections([*drawn, *_stability(sweep)], notes)


def _stability(sweep: Sweep) -> list[Section]:
    """Over which values of each dimension heads, layers and claims recur.

    None if no two runs can be compared, or of several models, whose verdicts stand next to each other already.
    """
    if len({item.model for item, _ in sweep}) > 1:
        return []
    try:
        found = sweep.stability()
    except SweepError:
        return []
    shown = sections_of(Analysis({"stability": found}, "", made={"study": OF_MEASUREMENTS}))
    # Each section of a sweep's page has a key of its own; those of one result share it.
    keys = [f"stability-{number}" if number else "stability" for number in range(len(shown))]
    return [replace(section, key=key) for section, key in zip(shown, keys, strict=True)]


def _difference(
    sweep: Sweep, wanted: Mean, averages: Averages, besides: Sequence[str]
) -> Averages | None:
    """The second of two models minus the first; None if there are not two, or nothing to subtract."""
    models = list(dict.fromkeys(cell.dims["model"] for cell in averages.cells))
    if len(models) != 2 or wanted.by_task or wanted.quantity in OF_SWEEPS:
        return None
    try:
        over = (*wanted.over, *besides)
        return sweep.average(
            wanted.quantity, over, fixed=fixed_of(sweep), minus={"model": models[0]}
        )
    except IclMechError:
        return None


def _summary(sweep: Sweep, wanted: Mean, besides: Sequence[str]) -> str:
    """The single numbers that summarise a figure."""
    parts = []
    for name in wanted.told:
        try:
            averages = sweep.average(name, ("task", "seed", *besides), fixed=fixed_of(sweep))
        except IclMechError:
            continue
        values = [
            f"{_words(averages, cell)}{said(ends_of(cell), sign=True)}"
            for cell in averages.cells[:6]
        ]
        parts.append(f"{name}: {', '.join(values)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _section(wanted: Mean, averages: Averages, options: dict[str, Any], summary: str) -> Section:
    over, apart = " and ".join(averages.over), difference_of(options.get("beside"))
    apart = f" Also **{apart}**, for runs that both have." if apart else ""
    return Section(
        wanted.question,
        summary or answer(averages),
        averages.drawing(**options),
        {
            "quantity": averages.name,
            "averaged over": over,
            "of": sorted({averages.basis(cell) for cell in averages.cells}),
        },
        caption=f"**{averages.heading[:1].upper()}{averages.heading[1:]}**: {note(averages)}.{apart}",
        limits=wanted.limits,
        short=wanted.short,
        key=wanted.key,
        numbers=averages.to_pandas(),
        layered="layer" in averages.axes,
    )


def answer(averages: Averages) -> str:
    """The first six numbers; along axes, only what the means are over."""
    if averages.axes:
        bases = sorted({averages.basis(cell) for cell in averages.cells})
        return f"Means over {' or '.join(bases)}; the table below lists every number."
    parts = [
        f"{_words(averages, cell)}{said(ends_of(cell), sign=True)}" for cell in averages.cells[:6]
    ]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]} ({averages.basis(averages.cells[0])})."


def _words(averages: Averages, cell: Cell) -> str:
    named = [str(cell.dims[dim]) for dim in averages.varied if cell.dims[dim] not in ("", None)]
    return f"{', '.join(named)}: " if named else ""


def ends_of(cell: Cell) -> Interval:
    """An average with the ends of its interval."""
    return Interval(float(cell.value), float(cell.low), float(cell.high))


# --- fractions of a gap over many runs: ratios of means, with intervals from their linear parts ---


def _linear(closed: Tensor, gap: Tensor, *, ratio: float, size: float) -> Tensor:
    return (closed - ratio * gap) / size


def gap_reduction(
    sweep: Sweep, condition: str = "chosen heads", over: str | Sequence[str] = ("task", "seed")
) -> Averages:
    """Fraction of the gap between true and false demonstrations that an ablation closes.

    It is the ratio of the means over all runs, not the mean of their ratios, which single runs
    with hardly any gap would dominate. Its interval is the interval of the mean of
    `closed - ratio * gap`, divided by the mean gap; if the interval of the mean gap includes 0,
    the ratio is undefined.

    Raises:
        SweepError: no run has this ablation.
    """

    def mean_of(statistic: Callable[[Tensor, Tensor], Tensor]) -> Any:
        def value(analysis: Analysis) -> Interval | None:
            result = analysis.ablation
            known = condition in result.conditions
            return mean_interval(statistic(*_parts(result, condition))) if known else None

        return value

    closed = sweep.average(mean_of(lambda closed, _: closed), over, name="closed")
    gap = sweep.average(mean_of(lambda _, gap: gap), over, name="gap")
    cells = []
    for cell, whole in zip(closed.cells, gap.cells, strict=True):
        ratio = float(cell.value / whole.value) if float(whole.low) > 0 else torch.nan
        if ratio != ratio:
            nothing = torch.full_like(cell.value, torch.nan)
            cells.append(replace(cell, value=nothing, low=nothing, high=nothing))
            continue
        place = {dim: value for dim, value in cell.dims.items() if dim in gap.varied}
        linear = mean_of(partial(_linear, ratio=ratio, size=float(whole.value)))
        around = sweep.average(linear, over, **place).cells[0]
        cells.append(
            replace(
                cell,
                value=cell.value * 0 + ratio,
                low=around.low + ratio,
                high=around.high + ratio,
                points=torch.full_like(cell.points, torch.nan),
            )
        )
    name = f"fraction of the gap closed by {condition}"
    return replace(closed, name=name, unit="fraction of the gap", cells=tuple(cells), heading=name)


def _parts(
    result: AblationResult, condition: str
) -> tuple[Float[Tensor, " batch"], Float[Tensor, " batch"]]:
    """The part of the gap that the ablation closes with false demonstrations, and the gap, for every pair."""
    ablated = result.scores[[i for i, name in enumerate(result.conditions) if name == condition], 1]
    plain = result.scores[result.conditions.index(NONE)]
    return (ablated.mean(0) - plain[1]).double(), (plain[0] - plain[1]).double()


def fixed_exit(
    sweep: Sweep, side: str = "false", over: str | Sequence[str] = ("task", "seed")
) -> tuple[int, Averages]:
    """One exit layer for all tasks, chosen on every second seed and tested on the others.

    It is the layer with the largest mean advantage over the last layer with false demonstrations, as
    in the paper; seeds draw their queries from the same examples, so some tested queries may also have been used
    to choose it.

    Returns:
        The layer, and the change of calibrated accuracy there.

    Raises:
        SweepError: fewer than two seeds, or models of several depths.
    """
    seeds = sorted({item.seed for item in sweep.plan})
    if len(seeds) < 2:
        raise SweepError(
            "The exit layer is chosen on some seeds and tested on others; run at least two seeds."
        )
    accuracy = [
        analysis.layer_accuracy.accuracy("false")
        for _, analysis in sweep.select(seed=seeds[::2])
        if "layer_accuracy" in analysis
    ]
    if len({len(values) for values in accuracy}) != 1:
        raise SweepError(
            "One exit layer for all runs needs models of the same depth; select one model."
        )
    layer = early_exit_layer(torch.stack(accuracy))

    def change(analysis: Analysis) -> Interval:
        scores = analysis.layer_accuracy.pair_scores[:, ("true", "false").index(side)].double()
        return mean_interval(scores[:, layer] - scores[:, -1])

    name = f"change from exiting at layer {layer}, {side} demonstrations"
    return layer, sweep.select(seed=seeds[1::2]).average(change, over, name=name)


OF_SWEEPS: Mapping[str, Callable[[Sweep], Averages]] = {
    "gap by dose": _doses,
    "accuracy by demonstrations, last layer": _last_layer,
    "fixed exit": lambda sweep: fixed_exit(sweep, over="seed")[1],
    "gap reduction": gap_reduction,
}
"""Quantities that no single run has, by the names that studies give them."""


# --- facts about the runs ---


def failures(sweep: Sweep, most: int = 3) -> list[str]:
    """Why runs failed: the first reasons, and how many more there are."""
    failed = sweep.failures()
    shown = [f"Failed: {text}" for text in failed[:most]]
    return [*shown, f"{len(failed) - most} more reasons."] if len(failed) > most else shown


FACTS = {
    "n": "Prompts",
    "shots": "Demonstrations per class",
    "total": "Demonstrations in total",
    "false_share": "Fraction of false labels",
}
"""Titles of dimensions whose names do not explain themselves."""

GIVEN = ("model", "revision", "task", "format")
"""Dimensions whose values are names and stay as they are."""


def facts(sweep: Sweep) -> list[Fact]:
    """The values along every dimension, and the states of the runs."""
    rows = []
    for dim in DIMS:
        values = [*dict.fromkeys(str(getattr(item, dim)) for item in sweep.plan)]
        if dim == "model":
            values = [*short_names(values).values()]
        if dim == "study" and values == [OF_MEASUREMENTS]:
            continue
        names = [o if dim in GIVEN else o.replace("_", " ") for o in values]
        named = [o for o in names if o not in ("", "None")]
        if named:
            text = listed(named) if len(named) < 7 else f"{len(named)}: {', '.join(named[:6])}, …"
            if dim == "n" and any(i.measured.get("options", {}).get("until") for i in sweep.plan):
                text += " or more (until=)"
            usual = plural(dim) if len(named) > 1 else dim.replace("_", " ")
            rows.append(Fact(FACTS.get(dim, usual.capitalize()), text))
    states = {state: sum(sweep.state(i) == state for i in sweep.plan) for state in STATES}
    rows.append(
        Fact("Runs", ", ".join(f"{count} {state}" for state, count in states.items() if count))
    )
    if sweep.made.get("date"):
        rows.append(Fact("Made", str(sweep.made["date"])))
    return rows
