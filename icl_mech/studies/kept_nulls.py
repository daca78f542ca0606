"""Results of untrained networks, kept in the user's cache: a network's seed determines it in every run.

A kept result is known by its identity, in which the seed stands for the weights: architecture, settings and
number format, measurement and variants, prompts, interventions, versions, and this package's code. Results of
the offline model on the built-in tasks come with the package (`SHIPPED`, made by `python -m tests.shipped_nulls`).
"""

import hashlib
import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from icl_mech.errors import ResultError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.provenance import Identity
from icl_mech.measurements.running import Prompts
from icl_mech.model_sources import cache_folder
from icl_mech.models import LanguageModel
from icl_mech.results import Result

PACKAGE = Path(__file__).parents[1]
SHIPPED = PACKAGE / "demo" / "nulls"

MOST = 600
"""Number of results in the cache; older ones are deleted."""

OF_WEIGHTS = ("name", "revision", "weights_format")
"""Entries of the model that its untrained networks do not depend on."""

SIDES = ("prompts", "false_prompts")


def nulls_folder() -> Path | None:
    """The folder of kept results; None: none are kept."""
    return cache_folder() / "nulls"


class KeptNull:
    """The place of one measurement of one untrained network.

    Attributes:
        identity: What determines its numbers, without the package's code.
        may_be_kept: True if all code that determines its numbers is that of this package, TransformerLens and
            transformers, whose versions are known.
        shipped: The folder it has if it comes with the package. Its name contains the digest of the prompts and
            the wrapper's class, but no versions of libraries: the result's provenance records them.
    """

    def __init__(
        self,
        model: LanguageModel,
        measurement: AnyMeasurement[Any, Any],
        data: Prompts,
        interventions: Iterable[Intervention],
        seed: int,
    ) -> None:
        interventions = tuple(interventions)
        weights = f"untrained, seed {seed}"
        parts = dict(Identity.of(model, measurement, data, interventions, weights=weights).parts)
        network = {name: v for name, v in parts["model"].items() if name not in OF_WEIGHTS}
        self.identity = _digest({**parts, "model": network})
        # Such as "transformer-lens 4.3.0 TransformerBridge": HookedTransformer draws other weights.
        wrapper = network["library"].rpartition(" ")[2]
        prompts = {side: parts[side]["digest"] for side in SIDES if side in parts}
        lasting = {**parts, **prompts, "model": {**network, "library": wrapper}, "versions": None}
        self.shipped = SHIPPED / _digest(lasting)
        # Code of others may change under the same name.
        ours = all(map(_is_ours, (measurement, *interventions)))
        self.may_be_kept = ours and not model.has_own_hooks and _is_known(model)

    def load(self) -> Result | None:
        """The kept result; None if there is none, or none that can be read."""
        for folder in (self.shipped, self._place()):
            with suppress(ResultError, OSError):
                if self.may_be_kept and folder is not None and folder.is_dir():
                    return Result.load(folder)
        return None

    def keep(self, result: Result) -> None:
        """Keep a result; if the folder cannot be written, nothing is kept."""
        if (place := self._place()) is None:
            return
        with suppress(ResultError, OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(place, ignore_errors=True)  # there is one only if it could not be read
            result.save(place)
            kept = sorted(place.parent.iterdir(), key=lambda folder: folder.stat().st_mtime)
            for old in kept[:-MOST]:
                shutil.rmtree(old, ignore_errors=True)

    def _place(self) -> Path | None:
        folder = nulls_folder()
        return folder / _digest([self.identity, _code()]) if folder and self.may_be_kept else None


def _is_ours(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == PACKAGE.name


def _is_known(model: LanguageModel) -> bool:
    """True if the model's class is one of a library whose version is part of the identity."""
    inner = getattr(model.module, "original_model", model.module)
    return type(inner).__module__.partition(".")[0] in ("transformers", "transformer_lens")


@cache
def _code() -> str:
    return _digest([path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))])


def _digest(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]
