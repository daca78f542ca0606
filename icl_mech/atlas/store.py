"""The folder of an atlas: one folder for each run, with a name derived from what was measured."""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from os.path import expanduser
from pathlib import Path
from typing import Any

import torch

from icl_mech.atlas.checks import examined, measured, refuse, remeasured
from icl_mech.errors import ResultError, SweepError
from icl_mech.measurements.provenance import Identity
from icl_mech.results import INDEX, Result, given_path, jsonable
from icl_mech.results.wording import counted
from icl_mech.studies import Analysis
from icl_mech.studies.facts import origin_of
from icl_mech.sweeps.item import ITEMS, Item, is_sweep, item_folder
from icl_mech.sweeps.result import Sweep, item_of
from icl_mech.tasks.types import text_fault


@dataclass(frozen=True, eq=False)
class Entry:
    """One run of an atlas.

    Attributes:
        run: The analysis; `made["label"]` is the name of its model.
    """

    run: Analysis

    @cached_property
    def contents(self) -> frozenset[str]:
        """Digests of what was measured, types and values without provenance, independent of names."""
        return frozenset(_digest(_plain(result)) for result in measured(self.run).values())

    @cached_property
    def identities(self) -> frozenset[str]:
        """Digests of everything that determines the numbers (weights, prompts, variants, interventions, versions)."""
        return frozenset(
            Identity.recorded(o.provenance).digest for o in measured(self.run).values()
        )

    @cached_property
    def item(self) -> Item:
        """The run as an item of a sweep, with the name that the atlas gives the model."""
        item = item_of(self.run)
        return replace(item, model=str(self.run.made.get("label") or item.model))

    @property
    def origin(self) -> dict[str, Any]:
        """Date, weights and depth of its model, digest of its prompts, and versions."""
        origin = origin_of(self.run.results)
        entries = {key: origin["model"][key] for key in ("weights", "n_layers")}
        entries |= {"prompts": origin["prompts"]["digest"], "date": origin["date"]}
        return {**entries, **origin["versions"]}

    @cached_property
    def name(self) -> str:
        """Name of its folder: a few words, and a digest of what was measured."""
        return f"{self.item.key.rpartition('-')[0]}-{_digest(sorted(self.contents))[:12]}"


def _plain(value: object) -> object:
    """The content of a result or of one of its values; tensors as their digests."""
    if isinstance(value, torch.Tensor):
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return [str(value.dtype), list(value.shape), hashlib.sha256(raw).hexdigest()]
    if isinstance(value, Result):
        names = [field.name for field in fields(value) if field.name != "provenance"]
        return [type(value).__name__, *((name, _plain(getattr(value, name))) for name in names)]
    return (
        [_plain(element) for element in value]
        if isinstance(value, tuple | list)
        else jsonable(value)
    )


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def load_atlas(folder: str | Path, *, checked: bool = True) -> tuple[Entry, ...]:
    """The runs of an atlas in the order of their names; none if there is no folder.

    Args:
        folder: Folder of the atlas.
        checked: Every run is checked as if it were added today; False: files only.

    Raises:
        ResultError: damaged files, or a run that may not be shown.
    """
    entries: list[Entry] = []
    place = given_path(folder, option="atlas")
    for path in sorted(index.parent for index in place.glob(f"*/{INDEX}")):
        entry = Entry(examined(path) if checked else Analysis.load(path))
        if entry.name != path.name:
            raise ResultError(
                f"{str(path)!r} no longer holds the run that was added: its content belongs to the name {entry.name}. "
                "Remove the folder, and add the original run again."
            )
        entries.append(entry)
    return tuple(entries)


CONTINUE = "continue it with icl-mech sweep STUDY.YAML --out {folder} --resume"


def _folders(runs: Sequence[str | Path]) -> Iterator[str | Path]:
    """Folders of runs; for a sweep, those of its runs that are done or damaged."""
    for folder in runs:
        if not is_sweep(given_path(folder, "run")):
            yield folder
            continue
        sweep = Sweep.load(folder)
        finished = [item for item in sweep.plan if sweep.state(item) in ("done", "damaged")]
        if sweep.folder is None or not finished:
            raise SweepError(
                f"No run of the sweep {str(folder)!r} is finished; {CONTINUE.format(folder=folder)}."
            )
        if left := len(sweep.plan) - len(finished):
            warnings.warn(
                f"{left} of {counted(len(sweep.plan), 'run')} of the sweep {str(folder)!r} are not finished, and were "
                f"left out; {CONTINUE.format(folder=folder)}, and add the new folders in {str(sweep.folder / ITEMS)!r}.",
                stacklevel=3,
            )
        yield from (item_folder(sweep.folder, item.key) for item in finished)


def add(
    runs: Sequence[str | Path],
    atlas: str | Path,
    *,
    label: str = "",
    models: Sequence[object] | None = None,
) -> list[Path]:
    """Check saved runs and copy them into an atlas: all of them, or none.

    Args:
        runs: Folders of saved runs, or of sweeps, from which all finished runs are taken.
        atlas: The folder; created if it does not exist.
        label: Name of the model, if its own name is not informative.
        models: Models of the runs, identified by their weights: everything is measured on them again and
            compared.

    Returns:
        The folders of the copies.

    Raises:
        SweepError: a sweep without finished runs.
        ResultError: a label that is not text, a run that may not be shown, or a run whose measurements contain, or are
            contained in, those of a run of the atlas, whatever their names.
    """
    if label != "" and (fault := text_fault(label)):
        raise ResultError(f"label= {fault}; give the name of a model.")
    known = [*load_atlas(atlas, checked=False)]
    old = len(known)
    for folder in _folders(runs):
        run = examined(folder)
        entry = Entry(replace(run, made={**run.made, "label": label}) if label else run)
        for other in known:
            pairs = (entry.contents, other.contents), (entry.identities, other.identities)
            less, more = (
                [left <= right for left, right in sets]
                for sets in (pairs, (p[::-1] for p in pairs))
            )
            if any(less + more):
                same = less[0] or more[0]
                how = "the same" if same else "different"
                where = f"is already in the atlas, with {how} numbers: {other.name!r} contains all its measurements"
                if not any(less):
                    where = f"contains all measurements of {other.name!r} in the atlas, with {how} numbers, and more"
                raise ResultError(
                    f"{str(folder)!r} {where}. Nothing was written; add a run with another model, other prompts or "
                    "another measurement, or first remove the run that is there."
                    f"{'' if same else ' One of the two runs was changed, or is not reproducible.'}"
                )
        refuse(folder, [] if models is None else [*remeasured(run, models)])
        known.append(entry)
    return [entry.run.save(Path(expanduser(atlas)) / entry.name) for entry in known[old:]]
