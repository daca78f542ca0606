"""Attention or saliency between the spans of any text, and heads that read few spans.

`M[a, b]` is the mean of the attention of a head over the rows of span a and the columns of span b
(zeros above the diagonal count in a diagonal cell). The vertical score `v[b]` is the mean of `M[a, b]`
over the spans `a >= b + p`; receiver heads have the largest kurtosis of `v`.

Sums between spans are taken inside the hook; no map over tokens is kept.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.engine import GradientReading, Kept, Loss, Reading
from icl_mech.errors import PromptError
from icl_mech.measurements.anchors.span_result import SpanMatrices, names_of, pieces_of
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import OfSaliency, Reduction, head_sum
from icl_mech.metrics import Average, kurtosis, span_sums, vertical_scores
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

Of = Literal["attention", "saliency"]
"""What is read between tokens."""

Clamp = Literal["none", "reference"]
"""Where spans end: as they are, or all ends one token before the end of the text."""


@dataclass(frozen=True)
class SpanFlow(OfSaliency[SpanMatrices]):
    """Attention or saliency between spans, their vertical scores, and receiver heads.

    Attributes:
        of: `attention` of every head, or `saliency`, which is one number for all heads of a layer.
        proximity: Number of following spans left out of a span's vertical score, itself included.
        average: `mean` or `median` over the spans that read.
        control_depth: Rows are replaced by ranks first, so that later spans weigh as earlier ones.
        clamp: `reference`: the last token of the text is lost, as in the reference code.

    Raises:
        RunError: unknown variant.
        PromptError: prompts without spans, or without tokens the loss needs.

    Source: Bogdan et al. 2025, §5.
    """

    of: Of = "attention"
    proximity: Count = 4
    average: Average = "mean"
    control_depth: bool = False
    clamp: Clamp = "none"

    name: ClassVar[str] = "span_flow"
    needs_classes: ClassVar[bool] = False

    def filled(self, model: LanguageModel, data: PromptBatch) -> "SpanFlow":
        """With the loss these prompts can have, where one is needed."""
        if self.of == "attention":
            return replace(self, loss=None)
        filled = super().filled(model, data)
        assert isinstance(filled, SpanFlow)
        return filled

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without spans, and losses they cannot have.

        Raises:
            PromptError: says what is missing.
        """
        check_spans(data, "SpanFlow")
        if self.of == "saliency":
            super().check(model, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One forward pass, or one backward pass."""
        width = max(len(spans) for spans in data.text_spans)
        reading: Any = AttentionBetweenSpans(width, self.clamp)
        if self.of == "saliency":
            assert self.loss is not None
            reading = SaliencyBetweenSpans(width, self.clamp, self.loss, self.reduction)
        return [Pass(data, [reading], title="spans")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> SpanMatrices:
        """Means from sums, vertical scores and their kurtosis."""
        (sums,) = read[0]
        matrices, vertical = [], []
        for own, prompt in zip(sums, data, strict=True):
            sizes = members(prompt, len(prompt.text_spans), self.clamp).sum(1)
            count = len(sizes)
            edges = sizes[:, None] * sizes
            kept = own[..., :count, :count].double() / edges.clamp(min=1)
            matrices.append(kept)
            vertical.append(
                vertical_scores(
                    kept, self.proximity, average=self.average, control_depth=self.control_depth
                )
            )
        return SpanMatrices(
            matrices=tuple(own.float() for own in matrices),
            vertical=tuple(vertical),
            kurtosis=torch.stack([kurtosis(own) for own in vertical]),
            spans=data.text_spans,
            names=tuple(map(names_of, data)),
            tokens=tuple(map(pieces_of, data)),
            of=self.of,
            proximity=self.proximity,
        )


@dataclass
class AttentionBetweenSpans(Reading[Tensor]):
    """Sums of attention between spans, `[prompt, layer, head, span, span]`, filled up with zeros.

    Attributes:
        width: Largest number of spans of a prompt.
        clamp: Where spans end.
    """

    width: int
    clamp: Clamp = "none"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, head, span, span]`."""
        return between_spans(activation, segment, self.width, self.clamp)

    def collect(self, kept: Kept) -> Tensor:
        """As kept."""
        return kept.stacked()


@dataclass
class SaliencyBetweenSpans(GradientReading[Tensor]):
    """The same sums of saliency, heads already summed: `[prompt, layer, 1, span, span]`."""

    width: int
    clamp: Clamp = "none"
    loss: Loss = "next"
    reduction: Reduction = "sum_then_abs"

    additive = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """One matrix per prompt."""
        return (len(segment.prompts), 1, self.width, self.width)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The matrix of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)[:, None]
        return between_spans(saliency, segment, self.width, self.clamp)

    def collect(self, kept: Kept) -> Tensor:
        """As kept."""
        return kept.stacked()


def between_spans(
    values: Float[Tensor, "batch head dest src"], segment: Segment, width: int, clamp: Clamp
) -> Float[Tensor, "batch head span span"]:
    """Sums over the edges between the spans of each prompt, filled up with zeros to `width`."""
    wide = values if values.dtype == torch.float64 else values.float()
    found = []
    for row, prompt in enumerate(segment.prompts):
        member = members(prompt, width, clamp).to(values.device, wide.dtype)
        # A last column of zeros stands for padding.
        member = torch.cat([member, member.new_zeros(width, 1)], dim=1)
        reading, read = member[:, segment.dest[row]], member[:, segment.src[row]]
        found.append(span_sums(wide[row], reading, read))
    return torch.stack(found)


def members(prompt: Prompt, width: int, clamp: Clamp) -> Float[Tensor, "span pos"]:
    """1 where a token belongs to a span."""
    last = len(prompt) - (1 if clamp == "reference" else 0)
    found = torch.zeros(width, len(prompt))
    for number, (start, stop) in enumerate(prompt.text_spans):
        found[number, min(start, last) : min(stop, last)] = 1
    return found


def check_spans(data: PromptBatch, what: str, least: int = 2) -> None:
    """Refuse prompts with fewer spans than a measurement needs.

    Raises:
        PromptError: names the first prompt that has too few.
    """
    for number, spans in enumerate(data.text_spans):
        if not spans:
            raise PromptError(
                f"{what} reads spans of texts, and prompt {number} has none. Build prompts with "
                "texts(list_of_texts, model), or with Prompt.from_spans."
            )
        if len(spans) < least:
            raise PromptError(
                f"{what} needs {least} spans in every text; prompt {number} has {len(spans)}. Leave "
                "the text out, or cut it into smaller spans."
            )


span_flow = door(
    SpanFlow,
    "span_flow",
    prompts="Texts with spans, see `texts`.",
)
