"""How does a language model use its in-context demonstrations?

Measurements and interventions of *Label Words are Anchors* (Wang et al. 2023) and
*Overthinking the Truth* (Halawi et al. 2023), for any decoder model in TransformerLens.

>>> import icl_mech as icl
>>> model = icl.load_model()  # doctest: +SKIP
>>> prompts = icl.build_prompts(icl.load_task("reviews"), model, shots=1, n=50)  # doctest: +SKIP
>>> report = icl.analyze(model, prompts)  # doctest: +SKIP
"""

from importlib import import_module
from typing import Any

from icl_mech.frontend import without_widgets
from icl_mech.loading import load
from icl_mech.measurements.accuracy.context import context_accuracy
from icl_mech.measurements.accuracy.early_exit import early_exit
from icl_mech.measurements.accuracy.layers import layer_accuracy
from icl_mech.measurements.alignment.semantic import alignment
from icl_mech.measurements.anchors.agreement import anchor_agreement
from icl_mech.measurements.anchors.spans import span_flow
from icl_mech.measurements.anchors.suppression import suppression
from icl_mech.measurements.anchors.tokens import anchor_tokens
from icl_mech.measurements.by_demonstration.flow import flow_by_demonstration
from icl_mech.measurements.by_demonstration.left_out import leave_one_out
from icl_mech.measurements.calibration.label_prior import calibration
from icl_mech.measurements.causal.attribution import attribution_patching
from icl_mech.measurements.causal.comparing import compare_heads
from icl_mech.measurements.causal.function_vectors import function_vector
from icl_mech.measurements.causal.induction import induction_scores
from icl_mech.measurements.causal.mediation import head_mediation
from icl_mech.measurements.causal.steering import steer
from icl_mech.measurements.causal.task_vectors import task_vector
from icl_mech.measurements.compression.demonstrations import compress_demonstrations
from icl_mech.measurements.confusion.diagnosis import diagnose_confusion
from icl_mech.measurements.extraction.label_words import extraction
from icl_mech.measurements.generation.generate import generate
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.false_induction import find_false_induction_heads
from icl_mech.measurements.heads.scoring import head_scores
from icl_mech.measurements.heads.tokens import head_attention
from icl_mech.measurements.isolation.map import isolation_map
from icl_mech.measurements.isolation.windows import isolation
from icl_mech.measurements.lens.logit_lens import logit_lens
from icl_mech.measurements.predictions import predict
from icl_mech.measurements.reweighting.evaluation import evaluate_reweighting
from icl_mech.measurements.reweighting.fit import fit_reweighting
from icl_mech.measurements.saliency.flow import flow_scores
from icl_mech.measurements.saliency.maps import saliency_maps
from icl_mech.models import load_model
from icl_mech.models.untrained import untrained
from icl_mech.prompts import build_prompt_pairs, build_prompts, texts
from icl_mech.studies import analyze, measure
from icl_mech.sweeps import compare, sweep
from icl_mech.tasks import load_task

__all__ = [
    "ablation",
    "alignment",
    "analyze",
    "anchor_agreement",
    "anchor_tokens",
    "attribution_patching",
    "build_prompt_pairs",
    "build_prompts",
    "calibration",
    "compare",
    "compare_heads",
    "compress_demonstrations",
    "context_accuracy",
    "diagnose_confusion",
    "early_exit",
    "evaluate_reweighting",
    "extraction",
    "find_false_induction_heads",
    "fit_reweighting",
    "flow_by_demonstration",
    "flow_scores",
    "function_vector",
    "generate",
    "head_attention",
    "head_mediation",
    "head_scores",
    "induction_scores",
    "isolation",
    "isolation_map",
    "layer_accuracy",
    "leave_one_out",
    "load",
    "load_model",
    "load_task",
    "logit_lens",
    "measure",
    "predict",
    "saliency_maps",
    "span_flow",
    "steer",
    "suppression",
    "sweep",
    "task_vector",
    "texts",
    "untrained",
]

ELSEWHERE = {
    "AddVector": "interventions",
    "Analysis": "studies",
    "Example": "tasks",
    "IclMechError": "errors",
    "Isolate": "interventions",
    "JacobianLens": "lenses",
    "Measurement": "own",
    "Patch": "interventions",
    "Prompt": "prompts",
    "PromptBatch": "prompts",
    "Reweight": "interventions",
    "Span": "prompts",
    "Suppress": "interventions",
    "Sweep": "sweeps",
    "Task": "tasks",
    "Template": "tasks",
    "TunedLens": "lenses",
    "ZeroHeads": "interventions",
    "ZeroLayers": "interventions",
    "averaged_extraction": "measurements.extraction.average",
    "calibrate_batch": "metrics",
    "calibrate_labels": "metrics",
    "chat_template": "prompts",
    "compare_compression": "measurements.compression.table",
    "compare_lenses": "lenses",
    "compress_context": "measurements.compression.compress_context",
    "fit_jacobian_lens": "lenses",
    "fit_tuned_lens": "lenses",
    "load_analysis": "studies",
    "load_jacobian_lens": "lenses",
    "load_sweep": "sweeps",
    "load_tuned_lens": "lenses",
    "matching_by_layer": "measurements.heads.by_layer",
    "planted_model": "planted",
    "planted_task": "planted",
    "prompts_from_text": "prompts",
    "remote_model": "models",
    "saliency_check": "measurements.causal.saliency_check",
}
"""Names that stand here, too: by module, where they belong."""

without_widgets()


def __getattr__(name: str) -> Any:
    """What stands elsewhere; the version is read from the installed package only when asked for."""
    if name in ("lenses", "own"):
        return import_module(f"icl_mech.{name}")
    if name in ELSEWHERE:
        return getattr(import_module(f"icl_mech.{ELSEWHERE[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("icl-mech")
    raise AttributeError(f"module 'icl_mech' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *ELSEWHERE})
