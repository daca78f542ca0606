"""`Sweep`: the runs of a sweep or of several sweeps side by side, their states and their results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech import errors
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError, SweepError, near_matches
from icl_mech.measurements.stability.stability import StabilityResult
from icl_mech.metrics.means import RANGES
from icl_mech.metrics.stability import Within
from icl_mech.results import INDEX, given_path
from icl_mech.results.wording import counted
from icl_mech.studies import Analysis
from icl_mech.studies.claim import Effect
from icl_mech.studies.facts import model_name, origin_of, task_name
from icl_mech.studies.study import OF_MEASUREMENTS, quantities
from icl_mech.sweeps.averages import Averages, averaged
from icl_mech.sweeps.cells import plural
from icl_mech.sweeps.item import (
    DIMS,
    STATES,
    Item,
    damage_of,
    error_of,
    is_complete,
    is_sweep,
    item_folder,
    read_list,
)
from icl_mech.sweeps.reading import Reading, reading_of, share_drawn
from icl_mech.sweeps.stability import stability_of

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

KEPT = 64
"""Number of analyses that are kept in memory after they were read."""


class NoValue(SweepError, LookupError):  # noqa: N818 - what there is
    """No finished run has the quantity."""


class Sweep:
    """The results of a sweep: `sweep.average("flow.values", over="seed")`.

    Attributes:
        plan: All runs, in order.
        folder: The folder that holds them, or None.
        skipped: Omitted runs, with reasons.
        made: When and how it was made.
    """

    def __init__(
        self,
        items: Sequence[Item],
        *,
        folder: Path | None = None,
        analyses: Mapping[str, Analysis] | None = None,
        errors: Mapping[str, str] | None = None,
        skipped: Sequence[str] = (),
        made: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the sweep, as `sweep` and `load` do."""
        self.plan, self.folder = tuple(items), folder
        self.skipped, self.made = tuple(skipped), dict(made or {})
        self._analyses, self._errors = dict(analyses or {}), dict(errors or {})
        self._load = lru_cache(KEPT)(Analysis.load)

    @classmethod
    def load(cls, folder: str | Path) -> "Sweep":
        """Load the sweep that `sweep(..., out=folder)` or `icl-mech sweep` wrote, finished or not.

        Raises:
            SweepError: the folder holds none, or its list is damaged.
        """
        place, document = read_list(folder)
        items = [Item.from_dict(values) for values in document["items"]]
        if len({item.key for item in items}) < len(items):
            raise SweepError(
                f"The list of runs in {str(folder)!r} is damaged: one run occurs twice. Restore the list from a copy."
            )
        made = document.get("made") or {}
        return Sweep(items, folder=place, skipped=document["skipped"], made=made)

    # --- its runs ---

    def state(self, item: Item) -> str:
        """`done`, `failed`, `damaged` (its files differ from what was saved) or `unfinished`."""
        if item.key in self._analyses:
            return "done"
        if self.folder is not None:
            place = item_folder(self.folder, item.key)
            if is_complete(place):
                return "damaged" if damage_of(place) else "done"
            return "unfinished" if error_of(place) is None else "failed"
        return "failed" if item.key in self._errors else "unfinished"

    def error(self, item: Item) -> str:
        """Why a run failed, or which of its files are damaged; empty if neither."""
        if self.folder is not None:
            state, place = self.state(item), item_folder(self.folder, item.key)
            if state == "damaged":
                return damage_of(place)
            if state == "failed":
                said = error_of(place) or {}
                name, message = str(said.get("type", "error")), str(said.get("message", ""))
                # The names of this package's errors say nothing to a reader.
                is_ours = isinstance(getattr(errors, name, None), type)
                return message if is_ours and message else f"{name}: {message}"
        return self._errors.get(item.key, "")

    @property
    def items(self) -> "pd.DataFrame":
        """One row per run: its value of every dimension, its state, and why it failed."""
        import pandas as pd

        rows = [
            {**item.dims, "state": self.state(item), "error": self.error(item), "key": item.key}
            for item in self.plan
        ]
        return pd.DataFrame(rows, columns=[*DIMS, "state", "error", "key"])

    def to_pandas(self) -> "pd.DataFrame":
        """The runs, as `items`."""
        return self.items

    def __len__(self) -> int:
        """Number of runs."""
        return len(self.plan)

    def __iter__(self) -> Iterator[tuple[Item, Analysis]]:
        """Finished runs with their results, in order.

        Raises:
            ResultError: the files of a run are damaged.
        """
        for item in self.plan:
            if self.state(item) in ("done", "damaged"):
                yield item, self.analysis(item)

    def analysis(self, item: Item | str) -> Analysis:
        """The results of a run, given as an item or by its key.

        Raises:
            SweepError: no such run, or it is not finished.
            ResultError: its files are damaged.
        """
        key = item.key if isinstance(item, Item) else item
        chosen = next((planned for planned in self.plan if planned.key == key), None)
        if chosen is None:
            raise SweepError(
                f"The sweep has no run {key!r}. {near_matches(key, [i.key for i in self.plan])}"
            )
        if key in self._analyses:
            return self._analyses[key]
        if self.state(chosen) not in ("done", "damaged"):
            why = self.error(chosen) or "it has not been executed yet"
            raise SweepError(f"There are no results for {chosen.title}: {why}. Resume the sweep.")
        assert self.folder is not None
        return self._load(item_folder(self.folder, key))

    def select(self, **dims: Any) -> "Sweep":
        """The runs with these values: `sweep.select(task="reviews", seed=[0, 1])`.

        Raises:
            SweepError: an unknown dimension, or no such run.
        """
        for name, value in dims.items():
            self._check_dim(name)
            wanted = value if isinstance(value, list | tuple | set | range) else [value]
            known = list(dict.fromkeys(getattr(item, name) for item in self.plan))
            missing = [place for place in wanted if place not in known]
            if missing:
                raise SweepError(f"No run has {name}={missing[0]!r}; choose from {known}.")
            dims[name] = wanted
        chosen = [
            i for i in self.plan if all(getattr(i, d) in places for d, places in dims.items())
        ]
        if not chosen:
            raise SweepError(
                "No run has all of these values together; select fewer dimensions at once."
            )
        return self._part(chosen)

    def _part(self, items: Sequence[Item]) -> "Sweep":
        part = Sweep(
            items,
            folder=self.folder,
            analyses=self._analyses,
            errors=self._errors,
            skipped=self.skipped,
            made=self.made,
        )
        part._load = self._load
        return part

    def _check_dim(self, name: str) -> None:
        if name not in DIMS:
            raise SweepError(f"A sweep has no dimension {name!r}. {near_matches(name, DIMS)}")

    # --- averages ---

    def average(
        self,
        quantity: Any,
        over: str | Sequence[str] = ("seed",),
        *,
        minus: Mapping[str, Any] | None = None,
        fixed: str | Sequence[str] = (),
        relative: bool | None = None,
        name: str = "",
        **dims: Any,
    ) -> Averages:
        """A quantity averaged over dimensions, with hierarchical 95 % intervals.

        Args:
            quantity: `part.quantity`, such as `flow.values` or `layer_accuracy.gap`; an effect or its
                name (`icl_mech.studies.study.quantities()` has all); or a function of an analysis that gives
                a number or an interval.
            over: Dimensions that are averaged; the others form the cells.
            minus: Subtract the runs that differ only in having these values: `{"labels": "correct"}`;
                paired if both have the same queries.
            fixed: Averaged dimensions that are not samples of more values: for example, the mean is for these
                tasks only, and their spread is not part of the interval.
            relative: Layers as a fraction of the model's depth; None: only if models differ in depth.
            name: Name of the quantity in tables; by default its address.
            **dims: Labels along the quantity's axes, such as `score="wp"`, and values of
                dimensions of the sweep.

        Raises:
            SweepError: no such quantity, or runs that cannot be averaged.
        """
        given, kept = (
            (names,) if isinstance(names, str) else tuple(names) for names in (over, fixed)
        )
        for dim in (*given, *kept, *(minus or {})):
            self._check_dim(dim)
        part = self.select(**{k: v for k, v in dims.items() if k in DIMS}) if dims else self
        labels = {key: value for key, value in dims.items() if key not in DIMS}
        return averaged(part.readings(quantity, name), given, minus or {}, labels, relative, kept)

    def readings(self, quantity: object, name: str = "") -> list[Reading]:
        """The quantity in every finished run that has it.

        Raises:
            SweepError: no run has it.
        """
        effect = None
        if isinstance(quantity, str):
            quantity = quantities().get(quantity, quantity)
        if isinstance(quantity, Effect):
            effect, name, quantity = quantity, name or quantity.name, quantity.of
        readings, parts = [], set()
        for item, analysis in self:
            reading = reading_of(item, analysis, quantity, name)
            parts |= set(analysis.results)
            if reading is not None:
                kind = "value" if reading.quantity is None else reading.quantity.kind
                ends = (effect.ends if effect else None) or RANGES.get(kind)
                prompts = (effect.count(analysis) if effect else None) or reading.prompts
                drawn = share_drawn(item, analysis)
                readings.append(replace(reading, ends=ends, prompts=prompts, drawn=drawn))
        if not readings:
            done = sum(self.state(item) == "done" for item in self.plan)
            if not done:
                raise SweepError(
                    "No run of the sweep is finished, so there is nothing to average; resume the sweep first."
                )
            part = str(quantity).split(".")[0]
            raise NoValue(
                f"None of the {done} finished runs has {name or quantity!r}; give part.quantity. "
                f"{near_matches(part, parts)}"
            )
        return readings

    def plot(
        self, quantity: Any, over: str | Sequence[str] = ("seed",), **options: Any
    ) -> "go.Figure":
        """Small multiples of a quantity, see `average` and `Averages.plot`."""
        shown = {key: options.pop(key) for key in ("panels", "curves", "x") if key in options}
        return self.average(quantity, over, **options).plot(**shown)

    @checked(SweepError)
    def stability(
        self,
        *,
        k: Count = 5,
        within: Within = "layer",
        quantity: str | None = None,
        seed: Natural = 0,
    ) -> StabilityResult:
        """Over which values of every dimension heads, critical layers and claims recur, compared with chance.

        Runs are compared if they differ in one dimension alone; nothing is run again.

        Args:
            k: Number of top heads.
            within: Heads that chance exchanges: those of one `layer` (stricter), or all of the `model`.
            quantity: The quantity by which heads are ranked; None: the main one of each result that ranks heads.
            seed: Seed of relabellings, and of the choice between heads with equal scores.

        Raises:
            SweepError: no two finished runs differ in a single dimension, or nothing in them can be compared.
        """
        return stability_of(self, k=k, within=within, seed=seed, quantity=quantity)

    def failures(self) -> list[str]:
        """Which runs failed or are damaged, and why: one line for each reason."""
        reasons: dict[str, list[str]] = {}
        for item in self.plan:
            if self.state(item) in ("failed", "damaged"):
                reasons.setdefault(self.error(item), []).append(item.title)
        return [
            f"{titles[0]}{f' and {len(titles) - 1} more' if len(titles) > 1 else ''}: {reason}"
            for reason, titles in reasons.items()
        ]

    def summary(self) -> str:
        """Number of runs, what they differ in, and their states."""
        from collections import Counter

        states = Counter(self.state(item) for item in self.plan)
        counts = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
        lines = [f"{counted(len(self.plan), 'run')} ({self._varied() or 'one of each'}): {counts}"]
        lines += [f"  failed: {text}" for text in self.failures()]
        lines += [f"  left out: {text}" for text in self.skipped]
        return "\n".join(lines)

    def _varied(self) -> str:
        """Dimensions in which runs differ, except those that follow from the rest; as a product if they form one."""
        counts = {dim: len({getattr(item, dim) for item in self.plan}) for dim in DIMS}
        sizes = {dim: size for dim, size in counts.items() if size > 1}
        for dim in reversed(list(sizes)):
            rest = [name for name in sizes if name != dim]
            apart = {tuple(getattr(item, name) for name in rest) for item in self.plan}
            if prod(sizes.values()) > len(self.plan) == len(apart):
                del sizes[dim]
        sign = " × " if prod(sizes.values()) == len(self.plan) else ", "
        return sign.join(f"{size} {plural(dim)}" for dim, size in sizes.items())

    def __repr__(self) -> str:
        """The summary."""
        return f"<Sweep {self.summary()}>"


