"""Do spans that are read much also matter when they are hidden?

For every text the rank correlation, over its spans, of what hiding a span changes in later spans with
how much later spans read it: in all heads, in receiver heads, and by saliency. Receiver heads are
chosen for each text from the other texts.

Later spans read and change less whatever stands before them, and the first spans are read by more of
them; `depth` replaces each reading span's row by ranks first, on both sides.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.errors import RunError
from icl_mech.measurements.anchors.definitions import AGREEMENT
from icl_mech.measurements.anchors.span_result import RECEIVERS, SpanMatrices
from icl_mech.measurements.anchors.spans import SpanFlow, check_spans
from icl_mech.measurements.anchors.suppression import Suppression
from icl_mech.measurements.anchors.suppression_result import SuppressionEffects
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.doors import door
from icl_mech.metrics import mean_ends, rank_correlation, vertical_scores
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.shapes import Bars

SCORES = ("all_heads", "receiver_heads", "saliency")
"""What effects of suppression are compared with."""

CONTROLS = ("plain", "depth")

NAMES = {
    "all_heads": "attention of all heads",
    "receiver_heads": "receiver heads",
    "saliency": "saliency",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class AgreementOfAnchors(Result):
    """Rank correlations of the effects of hiding spans with how much the spans are read.

    Attributes:
        correlation: Of every text; not-a-number of receiver heads where there is no other text.
        proximity: Number of following spans that scores leave out.
        top: Number of receiver heads.
    """

    title: ClassVar[str] = "Attention and effect"
    definitions: ClassVar[tuple[Definition, ...]] = AGREEMENT

    correlation: Float[Tensor, "batch control score"]
    proximity: int = 4
    top: int = RECEIVERS

    def quantities(self) -> dict[str, Quantity]:
        """Mean rank correlation over texts."""
        unit = "Spearman's rank correlation"
        return {
            "correlation": Quantity(
                ("control", "score"), self.correlation, unit=unit, kind="correlation"
            )
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Scores, and whether rows were replaced by ranks."""
        return {"control": CONTROLS, "score": SCORES}

    def drawing(self) -> Bars:
        """Correlations with intervals, plain and with control of depth."""
        low, high = mean_ends(self.correlation, "correlation")
        return Bars(
            "Do spans that are read much matter?",
            tuple(NAMES[score] for score in SCORES),
            ("as they are", "rows as ranks"),
            self.correlation.mean(0).T,
            low.T,
            high.T,
            "rank correlation with the effect of hiding",
            note=basis(self),
            sides=("opposite", "agree"),
        )

    def figures(self) -> list[Figure]:
        """The correlations."""
        from icl_mech.measurements.anchors.texts import agreement_figures

        return agreement_figures(self)

    def summary(self) -> str:
        """Each score's plain correlation."""
        parts = [
            f"{NAMES[score]} {self.interval(control='plain', score=score)}" for score in SCORES
        ]
        return f"rank correlation with the effect of hiding spans: {', '.join(parts)}"


@dataclass(frozen=True)
class AnchorAgreement(Measurement[AgreementOfAnchors]):
    """Rank correlation of the effects of hiding spans with attention and saliency, per text.

    Attributes:
        proximity: Number of following spans that scores leave out, the span itself included.
        top: Number of receiver heads, chosen for each text from the others.
        temperature: Of the distributions that are compared, see `suppression`.

    Raises:
        RunError: unknown variant, or more heads than there are.
        PromptError: texts with too few spans.

    Source: Bogdan et al. 2025, §6.
    """

    proximity: Count = 4
    top: Count = RECEIVERS
    temperature: float = 1.0

    name: ClassVar[str] = "anchor_agreement"
    needs_classes: ClassVar[bool] = False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse texts with too few spans for a correlation, and more heads than there are.

        Raises:
            PromptError: names the first such text.
            RunError: says how many heads there are.
        """
        check_spans(data, f"AnchorAgreement(proximity={self.proximity})", self.proximity + 3)
        heads = model.info.n_layers * model.info.n_heads
        if self.top > heads:
            raise RunError(f"top={self.top}; {model.info.name!r} has {heads} heads.")
        for part in self._parts(model, data):
            part.check(model, data)

    def _parts(self, model: LanguageModel, data: PromptBatch) -> list[Any]:
        own: list[Any] = [
            SpanFlow(proximity=self.proximity),
            SpanFlow(of="saliency", proximity=self.proximity),
            Suppression(temperature=self.temperature),
        ]
        return [part.filled(model, data) for part in own]

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Those of its parts."""
        return [job for part in self._parts(model, data) for job in part.passes(model, data)]

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[AgreementOfAnchors]:
        """Attention, saliency and suppression, one after the other."""
        attention, saliency, effects = self._parts(model, data)
        read = yield from attention.steps(model, data, options)
        flow = yield from saliency.steps(model, data, options)
        moved = yield from effects.steps(model, data, options)
        return agreement(read, moved, flow, top=self.top)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> AgreementOfAnchors:
        """Of results that are there."""
        return agreement(*read, top=self.top)


def agreement(
    attention: SpanMatrices,
    effects: SuppressionEffects,
    saliency: SpanMatrices,
    *,
    top: int = RECEIVERS,
) -> AgreementOfAnchors:
    """Rank correlations of results over the same texts."""
    p, rows = attention.proximity, []
    for number, hidden in enumerate(effects.divergence):
        by_score = []
        for score in SCORES:
            matrix = _matrix(attention, saliency, score, number, top)
            by_score.append(
                [
                    rank_correlation(*(vertical_scores(own, p, control_depth=ranked) for own in (matrix, hidden)))
                    for ranked in (False, True)
                ]
            )  # fmt: skip
        rows.append(torch.tensor(by_score, dtype=torch.float64).T)
    return AgreementOfAnchors(
        correlation=torch.stack(rows).contiguous(), proximity=p, top=top,
        provenance={k: v for k, v in effects.provenance.items() if k not in ("measurement", "variants")},
    )  # fmt: skip


def _matrix(
    attention: SpanMatrices, saliency: SpanMatrices, score: str, number: int, top: int
) -> Float[Tensor, "span span2"]:
    """Span matrix of one text, averaged over layers and heads or over receiver heads."""
    if score == "saliency":
        return saliency.matrices[number].double().mean((0, 1))
    values = attention.matrices[number].double()
    if score == "all_heads":
        return values.mean((0, 1))
    if len(attention.matrices) < 2:
        return torch.full_like(values[0, 0], torch.nan)
    heads = attention.receiver_heads(top, without=number)
    return torch.stack([values[layer, head] for layer, head in heads]).mean(0)


anchor_agreement = door(
    AnchorAgreement,
    "anchor_agreement",
    prompts="Texts with at least `proximity` + 3 spans each, see `texts`.",
)
