"""`Suppress`: spans of a text that later tokens (or all) can no longer attend to.

In the chosen layers the columns of a span are masked before the softmax, in all heads: in the rows
behind the span (`after`), or in every row (`all`, the reference code). A row whose only keys are
masked gets an attention output of zero; the reference code lets it attend to later tokens.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from icl_mech._typing import Bool, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import Intervention, check_layers
from icl_mech.models import Hook, HookFunction, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

Rows = Literal["after", "all"]

Interval = tuple[int, int]


@dataclass(frozen=True, eq=False, repr=False)
class Suppress(Intervention):
    """Hide spans from attention.

    Attributes:
        spans: Numbers of the spans of every text that are hidden, see `texts`.
        rows: From whom: from the rows `after` a span, or from `all`, its own included.
        layers: Blocks in which they are hidden; None: all.
        positions: Given intervals of tokens instead, a list of (start, stop) for each prompt.
    """

    spans: Sequence[Natural] | None = None
    rows: Rows = "after"
    layers: Sequence[Natural] | None = None
    positions: Sequence[Sequence[Interval]] | None = None

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice; neither spans nor positions, or both; no layers.
        """
        super().__post_init__()
        if (self.spans is None) == (self.positions is None) or self.spans == ():
            raise RunError(
                "Suppress hides spans of every text (Suppress([3])) or given intervals of tokens of "
                "each prompt (Suppress(positions=[[(4, 9)], ...])); give one of them."
            )
        if self.layers is not None and not self.layers:
            raise RunError("Suppress needs at least one layer; without suppression leave it out.")
        for own in self.positions or ():
            for start, stop in own:
                if not 0 <= start < stop:
                    raise RunError(
                        f"Suppress names the tokens {start} to {stop}; an interval starts at 0 or "
                        "later and stops behind its start."
                    )

    def check(self, info: ModelInfo) -> None:
        """Refuse layers the model does not have."""
        super().check(info)
        check_layers(self.layers or (), info, "Suppress")

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Refuse spans that a prompt does not have.

        Raises:
            PromptError: names the span and the prompt.
            RunError: another number of prompts than of given intervals.
        """
        if self.positions is not None and len(self.positions) != len(prompts):
            raise RunError(
                f"Suppress holds intervals of {len(self.positions)} prompts; the run has "
                f"{len(prompts)}. Give one list per prompt, in the order of the prompts."
            )
        for index, prompt in enumerate(prompts):
            self.hidden(prompt, index)

    @property
    def first_layer(self) -> int:
        """The lowest block in which spans are hidden."""
        return min(self.layers) if self.layers is not None else 0

    @property
    def by_number(self) -> bool:
        """True if intervals are given, prompt by prompt."""
        return self.positions is not None

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if the common beginning is treated alike in all prompts."""

        def inside(prompt: Prompt, index: int) -> list[Interval]:
            # Rows before a span's end do not lack it, unless all rows do.
            own = self.hidden(prompt, index)
            ends = [(a, b) if self.rows == "after" else (a, min(b, length)) for a, b in own]
            return [(a, b) for a, b in ends if a < length and b <= length]

        return all(
            inside(prompt, index) == inside(prompts[0], 0) for index, prompt in enumerate(prompts)
        )

    def hidden(self, prompt: Prompt, index: int) -> tuple[Interval, ...]:
        """Intervals of one prompt (number `index` of the run) that are hidden.

        Raises:
            PromptError: the prompt has no such span or token.
        """
        if self.positions is not None:
            if index >= len(self.positions):
                raise RunError(
                    f"Suppress holds intervals of {len(self.positions)} prompts; the run has more."
                )
            own = tuple((int(a), int(b)) for a, b in self.positions[index])
            outside = [b for _, b in own if b > len(prompt)]
            if outside:
                raise PromptError(
                    f"Suppress hides tokens up to {outside[0]} of prompt {index}, which has "
                    f"{len(prompt)}."
                )
            return own
        spans = prompt.text_spans
        assert self.spans is not None
        missing = [number for number in self.spans if number >= len(spans)]
        if missing:
            has = f"has {len(spans)} spans" if spans else "has no spans; build prompts with texts()"
            raise PromptError(f"Suppress hides span {missing[0]}, but prompt {index} {has}.")
        return tuple(spans[number] for number in self.spans)

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Two hooks per layer, before and after the softmax, if rows of the segment are concerned."""
        masked = self._masked(segment)
        if masked is None:
            return []
        layers = range(segment.model.info.n_layers) if self.layers is None else self.layers
        # Some models add their causal mask to the scores only later.
        seen = (segment.src[:, None] >= 0) & (segment.src[:, None] <= segment.dest[:, :, None])
        before, after = _before(masked[:, None], seen[:, None]), _after(masked[:, None])
        return [
            hook
            for layer in layers
            for hook in ((Site("scores", layer), before), (Site("pattern", layer), after))
        ]

    def _masked(self, segment: Segment) -> Bool[Tensor, "batch dest src"] | None:
        """True where a row of this segment must not see a column; None if it may see all."""
        dest, src = segment.dest[:, :, None], segment.src[:, None]
        masked = torch.zeros(
            *segment.dest.shape, segment.src.shape[1], dtype=torch.bool, device=segment.dest.device
        )
        for row, (prompt, index) in enumerate(zip(segment.prompts, segment.indices, strict=True)):
            for start, stop in self.hidden(prompt, index):
                own = (src[row] >= start) & (src[row] < stop) & (src[row] <= dest[row])
                masked[row] |= own & ((dest[row] >= stop) if self.rows == "after" else True)
        return masked if bool(masked.any()) else None


def _before(
    masked: Bool[Tensor, "batch 1 dest src"], seen: Bool[Tensor, "batch 1 dest src"]
) -> HookFunction:
    left = seen & ~masked

    def hook(scores: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min / 2
        keyless = ~((scores > lowest) & left).any(-1, keepdim=True)
        # A row without any key keeps its scores: the softmax of nothing is not a number.
        return scores.masked_fill(masked & ~keyless, -torch.inf)

    return hook


def _after(masked: Bool[Tensor, "batch 1 dest src"]) -> HookFunction:
    def hook(pattern: Tensor) -> Tensor:
        return pattern.masked_fill(masked, 0.0)

    return hook