# --- runs side by side ---


class Joined(Sweep):
    """Several sweeps as one; their models are named after the runs, unless all runs are of one model."""

    def __init__(self, runs: Mapping[str, Sweep], *, one_model: bool = False) -> None:
        """Join the runs, which keep everything except the name of their model.

        Args:
            runs: Runs by name.
            one_model: They also keep the name of their model; their tasks are different.
        """
        items: list[Item] = []
        self._origins: dict[str, tuple[Sweep, Item]] = {}
        for name, run in runs.items():
            several = len({item.model for item in run.plan}) > 1
            for item in run.plan:
                renamed = replace(item, model=f"{name}, {item.model}" if several else name)
                renamed = item if one_model else renamed
                self._origins[renamed.key] = (run, item)
                items.append(renamed)
        super().__init__(items, skipped=[text for run in runs.values() for text in run.skipped])

    def state(self, item: Item) -> str:
        """The state in its own sweep."""
        run, original = self._origins[item.key]
        return run.state(original)

    def error(self, item: Item) -> str:
        """Why it failed in its own sweep; empty if it did not."""
        run, original = self._origins[item.key]
        return run.error(original)

    def analysis(self, item: Item | str) -> Analysis:
        """The results of a run in its own sweep.

        Raises:
            SweepError: no such run, or it is not finished.
        """
        key = item.key if isinstance(item, Item) else item
        if key not in self._origins:
            raise SweepError(f"There is no run {key!r} among these.")
        run, original = self._origins[key]
        return run.analysis(original)

    def _part(self, items: Sequence[Item]) -> Sweep:
        part = Joined({})
        part.plan, part._origins, part.skipped = tuple(items), self._origins, self.skipped
        return part


