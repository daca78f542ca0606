"""What suppression reads: plain residuals of a text, and how far each next token's distribution moved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.models import LanguageModel, ModelInfo, Site
from icl_mech.segments import Segment

CHUNK = 2**22
"""Logits at a time in float64: 32 MB."""

KEPT = 2**27
"""Plain log-probabilities of a text that are kept (float64, 1 GB); of more they are made anew."""


@dataclass
class ResidualReading(Reading[list[Tensor]]):
    """The residual entering the final norm at every token of a text, `[pos, d_model]` each."""

    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The last block's output."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Moved so that each text starts at 0."""
        padding = (segment.dest < 0).sum(1).tolist()
        return torch.stack([row.roll(-n, 0) for row, n in zip(activation, padding, strict=True)])

    def collect(self, kept: Kept) -> list[Tensor]:
        """One per text, padding still at the end."""
        return [own[0] for own in kept.per_prompt()]


@dataclass
class MovedReading(Reading[Tensor]):
    """Of copies of one text: `KL(plain || changed)` of the next token at every position, and the
    change of the log-probability of the token that follows; `[copy, 2, pos]`, 0 where nothing ran.

    Attributes:
        plain: Residuals of the unchanged text.
        tokens: Its tokens.
        temperature: Logits are divided by it.
    """

    plain: Float[Tensor, "pos d_model"]
    tokens: Int[Tensor, " pos"]
    temperature: float = 1.0
    _known: Tensor | None = field(default=None, repr=False)

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The last block's output."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """In chunks of rows, so that no more logits are held than needed."""
        model, length = segment.model, len(self.tokens)
        found = torch.zeros(len(segment.prompts), 2, length, dtype=torch.float64)
        rows, columns = (segment.dest >= 0).nonzero(as_tuple=True)
        places = segment.dest[rows, columns]
        base = self._base(model)
        for part in _chunks(len(rows), model.info.d_vocab):
            own, at = rows[part], places[part]
            changed = self._log_probs(model, activation[own, columns[part]])
            plain = (
                self._log_probs(model, self.plain[at.cpu()].to(activation))
                if base is None
                else base[at]
            )
            moved = plain - changed
            divergence = (plain.exp() * moved).sum(-1).clamp(min=0)
            following = self.tokens.to(at.device)[(at + 1).clamp(max=length - 1)]
            change = -moved.gather(1, following[:, None])[:, 0]
            change = torch.where(at + 1 < length, change, 0.0)
            found[own.cpu(), 0, at.cpu()] = divergence.cpu()
            found[own.cpu(), 1, at.cpu()] = change.cpu()
        return found

    def _base(self, model: LanguageModel) -> Tensor | None:
        if self._known is None and len(self.tokens) * model.info.d_vocab <= KEPT:
            plain = self.plain.to(model.device)
            parts = [
                self._log_probs(model, plain[part])
                for part in _chunks(len(plain), model.info.d_vocab)
            ]
            self._known = torch.cat(parts)
        return self._known

    def _log_probs(self, model: LanguageModel, residual: Tensor) -> Float[Tensor, "row vocab"]:
        logits = model.logits(residual).double()
        if self.temperature != 1:
            logits = logits / self.temperature
        return logits.log_softmax(-1)

    def collect(self, kept: Kept) -> Tensor:
        """`[copy, 2, pos]`."""
        return kept.stacked()[:, 0]


def _chunks(count: int, vocabulary: int) -> Iterator[slice]:
    step = max(1, CHUNK // vocabulary)
    return (slice(start, start + step) for start in range(0, count, step))
