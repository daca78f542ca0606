"""Anchor tokens: tokens that later ones read far more than their neighbours.

The column mass `m_l[j]` is the mean of the saliency (or of the attention, averaged over heads) that the
tokens behind `j`, up to the target, put on `j`, averaged over the chosen layers. Masses of tokens that
nothing singles out differ by factors of hundreds, so an anchor is a token whose mass does not belong
with those of the others: its distance from the median of the tokens around it, on a logarithmic
scale and beside what its place alone gives, exceeds the largest that a text without anchors would show
in 95 % of cases. With `ratio` it is one that exceeds so many times that median, whatever the others do.

Whether tokens of a kind stand out is told by comparing them with position-matched ones: the label
words of prompts with demonstrations, the last token of each span of a text. The tokens compared are
named beforehand, not found, so that nothing is chosen and tested on the same prompts. They are a few
words, the same in all prompts, so that they stand out needs a p-value over words (`words_test`) beside
the interval over prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.anchors.columns import AttentionMass, Ends, SaliencyMass
from icl_mech.measurements.anchors.span_result import pieces_of
from icl_mech.measurements.anchors.spans import Of
from icl_mech.measurements.anchors.token_result import TokenAnchors
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import OfSaliency
from icl_mech.metrics import (
    FEWEST_TOKENS,
    Outliers,
    matched_means,
    nearby_medians,
    standing_out,
    uniform_mass,
)
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch


@dataclass(frozen=True)
class AnchorTokens(OfSaliency[TokenAnchors]):
    """Tokens whose column mass stands out, and how label words or ends of spans compare.

    Attributes:
        of: `saliency`, or `attention` averaged over heads.
        layers: Layers over which masses are averaged; None: the last third.
        ratio: How many times the median nearby an anchor's mass exceeds; None: as many as the other
            tokens of the text leave to chance in 5 % of texts.
        window: What nearby is, in positions to either side.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts with neither label words nor spans, with too few tokens for a spread, or
            without what the loss needs.
    """

    of: Of = "saliency"
    layers: Sequence[Natural] | None = None
    ratio: float | None = None
    window: Count = 16

    name: ClassVar[str] = "anchor_tokens"
    needs_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and what it may be.
        """
        super().__post_init__()
        if self.ratio is not None and not 0 < self.ratio < float("inf"):
            raise RunError(f"ratio={self.ratio}; expected a finite number above 0, or None.")
        if self.layers is not None and not self.layers:
            raise RunError("layers=() averages over nothing; name one layer, or None for a third.")

    def filled(self, model: LanguageModel, data: PromptBatch) -> "AnchorTokens":
        """With the loss these prompts can have, and the last third of the layers."""
        count = model.info.n_layers
        layers = self.layers or tuple(range(count - max(1, count // 3), count))
        own = replace(self, layers=tuple(sorted(set(layers))))
        if self.of == "attention":
            return replace(own, loss=None)
        filled = super(AnchorTokens, own).filled(model, data)
        assert isinstance(filled, AnchorTokens)
        return filled

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts in which nothing is compared, losses and layers that are not there.

        Raises:
            PromptError: neither label words nor spans, or too few tokens.
            RunError: a layer the model does not have.
        """
        check_layers(self.layers or (), model.info, "AnchorTokens")
        if self.of == "saliency":
            super().check(model, data)
        for number, prompt in enumerate(data):
            if not bool(marked(prompt).any()):
                raise PromptError(
                    f"AnchorTokens compares label words, or ends of spans, with tokens near them; prompt "
                    f"{number} has none of either before its target. Build prompts with shots >= 1, or "
                    "with texts(list_of_texts, model)."
                )
            count = self._ends(data)[number] - _first(prompt)
            if self.ratio is None and count < FEWEST_TOKENS:
                raise PromptError(
                    f"Prompt {number} has {count} tokens that could be anchors, and how far they lie apart by "
                    f"chance takes {FEWEST_TOKENS}. Leave it out, or say how many times the median nearby an "
                    "anchor's mass exceeds (ratio=3)."
                )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One forward pass, or one backward pass."""
        width = int(data.lengths.max())
        reading: Any = AttentionMass(width, self._ends(data))
        if self.of == "saliency":
            assert self.loss is not None
            reading = SaliencyMass(width, self._ends(data), self.loss, self.reduction)
        return [Pass(data, [reading], title="columns")]

    def _ends(self, data: PromptBatch) -> Ends:
        """The target, or the last token at which something is predicted."""
        rest = self.loss == "rest" and self.of == "saliency"
        return tuple(len(prompt) - 2 if rest else prompt.target for prompt in data)

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> TokenAnchors:
        """Means from sums, tokens that stand out, and the comparison."""
        (sums,), ends = read[0], self._ends(data)
        assert self.layers is not None
        masses, multiples, anchors, marks, apart = [], [], [], [], []
        mean, found = (torch.full((len(data), 2), torch.nan, dtype=torch.float64) for _ in range(2))
        for number, (own, prompt, end) in enumerate(zip(sums, data, ends, strict=True)):
            later = (end - torch.arange(end)).double()
            mass = own[:, :end].double() / later
            average = mass[list(self.layers)].mean(0)
            average[: _first(prompt)] = torch.nan
            medians = nearby_medians(average, self.window)
            times = torch.where(medians > 0, average / medians, torch.nan)
            places = marked(prompt)[:end]
            mean[number] = torch.tensor(matched_means(times, places, self.window))
            outliers = self._outliers(average, prompt)
            flags = outliers.stands if self.ratio is None else times > self.ratio
            stands = torch.where(times.isfinite(), flags.double(), torch.nan)
            found[number] = torch.tensor(matched_means(stands, places, self.window))
            masses.append(mass.float())
            multiples.append(times)
            apart.append(outliers)
            anchors.append(tuple(flags.nonzero()[:, 0].tolist()))
            marks.append(tuple(places.nonzero()[:, 0].tolist()))
        return TokenAnchors(
            mass=tuple(masses),
            times=tuple(multiples),
            scores=tuple(own.scores for own in apart),
            limits=tuple(own.limit for own in apart),
            anchors=tuple(anchors),
            marked=tuple(marks),
            multiple=mean,
            found=found,
            tokens=tuple(map(pieces_of, data)),
            compared="label words" if data.has_classes else "last tokens of spans",
            of=self.of,
            layers=tuple(self.layers),
            ratio=self.ratio,
            window=self.window,
        )

    def _outliers(self, mass: Float[Tensor, " pos"], prompt: Prompt) -> Outliers:
        """Attention reads from every row, saliency from those at which something is predicted."""
        first_row = prompt.target if self.of == "saliency" else 0
        return standing_out(mass, uniform_mass(len(mass), first_row), self.window)


def marked(prompt: Prompt) -> Bool[Tensor, " pos"]:
    """The tokens compared: first tokens of label words, of texts the last token of each span."""
    flags = torch.zeros(len(prompt), dtype=torch.bool)
    places = prompt.label_positions or tuple(stop - 1 for _, stop in prompt.text_spans)
    flags[[place for place in places if _first(prompt) <= place < prompt.target]] = True
    return flags


def _first(prompt: Prompt) -> int:
    """The first token that counts: BOS, or the first of all, attracts attention whatever it is."""
    return max(1, prompt.spans[0].stop if prompt.spans[0].role == "bos" else 1)


anchor_tokens = door(
    AnchorTokens,
    "anchor_tokens",
    prompts="Prompts with demonstrations, or texts with spans.",
)
