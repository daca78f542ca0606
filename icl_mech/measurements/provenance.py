"""What every result records, and `Identity`: those parts of it that decide numbers.

What is kept or resumed goes by the identity and nothing else. Two are equal if no part differs; what
differs is named, down to the entry: `weights of the model`, `loss of the variants`.
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
"""Parts of the provenance that decide numbers."""

NAMED = ("model", "variants", "versions")
"""Parts whose entries are named."""

LATER = ("settings",)
"""Entries of the model that results of earlier versions lack; they are compared where both have them."""

UNCOUNTED = ("weights_format", "notes")
"""Entries of the model that decide nothing beside the weights."""

IN_DIGEST = ("answer_kind", "pool")
"""Entries of the prompts that decide nothing beside their digest, and that earlier results lack."""

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

    `weights` is the model's fingerprint, taken once for results that are measured together; `date`
    is the present.
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
    """How torch multiplies matrices of float32: `highest`, as it does unless told otherwise, or `high`, `medium`.

    `high` is TF32 on a GPU, of 10 bits after the point instead of 23; this package never asks for it. What was
    switched on through `torch.backends` counts.
    """
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # switched by the newer of torch's two ways, which the older does not read
        precision = "highest"
    backends = (torch.backends.cuda.matmul, torch.backends)
    chosen = [
        setting
        for backend in backends
        if (setting := getattr(backend, "fp32_precision", "none")) != "none"
    ]
    return "high" if precision == "highest" and chosen[:1] == ["tf32"] else precision


def prompt_source(prompts: PromptBatch) -> dict[str, Any]:
    """Where prompts come from, how many there are, the digest that recognises them, and their kind of answer.

    Classes, the usual kind, are not named.
    """
    kind = prompts.answer_kind
    kind_entry = {} if kind == "classes" else {"answer_kind": kind}
    return {**prompts.source, "count": len(prompts), "digest": prompts.digest, **kind_entry}


def now() -> str:
    """Date and time in ISO 8601 with the zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


@dataclass(frozen=True)
class Identity:
    """The parts by name, as plain values.

    The code's part are the versions of this package and the libraries that compute; the
    tokenizer's is in the digest of the prompts, which is over token ids.
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
        """That of a measurement which has not been made.

        Args:
            model: What would be measured.
            measurement: With its variants filled in.
            data: Its prompts.
            interventions: Made in every pass.
            weights: The model's exact fingerprint, if it was taken just now.
        """
        weights = weights or model.fingerprint(exact=True)
        return cls.recorded(provenance(model, measurement, data, interventions, weights=weights))

    @classmethod
    def recorded(cls, origin: Mapping[str, Any]) -> "Identity":
        """That of a result, from its provenance."""
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
        """Stands for all parts."""
        text = json.dumps(self.parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def differences(self, other: "Identity") -> list[str]:
        """What is not equal, in words; empty if it is the same."""
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
