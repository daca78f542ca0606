"""Copies of a text, each run from a different position on, and the change of next-token distributions.

`icl_mech.measurements.anchors.suppression` runs and reads these copies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Batched, Kept, Reading, Work
from icl_mech.engine.readings import AtLast, OfLast
from icl_mech.interventions import Intervention
from icl_mech.models import KeyValues, LanguageModel, Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import PADDING, Segment, by_length

ALIKE, SLACK = 0.8, 16
"""Copies share a batch if they run at least this fraction of the longest one's rows, minus this many rows."""


@dataclass(frozen=True, eq=False)
class FromHereOn(Batched):
    """Rows from a start on, after keys and values of the tokens before it.

    The tokens before a start are the same in all copies, so they are run once for each work, without
    the suppression, whose rows all lie after it. Keys and values are padded on the left, so
    that none is missing between kept and new columns.

    Attributes:
        model: The model that runs them.
        prompts: Copies of one text.
        starts: First row that is run for each copy.
    """

    model: LanguageModel
    prompts: PromptBatch
    starts: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """True if nothing is shared."""
        return not self.share

    def segments(self, works: Sequence[Work]) -> Iterator[tuple[int, Segment]]:
        """All copies for one work, then for the next."""
        length = len(self.prompts[0])
        for number, work in enumerate(works):
            *others, _ = work.interventions  # the last one is the suppression
            starts = self.starts if self._shared(others) else (0,) * len(self.starts)
            cache = self._beginning(others, max(starts)) if max(starts) else None
            for alike in _alike([length - start for start in starts]):
                # A copy's keys and values take memory too, so it counts whole.
                whole = [length] * len(alike)
                for places in by_length(whole, tokens=self.tokens, size=self.size):
                    batch = [alike[place] for place in places]
                    yield number, self._segment(batch, [starts[copy] for copy in batch], cache)

    def _shared(self, others: Sequence[Intervention]) -> bool:
        alike = all(intervention.shares(self.prompts, max(self.starts)) for intervention in others)
        return self.share and self.model.takes_cache and alike

    def _beginning(self, others: Sequence[Intervention], stop: int) -> KeyValues:
        head = Segment.build(self.model, self.prompts[[0]], [0], spans=[(0, stop)])
        return Work((), others, False).keys_and_values(head)

    def _segment(
        self, batch: Sequence[int], starts: Sequence[int], cache: KeyValues | None
    ) -> Segment:
        length, width = len(self.prompts[0]), max(starts)
        cached, kept = None, None
        if cache is not None and width:
            kept = KeyValues.stacked([_first(cache, start).padded(width) for start in starts])
            cached = torch.full((len(starts), width), PADDING)
            for row, start in enumerate(starts):
                cached[row, width - start :] = torch.arange(start)
        return Segment.build(
            self.model,
            self.prompts[list(batch)],
            batch,
            spans=[(start, length) for start in starts],
            left=False,
            cache=kept,
            cached=cached,
        )


def _alike(rows: Sequence[int]) -> list[list[int]]:
    """Groups of copies with similar numbers of rows, so that little is run for padding."""
    groups: list[list[int]] = []
    for copy in sorted(range(len(rows)), key=lambda copy: -rows[copy]):
        if not groups or rows[copy] < ALIKE * rows[groups[-1][0]] - SLACK:
            groups.append([])
        groups[-1].append(copy)
    return groups


def _first(cache: KeyValues, count: int) -> KeyValues:
    return KeyValues(
        tuple(key[:, :, :count] for key in cache.keys),
        tuple(value[:, :, :count] for value in cache.values),
    )


CHUNK = 2**22
"""Logits at a time in float64: 32 MB."""


KEPT = 2**27
"""Maximum number of plain log-probabilities of a text that are kept (float64, 1 GB); beyond it they are recomputed."""


