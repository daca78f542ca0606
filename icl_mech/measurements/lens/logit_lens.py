"""Logit lens: what each layer, head or MLP would answer if it were read out at once.

* By layer: `unembed(ln_final(h_l))`, with `h_0` the input of block 0 and `h_l` the residual
  after block `l`, so `L + 1` entries. `sound`: the final norm once, everything the model's
  own readout has, so that the last entry is the model's own logits. `reference` (the
  paper's code): the norm twice at the last entry, no bias of the unembedding.
* By head and MLP: `norm="frozen"` takes the run's own `1 / sigma` of the final norm, so that
  embedding, heads, attention biases, MLPs and the readout's biases add up to the label
  logits (before final scaling and soft-capping); `norm="own"` applies the final norm to the
  component alone (the literal lens; not additive).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from icl_mech._typing import Tensor
from icl_mech.engine import Reading
from icl_mech.errors import RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.components import (
    ComponentLens,
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_own_weights,
    check_sum,
)
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.layer_lens import LogitLens
from icl_mech.measurements.lens.residuals import (
    LayerLensReading,
    LensRows,
    LensVariant,
    Positions,
    check_demonstrations,
)
from icl_mech.measurements.lens.words import decoded, in_order
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

__all__ = ["Lens", "LogitLens", "logit_lens"]

Per = Literal["layer", "head", "mlp"]


@dataclass(frozen=True)
class Lens(Measurement[LogitLens | ComponentLens]):
    """Label logits of every layer, head or MLP.

    Attributes:
        per: `layer` gives a `LogitLens`, `head` and `mlp` a `ComponentLens`.
        at: `target`, or `demonstrations`: every token before a label, in one pass (layers only).
        variant: `sound` or `reference` (layers only).
        norm: `frozen` or `own` (heads and MLPs).
        vocabulary: Also keep log-sum-exp and the likeliest tokens (layers only).
        lens: A fitted lens that maps every entry but the last (layers only); None: the logit lens.

    Raises:
        RunError: unknown options, processed weights (heads and MLPs), a lens of another model, or
            components that do not add up to the model's logits.
        PromptError: prompts with different numbers of demonstrations (`at="demonstrations"`).

    Source: Halawi et al. 2023, §4.
    """

    name: ClassVar[str] = "logit_lens"

    per: Per = "layer"
    at: Positions = "target"
    variant: LensVariant = "sound"
    norm: Norm = "frozen"
    vocabulary: bool = True
    lens: FittedLens | None = None

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse heads elsewhere than at the target, and what cannot be read as asked.

        Raises:
            RunError: heads or MLPs at demonstrations, of processed weights, or with a lens; a lens of
                another model.
            PromptError: prompts with different numbers of demonstrations.
        """
        if self.per != "layer":
            if self.lens is not None:
                raise RunError(
                    f"lens= maps entries of the residual stream, so it is for per='layer', not {self.per!r}."
                )
            if self.at != "target":
                raise RunError(
                    f"at={self.at!r} is for per='layer'; heads and MLPs are read at the target."
                )
            check_own_weights(model)
            return
        check_lens(self.lens, model, self.variant)
        if self.at == "demonstrations":
            check_demonstrations(data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass."""
        reading: Reading[Any]
        if self.per == "layer":
            reading = LayerLensReading(self.variant, self.at, self.vocabulary, self.lens)
            return [Pass(data, [reading], title="lens")]
        reading = FrozenComponentReading() if self.norm == "frozen" else OwnComponentReading()
        return [Pass(data, [reading], title=f"{self.per} lens")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> LogitLens | ComponentLens:
        """What was read, with the prompts' classes.

        Raises:
            RunError: components that do not add up to the model's logits.
        """
        ((found,),) = read
        answers = data.answers if data.has_answers else None
        if isinstance(found, LensRows):
            return self._layers(found, answers, data, model)
        if not isinstance(found, Components):
            heads, mlp = found
            logits = heads if self.per == "head" else mlp
            return ComponentLens(label_logits=logits, answers=answers, labels=data.labels)
        check_sum(found, model)
        rest = found.mlp.sum(1) if self.per == "head" else found.heads.sum((1, 2))
        return ComponentLens(
            label_logits=found.heads if self.per == "head" else found.mlp,
            embedding=found.embedding,
            others=rest + found.attention_bias.sum(1),
            constant=found.constant,
            answers=answers,
            labels=data.labels,
        )

    def _layers(
        self, found: LensRows, answers: Tensor | None, data: PromptBatch, model: LanguageModel
    ) -> LogitLens:
        everywhere = self.at == "demonstrations"
        rows = slice(None) if everywhere else 0
        return LogitLens(
            label_logits=found.label_logits[:, rows],
            log_sum=None if found.log_sum is None else found.log_sum[:, rows],
            top_tokens=None if found.top_tokens is None else found.top_tokens[:, rows],
            answers=answers,
            labels=data.labels,
            displayed=data.label_classes if everywhere else None,
            top_logits=None if found.top_logits is None else found.top_logits[:, rows],
            words=decoded(found.top_tokens, model.tokenizer),
            label_words=in_order(data.label_tokens, model.tokenizer),
        )


logit_lens = door(
    Lens,
    "logit_lens",
    prompts="The prompts.",
)