def as_sweep(run: object) -> Sweep:
    """Take a sweep, an analysis, or the folder of either as a sweep.

    Raises:
        SweepError: none of these.
    """
    if isinstance(run, Sweep):
        return run
    if isinstance(run, Analysis):
        item = item_of(run)
        return Sweep([item], analyses={item.key: run})
    try:
        folder: Path = given_path(run)
        if is_sweep(folder):
            return Sweep.load(folder)
        if not exists(folder / INDEX):
            raise SweepError(
                f"{str(run)!r} holds neither a sweep nor a saved analysis; give the folder of a run."
            )
        return as_sweep(Analysis.load(folder))
    except ResultError as error:
        raise SweepError(str(error)) from error


def item_of(analysis: Analysis) -> Item:
    """An analysis as an item of a sweep, as far as its provenance records it."""
    origin = origin_of(analysis.results)
    true, false = origin.get("prompts", {}), origin.get("false_prompts")
    shown = false or true
    texts = "spans" in true
    # The largest number that fits is one setting, whatever the number was.
    total: Any = "max" if "total_bound" in true else true.get("total")
    counted = texts or total is not None or true.get("demonstrations") == "given"
    return Item(
        model=model_name(origin) or "model",
        task=task_name(origin),
        study=analysis.study or OF_MEASUREMENTS,
        labels="" if texts else str(shown.get("labels", "correct")),
        false_share=shown.get("false_share"),
        shots=None if counted else int(true.get("shots") or 0),
        format="",
        demonstrations=str(true.get("demonstrations", "")),
        n=int(true.get("count", 0)),
        seed=int(true.get("seed") or 0),
        pair=false is not None,
        balanced=True,
        measured={"results": list(analysis.results)},
        sources={"prompts": str(true.get("digest", ""))},
        total=total,
    )
