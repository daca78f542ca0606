"""Agreement of attention with suppression: are spans that are read more also more important when hidden?

The measure is, for every text, the rank correlation over its spans between the effect of hiding a span on later
spans and how much later spans read it: in all heads, in receiver heads, and by saliency. Receiver heads are
chosen for each text from the other texts.

Later spans read less and are affected less whatever precedes them, and the first spans are read by more of
them; `depth` first replaces each reading span's row by ranks, on both sides. Neither correlation is a
test: randomly initialised models show both, the first near 0.9 by position alone.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.errors import RunError
from icl_mech.measurements.anchors import span_flow, suppression
from icl_mech.measurements.anchors.between import check_spans
from icl_mech.measurements.anchors.span_flow import RECEIVERS, SpanFlow, SpanFlowResult
from icl_mech.measurements.anchors.suppression import Suppression, SuppressionResult
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.doors import door
from icl_mech.metrics import Interval, vertical_scores
from icl_mech.metrics.flow import rank_correlation
from icl_mech.metrics.intervals import known_mean
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Result, quantity
from icl_mech.results.judging import judged

DEFINITIONS = (
    Definition(
        "agreement",
        r"\rho\left(v^{\mathrm{KL}},\; v^{A}\right)",
        "Spearman's rank correlation, over the spans of a text, between the vertical score of "
        "suppression effects and the vertical score of attention or saliency.",
    ),
    *suppression.DEFINITIONS,
    *span_flow.DEFINITIONS[:3],
)


SCORES = ("all_heads", "receiver_heads", "saliency")
"""Scores that effects of suppression are compared with."""


CONTROLS = ("plain", "depth")
"""Rows of span matrices as they are, or replaced by their ranks."""


@dataclass(frozen=True, eq=False, kw_only=True)
class AnchorAgreementResult(Result):
    """Rank correlations between the effects of hiding spans and how much the spans are read.

    Attributes:
        correlation: Correlation of every text; not-a-number for receiver heads where there is no other text.
        proximity: Number of following spans that scores leave out.
        top: Number of receiver heads.
    """

    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "control": CONTROLS,
        "score": SCORES,
    }

    correlation: Float[Tensor, "batch control score"] = quantity(
        "Spearman's rank correlation", kind="correlation"
    )
    proximity: int = 4
    top: int = RECEIVERS

    @property
    def count(self) -> int:
        """Number of texts."""
        return len(self.correlation)

    @property
    def too_few(self) -> bool:
        """True if there are too few texts for an interval, or the main correlation is undefined."""
        correlation = self.interval(control="plain", score="all_heads")
        return judged(correlation, prompts=self.count) == "cannot be judged"

    def known(self, control: str) -> dict[str, Interval]:
        """The correlations that are defined, by score.

        Args:
            control: One of `CONTROLS`.
        """
        every = {score: self.interval(control=control, score=score) for score in SCORES}
        return {
            score: correlation
            for score, correlation in every.items()
            if isfinite(correlation.value)
        }


@dataclass(frozen=True)
class AnchorAgreement(Measurement[AnchorAgreementResult]):
    """Rank correlation between the effects of hiding spans and attention or saliency, per text.

    Attributes:
        proximity: Number of following spans that scores leave out, the span itself included.
        top: Number of receiver heads, chosen for each text from the others.
        temperature: Temperature of the compared distributions, see `suppression`.

    Raises:
        RunError: unknown variant, or more heads than the model has.
        PromptError: texts with too few spans.

    Source: Bogdan et al. 2025, §6.
    """

    proximity: Count = 4
    top: Count = RECEIVERS
    temperature: float = 1.0

    takes = ANSWER_KINDS
    reads_texts = reads_spans = True

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject texts with too few spans for a correlation, and more heads than the model has.

        Raises:
            PromptError: names the first such text.
            RunError: gives the number of heads.
        """
        check_spans(data, f"AnchorAgreement(proximity={self.proximity})", self.proximity + 4)
        heads = model.info.n_layers * model.info.n_heads
        if self.top > heads:
            raise RunError(f"top={self.top}, but {model.info.name!r} has only {heads} heads.")
        for part in self._parts(model, data):
            part.check(model, data)

    def _parts(self, model: LanguageModel, data: PromptBatch) -> list[Any]:
        parts: list[Any] = [
            SpanFlow(proximity=self.proximity),
            SpanFlow(of="saliency", proximity=self.proximity),
            Suppression(temperature=self.temperature),
        ]
        return [part.filled(model, data) for part in parts]

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The passes of its parts."""
        return [job for part in self._parts(model, data) for job in part.passes(model, data)]

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[AnchorAgreementResult]:
        """Attention, saliency and suppression, one after the other."""
        attention, saliency, effects = self._parts(model, data)
        read = yield from attention.steps(model, data, options)
        flow = yield from saliency.steps(model, data, options)
        moved = yield from effects.steps(model, data, options)
        return agreement(read, moved, flow, top=self.top)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> AnchorAgreementResult:
        """Agreement of the three results."""
        return agreement(*read, top=self.top)


def agreement(
    attention: SpanFlowResult,
    effects: SuppressionResult,
    saliency: SpanFlowResult,
    *,
    top: int = RECEIVERS,
) -> AnchorAgreementResult:
    """Rank correlations of given results over the same texts."""
    p, rows = attention.proximity, []
    for number, hidden in enumerate(effects.divergence):
        by_control = []
        for ranked in (False, True):
            effect = vertical_scores(hidden, p, control_depth=ranked)
            read = (_matrix(attention, saliency, score, number, top) for score in SCORES)
            scores = [vertical_scores(matrix, p, control_depth=ranked) for matrix in read]
            by_control.append([rank_correlation(score, effect) for score in scores])
        rows.append(torch.tensor(by_control, dtype=torch.float64))
    of_one_part = ("measurement", "variants")
    return AnchorAgreementResult(
        correlation=torch.stack(rows),
        proximity=p,
        top=top,
        provenance={k: v for k, v in effects.provenance.items() if k not in of_one_part},
    )


def _matrix(
    attention: SpanFlowResult, saliency: SpanFlowResult, score: str, number: int, top: int
) -> Float[Tensor, "span span2"]:
    """Span matrix of one text, averaged over layers and heads or over receiver heads."""
    if score == "saliency":
        return known_mean(saliency.matrices[number].double(), (0, 1))
    values = attention.matrices[number].double()
    if score == "all_heads":
        return known_mean(values, (0, 1))
    if len(attention.matrices) < 2:
        return torch.full_like(values[0, 0], torch.nan)
    heads = attention.receiver_heads(top, without=number)
    return known_mean(torch.stack([values[layer, head] for layer, head in heads]), 0)


anchor_agreement = door(
    AnchorAgreement,
    "anchor_agreement",
    prompts="Texts with at least `proximity` + 4 spans each, see `texts`.",
)
