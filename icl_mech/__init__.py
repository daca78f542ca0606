"""How does a language model use its in-context demonstrations?

Measurements and interventions of *Label Words are Anchors* (Wang et al. 2023) and
*Overthinking the Truth* (Halawi et al. 2023), for any decoder model in TransformerLens.

>>> import icl_mech as icl
>>> model = icl.load_model()  # doctest: +SKIP
>>> prompts = icl.build_prompts(icl.load_task("reviews"), model, shots=1, n=50)  # doctest: +SKIP
>>> report = icl.analyze(model, prompts)  # doctest: +SKIP
"""

from typing import Any

from icl_mech.analyses import (
    ablation,
    averaged_extraction,
    context_accuracy,
    early_exit,
    extraction,
    flow_scores,
    head_attention,
    head_scores,
    isolation,
    isolation_map,
    layer_accuracy,
    logit_lens,
    matching_by_layer,
    predict,
    saliency_maps,
)
from icl_mech.applications import (
    compare_compression,
    compress_context,
    compress_demonstrations,
    diagnose_confusion,
    evaluate_reweighting,
    find_false_induction_heads,
    fit_reweighting,
    load_compressed_context,
)
from icl_mech.errors import IclMechError
from icl_mech.interventions import Isolate, Reweight, ZeroHeads, ZeroLayers
from icl_mech.models import load_model
from icl_mech.pipeline import Analysis, analyze, load_analysis
from icl_mech.prompts import (
    Prompt,
    PromptBatch,
    Span,
    build_prompt_pairs,
    build_prompts,
    prompts_from_text,
)
from icl_mech.tasks import Example, Task, Template, load_task

__all__ = [
    "Analysis",
    "Example",
    "IclMechError",
    "Isolate",
    "Prompt",
    "PromptBatch",
    "Reweight",
    "Span",
    "Task",
    "Template",
    "ZeroHeads",
    "ZeroLayers",
    "ablation",
    "analyze",
    "averaged_extraction",
    "build_prompt_pairs",
    "build_prompts",
    "compare_compression",
    "compress_context",
    "compress_demonstrations",
    "context_accuracy",
    "diagnose_confusion",
    "early_exit",
    "evaluate_reweighting",
    "extraction",
    "find_false_induction_heads",
    "fit_reweighting",
    "flow_scores",
    "head_attention",
    "head_scores",
    "isolation",
    "isolation_map",
    "layer_accuracy",
    "load_analysis",
    "load_compressed_context",
    "load_model",
    "load_task",
    "logit_lens",
    "matching_by_layer",
    "predict",
    "prompts_from_text",
    "saliency_maps",
]


def __getattr__(name: str) -> Any:
    """The version, read from the installed package only when asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("icl-mech")
    raise AttributeError(f"module 'icl_mech' has no attribute {name!r}")
