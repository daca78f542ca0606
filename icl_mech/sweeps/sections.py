"""Figures and tables of a sweep, as sections of its page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from icl_mech.errors import IclMechError
from icl_mech.measurements.causal.sets import EXPECTED
from icl_mech.metrics import Interval
from icl_mech.reports import Section
from icl_mech.results.wording import said
from icl_mech.sweeps.averaged import Averages
from icl_mech.sweeps.cells import Cell
from icl_mech.sweeps.drawings import note
from icl_mech.sweeps.ratios import fixed_exit, gap_reduction
from icl_mech.sweeps.result import Sweep


@dataclass(frozen=True)
class Wanted:
    """One section.

    Attributes:
        question: Its heading.
        short: In the contents.
        key: For links.
        average: What is drawn.
        limits: What does not follow.
        options: Of the drawing.
        told: Quantities that the sentence above it gives.
    """

    question: str
    short: str
    key: str
    average: Callable[[Sweep], Averages]
    limits: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    told: tuple[str, ...] = ()


FEWEST_TASKS = 3
"""Of fewer the mean is of just these: Student's interval for others would hold everything."""


def fixed_of(sweep: Sweep) -> tuple[str, ...]:
    """What stands for itself only in means over tasks and seeds."""
    return ("task",) if len({item.task for item, _ in sweep}) < FEWEST_TASKS else ()


def _over(quantity: str, *over: str, **labels: Any) -> Callable[[Sweep], Averages]:
    return lambda sweep: sweep.average(quantity, over, fixed=fixed_of(sweep), **labels)


def _last_layer(sweep: Sweep) -> Averages:
    """Accuracy by number of demonstrations, read at the last layer."""
    first = sweep.readings("context_accuracy.calibrated")[0]
    last = first.labels[first.axes.index("layer")][-1]
    return sweep.average("context_accuracy.calibrated", "seed", layer=last)


def _doses(sweep: Sweep) -> Averages:
    if len({item.false_share for item in sweep.plan}) < 2:
        raise LookupError
    return sweep.average("final gap", ("task", "seed"), fixed=fixed_of(sweep))


def _by_task(quantity: str, **labels: Any) -> Callable[[Sweep], Averages]:
    def average(sweep: Sweep) -> Averages:
        found = sweep.average(quantity, "seed", **labels)
        if "task" not in found.varied:
            raise LookupError
        return found

    return average


FEW = "fewer than about ten tasks or seeds say little of others of their kind."
SETS = "what heads do that two sets share, which are left out of both;"
SEEDS = "seeds draw their queries from the same examples."

WANTED = (
    Wanted("How does information flow on average?", "Mean flow", "flow",
           _over("mean flow", "task", "seed"), FEW, {"curves": "score"}, ("early flow", "late flow")),
    Wanted("Does the flow look alike on all tasks?", "Flow by task", "flow-tasks",
           _by_task("mean flow"), SEEDS, {"panels": "task", "curves": "score"}),
    Wanted("Do label words collect the demonstrations early?", "Isolation", "isolation",
           _over("isolation effect", "seed"), SEEDS),
    Wanted("Does attention to label words tell the answer?", "Extraction", "extraction",
           _over("extraction AUC", "task", "seed"), FEW, {},
           ("late extraction", "rise of extraction")),
    Wanted("Where does it begin to tell?", "Share of extraction", "extraction-share",
           _over("extraction R", "task", "seed"), FEW),
    Wanted("Can label words' states replace the demonstrations?", "Compression", "compression",
           _over("compression label loyalty", "task", "seed"), FEW, {},
           ("anchors above text", "anchors above random tokens")),
    Wanted("Does weighing label words help?", "Re-weighting", "reweighting",
           _over("re-weighting", "task", "seed"), FEW, {}, ("re-weighting gain",)),
    Wanted("Where do true and false demonstrations part?", "Accuracy by layer", "layer_accuracy",
           _over("accuracy by layer", "task", "seed"), FEW, {}, ("final gap",)),
    Wanted("Do they part on all tasks?", "Accuracy by layer and task", "layer_accuracy-tasks",
           _by_task("accuracy by layer"), SEEDS, {"panels": "task"}),
    Wanted("How does the gap grow with the share of false labels?", "Gap by dose", "dose",
           _doses, FEW, {"x": "false_share"}),
    Wanted("How many demonstrations does it take?", "Accuracy by demonstrations",
           "context_accuracy", _last_layer, SEEDS),
    Wanted("Would leaving early be better?", "Early exit", "early_exit",
           _over("early exit, false", "seed"), SEEDS),
    Wanted("Is one layer to leave at good for all tasks?", "Early exit, one layer", "fixed_exit",
           lambda sweep: fixed_exit(sweep, over="seed")[1], SEEDS),
    Wanted("What does ablating give back?", "Ablation", "ablation",
           _over("ablation", "task", "seed"), FEW, {},
           ("without chosen heads, false", "without chosen heads, true")),
    Wanted("Which share of the gap do the chosen heads make?", "Gap reduction", "gap_reduction",
           gap_reduction, FEW),
    *(Wanted(f"What happens without the {own.name} heads?", f"{own.name.capitalize()} heads",
             f"head_comparison-{own.name.replace(' ', '_')}", _over(f"without {own.name} heads, logits", "seed"), f"{SETS} {SEEDS}", {},
             (f"without {own.name} heads, logits", f"{own.name} above random heads, logits")) for own in EXPECTED),
    Wanted("Does a function vector replace demonstrations?", "Function vector", "vector_effect",
           _over("function vector effect", "task", "seed"), FEW, {}, ("function vector gain, logits",)),
    Wanted("What do answers follow?", "Alignment", "alignment",
           _over("alignment", "task", "seed"), FEW, {}, ("taught above truth",)),
    Wanted("Does calibration help?", "Calibration", "calibration",
           _over("calibration accuracy", "task", "seed"), FEW, {},
           ("contextual calibration gain", "domain calibration gain", "batch calibration gain")),
)  # fmt: skip


