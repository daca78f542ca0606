"""Layout of runs with grafts, and the reading of the residuals they take: code shared by sources and runs.

Source and run are laid out alike, so that a graft of a run into itself reproduces its computation bit by bit.
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

    Tokens of a beginning that all prompts share are read once, in a separate segment.
    """

    def __init__(self, sites: Sequence[Site], rows: Int[Tensor, "batch row"]) -> None:
        """Read these tokens at these hook points."""
        self._sites, self.rows = list(sites), rows
        self._shared: dict[Site, Tensor] = {}
        self._length = 0

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The given hook points."""
        return self._sites

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """The rows of this batch that are computed in this segment."""
        rows = to_device(self.rows[list(segment.indices)], activation.device)
        ends = to_device(torch.tensor(segment.spans), activation.device)
        there = (rows >= ends[:, :1]) & (rows < ends[:, 1:])
        columns = segment.columns(rows.where(there, ends[:, :1]))
        values: Tensor = activation[segment.rows[:, None], columns].where(there[..., None], 0.0)
        if not len(segment.targets_inside[0]):
            self._shared[site], self._length = values.cpu(), segment.spans[0][1]
        return values

    def collect(self, kept: Kept) -> dict[Site, Float[Tensor, "batch row d_model"]]:
        """The residuals by hook point."""
        inside = ((self.rows != NOWHERE) & (self.rows < self._length))[..., None]
        values = kept.by_site()
        return {
            site: tensor.where(~inside, self._shared[site].to(tensor))
            if site in self._shared
            else tensor
            for site, tensor in values.items()
        }


@dataclass(frozen=True, eq=False)
class Entered(Batched, Whole):
    """Whole prompts; each run starts at the first block it changes, from the residual of the plain run below it."""

    @property
    def whole(self) -> bool:
        """True if every block is run for every work."""
        return not self.share

    @property
    def apart(self) -> bool:
        """True: sources and runs are run in batches of equal size."""
        return True

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """Each batch for every work, the lowest entry block first, so that only one residual is held at a time."""
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
                    # A copy for each: an intervention may write into its input.
                    start = Resume(reached.layer, reached.residual.clone())
                yield number, replace(segment, start=start)

    def work(self, works: Sequence[Work]) -> int | None:
        """All tokens of all prompts, from where each work enters."""
        whole = super().work(works)
        if whole is None or not self.share:
            return whole
        blocks = self.model.info.n_layers
        entered = sum(blocks - first_changed(self.model, work) for work in works)
        return whole * entered // (blocks * len(works))

    def _advanced(self, segment: Segment, reached: Resume | None, layer: int) -> Resume | None:
        """The plain run of a segment, continued up to the entrance of a block."""
        if layer == (0 if reached is None else reached.layer):
            return reached
        with self.model.undo.kept(), torch.no_grad():
            output = self.model.forward(
                segment.tokens, segment.mask, segment.positions, start=reached, stop=layer
            )
        return Resume(layer, output.residual)


@dataclass(frozen=True, eq=False)
class Begun(SharedVariants):
    """Demonstrations that all prompts share are run once for each work, then the rest of each prompt.

    Attributes:
        beginning: Number of tokens that are run once.
        read: The beginning is a segment to read from, too.
    """

    tokens: int = 1
    size: int | None = None
    beginning: int = 0
    read: bool = False

    @property
    def length(self) -> int:
        """Number of tokens of the beginning."""
        return self.beginning

    @property
    def apart(self) -> bool:
        """True: sources and runs are run in batches of equal size."""
        return True

    def within(self, tokens: int, size: int | None, *, share: bool) -> Layout:
        """A layout in batches of this size; whole prompts where nothing is to be shared."""
        if not share:
            return Entered(self.model, self.prompts, tokens=tokens, size=size, share=False)
        return replace(self, tokens=tokens, size=size)

    def segments(self, works: Sequence[Work]) -> Iterator[Numbered]:
        """The beginning, where it is read, then each batch for every work."""
        if self.read:
            yield from ((number, self.head()) for number in range(len(works)))
        yield from super().segments(works)

    def work(self, works: Sequence[Work]) -> int | None:
        """The same, with the beginnings that are read."""
        rest = super().work(works)
        read = self.read * len(works) * self.beginning * self.model.info.n_layers
        return None if rest is None else rest + read


def shared_beginning(
    model: LanguageModel,
    prompts: PromptBatch,
    tables: Sequence[Int[Tensor, "batch row"]],
    interventions: Sequence[Intervention],
) -> int:
    """Number of leading tokens that all prompts share and that are treated alike in all of them; 0 if too few.

    Args:
        model: The model that runs them.
        prompts: The prompts.
        tables: Positions that are read or changed, each table on its own.
        interventions: Interventions applied in every run.
    """
    if not model.takes_cache or not can_share(model, prompts, interventions, True):
        return 0
    length = min(common_prefix(prompts), max((span.stop for span in words(prompts[0])), default=0))
    for rows in tables:
        inside = rows.where(rows < length, NOWHERE)
        alike = inside.sort(1, descending=True).values
        if bool((alike != alike[:1]).any()):
            return 0
    return length if length >= WORTH_SHARING else 0
