"""Conventions that measurements replace; gone when the last family is converted."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

from icl_mech.interventions import Intervention
from icl_mech.measurements.predictions import Predictions, predictions
from icl_mech.measurements.provenance import LIBRARIES, prompt_source
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


def provenance(
    model: LanguageModel,
    prompts: PromptBatch,
    interventions: Sequence[Intervention] = (),
    **variants: Any,
) -> dict[str, Any]:
    """Provenance of one result; `variants` names the choices among definitions."""
    return {
        "model": asdict(model.info),
        "prompts": prompt_source(prompts),
        "conditional_on_demonstrations": prompts.source.get("demonstrations") == "shared",
        "interventions": [intervention.to_dict() for intervention in interventions],
        "variants": variants,
        "versions": {name: version(name) for name in LIBRARIES},
    }


def prediction_result(read: Any, prompts: PromptBatch, origin: dict[str, Any]) -> Predictions:
    """Predictions with a given provenance."""
    return replace(predictions(read, prompts), provenance=origin)
