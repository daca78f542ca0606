"""What every result records: model, prompts, interventions, versions and variants."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any

from icl_mech.interventions import Intervention
from icl_mech.measurements.passes import Runnable
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

LIBRARIES = ("icl-mech", "torch", "transformers", "transformer-lens")


def provenance(
    model: LanguageModel,
    measurement: Runnable[Any],
    data: PromptBatch | tuple[PromptBatch, PromptBatch],
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
        },
        "prompts": prompt_source(true),
        "conditional_on_demonstrations": true.source.get("demonstrations") == "shared",
        "interventions": [intervention.to_dict() for intervention in interventions],
        "versions": {name: version(name) for name in LIBRARIES},
        "date": now(),
    }
    for other in false:
        origin["false_prompts"] = prompt_source(other)
    return origin


def prompt_source(prompts: PromptBatch) -> dict[str, Any]:
    """Where prompts come from, how many there are and the digest that recognises them."""
    return {**prompts.source, "count": len(prompts), "digest": prompts.digest}


def now() -> str:
    """Date and time in ISO 8601 with the zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")