@dataclass(frozen=True)
class Sections:
    """The sections there are, and why others are not."""

    sections: list[Section]
    notes: list[str]


def sections(sweep: Sweep) -> Sections:
    """Sections of everything the items hold."""
    found, notes = [], []
    parts = {name for _, analysis in sweep for name in analysis.results}
    for wanted in WANTED:
        if not any(wanted.key.startswith(part) for part in parts) and wanted.key not in ALWAYS:
            continue
        try:
            averages = wanted.average(sweep)
            free = {*averages.varied, *averages.axes}
            options = {key: own for key, own in wanted.options.items() if own in free}
            found.append(_section(wanted, averages, options, _told(sweep, wanted)))
        except LookupError:
            continue
        except IclMechError as error:
            if wanted.key not in ALWAYS:
                notes.append(f"{wanted.short} left out: {error}")
    return Sections(found, notes)


ALWAYS = ("dose", "fixed_exit", "gap_reduction")
"""Of parts that other sections are of too."""


def _told(sweep: Sweep, wanted: Wanted) -> str:
    """The single numbers that sum a figure up."""
    parts = []
    for name in wanted.told:
        try:
            found = sweep.average(name, ("task", "seed"), fixed=fixed_of(sweep))
        except IclMechError:
            continue
        own = [f"{_words(found, cell)}{said(_ends(cell), sign=True)}" for cell in found.cells[:6]]
        parts.append(f"{name}: {', '.join(own)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _section(wanted: Wanted, averages: Averages, options: dict[str, Any], told: str) -> Section:
    over = " and ".join(averages.over)
    return Section(
        wanted.question, told or answer(averages), averages.drawing(**options),
        {"quantity": averages.name, "averaged over": over,
         "of": sorted({averages.basis(cell) for cell in averages.cells})},
        caption=f"**{averages.heading[:1].upper()}{averages.heading[1:]}**: {note(averages)}.",
        limits=wanted.limits, short=wanted.short, key=wanted.key, numbers=averages.to_pandas(),
        layered="layer" in averages.axes,
    )  # fmt: skip


def answer(averages: Averages) -> str:
    """The numbers, if they are few; else the largest."""
    if averages.axes:
        bases = sorted({averages.basis(cell) for cell in averages.cells})
        return f"Means over {' or '.join(bases)}; every number stands in the table below."
    parts = [
        f"{_words(averages, cell)}{said(_ends(cell), sign=True)}" for cell in averages.cells[:6]
    ]
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]} ({averages.basis(averages.cells[0])})."


def _words(averages: Averages, cell: Cell) -> str:
    named = [str(cell.dims[dim]) for dim in averages.varied if cell.dims[dim] not in ("", None)]
    return f"{', '.join(named)}: " if named else ""


def _ends(cell: Cell) -> Interval:
    return Interval(float(cell.value), float(cell.low), float(cell.high))
