"""Reading of attention to the demonstrations' label words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.measurements.lens.residuals import Positions as At
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Source = Literal["labels", "before_labels"]


@dataclass
class LabelAttentionReading(Reading[Tensor]):
    """Attention of every head to each demonstration's label word, all its tokens summed.

    `[prompt, layer, row, head, demo]`; rows are the target, or the token before each label.
    `before_labels` reads the tokens before those labels instead. Demonstrations at or after a
    row have attention 0.
    """

    at: At = "target"
    over: Source = "labels"
    _marks: dict[tuple[int, ...], Tensor] = field(default_factory=dict, init=False, repr=False)

    @property
    def target_only(self) -> bool:  # type: ignore[override]
        """True for the target; rows before labels stand earlier."""
        return self.at == "target"

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, row, head, demo]`."""
        rows = row_positions(segment.prompts, self.at).to(activation.device)
        columns = segment.columns(rows)
        pattern = activation.transpose(1, 2)[segment.rows[:, None], columns].float()
        demos = self._marked(segment)
        attention = torch.einsum("brhs,bds->brhd", pattern, demos.float())
        # A row's own demonstration, and any later one, is not an earlier label: the token
        # before a row's own label is the row itself.
        labels = segment.prompts.label_positions.to(activation.device)
        earlier = labels[:, None] < rows[:, :, None]
        return attention * earlier[:, :, None]

    def _marked(self, segment: Segment) -> Tensor:
        """True where a column belongs to a demonstration's label word, `[batch, demo, src]`."""
        key = segment.indices
        if key not in self._marks:
            self._marks.clear()
            owner = torch.full((len(segment.prompts), int(segment.prompts.lengths.max())), -1)
            for row, prompt in enumerate(segment.prompts):
                for demo, span in enumerate(prompt.label_spans):
                    place = (
                        slice(span.start - 1, span.start)
                        if self.over == "before_labels"
                        else slice(span.start, span.stop)
                    )
                    owner[row, place] = demo
            laid = segment.along(owner, segment.src)
            numbers = torch.arange(segment.prompts.n_demos, device=laid.device)
            self._marks[key] = laid[:, None] == numbers[:, None]
        return self._marks[key]

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, row, head, demo]`."""
        return kept.stacked()


def row_positions(prompts: PromptBatch, at: At) -> Int[Tensor, "batch row"]:
    """Prompt positions that are read."""
    return prompts.targets[:, None] if at == "target" else prompts.label_positions - 1


def word_sizes(prompts: PromptBatch) -> Int[Tensor, "batch demo"]:
    """Number of tokens of each demonstration's label word; 0 where a prompt has fewer."""
    sizes = torch.zeros(len(prompts), prompts.n_demos, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        for demo, span in enumerate(prompt.label_spans):
            sizes[row, demo] = span.stop - span.start
    return sizes


def row_labels(prompts: PromptBatch, at: At) -> Int[Tensor, "batch row"] | None:
    """The label a row would match: the one its own demonstration displays.

    At a separate query: the class the false labels teach in a false set, the true class in a
    true one; None where the setting teaches no one class.
    """
    if at == "demonstrations":
        return prompts.label_classes
    setting = prompts.source.get("labels", "correct")
    taught = [prompt.false_answer for prompt in prompts]
    if all(label is not None for label in taught):
        return torch.tensor(taught)[:, None]
    return prompts.answers[:, None] if setting == "correct" else None
