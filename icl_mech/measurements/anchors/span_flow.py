"""Attention or saliency between the spans of any text, and heads that read few spans.

`M[a, b]` is the mean of the attention of a head over the rows of span a and the columns of span b
(zeros above the diagonal count in a diagonal cell). The vertical score `v[b]` is the mean of `M[a, b]`
over the spans `a >= b + p`; receiver heads have the largest kurtosis of `v`.

Sums between spans are taken inside the hook; no map over tokens is kept.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §5.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Heads, Natural, checked
from icl_mech.errors import ResultError
from icl_mech.measurements.anchors.between import (
    THOUGHT_ANCHORS,
    AttentionBetweenSpans,
    Clamp,
    OfSpans,
    SaliencyBetweenSpans,
    check_spans,
    members,
    names_of,
    pieces_of,
)
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import SALIENCY, OfSaliency
from icl_mech.metrics import kurtosis, vertical_scores
from icl_mech.metrics.flow import Average
from icl_mech.metrics.intervals import known_mean
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity
from icl_mech.results.quantities import Statistic

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View


Of = Literal["attention", "saliency"]
"""Quantity that is read between tokens."""

RECEIVERS = 5
"""Default number of receiver heads."""


DEFINITIONS = (
    Definition(
        "span matrix",
        r"M_{lh}[a, b] = \frac{1}{|a|\,|b|} \sum_{i \in a} \sum_{j \in b} A_{lh}[i, j]",
        "Mean attention from the tokens of span a to those of span b in head h of layer l. In a "
        "diagonal cell, the zeros above the diagonal count. For saliency the same with I_l, which "
        "has one value per layer for all heads.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    Definition(
        "vertical score",
        r"v_{lh}[b] = \frac{1}{|\{a : a \geq b + p\}|} \sum_{a \geq b + p} M_{lh}[a, b]",
        "How much span b is read by the spans that follow it at a distance of at least p spans; "
        "undefined for the last p spans. Variants use the median, or replace each row by its "
        "ranks.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    Definition(
        "receiver heads",
        r"k_{lh} = \frac{m_4(v_{lh})}{m_2(v_{lh})^2} - 3",
        "Heads whose vertical scores are most peaked: those with the largest Fisher kurtosis "
        "(biased moments) over the spans of a text, averaged over texts.",
        f"{THOUGHT_ANCHORS}, §5",
    ),
    SALIENCY,
)


class MostRead(NamedTuple):
    """The span of a text with the largest vertical score.

    Attributes:
        span: Number of the span.
        score: Mean over layers and heads; None if the text has too few spans for scores, and the span has the
            largest column sum.
        times: Ratio of its score to that of the median span, unless that is 0.
    """

    span: int
    score: float | None = None
    times: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SpanFlowResult(OfSpans):
    """Attention or saliency between the spans of every text.

    Attributes:
        matrices: One matrix per text: reading span, then the span that is read. For saliency the axis
            of heads has one entry, the sum over all.
        vertical: Vertical score of every span, per text; not-a-number for the last ones.
        kurtosis: Kurtosis of the vertical scores of each text; not-a-number for texts with too few spans.
        of: Quantity that was read, `attention` or `saliency`.
        proximity: Number of following spans that vertical scores leave out.
    """

    shows: ClassVar[tuple[str, ...]] = ("", "heads", "text")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    matrices: tuple[Float[Tensor, "layer head _ _"], ...]
    vertical: tuple[Float[Tensor, "layer head _"], ...]
    kurtosis: Float[Tensor, "batch layer head"]
    of: str = "attention"
    proximity: int = 4

    def quantities(self) -> dict[str, Quantity]:
        """Mean kurtosis of every head, over the texts in which it is defined."""
        values = self.observed(self.kurtosis)
        known = values.isfinite()
        statistic = None if bool(known.all()) else mean_of_known(values, known)
        unit = "kurtosis of vertical scores"
        return {"kurtosis": Quantity(("layer", "head"), values, statistic, unit)}

    @checked(ResultError)
    def receiver_heads(
        self, top: Count = RECEIVERS, *, first_layer: Natural = 0, without: Natural | None = None
    ) -> tuple[tuple[int, int], ...]:
        """Heads (layer, head) with the largest mean kurtosis over texts, largest first.

        Args:
            top: Number of heads.
            first_layer: Heads of lower layers are left out (the reference code's figures: 1).
            without: Number of a text that is left out, to choose heads for it from the others.

        Raises:
            ResultError: more heads than have a kurtosis, or saliency, which has no heads.
        """
        if self.of != "attention":
            raise ResultError(
                "Saliency is summed over heads, so receiver heads cannot be found from it; "
                "measure with of='attention'."
            )
        values = self.kurtosis
        if without is not None:
            values = values[[i for i in range(len(values)) if i != without]]
        return most_peaked(values.nanmean(0), top, first_layer, self.proximity)

    @checked(ResultError)
    def scores(self, prompt: Natural = 0, heads: Heads | None = None) -> Float[Tensor, " span"]:
        """Mean vertical score of each span of a text over some heads (default: all).

        Raises:
            ResultError: no such text or head.
        """
        self.check_prompt(prompt)
        values = self.vertical[prompt]
        if heads is None:
            return values.mean((0, 1))
        wrong = [h for h in heads if not (0 <= h[0] < len(values) and 0 <= h[1] < values.shape[1])]
        if wrong or not heads:
            raise ResultError(
                f"heads={list(heads)}, but the result has {len(values)} layers with "
                f"{values.shape[1]} heads each."
            )
        return torch.stack([values[layer, head] for layer, head in heads]).mean(0)

    @cached_property
    def receivers(self) -> tuple[tuple[int, int], ...]:
        """The usual number of receiver heads, or as many as have a kurtosis; none for saliency."""
        known = int(self.kurtosis.nanmean(0).isfinite().sum()) * (self.of == "attention")
        return self.receiver_heads(min(RECEIVERS, known)) if known else ()

    @property
    def sizes(self) -> tuple[int, int]:
        """Smallest and largest number of spans of a text."""
        counts = [len(spans) for spans in self.spans]
        return min(counts), max(counts)

    @property
    def most_read(self) -> MostRead:
        """The span of the first text that later ones read most."""
        scores = self.scores(0)
        if not bool(scores.isfinite().any()):
            values = self.matrices[0].double().nan_to_num().mean((0, 1)).tril(-1)
            return MostRead(int(values.sum(0).argmax()))
        place = int(scores.nan_to_num(nan=-1.0).argmax())
        score, typical = float(scores[place]), float(scores.nanmedian())
        return MostRead(place, score, score / typical if typical > 0 else None)

    def on_page(self) -> tuple[str, ...]:
        """One text by span, heads by kurtosis where there are any, and one text coloured."""
        return self.shows if self.receivers else ("", "text")

    def view(self, prompt: int = 0, heads: Heads | None = None) -> "View":
        """A text coloured by the vertical score of its spans; hatched where it is undefined.

        Args:
            prompt: Number of the text.
            heads: Heads to average over; None: all.

        Raises:
            ResultError: no such text or head.
        """
        scores = self.scores(prompt, heads)
        return self.coloured(prompt, scores, f"mean {self.of} from later spans")

    def arcs(self, prompt: int = 0, layer: int | None = None, *, top: int = 20) -> "View":
        """The strongest edges between spans of a text as arcs; each span is shown as one word.

        Args:
            prompt: Number of the text.
            layer: Number of the layer; None: the mean over layers.
            top: Maximum number of edges drawn.

        Raises:
            ResultError: no such text or layer.
        """
        self.check_prompt(prompt)
        values = known_mean(self.matrices[prompt].double(), 1)
        if layer is not None and not 0 <= layer < len(values):
            raise ResultError(
                f"layer={layer}, but the model has {len(values)} layers, counted from 0."
            )
        chosen = (known_mean(values, 0) if layer is None else values[layer]).nan_to_num(0.0)
        where = "mean over layers" if layer is None else f"layer {layer}"
        return self.edges(prompt, chosen, f"{self.of}, {where}", top)


def most_peaked(
    means: Float[Tensor, "layer head"], top: int, first_layer: int, proximity: int
) -> tuple[tuple[int, int], ...]:
    """Heads (layer, head) with the largest mean kurtosis, largest first; heads of lower layers are left out.

    Raises:
        ResultError: more heads than have a kurtosis.
    """
    means[:first_layer] = torch.nan
    known = int(means.isfinite().sum())
    if top > known:
        raise ResultError(
            f"top={top}, but the kurtosis is defined for only {known} heads; it needs texts of at "
            f"least {proximity + 4} spans. Use longer texts or a smaller proximity."
        )
    order = means.flatten().nan_to_num(nan=-torch.inf).argsort(descending=True, stable=True)
    n_heads = means.shape[1]
    return tuple((i // n_heads, i % n_heads) for i in order[:top].tolist())


def mean_of_known(values: Tensor, known: Tensor) -> Statistic:
    """Mean over the texts in which each value is known."""
    flat = values.double().nan_to_num().flatten(1)
    counted = known.double().flatten(1)

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        mean = (weights @ flat) / (weights @ counted)  # 0 / 0 where no text is drawn that has one
        return mean.reshape(len(weights), *values.shape[1:])

    return statistic


def _edge_means(
    sums: Float[Tensor, "layer head width width"],
    member: Float[Tensor, "span pos"],
    model: LanguageModel,
) -> Float[Tensor, "layer head span span"]:
    """Sums between spans divided by their numbers of edges; not-a-number where a window leaves none."""
    count, length = member.shape
    every = torch.ones(length, length)
    means = []
    for layer, window in zip(sums[..., :count, :count].double(), model.windows, strict=True):
        exist = every if window is None else every.triu(1 - window)
        edges, pairs = (member @ some @ member.T for some in (exist, every))
        nothing = torch.where(pairs > 0, torch.nan, 0.0)
        means.append(torch.where(edges > 0, layer / edges.clamp(min=1), nothing))
    return torch.stack(means)


@dataclass(frozen=True)
class SpanFlow(OfSaliency[SpanFlowResult]):
    """Attention or saliency between spans, their vertical scores, and receiver heads.

    Attributes:
        of: `attention` of every head, or `saliency`, which has one value for all heads of a layer.
        proximity: Number of following spans left out of a span's vertical score, itself included.
        average: `mean` or `median` over the spans that read.
        control_depth: Rows are first replaced by ranks, so that later spans weigh the same as earlier ones.
        clamp: `reference`: the last token of the text is dropped, as in the reference code.

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

    reads_texts = reads_spans = True

    def filled(self, model: LanguageModel, data: PromptBatch) -> "SpanFlow":
        """Fill in the loss these prompts can have, where one is needed."""
        if self.of == "attention":
            return replace(self, loss=None)
        filled = super().filled(model, data)
        assert isinstance(filled, SpanFlow)
        return filled

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without spans, and losses they cannot have.

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

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> SpanFlowResult:
        """Means from sums, vertical scores and their kurtosis."""
        (sums,) = read[0]
        matrices, vertical = [], []
        for text, prompt in zip(sums, data, strict=True):
            kept = _edge_means(text, members(prompt, len(prompt.text_spans), self.clamp), model)
            matrices.append(kept)
            vertical.append(
                vertical_scores(
                    kept, self.proximity, average=self.average, control_depth=self.control_depth
                )
            )
        return SpanFlowResult(
            matrices=tuple(matrix.float() for matrix in matrices),
            vertical=tuple(vertical),
            kurtosis=torch.stack([kurtosis(scores) for scores in vertical]),
            spans=data.text_spans,
            names=tuple(map(names_of, data)),
            tokens=tuple(map(pieces_of, data)),
            of=self.of,
            proximity=self.proximity,
        )


span_flow = door(SpanFlow, "span_flow", prompts="Texts with spans, see `texts`.")
