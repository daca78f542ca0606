"""`JacobianLens`: each entry mapped by its mean effect on the last residual.

Entry `l` is read as `unembed(ln_final(h_l J_l^T))`, row of `J` = output dimension. With J the
identity this is the logit lens, to the last bit. How J is found: `fit_jacobian_lens`.

Entries are inputs of blocks; TransformerLens' `JacobianLens` counts outputs of blocks, so its index
`l` is entry `l + 1` here, and it has none for entry 0.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.lens.fitted import FittedLens, made_for
from icl_mech.measurements.lens.fitted_texts import HELD_OUT_KL, JACOBIAN
from icl_mech.models import adapt
from icl_mech.results import Definition


@dataclass(frozen=True, eq=False, kw_only=True)
class JacobianLens(FittedLens):
    """Mean Jacobians of one model.

    Attributes:
        jacobian: J of each entry but the last, output dimension first.
        readout: Digest of the unembedding it was fitted for, see `readout_digest`.
        held_out_kl: KL(model || lens) in nats at every entry, of each prompt that was held out; None
            where none was measured.
        training: How it was fitted.
    """

    kind: ClassVar[str] = "jacobian"
    title: ClassVar[str] = "Jacobian lens"
    definitions: ClassVar[tuple[Definition, ...]] = (JACOBIAN, HELD_OUT_KL)

    jacobian: Float[Tensor, "block out in"]

    @classmethod
    @checked(ResultError)
    def given(cls, model: Any, jacobian: Float[Tensor, "block out in"]) -> "JacobianLens":
        """A lens of Jacobians made elsewhere, for this model.

        Raises:
            ResultError: tensors that do not fit together.
            RunError: Jacobians of another model's size.
        """
        adapted = adapt(model)
        lens = cls(
            jacobian=jacobian,
            **made_for(adapted),
            training={"model": adapted.info.name, "jacobians": "given"},
        )
        lens.check_model(adapted)
        return lens

    def maps(self) -> dict[str, Tensor]:
        """`jacobian`."""
        return {"jacobian": self.jacobian}

    def through(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """`h J^T`."""
        return rows @ self.jacobian[entry].to(rows).T


def load_jacobian_lens(folder: str | Path, model: Any = None) -> JacobianLens:
    """A Jacobian lens that was saved with `lens.save(folder)`.

    Args:
        folder: Where it was saved.
        model: The model it is for; it is checked here, and again by whatever uses it.

    Raises:
        ResultError: missing or damaged files, or something else than a Jacobian lens.
        RunError: a lens of another model.
    """
    lens = JacobianLens.load(folder)
    if model is not None:
        lens.check_model(adapt(model))
    return lens
