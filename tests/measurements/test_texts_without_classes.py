"""Every measurement takes texts without classes, or refuses them and says why."""

import inspect
from dataclasses import MISSING, fields

import pytest
import torch

import icl_mech as icl
from icl_mech import measurements
from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements import AnyMeasurement, PairMeasurement
from icl_mech.prompts import check_classes
from tests.tiny import tiny_model

TEXT = "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie. The end."
REASON = r"(texts without classes|label words|demonstrations)"

KINDS = {
    name: kind
    for name in measurements.__all__
    if inspect.isclass(kind := getattr(measurements, name))
    and issubclass(kind, AnyMeasurement)
    and not inspect.isabstract(kind)
}

TAKE_TEXTS = {"AnchorAgreement", "AnchorTokens", "Saliency", "SpanFlow", "Suppression"}

NEEDED = {
    "AttentionOfHeads": {"heads": [(0, 1)]},
    "EvaluateReweighting": {"reweighting": icl.Reweight(torch.zeros(3, 4, 2))},
    "CompressContext": {},
}


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.texts([TEXT, TEXT.replace("film", "movie")], model)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_measurement_takes_texts_or_says_why_not(name, model, prompts):
    kind = KINDS[name]
    data = (prompts, prompts) if issubclass(kind, PairMeasurement) else prompts
    if getattr(kind, "side", None) is not None:
        data = (prompts, prompts)
    missing = [own for own in fields(kind) if own.default is own.default_factory is MISSING]
    if {own.name for own in missing} - set(NEEDED.get(name, {})):
        assert kind.needs_classes  # refused before its fields are looked at, as all of these are
        return
    value = kind(**NEEDED.get(name, {}))
    if name in TAKE_TEXTS:
        assert icl.measure(model, data, value)[kind.name] is not None
        return
    with pytest.raises(PromptError, match=REASON) as caught:
        icl.measure(model, data, value)
    assert "IndexError" not in str(caught.value)


FUNCTIONS = {
    "ablation": lambda m, t: icl.ablation(m, t, t, start=1),
    "analyze": icl.analyze,
    "averaged_extraction": lambda m, t: icl.averaged_extraction([icl.extraction(m, t)]),
    "compare_compression": icl.compare_compression,
    "compress_context": icl.compress_context,
    "compress_demonstrations": icl.compress_demonstrations,
    "context_accuracy": lambda m, t: icl.context_accuracy(m, t, t),
    "diagnose_confusion": icl.diagnose_confusion,
    "evaluate_reweighting": lambda m, t: icl.evaluate_reweighting(
        m, NEEDED["EvaluateReweighting"]["reweighting"], t
    ),
    "extraction": icl.extraction,
    "find_false_induction_heads": icl.find_false_induction_heads,
    "fit_reweighting": icl.fit_reweighting,
    "flow_scores": icl.flow_scores,
    "head_attention": lambda m, t: icl.head_attention(m, t, heads=[(0, 1)]),
    "head_scores": icl.head_scores,
    "isolation": icl.isolation,
    "isolation_map": icl.isolation_map,
    "label words hidden from texts": lambda m, t: icl.span_flow(
        m, t, interventions=[icl.Isolate([0])]
    ),
    "label words reweighted in texts": lambda m, t: icl.span_flow(
        m, t, interventions=[NEEDED["EvaluateReweighting"]["reweighting"]]
    ),
    "layer_accuracy": lambda m, t: icl.layer_accuracy(m, t, t),
    "leave_one_out": icl.leave_one_out,
    "flow_by_demonstration": icl.flow_by_demonstration,
    "logit_lens": icl.logit_lens,
    "overthinking": lambda m, t: icl.analyze(m, (t, t), study="overthinking"),
    "predict": icl.predict,
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_says_why_not(name, model, prompts):
    with pytest.raises(IclMechError, match=rf"{REASON}|0 classes|no token it acts on|2 classes"):
        FUNCTIONS[name](model, prompts)


def test_spans_need_texts(model):
    from tests.engine.test_paths import TASK

    labelled = icl.build_prompts(TASK, model, shots=1, n=2)
    check_classes(labelled, "This")
    for function in (icl.span_flow, icl.suppression, icl.anchor_agreement):
        with pytest.raises(PromptError, match=r"Build prompts with texts\("):
            function(model, labelled)
