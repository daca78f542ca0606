"""Zero ablation at the target or everywhere: of heads, and of all layers from a given one on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Heads, conformed
from icl_mech.errors import RunError
from icl_mech.interventions.base import At, ByTarget, Intervention, check_layers, editable, rows_at
from icl_mech.models import Hook, HookFunction, ModelInfo, Site, to_device
from icl_mech.segments import Segment

Kind = Literal["zero_output", "uniform_attention", "mean"]


@dataclass(frozen=True, eq=False, repr=False)
class ZeroHeads(ByTarget, Intervention):
    """Ablate attention heads.

    Attributes:
        heads: (layer, head) pairs.
        kind: What replaces the head's output.
        means: For `mean`: one row per head, in the order of `heads`; measured by a first
            pass when not given.
        at: At the `target` only, or at `all` positions.
    """

    heads: Sequence[Sequence[int]]
    kind: Kind = "zero_output"
    means: Float[Tensor, "head d_head"] | None = None
    at: At = "target"

    needs_own_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the choices.

        Raises:
            RunError: unknown choice, no heads, or a different number of means.
        """
        pairs = conformed("heads", self.heads, Heads)
        object.__setattr__(self, "heads", pairs)
        super().__post_init__()
        if not pairs or len(set(pairs)) < len(pairs):
            raise RunError(
                f"ZeroHeads needs (layer, head) pairs without duplicates; got {self.heads}."
            )
        if self.means is not None and len(self.means) != len(pairs):
            raise RunError(
                f"There are {len(self.means)} means for {len(pairs)} heads; give one row per head."
            )

    def check(self, info: ModelInfo) -> None:
        """Reject heads the model does not have.

        Raises:
            RunError: names them.
        """
        super().check(info)
        check_layers([layer for layer, _ in self.heads], info, "ZeroHeads")
        if self.means is not None and self.means.shape[1] != info.d_head:
            raise RunError(
                f"The means have {self.means.shape[1]} entries per head, but the heads of "
                f"{info.name!r} have width {info.d_head}."
            )
        wrong = [head for _, head in self.heads if not 0 <= head < info.n_heads]
        if wrong:
            raise RunError(f"ZeroHeads names head {wrong[0]}; heads are 0 to {info.n_heads - 1}.")

    @property
    def first_layer(self) -> int:
        """The lowest layer with an ablated head."""
        return min(layer for layer, _ in self.heads)

    def missing(self) -> Sequence[Site]:
        """The heads' outputs, if their means are needed and not given."""
        if self.kind != "mean" or self.means is not None:
            return ()
        return [Site("z", layer) for layer in sorted({layer for layer, _ in self.heads})]

    def filled(self, means: Sequence[Tensor]) -> "ZeroHeads":
        """A copy that holds the means of its heads."""
        layers = sorted({layer for layer, _ in self.heads})
        rows = [means[layers.index(layer)][head] for layer, head in self.heads]
        return replace(self, means=torch.stack(rows))

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook per layer with ablated heads."""
        batch, rows = rows_at(segment, self.at)
        if not len(batch):
            return []
        if self.kind == "mean" and self.means is None:
            raise RunError(
                "ZeroHeads(kind='mean') has no means yet. Run it through an analysis, which "
                "measures them."
            )
        hooks: list[Hook] = []
        for layer in sorted({layer for layer, _ in self.heads}):
            chosen = [i for i, (head_layer, _) in enumerate(self.heads) if head_layer == layer]
            heads = to_device(torch.tensor([self.heads[i][1] for i in chosen]), batch.device)
            if self.kind == "uniform_attention":
                uniform = uniform_hook(segment, batch, rows, heads)
                hooks.append((Site("pattern", layer), uniform))
            else:
                hooks.append((Site("z", layer), self._output_hook(batch, rows, heads, chosen)))
        return hooks

    def _output_hook(
        self, batch: Tensor, rows: Tensor, heads: Tensor, chosen: list[int]
    ) -> HookFunction:
        means = None if self.means is None else self.means[chosen]

        def hook(activation: Tensor) -> Tensor:
            edited = editable(activation)
            value: Any = 0.0 if means is None else means.to(activation)
            edited[batch[:, None], rows[:, None], heads[None, :]] = value
            return edited

        return hook


def uniform_hook(
    segment: Segment, batch: Tensor, rows: Tensor, heads: Tensor | None = None
) -> HookFunction:
    """Hook that sets rows of the pattern to `1/(t+1)` at earlier positions and 0 at `t` itself."""
    dest = segment.dest[batch, rows]
    earlier = (segment.src[batch] >= 0) & (segment.src[batch] < dest[:, None])
    uniform = earlier / (dest[:, None] + 1)

    def hook(activation: Tensor) -> Tensor:
        edited = editable(activation)
        row = uniform.to(activation.dtype)[:, None]
        if heads is None:
            edited[batch, :, rows] = row
        else:
            edited[batch[:, None], heads[None, :], rows[:, None]] = row
        return edited

    return hook


Part = Literal["block", "attention", "mlp"]
LayerKind = Literal["zero_output", "reference"]


@dataclass(frozen=True, eq=False, repr=False)
class ZeroLayers(ByTarget, Intervention):
    """Zero components of the blocks `>= start`.

    Attributes:
        start: First zeroed block.
        part: Whole `block`, its `attention` or its `mlp`.
        kind: `zero_output`, or the variant of the reference code.
        at: At the `target` only, or at `all` positions.
    """

    start: int
    part: Part = "block"
    kind: LayerKind = "zero_output"
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
                "kind='reference' is not available for whole blocks, where the reference code "
                "reads the logit lens at that layer. Use kind='zero_output', which gives the same "
                "result as the lens."
            )

    def check(self, info: ModelInfo) -> None:
        """Reject a start the model does not have."""
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
