"""Saliency of attention: how much each attention edge moves the loss.

`I_l = |sum_h A[l,h] * dL/dA[l,h]|` (`sum_then_abs`, the reference code's), or
`sum_h |A * dL/dA|` (`abs_then_sum`, the paper's text). No division by the number of heads.
`L` is a cross-entropy at the target, see `icl_mech.engine.Loss`.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.1, eq. 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
from icl_mech.results import Definition, Figure, Result
from icl_mech.results.wording import counted, told
from icl_mech.segments import Segment
from icl_mech.shapes import TokenMatrix

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View


DEFINITIONS = (
    SALIENCY,
    Definition(
        "saliency between segments",
        r"M_l[a, b] = \frac{1}{n_{ab}} \sum_{i \in a} \sum_{j \in b,\, j<i} I_l[i, j]",
        "Mean over the n edges into the tokens of segment a from those of segment b; a segment is a "
        "run of tokens of one role.",
    ),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class SaliencyMapsResult(Result):
    """Saliency of every edge, per prompt (prompts differ in length).

    Attributes:
        values: One `[layer, pos, pos]` map per prompt; destination first, diagonal kept.
        tokens: Text of the tokens, per prompt.
        roles: Role of the tokens, per prompt.
        windows: Tokens that a row of attention sees, by layer; empty where every row sees all before it.
    """

    title: ClassVar[str] = "Saliency map of one prompt"
    shows: ClassVar[tuple[str, ...]] = ("", "tokens")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    values: tuple[Float[Tensor, "layer _ _"], ...]
    tokens: tuple[tuple[str, ...], ...]
    roles: tuple[tuple[str, ...], ...]
    windows: tuple[int | None, ...] = ()

    def drawing(self, show: str = "", prompt: int = 0, layer: int | None = None) -> TokenMatrix:
        """One prompt by segment with a slider over layers, or all its tokens in one layer.

        Args:
            show: `tokens` for all tokens.
            prompt: Which prompt.
            layer: Layer shown first; None: that of the first half in which most saliency per edge
                runs from the texts into the label words.

        Raises:
            ResultError: unknown `show`, or no such prompt or layer.
        """
        self.check_show(show)
        self._check_prompt(prompt)
        values, count = self.values[prompt], len(self.values[prompt])
        telling = self.telling_layers(prompt)
        if layer is None:
            layer = telling[0][0] if telling else int(values.tril(-1).sum((1, 2)).argmax())
        if not 0 <= layer < count:
            raise ResultError(f"layer={layer}; the model has {count} layers.")
        by_segment = None if show else self.by_segment(prompt)
        return TokenMatrix(
            title="Saliency of attention between " + ("tokens" if show else "parts of a prompt"),
            values=values,
            tokens=self.tokens[prompt],
            roles=self.roles[prompt],
            quantity="saliency",
            layer=layer,
            segments=by_segment.segments if by_segment else (),
            means=by_segment.values if by_segment else None,
            telling=telling,
            note=f"prompt {prompt}, {len(self.tokens[prompt])} tokens",
        )

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
            prompt: Which prompt.
            layer: Which layer; None: the mean over layers.
            into: Token that reads, as its position, `"target"` or its text; by default the target.
            out_of: Token that is read; instead of `into`.

        Raises:
            ResultError: no such prompt, layer or token, or both tokens.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        values, where = self._layer(prompt, layer)
        text = Text(self.tokens[prompt], self.roles[prompt])
        if into is not None and out_of is not None:
            raise ResultError("Give into= or out_of=, not both: a token that reads, or one read.")
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
            prompt: Which prompt.
            layer: Which layer; None: the mean over layers.
            top: Number of edges drawn at most; which share of the sum they hold is said.

        Raises:
            ResultError: no such prompt or layer.
        """
        from icl_mech.plots.arcs import arcs_view
        from icl_mech.plots.prompt_view import Text

        values, where = self._layer(prompt, layer)
        text = Text(self.tokens[prompt], self.roles[prompt])
        return arcs_view(text, values, name=f"saliency, {where}", top=top)

    def _layer(self, prompt: int, layer: int | None) -> tuple[Float[Tensor, "dest src"], str]:
        """A map of a prompt, and which one it is."""
        self._check_prompt(prompt)
        maps = self.values[prompt]
        if layer is None:
            return maps.mean(0), f"mean over {len(maps)} layers"
        if not 0 <= layer < len(maps):
            raise ResultError(f"layer={layer}; the model has {len(maps)} layers.")
        return maps[layer], f"layer {layer}"

    def telling_layers(self, prompt: int = 0) -> tuple[tuple[int, str], ...]:
        """The layers of one prompt that are worth looking at, and what they show.

        Of the first half the layer in which saliency per edge runs into label words by the largest
        share, of the second half the one in which most runs from label words to the target. None
        for prompts without label words, or models of one layer.
        """
        self._check_prompt(prompt)
        values = self.values[prompt].double()
        scores = map_scores(values, self.roles[prompt], self._windows)
        half = len(values) // 2
        if scores is None or not half:
            return ()
        scores = scores.nan_to_num(0.0)
        early = int(
            (scores[0] / scores.sum(0).clamp(min=torch.finfo(scores.dtype).tiny))[:half].argmax()
        )
        late = half + int(scores[1, half:].argmax())
        return (early, "label words read texts"), (late, "target reads label words")

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
            raise ResultError(f"prompt={prompt}; there are maps of {len(self.values)} prompts.")

    def figures(self) -> list[Figure]:
        """One prompt by segment."""
        tokens, telling = len(self.tokens[0]), self.telling_layers()
        opens = self.drawing().layer
        where = (
            f": in the first half of the layers, saliency per edge runs into label words there by the "
            f"largest share; in layer {telling[1][0]}, in the second half, most runs from label words to "
            "the target."
            if telling
            else ", the one with the most saliency."
        )
        return [
            Figure(
                "",
                "Which tokens feed which?",
                _reading(self, telling) if telling else _most(self, opens),
                f"**Mean saliency per edge between segments of one prompt** ({counted(tokens, 'token')}). Rows "
                "receive, columns send; the diagonal cell holds a segment's own inner edges and is blank "
                "where it is one token. One logarithmic range of colours, stated at its bar, holds for all "
                f"layers. The figure opens at layer {opens}{where}",
                "What the means of a prompt set are made of.",
                "One prompt is an example, not evidence.",
                "One prompt's saliency",
            )
        ]

    def summary(self) -> str:
        """Number and size of the maps."""
        sizes = sorted({values.shape[-1] for values in self.values})
        tokens = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        return f"saliency of every edge, {len(self.values)} prompt(s) of {tokens} tokens"


