"""The matrix of measurements and kinds of answers is true: what is said to be taken runs, the rest says why not."""

import inspect
import re
from functools import cache
from itertools import pairwise

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import icl_mech as icl
from icl_mech import measurements
from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements import AnyMeasurement, PairMeasurement
from icl_mech.measurements.any_answer import check_kind
from icl_mech.models.loading import load_tokenizer
from icl_mech.prompts import ANSWER_KINDS
from tests.said import Words

WORDS = Words(__file__)

TEXT = "The film was good. It was a story! Was it bad? The plot was good. We left. It is a movie. The end."
TEXTS = [TEXT, *(TEXT.replace(*own) for own in (("film", "movie"), ("plot", "story"), ("We", "I")))]

KINDS = {
    name: kind
    for name in measurements.__all__
    if inspect.isclass(kind := getattr(measurements, name))
    and issubclass(kind, AnyMeasurement)
    and not inspect.isabstract(kind)
}

COLUMNS = {
    "classes": "classes",
    "open answers": "choices",
    "texts": "vocabulary",
    "what a model wrote": "vocabulary",
}


@cache
def model():
    """Small, untrained, with the tokenizer of the offline model."""
    torch.manual_seed(0)
    tokenizer = load_tokenizer("smollm2-135m")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=32,
        intermediate_size=64,
        initializer_range=0.3,
    )
    return icl.load_model(LlamaForCausalLM(config), tokenizer=tokenizer)


@cache
def pair(column):
    """The true and the false prompts of a column of the matrix."""
    if column == "classes":
        how = {"shots": 3, "n": 8, "seed": 0, "demonstrations": "per_prompt"}
        return icl.build_prompt_pairs(icl.load_task("reviews"), model(), **how)
    if column == "open answers":
        task = icl.load_task("past_tense")
        return icl.build_prompt_pairs(task, model(), shots=4, n=6, seed=0, false_labels="other")
    bad = [text.replace("good", "bad") for text in TEXTS]
    if column == "texts":
        true = icl.texts(TEXTS, model(), continuation=" Yes")
        return true, icl.texts(bad, model(), continuation=" No")
    written = icl.generate(model(), icl.texts(TEXTS, model()), max_new_tokens=8, attention=False)
    # All written texts are one span, so that measurements by number of a span have one number of them.
    added = [re.sub(r"[^\w ]", "", own) for own in written.texts]
    sides = [
        [f"{text} So {own}." for text, own in zip(own, added, strict=True)] for own in (TEXTS, bad)
    ]
    return tuple(icl.texts(own, model(), special_tokens="text") for own in sides)


@cache
def lens():
    return icl.fit_tuned_lens(model(), pair("classes")[0], epochs=1)


def measurement(name, column):
    fields = {
        "Ablation": {"heads": [(0, 1)], "draws": 2},
        "CompareHeads": {"sets": {"a": [(0, 1)], "b": [(1, 1)]}, "draws": 2},
        "EvaluateReweighting": {"reweighting": icl.Reweight(torch.zeros(3, 4, 2))},
        "HeadAttention": {"heads": [(0, 1)]},
        "Isolation": {"draws": 2},
        "Reweighting": {"per_class": 2},
        "Steer": {"vectors": torch.ones(3, 32)},
    }.get(name, {})
    if name == "CompareLenses":
        fields = {"lens": lens()}
    if name == "AnchorAgreement":
        fields = {"proximity": 1}
    if name == "CircuitFaithfulness" and column == "texts":
        fields = {"circuit": [(0, 1)]}  # their last spans are alike
    if name == "Stability" and column == "open answers":
        fields = {"of": "flow"}
    return KINDS[name](**fields)


@cache
def with_rationales(column):
    """Prompts with a rationale before the answer."""
    if column == "classes":
        return icl.build_prompts("comparisons", model(), shots=1, n=8, seed=0)
    words = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    rows = [
        {"text": f"after {word}", "rationale": f"It is {later}.", "answer": later}
        for word, later in pairwise(words)
    ]
    frame = pd.DataFrame(rows)
    task = icl.load_task(frame, template="{text}\n{rationale}\nA: {label}", answers="answer")
    return icl.build_prompts(task, model(), shots=2, n=4, seed=0)


def given(name, column):
    kind, both = KINDS[name], pair(column)
    if name.startswith("Rationale") and column in ("classes", "open answers"):
        return with_rationales(column)
    if issubclass(kind, PairMeasurement) or getattr(kind, "side", None) is not None:
        return both
    if name == "AnchorAgreement" and column == "open answers":
        # A kurtosis takes four spans that later ones read.
        return icl.build_prompts("past_tense", model(), shots=5, n=6, seed=0)
    # A context holds one set of demonstrations.
    return both[0][:1] if name == "CompressContext" else both[0]


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_matrix_is_true(name, column):
    kind = KINDS[name]
    value, data = measurement(name, column), given(name, column)
    if name == "Alignment" and column == "what a model wrote":
        # Both sides may go on alike, and nobody could then be said to follow the false one.
        with WORDS.raises(PromptError, "matrix_true"):
            icl.measure(model(), data, value)
        return
    if COLUMNS[column] in kind.takes:
        result = icl.measure(model(), data, value)[kind.name]
        assert result.summary()
        recorded = result.provenance["prompts"].get("answer_kind", "classes")
        assert recorded == COLUMNS[column]
        return
    with pytest.raises(PromptError, match=re.escape(kind.why_not)):
        icl.measure(model(), data, value)


def test_every_column_is_taken_by_most():
    for own in ANSWER_KINDS:
        assert sum(own in kind.takes for kind in KINDS.values()) >= 28
    for kind in KINDS.values():
        assert "classes" in kind.takes
        assert bool(kind.why_not) == (set(kind.takes) != set(ANSWER_KINDS))


FUNCTIONS = {
    "context_accuracy": lambda m, t: icl.context_accuracy(m, t, t),
    "diagnose_confusion": icl.diagnose_confusion,
    "extraction": icl.extraction,
    "find_false_induction_heads": icl.find_false_induction_heads,
    "fit_reweighting": icl.fit_reweighting,
    "head_scores": icl.head_scores,
    "label words reweighted in texts": lambda m, t: icl.span_flow(
        m, t, interventions=[icl.Reweight(torch.zeros(3, 4, 2))]
    ),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_says_why_not(name):
    with WORDS.raises(IclMechError, name):
        FUNCTIONS[name](model(), pair("texts")[0])


def test_a_refusal_says_what_is_taken():
    texts = pair("texts")[0]
    check_kind(texts, ("vocabulary",), "This", "")
    with WORDS.raises(PromptError, "refusal_says_what_taken", "'vocabulary'"):
        check_kind(texts, ("classes",), "This", "it counts classes")
