"""The study of anchors in any text: which spans and tokens later text depends on."""

from collections.abc import Mapping, Sequence
from typing import Any

from icl_mech.engine import Loss
from icl_mech.errors import PromptError
from icl_mech.measurements.anchors.anchor_agreement import AnchorAgreementResult, agreement
from icl_mech.measurements.anchors.anchor_tokens import AnchorTokens, AnchorTokensResult
from icl_mech.measurements.anchors.span_flow import RECEIVERS, SpanFlow, SpanFlowResult
from icl_mech.measurements.anchors.suppression import Suppression, SuppressionResult
from icl_mech.measurements.base import AnyMeasurement
from icl_mech.measurements.compression.compare_compression import ANCHORS as ENDS
from icl_mech.measurements.compression.compare_compression import CompareCompressionResult, Loyalty
from icl_mech.measurements.running import Item
from icl_mech.measurements.saliency.reduction import Reduction
from icl_mech.metrics import Interval
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.studies.bench import Bench
from icl_mech.studies.claim import DIFFERENCE, Claim, Effect, Run
from icl_mech.studies.judge import Verdict
from icl_mech.studies.study import FEW, Mean, Study

PROXIMITIES = {4: 12, 2: 7, 1: 0}
"""Number of following spans that scores leave out, and the minimum number of spans in a text for this setting."""


def _steps(
    bench: Bench,
    prompts: PromptBatch,
    *,
    reduction: Reduction = "sum_then_abs",
    loss: Loss | None = None,
) -> None:
    """Measure attention and saliency between spans, suppression, their agreement, and anchor tokens.

    Raises:
        PromptError: prompts with demonstrations.
    """
    if prompts.has_classes:
        raise PromptError(
            "These prompts have demonstrations, but the anchors study takes texts. Build prompts with "
            "texts(list_of_texts, model), or measure anchor_tokens, which also covers label words."
        )
    shortest = min(map(len, prompts.text_spans))
    proximity = next(p for p, least in PROXIMITIES.items() if shortest >= least)
    if proximity < max(PROXIMITIES):
        bench.notes.append(
            f"The shortest text has {shortest} spans, so span scores use the spans that follow at a "
            f"distance of at least {proximity} instead of {max(PROXIMITIES)}, which needs "
            f"{PROXIMITIES[max(PROXIMITIES)]} spans."
        )
    measurements: dict[str, AnyMeasurement[Any, Any]] = {
        "span_flow": SpanFlow(proximity=proximity),
        "span_saliency": SpanFlow(loss, reduction, "saliency", proximity),
        "anchor_tokens": AnchorTokens(loss, reduction),
        "suppression": Suppression(),
    }
    bench.run(
        {
            name: Item.checked(measurement, bench.model, prompts, bench.options)
            for name, measurement in measurements.items()
        }
    )
    _agreement(bench, shortest, proximity)


def _agreement(bench: Bench, shortest: int, proximity: int) -> None:
    """Compare attention with suppression, if texts have enough spans."""
    attention, saliency, effects = (
        bench.results[name] for name in ("span_flow", "span_saliency", "suppression")
    )
    assert isinstance(attention, SpanFlowResult)
    assert isinstance(saliency, SpanFlowResult)
    assert isinstance(effects, SuppressionResult)
    if shortest < proximity + 4:
        bench.notes.append(
            f"Agreement of attention and suppression left out: receiver heads need at least "
            f"{proximity + 4} spans in every text, and the shortest text has {shortest}."
        )
        return
    heads = bench.model.info.n_layers * bench.model.info.n_heads
    top = min(RECEIVERS, heads)
    bench.keep("anchor_agreement", agreement(attention, effects, saliency, top=top))


# --- later text depends on the ends of spans ---

GAINS: dict[Loyalty, str] = {
    "kl": "divergence",
    "log_prob": "log-probability",
    "next_tokens": "unchanged next tokens",
}
"""Measures compared after compressed texts; the divergence must be smaller, the others larger."""

RANDOM = "hidden_random"


def _gain(measure: Loyalty) -> Effect:
    """Difference per token between keeping the ends of spans and keeping as many random tokens."""

    def of(run: Run) -> Interval | None:
        result: CompareCompressionResult = run["compare_compression"]
        if result.kl is None or not {ENDS, RANDOM} <= set(result.methods):
            return None
        ends, random = (result.kept[result.methods.index(method)] for method in (ENDS, RANDOM))
        # With a single span before the query, both keep its end, so there is nothing to compare.
        apart = all(at_end != at_random for at_end, at_random in zip(ends, random, strict=True))
        return result.difference(ENDS, RANDOM, measure) if apart else None

    ends = DIFFERENCE if measure == "next_tokens" else None
    name = f"{GAINS[measure]} after ends minus random tokens"
    return Effect(name, of, rising=measure != "kl", ends=ends)


CARRY = Claim(
    "Ends of spans: later text depends on them more than on as many other tokens",
    list(map(_gain, GAINS)),
    "compare_compression",
)
"""Judged if texts were compressed: `analyze(..., study="anchors", measurements=[CompareCompression()])`.

The random tokens are one per span, plus the end right before the later text, which both methods keep; so there is no
verdict if a text has a single span before the query.
"""


def _headline(
    results: Mapping[str, Result], verdicts: Sequence[Verdict], model: str, task: str
) -> tuple[str, str]:
    """The question, and as its answer the span with the largest effect and how far effects reach."""
    suppressions = [result for result in results.values() if isinstance(result, SuppressionResult)]
    if not suppressions or not model:
        return "", ""
    most, reach, *_ = (figure.answer for figure in suppressions[0].figures())
    return f"Which parts of a text does {model} depend on?", f"{most} {reach}"


CORRELATION = Effect("attention and effect of hiding", "anchor_agreement.correlation")
STANDING = Effect("anchors above tokens near them, spreads", "anchor_tokens.score_difference")

MEANS = (
    Mean(
        "How much does hiding a span change later?",
        "Effect of hiding",
        "suppression",
        "suppression.mean_divergence",
        limits=f"support for a claim: a divergence is above 0 whatever is hidden; {FEW}",
    ),
    Mean(
        "Do spans that receive much attention matter?",
        "Attention and effect",
        "anchor_agreement",
        CORRELATION,
        limits="support for a claim, so there is no verdict: position alone gives about 0.9 in untrained networks, and "
        f"even with ranked rows they lie slightly above 0, which means over many texts and seeds would show; {FEW}",
    ),
    Mean(
        "Do anchors stand out?",
        "Anchors that stand out",
        "anchor_tokens",
        STANDING,
        limits="that other words would not stand out: this needs the p-value over words, which refers to the "
        f"words of one run and has no mean; {FEW}",
    ),
    Mean(
        "Does later text depend on the ends of spans?",
        "Ends of spans",
        "compare_compression-ends",
        CARRY.effects[0],
        limits=FEW,
        told=[effect.name for effect in CARRY.effects],
    ),
)

ANCHORS = Study(
    "anchors",
    claims=(CARRY,),
    headline=_headline,
    steps=_steps,
    takes="texts",
    gives={
        "suppression": SuppressionResult,
        "anchor_agreement": AnchorAgreementResult,
        "span_flow": SpanFlowResult,
        "span_saliency": SpanFlowResult,
        "anchor_tokens": AnchorTokensResult,
    },
    quantities=(CORRELATION, STANDING),
    means=MEANS,
    known_by=lambda kinds: SuppressionResult in kinds,
)
