"""Bad texts, spans and what is measured on them."""

from collections.abc import Callable
from typing import Any

import icl_mech as icl
from icl_mech.errors import IclMechError, PromptError, RunError
from tests.bad_inputs.case import Bench, Case

TEXT = "The film was good. It was a story! Was it bad? No."


def built(what: str, *says: str, **options: Any) -> Case:
    """Texts that cannot be prompts."""
    given = options.pop("given", [TEXT])
    return Case(what, lambda b: icl.texts(given, b.model, **options), PromptError, says)


def measured(
    what: str,
    function: Callable[..., Any],
    *says: str,
    error: type[IclMechError] = RunError,
    **options: Any,
) -> Case:
    """What cannot be measured of texts."""
    return Case(
        what, lambda b: function(b.model, icl.texts([TEXT], b.model), **options), error, says
    )


def hidden(what: str, *says: str, error: type[IclMechError] = RunError, **options: Any) -> Case:
    """What cannot be hidden from attention."""

    def call(b: Bench) -> object:
        edits = [icl.Suppress(**options)]
        return icl.span_flow(b.model, icl.texts([TEXT], b.model), interventions=edits)

    return Case(what, call, error, says)


CASES = [
    built("a text without a list", given=TEXT),
    built("a number for texts", given=3),
    built("a number for a text", "Text 0", given=[3]),
    built("no texts", given=[]),
    built("a single sentence", given=["One."]),
    built("spans of an unknown kind", "'sentence'", "'sentences'", spans="sentence"),
    built("spans by number", "spans=3", spans=3),
    built("spans that are no pairs", "contain 3", spans=[[3, 4]]),
    built("spans of half tokens", "(0, 1.5)", spans=[[(0, 1.5)]], unit="tokens"),
    built("spans of truths", "(False, True)", spans=[[(False, True)]]),
    built("no spans", spans=[[]]),
    built("spans that overlap", spans=[[(0, 9), (8, 12)]]),
    built("spans outside", spans=[[(0, 9), (10, 999)]]),
    built("negative spans", spans=[[(-3, 9), (10, 12)]]),
    built("an anchor by number", "contain 3", anchors=[[3]]),
    built("no anchors of a text", anchors=[None]),
    built("an anchor that is nowhere", "'plot'", anchors=[["plot"]]),
    built("anchors that overlap", anchors=[["film", "film was"]]),
    built("an anchor at the target", "later target=", anchors=[["No."]]),
    built("an unknown count", "unit='bytes'", "'tokens'", spans=[[(0, 3)]], unit="bytes"),
    built("a target in words", "target='last'", target="last"),
    built("half a target", "target=1.5", target=1.5),
    built("a target before the anchors", target=1),
    built("a target outside", "999", target=999),
    built("an empty continuation", continuation=""),
    built("a continuation by number", "continuation=3", continuation=3),
    built("BOS in words", "bos='yes'", bos="yes"),
    built("a text beyond the context", given=[TEXT * 40]),
    Case(
        "texts without a tokenizer",
        lambda b: icl.texts([TEXT], None),
        PromptError,
    ),
    Case(
        "a span behind the prompt",
        lambda b: icl.Prompt.from_spans([1, 2, 3], [(0, 1), (2, 9)]),
        PromptError,
        ("3 tokens",),
    ),
    Case(
        "spans as text",
        lambda b: icl.Prompt.from_spans([1, 2, 3], "ab"),
        PromptError,
        ("spans",),
    ),
    measured("an unknown reading", icl.span_flow, "of='both'", "attention", of="both"),
    measured("no proximity", icl.span_flow, "proximity=0", proximity=0),
    measured("an unknown clamp", icl.span_flow, "clamp='paper'", "reference", clamp="paper"),
    measured("an unknown average", icl.span_flow, "'mean'", average="means"),
    measured("rows nearly named", icl.suppression, "'after'", rows="afters"),
    measured("no temperature", icl.suppression, "temperature=0", "above 0", temperature=0),
    measured("a NaN temperature", icl.suppression, "temperature=nan", temperature=float("nan")),
    measured("layers of none", icl.suppression, "layers=()", layers=()),
    measured("a layer that is not there", icl.suppression, "layer 77", layers=[77]),
    measured("a ratio of NaN", icl.anchor_tokens, "ratio=nan", ratio=float("nan")),
    measured("no window", icl.anchor_tokens, "window=0", window=0),
    measured("no receiver heads", icl.anchor_agreement, "top=0", top=0),
    measured(
        "too few spans to agree", icl.anchor_agreement, "has 4", error=PromptError
    ),
    measured(
        "a rest that is not there", icl.saliency_maps, error=PromptError,
        loss="rest",
    ),
    measured("labels of texts", icl.saliency_maps, "'next'", error=PromptError, loss="label"),
    measured("a study of labels", icl.analyze, error=PromptError, study="label_words"),
    Case(
        "a study of anchors in demonstrations",
        lambda b: icl.analyze(b.model, b.prompts, study="anchors"),
        PromptError,
        ("texts(list_of_texts",),
    ),
    hidden("nothing to hide"),
    hidden("no spans to hide", spans=[]),
    hidden("spans and positions", spans=[0], positions=[[(0, 3)]]),
    hidden("half a span", "0.5", spans=[0.5]),
    hidden("a span that is not there", error=PromptError, spans=[9]),
    hidden("hidden layers of none", spans=[0], layers=[]),
    hidden("a hidden layer too many", "layer 9", spans=[0], layers=[9]),
    hidden("an interval turned round", positions=[[(5, 3)]]),
    hidden("intervals of other prompts", positions=[[(0, 3)]] * 2),
    hidden("an interval too long", "999", error=PromptError, positions=[[(0, 999)]]),
    hidden("unknown rows", "rows='every'", spans=[0], rows="every"),
]  # fmt: skip
