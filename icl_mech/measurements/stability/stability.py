"""Stability of heads, layers and claims: do other seeds, templates, label words or prompts show the same?

A measurement is repeated on variants of the prompts that should not change its conclusion. For every two runs that
differ in one respect:

* the Jaccard overlap `|A ∩ B| / |A ∪ B|` of their top-k heads, and the rank correlation over all heads;
* the distance of their critical layers;

averaged over pairs and compared with chance. By default chance exchanges heads within their layers only, because
heads of one layer resemble each other. A claim holds over as many values of an axis as support it.

Agreement alone is not evidence of a mechanism: weights are the same in all runs, so untrained networks rank their
heads alike, too. So the claim *heads recur* also requires that heads in the top k of most runs stand out from their
null in most runs.

Source: Méloux, Portet and Peyrard 2025, *Mechanistic interpretability as statistical estimation*, arXiv 2510.00845: repeated
runs on resampled and paraphrased inputs, compared by their mean pairwise Jaccard index. Heads instead of edges, the comparison
with chance and the second requirement are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Called, Count, Natural
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.measurements.base import (
    AnyMeasurement,
    Measurement,
    Options,
    PairMeasurement,
    Steps,
    by_name,
)
from icl_mech.measurements.doors import door
from icl_mech.measurements.passes import Pass, Prompts
from icl_mech.measurements.running import Item, check_data
from icl_mech.measurements.stability.agreement import (
    FEWEST_RUNS,
    Line,
    Lines,
    lines_over,
    seen,
    too_many,
)
from icl_mech.measurements.stability.variants import (
    LABEL_SETS,
    TEMPLATES,
    Axis,
    Variant,
    variants_of,
)
from icl_mech.metrics.stability import Within
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Result
from icl_mech.results.judging import Status, together

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "Méloux, Portet and Peyrard 2025, Mechanistic interpretability as statistical estimation"

OVERLAP = Definition(
    "overlap of heads",
    r"\bar J = \frac{2}{R (R-1)} \sum_{r < s} \frac{|H_r \cap H_s|}{|H_r \cup H_s|}",
    "Mean Jaccard overlap of the top-k heads H of every two of R runs.",
    SOURCE,
)

BY_CHANCE = Definition(
    "overlap by chance",
    r"\mathbb{E}\left[\frac{X}{|H_r| + |H_s| - X}\right], \quad X = \sum_l X_l, \quad "
    r"X_l \sim \operatorname{Hypergeometric}(n_l, |H_{r,l}|, |H_{s,l}|)",
    "Expected overlap if each run's heads are relabelled at random within their layers l, of n heads each "
    "(or within the model: a single hypergeometric number). p-values are from the same relabellings of all runs.",
)

CORRELATION = Definition(
    "rank correlation",
    r"\bar\rho = \frac{2}{R (R-1)} \sum_{r < s} \rho_{\mathrm{Spearman}}(s_r, s_s)",
    "Mean rank correlation of the scores of all heads; by chance, the part that the layers' mean ranks explain.",
)

DISTANCE = Definition(
    "distance of critical layers",
    r"\bar d = \frac{2}{R (R-1)} \sum_{r < s} |l_r - l_s|, \quad \mathbb{E}_0[\bar d] = \frac{L^2 - 1}{3 L}",
    "By chance, each run's layer is any of the L with equal probability.",
)

FEWEST: Mapping[Axis, tuple[str, int]] = {
    "seed": ("seeds", 2),
    "template": ("templates", 1),
    "label set": ("label_sets", 1),
    "subset": ("subsets", 2),
}
"""Field of each axis, and how many of its values are needed for two runs."""

AXES: tuple[Axis, ...] = tuple(FEWEST)


@dataclass(frozen=True, eq=False, kw_only=True)
class StabilityResult(Result):
    """Agreement between runs that differ in one respect.

    Attributes:
        table: One entry for each conclusion and axis, see `lines`.
        shares: Fraction of runs that have a head in their top k, for each line on the overlap of heads.
        k: Number of top heads.
        within: Heads that chance exchanges: those of one `layer`, or all of the `model`.
    """

    shows: ClassVar[tuple[str, ...]] = ("agreement", "layers", "claims", "heads")
    definitions: ClassVar[tuple[Definition, ...]] = (OVERLAP, BY_CHANCE, CORRELATION, DISTANCE)

    table: tuple[Mapping[str, Any], ...]
    shares: tuple[Float[Tensor, "layer head"], ...] = ()
    k: int
    within: Within

    @classmethod
    def of(
        cls,
        axes: Sequence[Lines],
        *,
        k: int,
        within: Within,
        provenance: Mapping[str, Any] | None = None,
    ) -> "StabilityResult":
        """The result of lines along several axes."""
        return cls(
            table=tuple(line.to_dict() for lines in axes for line in lines.lines),
            shares=tuple(share for lines in axes for share in lines.shares),
            k=k,
            within=within,
            provenance=dict(provenance or {}),
        )

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """One line for each conclusion and axis."""
        return tuple(Line.from_dict(entry) for entry in self.table)

    def line(self, measure: str, over: str, of: str | None = None) -> Line:
        """The line of a measure along an axis.

        Args:
            measure: `overlap`, `correlation`, `distance` or `claim`.
            over: The axis.
            of: Name of the result or the claim; None: the first.

        Raises:
            ResultError: there is no such line.
        """
        for line in self.lines:
            if (line.measure, line.over) == (measure, over) and of in (None, line.of):
                return line
        there = ", ".join(f"{line.measure} over {line.over} of {line.of}" for line in self.lines)
        raise ResultError(f"There is no {measure} over {over}; there are: {there or 'none'}.")

    def measured(self, *measures: str) -> tuple[Line, ...]:
        """Lines of these measures that have a number."""
        return tuple(
            line for line in self.lines if line.measure in measures and line.value is not None
        )

    @property
    def overlaps(self) -> tuple[Line, ...]:
        """Lines on the overlap of heads."""
        return self.measured("overlap")

    @property
    def outcomes(self) -> tuple[tuple[str, tuple[str, ...], tuple[Line, ...]], ...]:
        """What overlaps show: see `Line.outcome`, with the lines that show the same."""
        groups: dict[tuple[str, tuple[str, ...]], list[Line]] = {}
        for line in self.overlaps:
            groups.setdefault(line.outcome, []).append(line)
        return tuple((*outcome, tuple(lines)) for outcome, lines in groups.items())

    @property
    def heads_status(self) -> Status:
        """Status of the claim that heads recur and stand out along every axis."""
        return _together(self.overlaps)

    @property
    def several(self) -> bool:
        """True if lines are about several results or models."""
        return len({(line.place, line.of) for line in self.lines if line.measure != "claim"}) > 1

    @property
    def conclusions(self) -> tuple[tuple[Line, ...], ...]:
        """Lines that hold at some values and not at others, those of one conclusion together."""
        groups: dict[tuple[str, str, str], list[Line]] = {}
        for line in self.lines:
            if line.holds:
                groups.setdefault((line.place, line.of, line.measure), []).append(line)
        return tuple(map(tuple, groups.values()))

    @property
    def status(self) -> Status:
        """Status of the claim that heads and critical layers recur along every axis; without either, that claims hold."""
        lines = [line for line in self.lines if line.measure in ("overlap", "distance")]
        return _together(lines or [line for line in self.lines if line.measure == "claim"])

    def plain_table(self) -> "pd.DataFrame":
        """One row for each line; rank correlations have no status, and hold at no number of values."""
        import pandas as pd

        rows = [
            {
                **{name: entry[name] for name in ("place", "of", "measure", "over")},
                **line.interval._asdict(),
                **{
                    name: float("nan") if entry[name] is None else entry[name]
                    for name in ("chance", "p")
                },
                "holds": float("nan") if line.status is None else line.held,
                "values": len(line.holds) or len(line.names),
                "runs": line.runs,
                "status": line.status,
            }
            for entry, line in zip(self.table, self.lines, strict=True)
        ]
        return pd.DataFrame(rows)

    def on_page(self) -> tuple[str, ...]:
        """Agreement on heads and layers, over what each conclusion holds, and the heads; the latter not for a sweep's runs."""
        last = "heads" if "runs" in self.provenance else ""
        return tuple(show for show in self.shows if self.is_drawn(show) and show != last)

    def is_drawn(self, show: str) -> bool:
        """False for what no run shows."""
        there: dict[str, object] = {
            "agreement": self.overlaps,
            "layers": self.measured("distance"),
            "claims": self.conclusions,
            "heads": self.shares,
        }
        return bool(there[show])


