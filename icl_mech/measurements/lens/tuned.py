"""`TunedLens`: a translator for every entry of the residual stream but the last.

Entry `l` is read as `unembed(ln_final(h_l + h_l W_l^T + b_l))`. With W and b zero this is the logit
lens, to the last bit. How translators are learned: `fit_tuned_lens`.

Source: Belrose et al. 2023, *Eliciting Latent Predictions from Transformers with the Tuned Lens*.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from icl_mech._typing import Float, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.lens.fitted import FittedLens, made_for
from icl_mech.measurements.lens.fitted_texts import HELD_OUT_KL, TUNED
from icl_mech.models import adapt
from icl_mech.results import Definition


@dataclass(frozen=True, eq=False, kw_only=True)
class TunedLens(FittedLens):
    """Translators of one model.

    Attributes:
        weight: W of each entry but the last, output dimension first.
        bias: b of each.
        losses: Mean KL of each training step, before its update, by entry.
        readout: Digest of the unembedding it was fitted for, see `readout_digest`.
        held_out_kl: KL(model || lens) in nats at every entry, of each prompt that was held out; the
            plain logit lens' beside it. None where none was measured.
        training: How it was fitted.
    """

    kind: ClassVar[str] = "tuned"
    title: ClassVar[str] = "Tuned lens"
    definitions: ClassVar[tuple[Definition, ...]] = (TUNED, HELD_OUT_KL)

    weight: Float[Tensor, "block out in"]
    bias: Float[Tensor, "block out"]
    losses: Float[Tensor, "step block"] | None = None

    @classmethod
    @checked(ResultError)
    def given(
        cls,
        model: Any,
        weight: Float[Tensor, "block out in"],
        bias: Float[Tensor, "block out"],
    ) -> "TunedLens":
        """A lens of translators made elsewhere, for this model.

        Raises:
            ResultError: tensors that do not fit together.
            RunError: translators of another model's size.
        """
        adapted = adapt(model)
        lens = cls(
            weight=weight,
            bias=bias,
            **made_for(adapted),
            training={"model": adapted.info.name, "translators": "given"},
        )
        lens.check_model(adapted)
        return lens

    def maps(self) -> dict[str, Tensor]:
        """`weight` and `bias`."""
        return {"weight": self.weight, "bias": self.bias}

    def through(
        self, entry: int, rows: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """`h + h W^T + b`."""
        weight, bias = (part[entry].to(rows) for part in (self.weight, self.bias))
        return rows + rows @ weight.T + bias


def load_tuned_lens(folder: str | Path, model: Any = None) -> TunedLens:
    """A tuned lens that was saved with `lens.save(folder)`.

    Args:
        folder: Where it was saved.
        model: The model it is for; it is checked here, and again by whatever uses it.

    Raises:
        ResultError: missing or damaged files, or something else than a tuned lens.
        RunError: a lens of another model.
    """
    lens = TunedLens.load(folder)
    if model is not None:
        lens.check_model(adapt(model))
    return lens
