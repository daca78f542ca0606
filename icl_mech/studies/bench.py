"""`Bench`: measures one model, keeps finished results, and resumes where it was stopped."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from icl_mech.engine import expect
from icl_mech.errors import IclMechError, ResultError, RunError
from icl_mech.measurements.base import AnyMeasurement, Options
from icl_mech.measurements.provenance import Identity
from icl_mech.measurements.running import Item, Prompts, completed, work_of
from icl_mech.measurements.whole_words import alike
from icl_mech.models import LanguageModel
from icl_mech.models.rehearsal import stage
from icl_mech.results import INDEX, PROMPTS, Folder, Result, check_names, given_path, is_vacant

R = TypeVar("R", bound=Result)

Wanted = Mapping[str, tuple[AnyMeasurement[Any, Any], int]]
"""Measurement and maximum number of prompts, by name of the model's result."""


@dataclass
class Bench:
    """One model and its results so far.

    Attributes:
        model: The measured model.
        options: How to run.
        out: Folder in which every finished result is saved at once, or None.
        results: Finished results by name, in the order in which they were requested.
        notes: Omitted measurements, with reasons.
        resumed: Number of results that an earlier, stopped call left.
        for_nulls: What is measured on untrained networks, too.
        announced: Work of measurements that a study makes later, by their type; see `announce`.
    """

    model: LanguageModel
    options: Options
    out: Path | None = None
    results: dict[str, Result] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    resumed: int = 0
    for_nulls: Wanted = field(default_factory=dict)
    announced: list[tuple[type, float]] = field(default_factory=list)

    def measure(
        self,
        data: Prompts,
        *measurements: AnyMeasurement[Any, Any],
        optional: Sequence[AnyMeasurement[Any, Any]] = (),
    ) -> None:
        """Make measurements together; passes that they share are made once.

        Args:
            data: Prompts, or a pair (true, false).
            *measurements: The measurements.
            optional: Further measurements, left out with a note if they are not possible.

        Raises:
            IclMechError: a measurement rejects model, prompts or options, before anything runs.
        """
        items: dict[str, Item] = {}
        texts: dict[tuple[int, ...], Any] = {}
        for number, measurement in enumerate((*measurements, *optional)):
            name = self._free_name(measurement.name, items)
            try:
                items[name] = Item.checked(measurement, self.model, data, self.options, texts)
            except IclMechError as error:
                if number < len(measurements):
                    raise
                self.notes.append(f"{name.replace('_', ' ').capitalize()} left out: {error}")
        check_names([*self.results, *items])
        self.notes += _of_scores(items.values())
        self.run(items)

    def announce(self, data: Prompts, *measurements: AnyMeasurement[Any, Any]) -> None:
        """Let progress count measurements that depend on results of others, from the start.

        Args:
            data: The prompts, or others like them.
            *measurements: The measurements with any options that take as long.
        """
        if stage() is not None:
            return
        for measurement in measurements:
            # Errors and warnings come where it is measured.
            with suppress(IclMechError), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                item = Item.checked(measurement, self.model, data, self.options)
                work = work_of(item, self.model, self.options)
                self.announced.append((type(measurement), work))
                expect(work)

    def withdraw(self) -> None:
        """Withdraw what was announced and not measured."""
        expect(-sum((work for _, work in self.announced), 0.0))
        self.announced.clear()

    def _begin(self, items: Iterable[Item]) -> None:
        """Withdraw what was announced of these items, which now announce their passes."""
        for item in items:
            types = [measurement for measurement, _ in self.announced]
            if type(item.measurement) in types:
                _, work = self.announced.pop(types.index(type(item.measurement)))
                expect(-work)

    def run(self, items: dict[str, Item]) -> None:
        """Compute the results of named items; finished ones are loaded from the folder."""
        self._begin(items.values())
        weights = self.model.fingerprint(exact=True) if self.out is not None else ""
        if self.out is not None and self.model.has_own_hooks:
            raise RunError(
                f"{self.model.info.name!r} has hooks that icl_mech did not set, so finished results could not "
                "be recognised later. Measure without out=, or turn the hooks into an intervention."
            )
        finished = {name: self._finished(name, item, weights) for name, item in items.items()}
        self.results |= dict.fromkeys(items, Result())
        names = {id(item): name for name, item in items.items()}
        for name, result in finished.items():
            if result is not None:
                self.results[name] = result
                self.resumed += 1
        left = [item for name, item in items.items() if finished[name] is None]
        for item, result in completed(self.model, left, self.options):
            name = names[id(item)]
            faster = self._finished(name, item, weights)  # another process may have finished it
            if faster is None:
                self.keep(name, result)
            else:
                self.results[name] = faster

    def keep(self, name: str, result: Result) -> None:
        """Keep a finished result, saved at once if there is a folder."""
        self.results[name] = result
        if self.out is not None and stage() is None:
            result.save(self.out / name, overwrite=True)

    def kept(self, name: str, kind: type[R]) -> R | None:
        """A result of this type that the folder already holds; None if there is none."""
        if self.out is None or is_vacant(self.out / name):
            return None
        result = Result.load(self.out / name)
        return result if isinstance(result, kind) else None

    def order(self, names: Sequence[str]) -> None:
        """Put these results first, in this order."""
        first = {name: self.results[name] for name in names if name in self.results}
        self.results = {**first, **self.results}

    def _free_name(self, name: str, items: dict[str, Item]) -> str:
        taken = {*self.results, *items}
        if name not in taken:
            return name
        return next(f"{name}_{i}" for i in range(2, len(taken) + 3) if f"{name}_{i}" not in taken)

    def _finished(self, name: str, item: Item, weights: str) -> Result | None:
        """The result that an earlier, stopped run left of this item; None if there is none.

        Raises:
            RunError: the folder holds something else under this name.
        """
        if self.out is None or is_vacant(self.out / name):
            return None
        with Folder(self.out / name, beside=True):
            pass  # removes what a killed process left
        try:
            result = Result.load(self.out / name)
        except ResultError as error:
            raise RunError(
                f"{str(self.out / name)!r} exists but cannot be read ({error}), so the study cannot "
                "resume in this folder; choose another one."
            ) from error
        wanted = Identity.of(
            self.model, item.measurement, item.given, self.options.interventions, weights=weights
        )
        differing = wanted.differences(Identity.recorded(result.provenance))
        if differing:
            raise RunError(
                f"{str(self.out / name)!r} holds a result of another study ({', '.join(differing)} "
                "differ), and results of different studies are not mixed. Choose another folder for this one."
            )
        return result


def prepared_folder(out: str | Path | None) -> Path | None:
    """The folder for finished results, created if it does not exist.

    Raises:
        ResultError: it cannot be written, or another file is where its index belongs.
    """
    if out is None:
        return None
    folder = given_path(out, option="out")
    if stage() is not None:  # a rehearsal writes nothing; finished results need no measuring
        return None if is_vacant(folder) else folder
    with Folder(folder, beside=True, files=[PROMPTS, INDEX]) as place:
        place.claim()
    return place.path


def _of_scores(items: Iterable[Item]) -> list[str]:
    """A note on label words that are scored as whole words because some share their first token."""
    sets = [
        prompts
        for item in items
        for prompts in (item.given if isinstance(item.given, tuple) else (item.given,))
    ]
    match = next((words for prompts in sets if (words := alike(prompts))), None)
    if match is None:
        return []
    first, second, _ = match
    return [
        f"Label words are scored as whole words ({sets[0].score}), because some begin with the same token, such as "
        f"{first!r} and {second!r}. Measurements that read logits inside the model (flow, saliency) cannot tell such "
        "classes apart."
    ]
