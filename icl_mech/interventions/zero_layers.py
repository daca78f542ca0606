"""`ZeroLayers`: take all late blocks, or their attention or MLP, out.

`zero_output`: the component adds exactly nothing, its bias included; zeroing blocks
`l0 ... L-1` at the target gives exactly the logit lens at entry `l0`. `reference`: for
`attention` uniform attention with the output bias kept (GPT-J: output 0), for `mlp` the
activation zeroed with the output bias kept.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from icl_mech._typing import Tensor
from icl_mech.errors import RunError
from icl_mech.interventions.base import (
    At,
    ByTarget,
    Intervention,
    check_layers,
    editable,
    rows_at,
)
from icl_mech.interventions.zero_heads import uniform_hook
from icl_mech.models import Hook, HookFunction, ModelInfo, Site
from icl_mech.segments import Segment

Part = Literal["block", "attention", "mlp"]
Kind = Literal["zero_output", "reference"]


@dataclass(frozen=True, eq=False, repr=False)
class ZeroLayers(ByTarget, Intervention):
    """Zero components of the blocks `>= start`.

    Attributes:
        start: First zeroed block.
        part: Whole `block`, its `attention` or its `mlp`.
        kind: `zero_output`, or what the reference code does.
        at: At the `target` only, or at `all` positions.
    """

    start: int
    part: Part = "block"
    kind: Kind = "zero_output"
    at: At = "target"

    needs_own_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice, or `reference` for whole blocks.
        """
        super().__post_init__()
        if self.part == "block" and self.kind == "reference":
            raise RunError(
                "There is no reference kind for whole blocks: the reference reads the logit lens at "
                "that entry. Use kind='zero_output', which equals the lens."
            )

    def check(self, info: ModelInfo) -> None:
        """Refuse a start the model does not have."""
        super().check(info)
        check_layers([self.start], info, "ZeroLayers")

    @property
    def first_layer(self) -> int:
        """The first zeroed block."""
        return self.start

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Hooks of every block from `start` on."""
        batch, rows = rows_at(segment, self.at)
        if not len(batch):
            return []
        hooks: list[Hook] = []
        for layer in range(self.start, segment.model.info.n_layers):
            hooks += self._layer_hooks(segment, layer, batch, rows)
        return hooks

    def _layer_hooks(
        self, segment: Segment, layer: int, batch: Tensor, rows: Tensor
    ) -> Sequence[Hook]:
        if self.part == "block":
            return _skip_block(layer, batch, rows)
        if self.part == "mlp":
            site = Site("mlp_post" if self.kind == "reference" else "mlp_out", layer)
            return [(site, _zero(batch, rows))]
        if self.kind == "reference" and "GPTJ" not in segment.model.info.architecture:
            return [(Site("pattern", layer), uniform_hook(segment, batch, rows))]
        return [(Site("attn_out", layer), _zero(batch, rows))]


def _zero(batch: Tensor, rows: Tensor) -> HookFunction:
    def hook(activation: Tensor) -> Tensor:
        edited = editable(activation)
        edited[batch, rows] = 0.0
        return edited

    return hook


def _skip_block(layer: int, batch: Tensor, rows: Tensor) -> Sequence[Hook]:
    entering: list[Tensor] = []

    def remember(activation: Tensor) -> None:
        entering[:] = [activation[batch, rows].clone()]

    def restore(activation: Tensor) -> Tensor:
        edited = editable(activation)
        edited[batch, rows] = entering[0]
        return edited

    return [(Site("resid_pre", layer), remember), (Site("resid_post", layer), restore)]
