"""Saliency of attention: the effect of each attention edge on the loss.

`I_l = |sum_h A[l,h] * dL/dA[l,h]|` (`sum_then_abs`, the reference code's), or
`sum_h |A * dL/dA|` (`abs_then_sum`, the paper's text). No division by the number of heads.
`L` is a cross-entropy at the target, see `icl_mech.engine.Loss`.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, eq. 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.engine import GradientReading, Kept, Loss
from icl_mech.errors import ResultError
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import SALIENCY, OfSaliency, Reduction, head_sum
from icl_mech.measurements.saliency.roles import (
    SegmentMap,
    grouped,
    map_scores,
    segment_means,
    segments_of,
)
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Result
from icl_mech.segments import Segment

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View


DEFINITIONS = (
    SALIENCY,
    Definition(
        "saliency between segments",
        r"M_l[a, b] = \frac{1}{n_{ab}} \sum_{i \in a} \sum_{j \in b,\, j<i} I_l[i, j]",
        "Mean over the n edges into the tokens of segment a from those of segment b; a segment is "
        "a run of consecutive tokens of one role.",
    ),
)


class TellingLayers(NamedTuple):
    """The most informative layers of one prompt.

    Attributes:
        early: Layer of the first half in which the largest fraction of saliency per edge goes into label words.
        late: Layer of the second half in which most goes from label words to the target.
    """

    early: int
    late: int


class TargetRow(NamedTuple):
    """Saliency into the target of one prompt in a layer.

    Attributes:
        of_layer: Its fraction of all saliency of the layer.
        label: Fraction of it that comes from label words.
        most: The other group of roles with the largest fraction.
        share: Fraction of that group.
    """

    of_layer: float
    label: float
    most: str
    share: float


class Strongest(NamedTuple):
    """The segments of one prompt between which saliency per edge is largest.

    Attributes:
        dest: Name of the receiving segment.
        source: Name of the sending segment.
        saliency: Mean over the edges between them.
    """

    dest: str
    source: str
    saliency: float


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyMapsResult(Result):
    """Saliency of every edge, per prompt (prompts differ in length).

    Attributes:
        values: One `[layer, pos, pos]` map per prompt; destination first, diagonal kept.
        tokens: Text of the tokens, per prompt.
        roles: Role of the tokens, per prompt.
        windows: Number of tokens that a row of attention sees, by layer; empty where every row sees all before it.
    """

    shows: ClassVar[tuple[str, ...]] = ("", "tokens")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    values: tuple[Float[Tensor, "layer _ _"], ...]
    tokens: tuple[tuple[str, ...], ...]
    roles: tuple[tuple[str, ...], ...]
    windows: tuple[int | None, ...] = ()

    def view(
        self,
        prompt: int = 0,
        layer: int | None = None,
        *,
        into: int | str | None = None,
        out_of: int | str | None = None,
    ) -> "View":
        """The prompt as text, coloured by its saliency into a token or out of it.

        Args:
            prompt: Number of the prompt.
            layer: Number of the layer; None: the mean over layers.
            into: Token that reads, as its position, `"target"` or its text; by default the target.
            out_of: Token that is read; instead of `into`.

        Raises:
            ResultError: no such prompt, layer or token, or both tokens.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        values, where = self._layer(prompt, layer)
        text = Text(self.tokens[prompt], self.roles[prompt])
        if into is not None and out_of is not None:
            raise ResultError(
                "Give either into= (a token that reads) or out_of= (a token that is read), not "
                "both."
            )
        if out_of is not None:
            token = text.position(out_of, "out_of")
            values, way = values.T, "out of"
        else:
            token, way = text.position("target" if into is None else into, "into"), "into"
        name = f"saliency {way} {text.name(token)}, {where}"
        return prompt_view(text, values[token].tolist(), name=name)

    def arcs(self, prompt: int = 0, layer: int | None = None, *, top: int = 30) -> "View":
        """The strongest edges of a prompt as arcs, as in figure 1 of the paper.

        Args:
            prompt: Number of the prompt.
            layer: Number of the layer; None: the mean over layers.
            top: Maximum number of edges drawn; the view gives their fraction of the sum.

        Raises:
            ResultError: no such prompt or layer.
        """
        from icl_mech.plots.arcs import arcs_view
        from icl_mech.plots.prompt_view import Text

        values, where = self._layer(prompt, layer)
        text = Text(self.tokens[prompt], self.roles[prompt])
        return arcs_view(text, values, name=f"saliency, {where}", top=top)

    def _layer(self, prompt: int, layer: int | None) -> tuple[Float[Tensor, "dest src"], str]:
        """A map of a prompt, and its description."""
        if layer is not None:
            return self._map(prompt, layer), f"layer {layer}"
        self._check_prompt(prompt)
        maps = self.values[prompt]
        return maps.mean(0), f"mean over {len(maps)} layers"

    def _map(self, prompt: int, layer: int) -> Float[Tensor, "dest src"]:
        self._check_prompt(prompt)
        maps = self.values[prompt]
        if not 0 <= layer < len(maps):
            raise ResultError(
                f"layer={layer}, but the model has {len(maps)} layers, counted from 0."
            )
        return maps[layer]

    # --- highlights of a prompt ---

    @property
    def lengths(self) -> tuple[int, int]:
        """Numbers of tokens of the shortest and of the longest prompt."""
        lengths = [values.shape[-1] for values in self.values]
        return min(lengths), max(lengths)

    def telling_layers(self, prompt: int = 0) -> TellingLayers | None:
        """The most informative layers for label words; None without label words, or in models of one layer.

        Raises:
            ResultError: no such prompt.
        """
        self._check_prompt(prompt)
        values = self.values[prompt].double()
        scores = map_scores(values, self.roles[prompt], self._windows)
        half = len(values) // 2
        if scores is None or not half:
            return None
        scores = scores.nan_to_num(0.0)
        shares = scores[0] / scores.sum(0).clamp(min=torch.finfo(scores.dtype).tiny)
        return TellingLayers(int(shares[:half].argmax()), half + int(scores[1, half:].argmax()))

    def usual_layer(self, prompt: int = 0) -> int:
        """The early layer of `telling_layers`; without these, the layer with the most saliency.

        Raises:
            ResultError: no such prompt.
        """
        if telling := self.telling_layers(prompt):
            return telling.early
        return int(self.values[prompt].tril(-1).sum((1, 2)).argmax())

    def own_text_shares(self, layer: int, prompt: int = 0) -> tuple[float, ...]:
        """Fraction of each label word's saliency in a layer that comes from the text of its demonstration.

        Label words without text, or that receive nothing, are left out.

        Raises:
            ResultError: no such prompt or layer.
        """
        values, roles = self._map(prompt, layer).double().tril(-1), self.roles[prompt]
        starts = [
            i for i, role in enumerate(roles) if role == "label_word" and roles[i - 1] != role
        ]
        shares = []
        for place in starts:
            row = values[place]
            # The text of its demonstration: the last one before the label word.
            text = [i for i in range(place) if roles[i] == "demo_text"]
            first = next(
                (i + 1 for i in reversed(range(max(text, default=0))) if roles[i] != "demo_text"), 0
            )
            if text and float(row.sum()) > 0:
                shares.append(float(row[first : text[-1] + 1].sum() / row.sum()))
        return tuple(shares)

    def target_row(self, layer: int, prompt: int = 0) -> TargetRow | None:
        """Saliency into the target in a layer, and the roles it comes from; None if there is none.

        Raises:
            ResultError: no such prompt or layer.
        """
        values, roles = self._map(prompt, layer).double().tril(-1), self.roles[prompt]
        if "target" not in roles:
            return None
        total, row = float(values.sum()), values[roles.index("target")]
        if total == 0 or float(row.sum()) == 0:
            return None
        different = tuple(dict.fromkeys(roles))
        names, member = grouped(different)
        sums = row.new_zeros(len(different))
        for place, role in enumerate(roles):
            sums[different.index(role)] += row[place]
        shares = dict(zip(names, (member @ sums / row.sum()).tolist(), strict=True))
        label = shares.pop("label words", 0.0)
        most = max(shares, key=lambda name: shares[name])
        return TargetRow(float(row.sum()) / total, label, most, shares[most])

    def strongest(self, layer: int, prompt: int = 0) -> Strongest | None:
        """The segments between which saliency per edge is largest in a layer; None if there is no saliency.

        Raises:
            ResultError: no such prompt or layer.
        """
        self._map(prompt, layer)
        by_segment = self.by_segment(prompt)
        segments, values = by_segment.segments, by_segment.values[layer].nan_to_num(nan=-1.0)
        dest, source = divmod(int(values.argmax()), values.shape[1])
        if float(values.max()) <= 0:
            return None
        return Strongest(segments[dest].name, segments[source].name, float(values.max()))

    def by_segment(self, prompt: int = 0) -> SegmentMap:
        """Mean saliency per edge between the segments of one prompt, by layer.

        Raises:
            ResultError: no such prompt.
        """
        self._check_prompt(prompt)
        segments = segments_of(self.tokens[prompt], self.roles[prompt])
        return SegmentMap(segments, segment_means(self.values[prompt], segments, self._windows))

    @property
    def _windows(self) -> tuple[int | None, ...]:
        return self.windows or (None,) * len(self.values[0])

    def _check_prompt(self, prompt: int) -> None:
        if not 0 <= prompt < len(self.values):
            raise ResultError(
                f"prompt={prompt}, but there are maps of {len(self.values)} prompts, counted from "
                "0."
            )


