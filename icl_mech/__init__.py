"""How does a language model use its in-context demonstrations?

Measurements and interventions of *Label Words are Anchors* (Wang et al. 2023) and
*Overthinking the Truth* (Halawi et al. 2023), for any decoder model in TransformerLens.

>>> import icl_mech as icl
>>> model = icl.load_model()  # doctest: +SKIP
>>> prompts = icl.build_prompts(icl.load_task("reviews"), model, shots=1, n=50)  # doctest: +SKIP
>>> report = icl.analyze(model, prompts)  # doctest: +SKIP
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from icl_mech.frontend import without_widgets
from icl_mech.names import table, unsearched, version

__all__ = [
    "ablation",
    "alignment",
    "analyze",
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
    "transplant",
    "untrained",
]

HERE = table("""
    ablation:measurements.heads.ablation alignment:measurements.alignment.alignment analyze:studies
    anchor_tokens:measurements.anchors.anchor_tokens attribution_patching:measurements.causal.attribution_patching
    build_prompt_pairs:prompts build_prompts:prompts calibration:measurements.calibration.calibration compare:sweeps
    compare_heads:measurements.causal.compare_heads
    compress_demonstrations:measurements.compression.compress_demonstrations
    context_accuracy:measurements.accuracy.context_accuracy diagnose_confusion:measurements.confusion.confusion
    early_exit:measurements.accuracy.early_exit
    evaluate_reweighting:measurements.reweighting.evaluate_reweighting extraction:measurements.extraction.extraction
    find_false_induction_heads:measurements.heads.false_induction
    fit_reweighting:measurements.reweighting.reweighting
    flow_by_demonstration:measurements.by_demonstration.flow_by_demonstration flow_scores:measurements.saliency.flow
    function_vector:measurements.causal.function_vector generate:measurements.generation.generate
    head_attention:measurements.heads.head_attention head_mediation:measurements.causal.head_mediation
    head_scores:measurements.heads.head_scores induction_scores:measurements.causal.induction_scores
    isolation:measurements.isolation.isolation isolation_map:measurements.isolation.isolation_map
    layer_accuracy:measurements.accuracy.layer_accuracy leave_one_out:measurements.by_demonstration.leave_one_out
    load:loading load_model:models load_task:tasks logit_lens:measurements.lens.logit_lens measure:studies
    predict:measurements.predictions saliency_maps:measurements.saliency.saliency_maps
    span_flow:measurements.anchors.span_flow steer:measurements.causal.steer
    suppression:measurements.anchors.suppression sweep:sweeps task_vector:measurements.causal.task_vector
    texts:prompts transplant:measurements.causal.transplant untrained:models.adapt
""")
"""Modules of the public names; each is imported on first use."""

ELSEWHERE = table("""
    AddVector:interventions Analysis:studies Cut:interventions Example:tasks Explorer:explorer IclMechError:errors
    Isolate:interventions JacobianLens:lenses Measurement:own Patch:interventions Prompt:prompts PromptBatch:prompts
    Reweight:interventions Span:prompts Study:studies Suppress:interventions Sweep:sweeps Task:tasks Template:tasks
    TextSet:prompts TunedLens:lenses ZeroHeads:interventions ZeroLayers:interventions
    anchor_agreement:measurements.anchors.anchor_agreement
    chat_template:prompts
    circuit_faithfulness:measurements.circuits.circuit_faithfulness
    compare_lenses:lenses
    demonstration_steering:measurements.causal.demonstration_steering
    edge_cuts:measurements.isolation.edge_cuts
    explore:explorer
    fit_jacobian_lens:lenses
    fit_tuned_lens:lenses
    function_vector_by_demonstration:measurements.by_demonstration.function_vector_by_demonstration
    gain:measurements.accuracy.gain
    guaranteed_exit:measurements.accuracy.guaranteed_exit
    lens_table:lenses
    matching_by_layer:measurements.heads.matching_by_layer
    one_false_demonstration:measurements.by_demonstration.one_false_demonstration
    pairs_from_text:prompts
    planted_model:planted
    planted_task:planted
    prompts_from_text:prompts
    rationale_answers:measurements.rationales.rationale_answers
    rationale_model:planted
    rationale_task:planted
    rationale_use:measurements.rationales.rationale_use
    read_circuit:measurements.circuits.files
    remote_model:models
    saliency_check:measurements.causal.saliency_check
    stability:measurements.stability.stability
    task_heads:measurements.heads.task_heads
    write_circuit:measurements.circuits.files
    write_rationales:measurements.generation.rationales
""")
"""Further names available here, each with the module it belongs to."""

ALIASES = table("load_analysis:load")
"""Earlier names that stay valid, each with the present one."""

without_widgets()


def __getattr__(name: str) -> Any:
    """A public name or a module of the package, imported on first use; or the version."""
    if name == "__version__":
        return version("icl-mech")
    now = ALIASES.get(name, name)
    if place := HERE.get(now) or ELSEWHERE.get(now):
        with unsearched():
            globals()[name] = getattr(import_module(f"icl_mech.{place}"), now)
        return globals()[name]
    if name[0] != "_" and find_spec(f"icl_mech.{name}"):
        return import_module(f"icl_mech.{name}")
    raise AttributeError(f"module 'icl_mech' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *ELSEWHERE, *ALIASES})
