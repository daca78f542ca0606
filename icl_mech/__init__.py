"""How does a language model use its in-context demonstrations?

Measurements and interventions of *Label Words are Anchors* (Wang et al. 2023) and
*Overthinking the Truth* (Halawi et al. 2023), for any decoder model in TransformerLens.

>>> import icl_mech as icl
>>> model = icl.load_model()  # doctest: +SKIP
>>> prompts = icl.build_prompts(icl.load_task("reviews"), model, shots=1, n=50)  # doctest: +SKIP
>>> report = icl.analyze(model, prompts)  # doctest: +SKIP
"""

from typing import Any

from icl_mech.errors import IclMechError
from icl_mech.frontend import without_widgets
from icl_mech.interventions import (
    AddVector,
    Isolate,
    Patch,
    Reweight,
    Suppress,
    ZeroHeads,
    ZeroLayers,
)
from icl_mech.measurements.accuracy.context import context_accuracy
from icl_mech.measurements.accuracy.early_exit import early_exit
from icl_mech.measurements.accuracy.layers import layer_accuracy
from icl_mech.measurements.alignment.semantic import alignment
from icl_mech.measurements.anchors.agreement import anchor_agreement
from icl_mech.measurements.anchors.spans import span_flow
from icl_mech.measurements.anchors.suppression import suppression
from icl_mech.measurements.anchors.tokens import anchor_tokens
from icl_mech.measurements.base import Measurement
from icl_mech.measurements.by_demonstration.flow import flow_by_demonstration
from icl_mech.measurements.by_demonstration.left_out import leave_one_out
from icl_mech.measurements.calibration.label_prior import calibration
from icl_mech.measurements.causal.attribution import attribution_patching
from icl_mech.measurements.causal.comparing import compare_heads
from icl_mech.measurements.causal.function_vectors import function_vector
from icl_mech.measurements.causal.induction import induction_scores
from icl_mech.measurements.causal.mediation import head_mediation
from icl_mech.measurements.causal.saliency_check import saliency_check
from icl_mech.measurements.causal.steering import steer
from icl_mech.measurements.causal.task_vectors import task_vector
from icl_mech.measurements.compression.compress_context import compress_context
from icl_mech.measurements.compression.demonstrations import compress_demonstrations
from icl_mech.measurements.compression.table import compare_compression
from icl_mech.measurements.confusion.diagnosis import diagnose_confusion
from icl_mech.measurements.extraction.average import averaged_extraction
from icl_mech.measurements.extraction.label_words import extraction
from icl_mech.measurements.generation.generate import generate
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.by_layer import matching_by_layer
from icl_mech.measurements.heads.false_induction import find_false_induction_heads
from icl_mech.measurements.heads.scoring import head_scores
from icl_mech.measurements.heads.tokens import head_attention
from icl_mech.measurements.isolation.map import isolation_map
from icl_mech.measurements.isolation.windows import isolation
from icl_mech.measurements.lens.compare import compare_lenses
from icl_mech.measurements.lens.jacobian import JacobianLens, fit_jacobian_lens, load_jacobian_lens
from icl_mech.measurements.lens.logit_lens import logit_lens
from icl_mech.measurements.lens.tuned import TunedLens, fit_tuned_lens, load_tuned_lens
from icl_mech.measurements.predictions import predict
from icl_mech.measurements.reweighting.evaluation import evaluate_reweighting
from icl_mech.measurements.reweighting.fit import fit_reweighting
from icl_mech.measurements.saliency.flow import flow_scores
from icl_mech.measurements.saliency.maps import saliency_maps
from icl_mech.metrics import calibrate_batch, calibrate_labels
from icl_mech.models import load_model, remote_model
from icl_mech.models.untrained import untrained
from icl_mech.planted import planted_model, planted_task
from icl_mech.prompts import (
    Prompt,
    PromptBatch,
    Span,
    build_prompt_pairs,
    build_prompts,
    chat_template,
    prompts_from_text,
    texts,
)
from icl_mech.studies import Analysis, analyze, load_analysis, measure
from icl_mech.sweeps import Sweep, compare, load_sweep, sweep
from icl_mech.tasks import Example, Task, Template, load_task

__all__ = [
    "AddVector",
    "Analysis",
    "Example",
    "IclMechError",
    "Isolate",
    "JacobianLens",
    "Measurement",
    "Patch",
    "Prompt",
    "PromptBatch",
    "Reweight",
    "Span",
    "Suppress",
    "Sweep",
    "Task",
    "Template",
    "TunedLens",
    "ZeroHeads",
    "ZeroLayers",
    "ablation",
    "alignment",
    "analyze",
    "anchor_agreement",
    "anchor_tokens",
    "attribution_patching",
    "averaged_extraction",
    "build_prompt_pairs",
    "build_prompts",
    "calibrate_batch",
    "calibrate_labels",
    "calibration",
    "chat_template",
    "compare",
    "compare_compression",
    "compare_heads",
    "compare_lenses",
    "compress_context",
    "compress_demonstrations",
    "context_accuracy",
    "diagnose_confusion",
    "early_exit",
    "evaluate_reweighting",
    "extraction",
    "find_false_induction_heads",
    "fit_jacobian_lens",
    "fit_reweighting",
    "fit_tuned_lens",
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
    "load_analysis",
    "load_jacobian_lens",
    "load_model",
    "load_sweep",
    "load_task",
    "load_tuned_lens",
    "logit_lens",
    "matching_by_layer",
    "measure",
    "planted_model",
    "planted_task",
    "predict",
    "prompts_from_text",
    "remote_model",
    "saliency_check",
    "saliency_maps",
    "span_flow",
    "steer",
    "suppression",
    "sweep",
    "task_vector",
    "texts",
    "untrained",
]

without_widgets()


def __getattr__(name: str) -> Any:
    """The version, read from the installed package only when asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("icl-mech")
    raise AttributeError(f"module 'icl_mech' has no attribute {name!r}")
