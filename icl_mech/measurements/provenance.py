"""Provenance of every result, and `Identity`: the parts of it that determine the numbers.

Caching and resuming depend on the identity and nothing else. Two identities are equal if no part differs;
differences are named by entry and part: `weights of the model`, `loss of the variants`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import torch

from icl_mech.interventions import Intervention
from icl_mech.measurements.passes import Prompts, Runnable
from icl_mech.models import LanguageModel
from icl_mech.names import VERSIONED, version
from icl_mech.prompts import PromptBatch
from icl_mech.results import jsonable

PARTS = (
    "measurement",
    "variants",
    "model",
    "prompts",
    "false_prompts",
    "interventions",
    "versions",
)
"""Parts of the provenance that determine the numbers."""

NAMED = ("model", "variants", "versions")
"""Parts whose entries are named when they differ."""

LATER = ("settings",)
"""Entries of the model that results of earlier versions lack; compared only where both have them."""

UNCOUNTED = ("weights_format", "notes")
"""Entries of the model that add nothing to its weights."""

IN_DIGEST = ("answer_kind", "pool")
"""Entries of the prompts that add nothing to their digest, and that earlier results lack."""

_version = lru_cache(version)


def provenance(
    model: LanguageModel,
    measurement: Runnable[Any],
    data: Prompts,
    interventions: Sequence[Intervention] = (),
    *,
    weights: str,
) -> dict[str, Any]:
    """Provenance of one result; for a pair `prompts` are the true ones.

    `weights` is the model's fingerprint, computed once for results that are measured together; `date`
    is the current time.
    """
    true, *false = data if isinstance(data, tuple) else (data,)
    origin = {
        "measurement": measurement.name,
        "variants": measurement.variants(),
        "model": {
            **asdict(model.info),
            "weights": weights,
            "settings": model.settings,
            **({"own_hooks": list(hooks)} if (hooks := model.watch.foreign_hooks()) else {}),
            **({} if (products := float32_products()) == "highest" else {"products": products}),
        },
        "prompts": prompt_source(true),
        "conditional_on_demonstrations": true.source.get("demonstrations") in ("shared", "given"),
        "interventions": [intervention.to_dict() for intervention in interventions],
        "versions": {name: _version(name) for name in VERSIONED},
        "float32_products": products,
        "date": now(),
    }
    for prompts in false:
        origin["false_prompts"] = prompt_source(prompts)
    return origin


def float32_products() -> str:
    """Precision of float32 matrix products in torch: `highest` (its default), `high` or `medium`.

    `high` is TF32 on a GPU, with a mantissa of 10 bits instead of 23; this package never enables it. Settings
    made through `torch.backends` are included.
    """
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set through torch's newer interface, which the older one does not read
        precision = "highest"
    backends = (torch.backends.cuda.matmul, torch.backends)
    chosen = [
        setting
        for backend in backends
        if (setting := getattr(backend, "fp32_precision", "none")) != "none"
    ]
    return "high" if precision == "highest" and chosen[:1] == ["tf32"] else precision


def prompt_source(prompts: PromptBatch) -> dict[str, Any]:
    """Source of the prompts, their number, their digest, and their kind of answer.

    The default kind, classes, is left out.
    """
    kind = prompts.answer_kind
    kind_entry = {} if kind == "classes" else {"answer_kind": kind}
    return {**prompts.source, "count": len(prompts), "digest": prompts.digest, **kind_entry}


def now() -> str:
    """Date and time in ISO 8601 with the zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(frozen=True)
class Identity:
    """Identity of a result: its parts by name, as plain values.

    The code is represented by the versions of this package and its numerical libraries, the
    tokenizer by the digest of the prompts, which covers token ids.
    """

    parts: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        model: LanguageModel,
        measurement: Runnable[Any],
        data: Prompts,
        interventions: Sequence[Intervention] = (),
        *,
        weights: str | None = None,
    ) -> "Identity":
        """Identity of a measurement that has not been run.

        Args:
            model: The model to measure.
            measurement: The measurement, with its variants filled in.
            data: Its prompts.
            interventions: Applied in every pass.
            weights: The model's exact fingerprint, if it was just computed.
        """
        weights = weights or model.fingerprint(exact=True)
        return cls.recorded(provenance(model, measurement, data, interventions, weights=weights))

    @classmethod
    def recorded(cls, origin: Mapping[str, Any]) -> "Identity":
        """Identity of a result, from its provenance."""
        plain = json.loads(json.dumps(jsonable(dict(origin))))
        parts = {name: plain[name] for name in PARTS if name in plain}
        model = parts.get("model")
        if isinstance(model, dict):
            parts["model"] = {name: v for name, v in model.items() if name not in UNCOUNTED}
        for side in ("prompts", "false_prompts"):
            if isinstance(source := parts.get(side), dict):
                parts[side] = {name: v for name, v in source.items() if name not in IN_DIGEST}
        return cls(parts)

    @property
    def digest(self) -> str:
        """Digest of all parts."""
        text = json.dumps(self.parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def differences(self, other: "Identity") -> list[str]:
        """Names of the parts and entries that differ; empty if none does."""
        return [*self._differing(other)]

    def _differing(self, other: "Identity") -> Iterator[str]:
        for part in PARTS:
            first, second = self.parts.get(part), other.parts.get(part)
            if part not in NAMED or not (isinstance(first, dict) and isinstance(second, dict)):
                if first != second:
                    yield part
                continue
            for name in {**first, **second}:
                early = name in LATER and not (first.get(name) and second.get(name))
                if first.get(name) != second.get(name) and not early:
                    yield f"{name} of the {part}"
