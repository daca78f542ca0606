"""How runs with grafts are laid out, and the residuals they take are read: what sources and runs have in common.

Source and run are laid out alike, so that a run takes from itself what it computes, to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Batched, Kept, Layout, Reading, Work, can_share, common_prefix
from icl_mech.engine.layouts import WORTH_SHARING, Numbered, SharedVariants, Whole, first_changed
from icl_mech.interventions import Intervention
from icl_mech.interventions.places import NOWHERE
from icl_mech.measurements.causal.grafts import words
from icl_mech.models import LanguageModel, ModelInfo, Resume, Site, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment, by_length


class Rows(Reading[dict[Site, Tensor]]):
    """Residuals at some tokens of every prompt, `[prompt, row, d_model]` by site; 0 where there is none.

    Tokens of a beginning that all prompts share are read in its own segment, once.
    """

    def __init__(self, sites: Sequence[Site], rows: Int[Tensor, "batch row"]) -> None:
        """Of these sites and tokens."""
        self._sites, self.rows = list(sites), rows
        self._shared: dict[Site, Tensor] = {}
        self._length = 0

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """As given."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The rows of this batch that are computed here."""
        rows = to_device(self.rows[list(segment.indices)], activation.device)
        ends = to_device(torch.tensor(segment.spans), activation.device)
        there = (rows >= ends[:, :1]) & (rows < ends[:, 1:])
        columns = segment.columns(rows.where(there, ends[:, :1]))
        found: Tensor = activation[segment.rows[:, None], columns].where(there[..., None], 0.0)
        if not len(segment.targets_inside[0]):
            self._shared[site], self._length = found.cpu(), segment.spans[0][1]
        return found

    def collect(self, kept: Kept) -> dict[Site, Float[Tensor, "batch row d_model"]]:
        """By site."""
        inside = ((self.rows != NOWHERE) & (self.rows < self._length))[..., None]
        values = kept.by_site()
        return {
            site: own.where(~inside, self._shared[site].to(own)) if site in self._shared else own
            for site, own in values.items()
        }


@dataclass(frozen=True, eq=False)
class Entered(Batched, Whole):
    """Whole prompts, each work entering at the first block it changes; below, the plain run's residual."""

    @property
    def whole(self) -> bool:
        """True if every block is run for every work."""
        return not self.share

    @property
    def apart(self) -> bool:
        """True: sources and runs stand in equal batches."""
        return True

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each batch for every work, the lowest entrance first, so that one residual is held at a time."""
        if not self.share:
            yield from super().segments(works)
            return
        starts = [first_changed(self.model, work) for work in works]
        lengths = self.prompts.lengths.tolist()
        for indices in by_length(lengths, tokens=self.tokens, size=self.size):
            segment = Segment.build(self.model, self.prompts[indices], indices)
            reached: Resume | None = None
            for number in sorted(range(len(works)), key=starts.__getitem__):
                reached = self._advanced(segment, reached, starts[number])
                start = None
                if reached is not None:
                    # A copy for each: an intervention may write into what it enters with.
                    start = Resume(reached.layer, reached.residual.clone())
                yield number, replace(segment, start=start)

    def _advanced(self, segment: Segment, reached: Resume | None, layer: int) -> Resume | None:
        """The plain run of a segment, gone on to the entrance of a block."""
        if layer == (0 if reached is None else reached.layer):
            return reached
        with self.model.undo.kept(), torch.no_grad():
            output = self.model.forward(
                segment.tokens, segment.mask, segment.positions, start=reached, stop=layer
            )
        return Resume(layer, output.residual)


@dataclass(frozen=True, eq=False)
class Begun(SharedVariants):
    """Demonstrations that all prompts share are run once for each work, then what follows them.

    Attributes:
        beginning: Tokens that are run once.
        read: The beginning is a segment to read from, too.
    """

    tokens: int = 1
    size: int | None = None
    beginning: int = 0
    read: bool = False

    @property
    def length(self) -> int:
        """Of the beginning."""
        return self.beginning

    @property
    def apart(self) -> bool:
        """True: sources and runs stand in equal batches."""
        return True

    def within(self, tokens: int, size: int | None, *, share: bool) -> Layout:
        """With batches of this size; whole prompts where nothing is to be shared."""
        if not share:
            return Entered(self.model, self.prompts, tokens=tokens, size=size, share=False)
        return replace(self, tokens=tokens, size=size)

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """The beginning, where it is read, then each batch for every work."""
        if self.read:
            yield from ((number, self.head()) for number in range(len(works)))
        yield from super().segments(works)


def shared_beginning(
    model: LanguageModel,
    prompts: PromptBatch,
    tables: Sequence[Int[Tensor, "batch row"]],
    interventions: Sequence[Intervention],
) -> int:
    """Tokens that all prompts share and that are treated alike in all of them; 0 if that is too few.

    Args:
        model: What runs them.
        prompts: The prompts.
        tables: Positions that are read or changed, each for itself.
        interventions: Made in every run.
    """
    if not model.takes_cache or not can_share(model, prompts, interventions, True):
        return 0
    length = min(common_prefix(prompts), max((own.stop for own in words(prompts[0])), default=0))
    for rows in tables:
        inside = rows.where(rows < length, NOWHERE)
        alike = inside.sort(1, descending=True).values
        if bool((alike != alike[:1]).any()):
            return 0
    return length if length >= WORTH_SHARING else 0
