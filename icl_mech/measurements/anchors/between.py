"""Spans of texts: sums between them, taken while the model runs, their names, and values per span."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import GradientReading, Loss, Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.errors import PromptError, ResultError
from icl_mech.measurements.saliency.reduction import Reduction, head_sum
from icl_mech.metrics.flow import span_sums
from icl_mech.models import Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Result
from icl_mech.segments import Segment
from icl_mech.shapes import shortened

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View


THOUGHT_ANCHORS = "Bogdan et al. 2025, Thought Anchors"

LONGEST = 200
"""Characters of the name of a span; figures show its beginning."""

Intervals = tuple[tuple[int, int], ...]


Clamp = Literal["none", "reference"]
"""Where spans end: as they are, or all ends one token before the end of the text."""


@dataclass
class AttentionBetweenSpans(OfPatterns, Reading[Tensor]):
    """Sums of attention between spans, `[prompt, layer, head, span, span]`, padded with zeros.

    Attributes:
        width: Largest number of spans of a prompt.
        clamp: Rule for the ends of spans.
    """

    width: int
    clamp: Clamp = "none"

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Sums `[batch, head, span, span]`."""
        return between_spans(activation, segment, self.width, self.clamp)


@dataclass
class SaliencyBetweenSpans(OfPatterns, GradientReading[Tensor]):
    """The same sums of saliency, heads already summed: `[prompt, layer, 1, span, span]`."""

    width: int
    clamp: Clamp = "none"
    loss: Loss = "next"
    reduction: Reduction = "sum_then_abs"

    additive = True

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """One matrix per prompt."""
        return (len(segment.prompts), 1, self.width, self.width)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The matrix of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)[:, None]
        return between_spans(saliency, segment, self.width, self.clamp)


def between_spans(
    values: Float[Tensor, "batch head dest src"], segment: Segment, width: int, clamp: Clamp
) -> Float[Tensor, "batch head span span"]:
    """Sums over the edges between the spans of each prompt, padded with zeros to `width`."""
    wide = values if values.dtype == torch.float64 else values.float()
    matrices = []
    for row, prompt in enumerate(segment.prompts):
        member = members(prompt, width, clamp).to(values.device, wide.dtype)
        # A last column of zeros stands for padding.
        member = torch.cat([member, member.new_zeros(width, 1)], dim=1)
        reading, read = member[:, segment.dest[row]], member[:, segment.src[row]]
        matrices.append(span_sums(wide[row], reading, read))
    return torch.stack(matrices)


def members(prompt: Prompt, width: int, clamp: Clamp) -> Float[Tensor, "span pos"]:
    """1 where a token belongs to a span."""
    last = len(prompt) - (1 if clamp == "reference" else 0)
    belongs = torch.zeros(width, len(prompt))
    for number, (start, stop) in enumerate(prompt.text_spans):
        belongs[number, min(start, last) : min(stop, last)] = 1
    return belongs


def check_spans(data: PromptBatch, what: str, least: int = 2) -> None:
    """Reject prompts with fewer spans than a measurement needs.

    Raises:
        PromptError: names the first prompt that has too few.
    """
    for number, spans in enumerate(data.text_spans):
        if not spans:
            raise PromptError(
                f"{what} reads the spans of texts, but prompt {number} has none. Build prompts "
                "with texts(list_of_texts, model) or with Prompt.from_spans."
            )
        if len(spans) < least:
            raise PromptError(
                f"{what} needs at least {least} spans in every text, but prompt {number} has "
                f"{len(spans)}. Leave the text out, or divide it into shorter spans."
            )


def names_of(prompt: Prompt) -> tuple[str, ...]:
    """The text of every span, starting at its first word."""
    pieces, names = pieces_of(prompt), []
    for start, stop in prompt.text_spans:
        # The first token of a text is in no span, and may be the beginning of a word.
        while start and pieces[start][:1].isalnum() and pieces[start - 1][-1:].isalnum():
            start -= 1
        text = "".join(pieces[start:stop]).replace("\n", "↵").strip(" ") or "␣"
        names.append(shortened(text, LONGEST))
    return tuple(names)


def pieces_of(prompt: Prompt) -> tuple[str, ...]:
    """The text of every token."""
    return prompt.pieces or tuple(f"⟨{token}⟩" for token in prompt.tokens)


@dataclass(frozen=True, eq=False, kw_only=True)
class OfSpans(Result):
    """Values for the spans of every text.

    Attributes:
        spans: Token intervals of the spans, per text.
        names: Texts of the spans, per text.
        tokens: Text of the tokens, per text.
    """

    spans: tuple[Intervals, ...]
    names: tuple[tuple[str, ...], ...]
    tokens: tuple[tuple[str, ...], ...]

    @property
    def count(self) -> int:
        """Number of texts."""
        return len(self.spans)

    @property
    def alike(self) -> bool:
        """True if all texts are identical up to the end of their spans, as with shared demonstrations."""
        places = zip(self.spans, self.tokens, strict=True)
        texts = {(repr(spans), *pieces[: spans[-1][1]]) for spans, pieces in places}
        return len(texts) == 1 < len(self.tokens)

    def observed(self, values: Tensor) -> Tensor:
        """Values of all texts; only those of the first if all are identical, which is no sample."""
        return values[:1] if self.alike else values

    def check_prompt(self, prompt: int) -> None:
        """Reject a text that does not exist.

        Raises:
            ResultError: gives the number of texts.
        """
        if not 0 <= prompt < len(self.spans):
            raise ResultError(
                f"prompt={prompt}, but there are results for {len(self.spans)} texts, counted from "
                "0."
            )

    def spread(self, prompt: int, values: Iterable[float], fill: float) -> Float[Tensor, " token"]:
        """A value for each token of a text from those of its spans; `fill` for tokens outside of spans."""
        numbers = torch.full((len(self.tokens[prompt]),), fill, dtype=torch.float64)
        for (start, stop), value in zip(self.spans[prompt], values, strict=True):
            numbers[start:stop] = value if value == value else fill
        return numbers

    def coloured(self, prompt: int, scores: Tensor, name: str) -> "View":
        """A text coloured by values of its spans; hatched where they are undefined."""
        from icl_mech.plots.prompt_view import Text, prompt_view

        values = self.spread(prompt, scores.tolist(), float("nan"))
        inside = {place for start, stop in self.spans[prompt] for place in range(start, stop)}
        roles = tuple("span" if place in inside else "unknown" for place in range(len(values)))
        return prompt_view(Text(self.tokens[prompt], roles), values.tolist(), name=name, low=0.0)

    def edges(
        self, prompt: int, values: Float[Tensor, "span span2"], name: str, top: int
    ) -> "View":
        """The strongest edges between spans of a text as arcs; each span is shown as one word."""
        from icl_mech.plots.arcs import arcs_view
        from icl_mech.plots.prompt_view import Text

        names = tuple(map(shortened, self.names[prompt]))
        text = Text(names, ("span",) * len(names))
        return arcs_view(text, values.tril(-1), name=name, top=top)