@dataclass
class SaliencyReading(GradientReading[list[Tensor]]):
    """Whole maps, cut to each prompt's tokens."""

    ragged = True

    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """Shape `[batch, dest, src]`."""
        return (len(segment.prompts), segment.dest.shape[1], segment.src.shape[1])

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The map of one layer, shifted so that each prompt starts at 0."""
        saliency = head_sum(activation, gradient, self.reduction)
        padding = (segment.on_host[0] < 0).sum(1).tolist()
        return torch.stack(
            [row.roll((-n, -n), (0, 1)) for row, n in zip(saliency, padding, strict=True)]
        )

    def collect(self, kept: Kept) -> list[Tensor]:
        """Maps `[layer, dest, src]` per prompt, padding still at the end."""
        return kept.per_prompt()


@dataclass(frozen=True)
class SaliencyMaps(OfSaliency[SaliencyMapsResult]):
    """Saliency of every attention edge; memory grows with prompts x layers x tokens squared.

    Suitable for maps of a few prompts; use `flow_scores` for statistics over many.

    Attributes:
        first: Number of prompts mapped; None: all.

    Raises:
        RunError: unknown variant.
        PromptError: a loss that needs answers, for prompts without.

    Source: Wang et al. 2023, §2.1.
    """

    first: Count | None = None

    reads_texts = True

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One backward pass over the prompts that are mapped."""
        assert self.loss is not None
        reading = SaliencyReading(self.loss, self.reduction)
        return [Pass(data[: self.first], [reading], title="saliency")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> SaliencyMapsResult:
        """Maps cut to their prompts, with the text and role of every token."""
        (maps,), prompts = read[0], data[: self.first]
        return SaliencyMapsResult(
            values=tuple(
                values[:, : len(prompt), : len(prompt)]
                for values, prompt in zip(maps, prompts, strict=True)
            ),
            tokens=tuple(prompt.pieces or tuple(map(str, prompt.tokens)) for prompt in prompts),
            roles=tuple(
                tuple(span.role for span in prompt.spans for _ in range(span.start, span.stop))
                for prompt in prompts
            ),
            windows=model.windows if any(model.windows) else (),
        )


saliency_maps = door(
    SaliencyMaps,
    "saliency_maps",
    prompts="The prompts.",
    interventions="Applied before reading; saliency is that of the modified attention pattern.",
)
