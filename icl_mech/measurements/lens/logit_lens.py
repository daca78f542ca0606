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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Path, Reading
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.lens.component_lens import ComponentLens
from icl_mech.measurements.lens.components import (
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_own_weights,
    check_sum,
)
from icl_mech.measurements.lens.residuals import (
    LayerLensReading,
    LensRows,
    LensVariant,
    Positions,
    check_demonstrations,
)
from icl_mech.measurements.running import measured
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Quantity, Result, basis
from icl_mech.shapes import LayerCurves, Shape

if TYPE_CHECKING:
    import pandas as pd

Per = Literal["layer", "head", "mlp"]


@dataclass(frozen=True, eq=False, kw_only=True)
class LogitLens(Result):
    """What each entry of the residual stream would answer.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        log_sum: Log-sum-exp of each entry's logits over the vocabulary, or None.
        top_tokens: Ids of the C likeliest tokens, best first, or None.
        answers: True class of each query, or None.
        labels: Names of the classes.
        displayed: Class each demonstration displays, of lenses at demonstrations.
    """

    label_logits: Float[Tensor, "batch *demo layer label"]
    log_sum: Float[Tensor, "batch *demo layer"] | None = None
    top_tokens: Int[Tensor, "batch *demo layer label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    displayed: Int[Tensor, "batch demo"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Probabilities among the label words: of the true or displayed one, and of each.

        Behind them whether the entry is right, the probabilities over the whole vocabulary, and
        the logits.
        """
        probs = self.label_probs.double()
        at_target = probs.ndim == 3
        dims = ("layer",) if at_target else ("demo", "layer")
        unit = "probability among the label words"
        found = {}
        classes = self.answers if at_target else self.displayed
        if classes is not None:
            index = classes[..., None, None].expand(*probs.shape[:-1], 1)
            name = "true_label" if at_target else "displayed_label"
            found[name] = Quantity(dims, probs.gather(-1, index)[..., 0], unit=unit)
            if at_target:
                right = self.label_logits.argmax(-1) == classes[:, None]
                found["accuracy"] = Quantity(dims, right, unit="accuracy over label words")
        found["label_prob"] = Quantity((*dims, "label"), probs, unit=unit)
        if self.log_sum is not None:
            found["prob"] = Quantity(
                (*dims, "label"), self.probs, unit="probability over the vocabulary"
            )
        found["label_logit"] = Quantity((*dims, "label"), self.label_logits, unit="logit")
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes; layers are entries, 0 the embedding."""
        return {"label": self.labels}

    @property
    def probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities of the label words over the whole vocabulary.

        Raises:
            ResultError: read with `vocabulary=False`.
        """
        if self.log_sum is None:
            raise ResultError("Probabilities need the vocabulary; use logit_lens(vocabulary=True).")
        return (self.label_logits.double() - self.log_sum.double()[..., None]).exp()

    @property
    def label_probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities over the label words alone."""
        return self.label_logits.softmax(-1)

    def drawing(self) -> Shape:
        """Mean probability of each label word (of the true one, where known) by entry.

        At demonstrations: of the label each of them displays.
        """
        found = self.sel()
        if self.label_logits.ndim != 3:
            return found.drawing()
        names = self.labels if self.answers is None else ("true label",)
        values, low, high = (
            end.T if self.answers is None else end[None]
            for end in (found.values, found.low, found.high)
        )
        return LayerCurves(
            title="Logit lens: what each layer would answer",
            names=names,
            values=values,
            low=low,
            high=high,
            y_title=found.unit,
            x_title="entry (0: embedding, l: after l blocks)",
            note=basis(self),
            levels=((1 / len(self.labels), "chance"),),
        )

    def summary(self) -> str:
        """Accuracy at the first, middle and last entry, where answers are known."""
        entries, right = self.label_logits.shape[-2], self.quantities().get("accuracy")
        if right is None:
            return f"label logits of {entries} entries, {len(self.label_logits)} prompts"
        places, shares = (0, entries // 2, entries - 1), right.value()
        return "; ".join(f"entry {i}: accuracy {float(shares[i]):.3g}" for i in places)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per prompt, entry and label (and demonstration)."""
        logits = self.to_xarray()["label_logit"].rename("logit")
        return logits.to_dataframe().reset_index()


@dataclass(frozen=True)
class Lens(Measurement[LogitLens | ComponentLens]):
    """Label logits of every layer, head or MLP.

    Attributes:
        per: `layer` gives a `LogitLens`, `head` and `mlp` a `ComponentLens`.
        at: `target`, or `demonstrations`: every token before a label, in one pass (layers only).
        variant: `sound` or `reference` (layers only).
        norm: `frozen` or `own` (heads and MLPs).
        vocabulary: Also keep log-sum-exp and the likeliest tokens (layers only).
    """

    name: ClassVar[str] = "logit_lens"

    per: Per = "layer"
    at: Positions = "target"
    variant: LensVariant = "sound"
    norm: Norm = "frozen"
    vocabulary: bool = True

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse heads elsewhere than at the target, and what cannot be read as asked.

        Raises:
            RunError: heads or MLPs at demonstrations, or of processed weights.
            PromptError: prompts with different numbers of demonstrations.
        """
        if self.per != "layer":
            if self.at != "target":
                raise RunError(
                    f"at={self.at!r} is for per='layer'; heads and MLPs are read at the target."
                )
            check_own_weights(model)
        elif self.at == "demonstrations":
            check_demonstrations(data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass."""
        reading: Reading[Any]
        if self.per == "layer":
            reading = LayerLensReading(self.variant, self.at, self.vocabulary)
            return [Pass(data, [reading], title="logit lens")]
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
            return self._layers(found, answers, data)
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

    def _layers(self, found: LensRows, answers: Tensor | None, data: PromptBatch) -> LogitLens:
        everywhere = self.at == "demonstrations"
        rows = slice(None) if everywhere else 0
        return LogitLens(
            label_logits=found.label_logits[:, rows],
            log_sum=None if found.log_sum is None else found.log_sum[:, rows],
            top_tokens=None if found.top_tokens is None else found.top_tokens[:, rows],
            answers=answers,
            labels=data.labels,
            displayed=data.label_classes if everywhere else None,
        )


def logit_lens(
    model: Any,
    prompts: PromptBatch,
    *,
    per: Per = "layer",
    at: Positions = "target",
    variant: LensVariant = "sound",
    norm: Norm = "frozen",
    vocabulary: bool = True,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
) -> LogitLens | ComponentLens:
    """Label logits of every layer, head or MLP.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        per: `layer` gives a `LogitLens`, `head` and `mlp` a `ComponentLens`.
        at: `target`, or `demonstrations`: every token before a label, in one pass (layers only).
        variant: `sound` or `reference` (layers only).
        norm: `frozen` or `own` (heads and MLPs).
        vocabulary: Also keep log-sum-exp and the likeliest tokens (layers only); without them
            the vocabulary is never unembedded.
        interventions: Made during the pass.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        RunError: unknown options, processed weights (heads and MLPs), or components that do
            not add up to the model's logits.
        PromptError: prompts with different numbers of demonstrations (`at="demonstrations"`).

    Source: Halawi et al. 2023, §4.
    """
    return measured(
        Lens(per, at, variant, norm, vocabulary), model, prompts, interventions=interventions,
        batch_size=batch_size, memory=memory, path=path, progress=progress,
    )  # fmt: skip