def _together(lines: Sequence[Line]) -> Status:
    """The status along all axes that have enough values to be judged, or along all if none has."""
    enough = [line for line in lines if len(line.names) >= FEWEST_RUNS]
    return together(*(line.status for line in enough or lines if line.status))


@dataclass(frozen=True)
class Stability(Measurement[StabilityResult]):
    """Agreement of heads, critical layers and claims over variants of the prompts.

    Costs the measurement once for each variant; all subsets together cost it once more.

    Attributes:
        of: The measurement that is repeated, or its name. It takes part with what it gives: a ranking of heads, a
            critical layer, a claim.
        k: Number of top heads, less than half of all.
        over: What is varied, one at a time: the `seed` of demonstrations and queries, the `template`, the `label set`,
            or disjoint parts of the prompts (`subset`). None: all of these; without label sets for free-form answers.
        seeds: Number of seeds, the given one included; a measurement with a `seed` is repeated with as many.
        templates: Templates in addition to the given one; separator and narrative stay. Of the defaults, those that give
            equal prompts are left out.
        label_sets: Label words in addition to the given ones: `letters`, `numbers`, `nonsense`, or a word for each class;
            likewise.
        subsets: Number of subsets.
        quantity: The quantity by which heads are ranked; None: the measurement's main one.
        within: Heads that chance exchanges: those of one `layer` (stricter), or all of the `model`.
        seed: Seed of relabellings, and of the choice between heads with equal scores.

    Raises:
        PromptError: prompts that were not drawn from a task (except for subsets), variants that cannot be built, or
            listed ones that give equal prompts.
        RunError: no such measurement, or one that gives nothing to compare; an axis with a single run; too many heads.

    Source: Méloux, Portet and Peyrard 2025.
    """

    of: Annotated[
        AnyMeasurement[Any, Any] | str, Called("a measurement such as HeadScores(), or its name")
    ] = "head_scores"
    k: Count = 5
    over: Sequence[Axis] | None = None
    seeds: Count = 5
    templates: Sequence[str] = TEMPLATES
    label_sets: Sequence[str | Sequence[str]] = LABEL_SETS
    subsets: Count = 4
    quantity: str | None = None
    within: Within = "layer"
    seed: Natural = 0

    takes = ("classes", "choices")
    why_not = "variants are drawn from a task with demonstrations"

    def __post_init__(self) -> None:
        """Check the fields, and take the side of a pair that the measurement takes.

        Raises:
            RunError: names the field and its allowed values.
        """
        super().__post_init__()
        for axis, (field, least) in FEWEST.items():
            value = getattr(self, field)
            if axis in self._axes and (value if isinstance(value, int) else len(value)) < least:
                raise RunError(
                    f"{field}={value!r} leaves a single run over {axis}; give at least {least}, or leave {axis!r} "
                    "out of over=."
                )
        repeated = self.repeated
        side = "false" if isinstance(repeated, PairMeasurement) else getattr(repeated, "side", None)
        object.__setattr__(self, "side", side)

    @property
    def repeated(self) -> AnyMeasurement[Any, Any]:
        """The measurement that is repeated.

        Raises:
            RunError: no measurement of this name.
        """
        if isinstance(self.of, AnyMeasurement):
            return self.of
        known, name = by_name(), self.of.replace("-", "_")
        if name not in known:
            raise RunError(f"of={self.of!r} is no measurement. {near_matches(name, known)}")
        try:
            made: AnyMeasurement[Any, Any] = known[name]()
        except TypeError as error:
            raise RunError(
                f"of={self.of!r} has variants without defaults ({error}); give the measurement itself."
            ) from error
        return made

    @property
    def _axes(self) -> tuple[Axis, ...]:
        return tuple(dict.fromkeys(AXES if self.over is None else self.over))

    def filled(self, model: LanguageModel, data: Prompts) -> "Stability":
        """With the axes that the prompts have filled in."""
        first = data[0] if isinstance(data, tuple) else data
        axes = [
            axis for axis in self._axes if axis != "label set" or first.answer_kind == "classes"
        ]
        return self if self.over is not None else replace(self, over=tuple(axes))

    def reads_first_tokens(self) -> bool:
        """As the repeated measurement."""
        return self.repeated.reads_first_tokens()

    def chosen(self, data: Prompts) -> Any:
        """The prompts that the repeated measurement selects."""
        return self.repeated.chosen(check_data(data))

    def variants_of(self, model: LanguageModel, data: Prompts) -> list[Variant]:
        """The given prompts and their variants.

        Raises:
            PromptError: variants that cannot be built.
        """
        return variants_of(
            data,
            model,
            self._axes,
            seeds=self.seeds,
            templates=self.templates,
            label_sets=self.label_sets,
            subsets=self.subsets,
        )

    def check_options(self, model: LanguageModel, data: Prompts, options: Options) -> None:
        """Reject variants that the repeated measurement rejects.

        Raises:
            IclMechError: names the variant.
        """
        for variant in self.variants_of(model, data):
            _ = Item.checked(self.repeated, model, variant.prompts, options)

    def passes(self, model: LanguageModel, data: Prompts) -> list[Pass]:
        """None of its own; see `steps`."""
        return []

    def steps(
        self, model: LanguageModel, data: Prompts, options: Options
    ) -> Steps[StabilityResult]:
        """The repeated measurement on each variant, with its own seed for each seed of the prompts."""
        repeated, first, runs = self.repeated, _seed_of(data), []
        for variant in self.variants_of(model, data):
            measurement: Any = repeated
            if variant.over == "seed" and hasattr(repeated, "seed"):
                later = int(variant.name) - first
                measurement = replace(measurement, seed=measurement.seed + later)
            item = Item.checked(measurement, model, variant.prompts, options)
            result = yield from item.measurement.steps(model, item.data, options)
            what = seen(result, repeated.name, self.quantity)
            if what.scores is not None and (problem := too_many(self.k, what.scores.numel())):
                raise RunError(problem)
            runs.append((variant, what))
        return self.result(model, data, runs)

    def result(self, model: LanguageModel, data: Prompts, read: list[Any]) -> StabilityResult:
        """Agreement of the runs along each axis.

        Raises:
            RunError: they have nothing to compare.
        """
        repeated, axes = self.repeated, []
        for axis in self._axes:
            # Subsets are parts of the given prompts, which are therefore left out.
            whole = () if axis == "subset" else ("",)
            runs = [(variant, what) for variant, what in read if variant.over in (axis, *whole)]
            names = [variant.name for variant, _ in runs]
            if axis == "seed":
                names[0] = str(_seed_of(data))
            whats = [[{repeated.name: what} for _, what in runs]]
            axes.append(
                lines_over(axis, names, whats, k=self.k, within=self.within, seed=self.seed)
            )
        if not any(lines.lines for lines in axes):
            raise RunError(
                f"{type(repeated).__name__} gives nothing whose stability could be measured: no ranking of heads that "
                "depends on the prompts, no critical layer, no status. Name its quantity over layers and heads with "
                "quantity=, or repeat another measurement."
            )
        return StabilityResult.of(axes, k=self.k, within=self.within)


def _seed_of(data: Prompts) -> int:
    """The seed of the given prompts."""
    first = data[0] if isinstance(data, tuple) else data
    return int(first.source.get("seed", 0))


stability = door(
    Stability,
    "stability",
    prompts="Prompts from `build_prompts`, or the pair of `build_prompt_pairs`, as the repeated measurement takes them.",
)
