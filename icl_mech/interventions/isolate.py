"""`Isolate`: label words (or random tokens) no longer see what stands before them.

In the chosen layers attention from row `p` to all columns before `p` is removed:
`mask` sets the scores to -inf before softmax, so the row becomes one-hot on `p` (the
reference code); `zero` sets the pattern to 0 after softmax, without renormalising (the
paper's text). Only the row of a label word's first token is cut.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from icl_mech._typing import Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions.base import (
    Intervention,
    check_layers,
    editable,
)
from icl_mech.models import Hook, HookFunction, ModelInfo, Site
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment

Tokens = Literal["label", "random"]
Mode = Literal["mask", "zero"]
Redraw = Literal["set", "prompt", "layer"]


@dataclass(frozen=True, eq=False, repr=False)
class Isolate(Intervention):
    """Cut tokens off from everything before them.

    Attributes:
        layers: Blocks in which they are isolated.
        tokens: `label` words, or as many `random` tokens that belong to no label word.
        mode: `mask` (before softmax) or `zero` (after).
        redraw: Random tokens: one draw per demonstration `set` (among the demonstrations'
            tokens, not the first token), per `prompt` (among `0 < i < q - 1`), or per prompt
            and `layer` (the reference, may draw position 0).
        positions: Given positions instead, one tuple per prompt of the run.
        seed: Of the draw.
    """

    layers: Sequence[int]
    tokens: Tokens = "label"
    mode: Mode = "mask"
    redraw: Redraw = "set"
    positions: Sequence[Sequence[Natural]] | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice, or no layers.
        """
        super().__post_init__()
        object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))
        if not self.layers:
            raise RunError("Isolate needs at least one layer; without isolation leave it out.")

    def check(self, info: ModelInfo) -> None:
        """Refuse layers the model does not have."""
        check_layers(self.layers, info, "Isolate")

    def check_prompts(self, prompts: PromptBatch) -> None:
        """Refuse positions of other prompts.

        Raises:
            RunError: another number of prompts, or a position one of them does not have.
        """
        if self.positions is not None and len(self.positions) != len(prompts):
            raise RunError(
                f"Isolate holds positions of {len(self.positions)} prompts; the run has {len(prompts)}. "
                "Give one tuple per prompt, in the order of the prompts."
            )
        for index, prompt in enumerate(prompts):
            self.isolated(prompt, index, self.layers[0])

    @property
    def first_layer(self) -> int:
        """The lowest isolated block."""
        return self.layers[0]

    @property
    def by_number(self) -> bool:
        """True if positions are given, prompt by prompt."""
        return self.positions is not None

    def shares(self, prompts: PromptBatch, length: int) -> bool:
        """True if the same tokens of the common beginning are isolated in every prompt."""
        by_layer = self.positions is None and self.tokens == "random" and self.redraw == "layer"

        def inside(prompt: Prompt, index: int, layer: int) -> list[int]:
            return [p for p in self.isolated(prompt, index, layer) if p < length]

        return all(
            inside(prompt, index, layer) == inside(prompts[0], 0, layer)
            for index, prompt in enumerate(prompts)
            for layer in (self.layers if by_layer else self.layers[:1])
        )

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook per isolated layer that has isolated rows in this segment."""
        hooks: list[Hook] = []
        for layer in self.layers:
            cut = self._cut(segment, layer)
            if cut is not None:
                site = Site("scores" if self.mode == "mask" else "pattern", layer)
                hooks.append((site, cut))
        return hooks

    def isolated(self, prompt: Prompt, index: int, layer: int) -> tuple[int, ...]:
        """Isolated positions of one prompt (number `index` of the run) in one layer."""
        if self.positions is not None:
            if index >= len(self.positions):
                raise RunError(
                    f"Isolate holds positions of {len(self.positions)} prompts; the run has more. Give "
                    "one tuple per prompt, in the order of the prompts."
                )
            outside = [place for place in self.positions[index] if place >= len(prompt)]
            if outside:
                raise RunError(
                    f"Isolate names position {outside[0]} of prompt {index}, which has {len(prompt)} "
                    "tokens; positions count from 0."
                )
            return tuple(self.positions[index])
        if self.tokens == "label":
            return prompt.label_positions
        return random_positions(prompt, self.redraw, self.seed, layer)

    def _cut(self, segment: Segment, layer: int) -> HookFunction | None:
        cuts = [
            (row, segment.column(row, position), position)
            for row, (prompt, index) in enumerate(
                zip(segment.prompts, segment.indices, strict=True)
            )
            for position in self.isolated(prompt, index, layer)
        ]
        inside = [cut for cut in cuts if cut[1] is not None]
        if not inside:
            return None
        rows, dest, positions = torch.tensor(inside, device=segment.tokens.device).T
        before = (segment.src[rows] < positions[:, None])[:, None]
        value = -torch.inf if self.mode == "mask" else 0.0

        def hook(activation: Tensor) -> Tensor:
            edited = editable(activation)
            edited[rows, :, dest] = activation[rows, :, dest].masked_fill(before, value)
            return edited

        return hook


def random_positions(prompt: Prompt, redraw: Redraw, seed: int, layer: int) -> tuple[int, ...]:
    """As many random positions as the prompt has label words, none inside a label word.

    Raises:
        PromptError: too few other tokens.
    """
    labels = {i for span in prompt.label_spans for i in range(span.start, span.stop)}
    end = max((span.stop for span in prompt.label_spans), default=0)
    # Whatever follows the target, such as the label words that are scored there, has the same draw.
    asked = prompt.tokens[: prompt.target + 1]
    if redraw == "set":
        pool, drawn_from, salt = range(1, end), prompt.tokens[:end], 0
    elif redraw == "prompt":
        pool, drawn_from, salt = range(1, prompt.target - 1), asked, 0
    else:
        pool, drawn_from, salt = range(prompt.target - 1), asked, layer + 1
    candidates = [i for i in pool if i not in labels]
    count = len(prompt.label_positions)
    if count > len(candidates):
        raise PromptError(
            f"{count} random tokens asked for, only {len(candidates)} tokens belong to no label word."
        )
    # The draw depends on the tokens themselves, so equal demonstrations get equal draws
    # whatever batch they are in.
    fingerprint = zlib.crc32(np.asarray(drawn_from, dtype=np.int64).tobytes())
    generator = np.random.default_rng([seed, salt, fingerprint])
    return tuple(sorted(int(i) for i in generator.choice(candidates, count, replace=False)))
