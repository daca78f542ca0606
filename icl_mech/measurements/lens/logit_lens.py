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
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import run
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements._old import provenance
from icl_mech.measurements.lens.components import (
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_own_weights,
    check_sum,
)
from icl_mech.measurements.lens.residuals import (
    At,
    LayerLensReading,
    Lens,
    Variant,
    check_demonstrations,
)
from icl_mech.metrics import bootstrap_interval
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Grid, LayerCurves

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
    """

    label_logits: Float[Tensor, "batch *demo layer label"]
    log_sum: Float[Tensor, "batch *demo layer"] | None = None
    top_tokens: Int[Tensor, "batch *demo layer label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()

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

    def drawing(self) -> LayerCurves:
        """Mean probability of each label word (of the true one, where known) by entry."""
        if self.label_logits.ndim != 3:
            raise ResultError("Lenses at all demonstrations are read by layer_accuracy; no figure.")
        per_prompt, names = self.label_probs.double().transpose(1, 2), self.labels
        if self.answers is not None:
            rows = torch.arange(len(self.answers))
            per_prompt, names = per_prompt[rows, self.answers][:, None], ("true label",)
        low, high = bootstrap_interval(per_prompt)
        return LayerCurves(
            title="Logit lens: what each layer would answer",
            names=names,
            values=per_prompt.mean(0),
            low=low,
            high=high,
            y_title="probability among the label words",
            x_title="entry (0: embedding, l: after l blocks)",
            note=f"{len(per_prompt)} prompts, bands: 95 % bootstrap intervals over prompts",
            levels=((1 / len(self.labels), "chance"),),
        )

    def summary(self) -> str:
        """Accuracy at the first, middle and last entry, where answers are known."""
        entries = self.label_logits.shape[-2]
        if self.answers is None or self.label_logits.ndim != 3:
            return f"label logits of {entries} entries, {len(self.label_logits)} prompts"
        right = (self.label_logits.argmax(-1) == self.answers[:, None]).double().mean(0)
        places = (0, entries // 2, entries - 1)
        return "; ".join(f"entry {i}: accuracy {float(right[i]):.3g}" for i in places)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per prompt, entry and label.

        Raises:
            ResultError: for lenses at all demonstrations.
        """
        import pandas as pd

        if self.label_logits.ndim != 3:
            raise ResultError("Lenses at all demonstrations have no table; read their fields.")
        shape = self.label_logits.shape
        columns = torch.cartesian_prod(*(torch.arange(n) for n in shape))
        table = {"prompt": columns[:, 0].tolist(), "layer": columns[:, 1].tolist()}
        table["label"] = [self.labels[c] for c in columns[:, 2].tolist()]
        return pd.DataFrame({**table, "logit": self.label_logits.flatten().tolist()})


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentLens(Result):
    """What each head or MLP adds to the label logits.

    Attributes:
        label_logits: Of each head (`batch layer head label`) or MLP (`batch layer label`).
        embedding: Of what enters block 0; None with `norm="own"`, as the two below.
        others: Sum over blocks of what is not asked for (MLPs or heads, attention biases).
        constant: Of the biases of final norm and unembedding.
        answers: True class of each query, or None.
        labels: Names of the classes.
    """

    label_logits: Float[Tensor, "batch layer *head label"]
    embedding: Float[Tensor, "batch label"] | None = None
    others: Float[Tensor, "batch label"] | None = None
    constant: Float[Tensor, "batch label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()

    def contrast(
        self, towards: Int[Tensor, " batch"], against: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch layer *head"]:
        """`logit(towards) - logit(against)` of every component, per prompt."""
        rows = torch.arange(len(self.label_logits))
        by_label = self.label_logits.movedim(-1, 1)
        return by_label[rows, towards] - by_label[rows, against]

    def drawing(self) -> Grid | LayerCurves:
        """Logit of the true label above the mean of the others, by layer and head.

        Raises:
            ResultError: if the true classes are not known.
        """
        if self.answers is None:
            raise ResultError("These prompts have no answers; use contrast(towards, against).")
        n = len(self.labels)
        rows = torch.arange(len(self.answers))
        by_label = self.label_logits.double().movedim(-1, 1)
        own = by_label[rows, self.answers]
        per_prompt = own - (by_label.sum(1) - own) / (n - 1)
        low, high = bootstrap_interval(per_prompt)
        title = "Logit of the true label above that of the others"
        note = f"mean over {len(per_prompt)} prompts"
        if per_prompt.ndim == 3:
            return Grid(
                title, per_prompt.mean(0), "layer", "head", "logit difference", note,
                signed=True, low=low, high=high,
            )  # fmt: skip
        return LayerCurves(
            title, ("MLP",), per_prompt.mean(0)[None], low[None], high[None],
            "logit difference", note,
        )  # fmt: skip

    def summary(self) -> str:
        """Number of components."""
        kind = "heads" if self.label_logits.ndim == 4 else "MLPs"
        return f"label logits of {self.label_logits[0, ..., 0].numel()} {kind}"


def logit_lens(
    model: Any,
    prompts: PromptBatch,
    *,
    per: Per = "layer",
    at: At = "target",
    variant: Variant = "sound",
    norm: Norm = "frozen",
    vocabulary: bool = True,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
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
        progress: Show a progress bar.

    Raises:
        RunError: unknown options, processed weights (heads and MLPs), or components that do
            not add up to the model's logits.
        PromptError: prompts with different numbers of demonstrations (`at="demonstrations"`).

    Source: Halawi et al. 2023, §4.
    """
    _check(per, at, variant, norm)
    adapted = adapt(model)
    if per != "layer":
        return _components(adapted, prompts, per, at, norm, interventions, batch_size, progress)
    if at == "demonstrations":
        check_demonstrations(prompts)
    reading = LayerLensReading(variant, at, vocabulary)
    (lens,) = run(
        adapted, prompts, [reading], interventions,
        batch_size=batch_size, progress=progress, title="logit lens",
    )  # fmt: skip
    origin = provenance(adapted, prompts, interventions, per=per, at=at, lens=variant)
    return lens_result(lens, prompts, at, origin)


def lens_result(lens: Lens, prompts: PromptBatch, at: At, origin: dict[str, Any]) -> LogitLens:
    """The result of what `LayerLensReading` read."""
    rows = slice(None) if at == "demonstrations" else 0
    return LogitLens(
        label_logits=lens.label_logits[:, rows],
        log_sum=None if lens.log_sum is None else lens.log_sum[:, rows],
        top_tokens=None if lens.top_tokens is None else lens.top_tokens[:, rows],
        answers=prompts.answers if prompts.has_answers else None,
        labels=prompts.labels,
        provenance=origin,
    )


def _components(
    model: LanguageModel,
    prompts: PromptBatch,
    per: Per,
    at: At,
    norm: Norm,
    interventions: Sequence[Intervention],
    batch_size: int | None,
    progress: bool | None,
) -> ComponentLens:
    if at != "target":
        raise RunError(f"at={at!r} is for per='layer'; heads and MLPs are read at the target.")
    check_own_weights(model)
    reading = FrozenComponentReading() if norm == "frozen" else OwnComponentReading()
    (read,) = run(
        model, prompts, [reading], interventions,
        batch_size=batch_size, progress=progress, title=f"{per} lens",
    )  # fmt: skip
    facts: dict[str, Any] = {
        "answers": prompts.answers if prompts.has_answers else None,
        "labels": prompts.labels,
        "provenance": provenance(model, prompts, interventions, per=per, norm=norm),
    }
    if not isinstance(read, Components):
        heads, mlp = read
        return ComponentLens(label_logits=heads if per == "head" else mlp, **facts)
    check_sum(read, model)
    biases = read.attention_bias.sum(1)
    rest = read.mlp.sum(1) if per == "head" else read.heads.sum((1, 2))
    return ComponentLens(
        label_logits=read.heads if per == "head" else read.mlp,
        embedding=read.embedding,
        others=rest + biases,
        constant=read.constant,
        **facts,
    )


def _check(per: str, at: str, variant: str, norm: str) -> None:
    for name, value, kind in (
        ("per", per, Per), ("at", at, At), ("variant", variant, Variant), ("norm", norm, Norm),
    ):  # fmt: skip
        if value not in get_args(kind):
            raise RunError(f"{name}={value!r}. {near_matches(value, get_args(kind))}")