@dataclass
class ResidualReading(AtLast, Reading[list[Tensor]]):
    """The residual entering the final norm at every token of a text, `[pos, d_model]` each."""

    ragged: ClassVar[bool] = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Residuals shifted so that the first row that is run of each text is at 0, wherever padding is."""
        first = (segment.on_host[0] >= 0).int().argmax(1).tolist()
        return torch.stack([row.roll(-n, 0) for row, n in zip(activation, first, strict=True)])

    def collect(self, kept: Kept) -> list[Tensor]:
        """One tensor per text, padding still at the end."""
        return [residuals[0] for residuals in kept.per_prompt()]


@dataclass
class MovedReading(OfLast, Reading[Tensor]):
    """Change of copies of one text: `KL(plain || changed)` of the next token at every position, and the
    change of the log-probability of the token that follows; `[copy, 2, pos]`, 0 where nothing ran.

    Attributes:
        plain: Residuals of the unchanged text.
        tokens: Its tokens.
        temperature: Temperature the logits are divided by.
    """

    plain: Float[Tensor, "pos d_model"]
    tokens: Int[Tensor, " pos"]
    temperature: float = 1.0
    _known: Tensor | None = field(default=None, repr=False)

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Divergence and change, in chunks of rows, so that no more logits are held than needed."""
        model, length = segment.model, len(self.tokens)
        shape, device = (len(segment.prompts), 2, length), activation.device
        movement = torch.zeros(shape, dtype=torch.float64, device=device)
        dest = segment.on_host[0]
        rows, columns = (dest >= 0).nonzero(as_tuple=True)
        rows, columns, places = (
            to_device(indices, device) for indices in (rows, columns, dest[rows, columns])
        )
        base = self._base(model)
        for part in _chunks(len(rows), model.info.d_vocab):
            copies, at = rows[part], places[part]
            changed = log_probs(model, activation[copies, columns[part]], self.temperature)
            plain = (
                log_probs(model, self.plain.to(activation)[at], self.temperature)
                if base is None
                else base[at]
            )
            following = to_device(self.tokens, at.device)[(at + 1).clamp(max=length - 1)]
            divergence, change, _ = moved(plain, changed, following)
            movement[copies, 0, at] = divergence
            movement[copies, 1, at] = torch.where(at + 1 < length, change, 0.0)
        return movement

    def _base(self, model: LanguageModel) -> Tensor | None:
        if self._known is None and len(self.tokens) * model.info.d_vocab <= KEPT:
            plain = self.plain.to(model.device)
            parts = [
                log_probs(model, plain[part], self.temperature)
                for part in _chunks(len(plain), model.info.d_vocab)
            ]
            self._known = torch.cat(parts)
        return self._known


def log_probs(
    model: LanguageModel, residual: Tensor, temperature: float = 1.0
) -> Float[Tensor, "row vocab"]:
    """Log-probabilities of the next token, in float64, from residuals entering the final norm."""
    return (model.logits(residual).double() / temperature).log_softmax(-1)


def moved(
    plain: Float[Tensor, "row vocab"],
    changed: Float[Tensor, "row vocab"],
    following: Int[Tensor, " row"],
) -> Float[Tensor, "3 row"]:
    """`KL(plain || changed)` of log-probabilities, their change at one token, and whether the top token stays."""
    change = changed - plain
    divergence = -(plain.exp() * change).sum(-1).clamp(max=0)
    kept = plain.argmax(-1) == changed.argmax(-1)
    return torch.stack([divergence, change.gather(1, following[:, None])[:, 0], kept.double()])


@torch.no_grad()
def moved_rows(
    model: LanguageModel,
    plain: Float[Tensor, "row d_model"],
    changed: Float[Tensor, "row d_model"],
    following: Int[Tensor, " row"],
) -> Float[Tensor, "3 row"]:
    """The same for residuals, in chunks of rows."""
    parts = []
    for part in _chunks(len(plain), model.info.d_vocab):
        before, after = (
            log_probs(model, residuals[part].to(model.device)) for residuals in (plain, changed)
        )
        parts.append(moved(before, after, following[part].to(model.device)).cpu())
    return torch.cat(parts, dim=1)


def _chunks(count: int, vocabulary: int) -> Iterator[slice]:
    step = max(1, CHUNK // vocabulary)
    return (slice(start, start + step) for start in range(0, count, step))
