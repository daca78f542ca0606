"""What every result records: model, prompts, interventions, versions and variants."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from icl_mech.interventions import Intervention
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
        "prompts": {**prompts.source, "count": len(prompts)},
        "conditional_on_demonstrations": prompts.source.get("demonstrations") == "shared",
        "interventions": [intervention.to_dict() for intervention in interventions],
        "variants": variants,
        "versions": {
            name: version(name)
            for name in ("icl-mech", "torch", "transformers", "transformer-lens")
        },
    }