def _reading(maps: SaliencyMapsResult, telling: tuple[tuple[int, str], ...]) -> str:
    """What label words read early, and how much of all saliency the target's row holds late."""
    (early, _), (late, _) = telling
    values, roles = maps.values[0].double().tril(-1), maps.roles[0]
    starts = [i for i, role in enumerate(roles) if role == "label_word" and roles[i - 1] != role]
    own = []
    for place in starts:
        row = values[early, place]
        # The text of its own demonstration: the last before the label word.
        text = [i for i in range(place) if roles[i] == "demo_text"]
        first = next(
            (i + 1 for i in reversed(range(max(text, default=0))) if roles[i] != "demo_text"), 0
        )
        if text and float(row.sum()) > 0:
            own.append(float(row[first : text[-1] + 1].sum() / row.sum()))
    said_early = (
        f"In layer {early} the label words read their own demonstration's text "
        f"({', '.join(told(share) for share in own)} of their rows). "
        if own
        else ""
    )
    target = roles.index("target")
    total, row = float(values[late].sum()), values[late, target]
    if total == 0 or float(row.sum()) == 0:
        return f"{said_early}In layer {late} the target receives nothing."
    names, _, member = grouped(tuple(dict.fromkeys(roles)))
    by_role = dict(zip(dict.fromkeys(roles), range(len(set(roles))), strict=True))
    sums = row.new_zeros(len(by_role))
    for place, role in enumerate(roles):
        sums[by_role[role]] += row[place]
    shares = dict(zip(names, (member @ sums / row.sum()).tolist(), strict=True))
    label = shares.pop("label words", 0.0)
    most = max(shares, key=lambda name: shares[name])
    return (
        f"{said_early}In layer {late} the target's row holds {told(float(row.sum()) / total)} of all "
        f"saliency; {told(label)} of it comes from label words and {told(shares[most])} from "
        f"{'the template' if most == 'template' else most}: measured per edge, few edges weigh much."
    )


def _most(maps: SaliencyMapsResult, layer: int) -> str:
    found = maps.by_segment()
    values = found.values[layer].nan_to_num(nan=-1.0)
    place = int(values.argmax())
    to, source = divmod(place, values.shape[1])
    if float(values.max()) <= 0:
        return f"No edge has any saliency in layer {layer}."
    return (
        f"In layer {layer} “{found.segments[to].name}” reads “{found.segments[source].name}” most "
        f"(mean saliency per edge {told(float(values.max()))})."
    )


@dataclass
class SaliencyReading(GradientReading[list[Tensor]]):
    """Whole maps, cut to each prompt's own tokens."""

    ragged = True

    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """`[batch, dest, src]`."""
        return (len(segment.prompts), segment.dest.shape[1], segment.src.shape[1])

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The map of one layer, moved so that each prompt starts at 0."""
        saliency = head_sum(activation, gradient, self.reduction)
        padding = (segment.on_host[0] < 0).sum(1).tolist()
        return torch.stack(
            [row.roll((-n, -n), (0, 1)) for row, n in zip(saliency, padding, strict=True)]
        )

    def collect(self, kept: Kept) -> list[Tensor]:
        """`[layer, dest, src]` per prompt, padding still at the end."""
        return kept.per_prompt()


@dataclass(frozen=True)
class SaliencyMaps(OfSaliency[SaliencyMapsResult]):
    """Saliency of every attention edge; memory grows with prompts x layers x tokens squared.

    Memory grows with prompts x layers x tokens squared: for maps of a few prompts; use
    `flow_scores` for statistics over many.

    Attributes:
        first: Number of prompts mapped; None: all.

    Raises:
        RunError: unknown variant.
        PromptError: a loss that needs answers, and prompts without.

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
    interventions="Made before reading; saliency is that of the edited pattern.",
)
