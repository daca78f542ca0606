"""`AddVector`: add a vector to the residual stream at the target.

`h_{l+1}[q] <- h_{l+1}[q] + s v`: to the output of block `l`, at the last token of the prompt. The
function-vector intervention; with any other vector, activation steering. (`Patch` of `resid_post`
replaces the output instead, as task vectors do.)

Source: Todd et al. 2024, *Function vectors in large language models*, §3; Turner et al. 2023,
*Activation addition*.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions.base import At, ByTarget, Intervention, check_layers, rows_at
from icl_mech.models import Hook, ModelInfo, Site
from icl_mech.segments import Segment


@dataclass(frozen=True, eq=False, repr=False)
class AddVector(ByTarget, Intervention):
    """Add a vector to the output of a block.

    Attributes:
        vector: The vector to add.
        layer: The block to whose output it is added.
        scale: Factor of the vector.
        at: At the `target` only, or at `all` positions.
    """

    vector: Float[Tensor, " d_model"]
    layer: Natural
    scale: float = 1.0
    at: At = "target"

    def check(self, info: ModelInfo) -> None:
        """Reject a layer or a vector size the model does not have.

        Raises:
            RunError: names it.
        """
        super().check(info)
        check_layers([self.layer], info, "AddVector")
        if len(self.vector) != info.d_model:
            raise RunError(
                f"The vector has {len(self.vector)} entries, but the residual stream of "
                f"{info.name!r} has width {info.d_model}. Give a vector of that width."
            )

    @property
    def first_layer(self) -> int:
        """The layer of the vector."""
        return self.layer

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """One hook, at the output of the block."""
        batch, rows = rows_at(segment, self.at)
        if not len(batch):
            return []

        def hook(activation: Tensor) -> Tensor:
            # A copy: the residual stream may be kept, for other runs to resume from.
            edited = activation.clone()
            edited[batch, rows] = edited[batch, rows] + self.scale * self.vector.to(activation)
            return edited

        return [(Site("resid_post", self.layer), hook)]
