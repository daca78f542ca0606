"""Texts written step by step: choose a token, compute its row, look whether the text ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Progress, Reading
from icl_mech.engine.writing import Writer, Written, following, whole
from icl_mech.measurements.generation.choosing import Choice, Ending, Known, Stops
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import Prompt, Role
from icl_mech.segments import Segment

OF_DEMONSTRATIONS: dict[Role, str] = {"demo_text": "text {}", "label_word": "label word {}"}
"""Spans of their own for each demonstration."""

FIRST = "first token"
"""Kept apart whatever its role: in most models attention rests there."""

NAMES: dict[Role, str] = {
    "bos": FIRST,
    "narrative": "narrative",
    "format": "template",
    "query_text": "query",
    "target": "query",
    "unknown": "other tokens",
}

WRITTEN = "written"
"""The span of what was written so far."""


@dataclass
class AttentionRow(Reading[Tensor]):
    """Attention of the target's row to every column, mean over heads."""

    target_only: ClassVar[bool] = True
    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, src]`."""
        return activation[segment.rows, :, segment.target_row].float().mean(1)

    def collect(self, kept: Kept) -> Tensor:
        """`[row, layer, src]`."""
        return torch.stack(kept.per_prompt())


def span_names(prompts: Sequence[Prompt]) -> tuple[str, ...]:
    """All spans of some prompts, those of demonstrations in their order, then `WRITTEN`."""
    found: dict[str, None] = {}
    for prompt in prompts:
        found |= dict.fromkeys(span_of(prompt))
    order = list(found)
    numbered = sorted(
        (name for name in order if name[-1:].isdigit()),
        key=lambda name: (int(name.rpartition(" ")[2]), order.index(name)),
    )
    first = [name for name in (FIRST, "narrative") if name in found]
    rest = [name for name in order if name not in numbered and name not in first]
    return (*first, *numbered, *rest, WRITTEN)


def span_of(prompt: Prompt) -> list[str]:
    """The span each token of a prompt belongs to; its first token is one of its own."""
    names: list[str] = []
    for span in prompt.spans:
        own = OF_DEMONSTRATIONS.get(span.role)
        name = NAMES.get(span.role, span.role)
        if own is not None and span.demo is not None:
            name = own.format(span.demo + 1)
        names += [name] * (span.stop - span.start)
    return [FIRST, *names[1:]]


def late(n_layers: int) -> slice:
    """The last third of the layers."""
    return slice(n_layers - max(1, n_layers // 3), n_layers)


@dataclass(eq=False)
class Text:
    """What was written behind one prompt.

    Attributes:
        tokens: Ids.
        log_probs: Of each token, under the model itself (temperature 1, nothing left out).
        masses: Attention of the row that wrote each token, by layer and span.
        rows: The same by column, mean over the last third of the layers.
        places: The position in the prompt of each column the first row saw.
        ending: Why it ended.
    """

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    masses: list[Float[Tensor, "layer span"]] = field(default_factory=list)
    rows: list[Float[Tensor, " src"]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    ending: Ending = "length"


@dataclass(frozen=True, eq=False)
class Loop:
    """How texts are written.

    Attributes:
        writer: Computes rows, and reads attention if it has the reading.
        choice: Of tokens.
        stops: What ends a text.
        longest: Tokens of a text at most.
        spans: Names of the spans, if attention is read.
        again: Every step computes the whole text again, without keys and values.
    """

    writer: Writer
    choice: Choice | Known
    stops: Stops
    longest: int
    spans: tuple[str, ...] = ()
    again: bool = False

    def write(self, segment: Segment, bar: Progress) -> list[Text]:
        """The texts behind the prompts of a segment, which ends with their last tokens."""
        texts = [Text() for _ in segment.prompts]
        draws = [self.choice.draws(index) for index in segment.indices]
        live = list(range(len(texts)))
        written = self.writer.begin_writing(segment)
        places = _places(segment, self.spans)
        while True:
            logits = segment.model.logits(written.residual).float()
            chosen = self.choice.next_tokens(logits, [draws[own] for own in live])
            log_probs = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0].tolist()
            for own, token, log_prob in zip(live, chosen.tolist(), log_probs, strict=True):
                texts[own].tokens.append(token)
                texts[own].log_probs.append(log_prob)
            if self.spans:
                self._read(written, places, [texts[own] for own in live])
            bar.advance(len(live))
            going = [row for row, own in enumerate(live) if not self._ended(texts[own])]
            if not going:
                return texts
            live = [live[row] for row in going]
            new = [texts[own].tokens for own in live]
            if self.again:
                written = self.writer.go_on(whole(segment, new), new)
                places = _places(written.segment, self.spans)
            else:
                behind = following(written.kept(going), [own[-1] for own in new])
                places = _longer(places[going], self.spans)
                written = self.writer.go_on(behind, new)

    def _ended(self, text: Text) -> bool:
        found = self.stops.ending(text.tokens)
        if found is not None:
            text.ending = found
        return found is not None or len(text.tokens) == self.longest

    def _read(self, written: Written, places: Int[Tensor, "batch src"], texts: list[Text]) -> None:
        """The attention of a step, added up over spans and kept by column."""
        (values,) = written.values
        rows = torch.stack(list(values.values()), dim=1).cpu()
        real = written.segment.src.cpu() >= 0
        rows = rows * real[:, None]
        mass = rows.new_zeros(*rows.shape[:2], len(self.spans))
        mass.scatter_add_(2, places[:, None].expand(-1, rows.shape[1], -1), rows)
        src = written.segment.src.cpu()
        for number, text in enumerate(texts):
            seen = real[number]
            text.masses.append(mass[number])
            text.rows.append(rows[number, late(rows.shape[1])].mean(0)[seen])
            if not text.places:
                text.places = src[number][seen].tolist()


def _places(segment: Segment, spans: Sequence[str]) -> Int[Tensor, "batch src"]:
    """Index of the span each column belongs to; 0 at padding, where no attention falls."""
    if not spans:
        return torch.zeros_like(segment.src).cpu()
    src = segment.src.cpu()
    found = torch.full_like(src, spans.index(WRITTEN))
    for row, prompt in enumerate(segment.prompts):
        own = torch.tensor([spans.index(name) for name in span_of(prompt)])
        inside = (src[row] >= 0) & (src[row] < len(prompt))
        found[row, inside] = own[src[row, inside]]
    return found


def _longer(places: Int[Tensor, "batch src"], spans: Sequence[str]) -> Int[Tensor, "batch _"]:
    """With one column more, of what was written."""
    new = places.new_full((len(places), 1), spans.index(WRITTEN) if spans else 0)
    return torch.cat([places, new], dim=1)
