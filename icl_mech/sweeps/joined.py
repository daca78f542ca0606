"""Runs side by side: saved analyses and sweeps as one sweep, each under its name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from icl_mech.errors import ResultError, SweepError
from icl_mech.results import INDEX, given_path
from icl_mech.studies import Analysis, load_analysis
from icl_mech.studies.facts import model_name, origin_of, task_name
from icl_mech.studies.pages import study_of
from icl_mech.sweeps.files import is_sweep
from icl_mech.sweeps.item import Item
from icl_mech.sweeps.result import Sweep, load_sweep


class Joined(Sweep):
    """Several sweeps as one; their models go by the runs' names."""

    def __init__(self, runs: Mapping[str, Sweep]) -> None:
        """Items keep all but the name of their model."""
        items: list[Item] = []
        self._origins: dict[str, tuple[Sweep, Item]] = {}
        for name, run in runs.items():
            several = len({item.model for item in run.plan}) > 1
            for item in run.plan:
                own = replace(item, model=f"{name}, {item.model}" if several else name)
                self._origins[own.key] = (run, item)
                items.append(own)
        super().__init__(items, skipped=[text for run in runs.values() for text in run.skipped])

    def state(self, item: Item) -> str:
        """As in its own run."""
        run, own = self._origins[item.key]
        return run.state(own)

    def error(self, item: Item) -> str:
        """As in its own run."""
        run, own = self._origins[item.key]
        return run.error(own)

    def analysis(self, item: Item | str) -> Analysis:
        """As in its own run.

        Raises:
            SweepError: no such item, or it is not finished.
        """
        key = item.key if isinstance(item, Item) else item
        if key not in self._origins:
            raise SweepError(f"There is no item {key!r} among these runs.")
        run, own = self._origins[key]
        return run.analysis(own)

    def _part(self, items: Sequence[Item]) -> Sweep:
        part = Joined({})
        part.plan, part._origins, part.skipped = tuple(items), self._origins, self.skipped
        return part


def as_sweep(run: Any) -> Sweep:
    """A sweep, an analysis, or the folder of one of them.

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
            return load_sweep(folder)
        if not (folder / INDEX).exists():
            raise SweepError(
                f"{str(run)!r} holds neither a sweep nor a saved analysis; give the folder of a run."
            )
        return as_sweep(load_analysis(folder))
    except ResultError as error:
        raise SweepError(str(error)) from error


def item_of(analysis: Analysis) -> Item:
    """The place of one analysis among those of a sweep, as far as its provenance says it."""
    origin = origin_of(analysis.results)
    true, false = origin.get("prompts", {}), origin.get("false_prompts")
    shown = false or true
    return Item(
        model=model_name(origin) or "model", task=task_name(origin),
        study=study_of(analysis.results) or "measurements",
        labels=str(shown.get("labels", "correct")), false_share=shown.get("false_share"),
        shots=int(true.get("shots") or 0), format="",
        demonstrations=str(true.get("demonstrations", "")), n=int(true.get("count", 0)),
        seed=int(true.get("seed") or 0), pair=false is not None, balanced=True,
        measured={"results": list(analysis.results)},
        sources={"prompts": str(true.get("digest", ""))},
    )  # fmt: skip
