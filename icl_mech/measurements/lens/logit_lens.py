"""Logit lens: the answer of each layer, head or MLP, decoded directly.

* By layer: `unembed(ln_final(h_l))`, with `h_0` the input of block 0 and `h_l` the residual
  after block `l`, so `L + 1` entries. `sound`: the final norm once and the complete readout of the
  model, so that the last entry gives the model's logits. `reference` (the
  paper's code): the norm twice at the last entry, no bias of the unembedding.
* By head and MLP: `norm="frozen"` uses the `1 / sigma` of the run's final norm, so that
  embedding, heads, attention biases, MLPs and the readout's biases add up to the label
  logits (before final scaling and soft-capping); `norm="own"` applies the final norm to the
  component alone (the literal lens; not additive).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Reading
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.by_class import ByClass, over_own
from icl_mech.measurements.lens.components import (
    ComponentLens,
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_sum,
)
from icl_mech.measurements.lens.fitted import FittedLens, check_lens, lens_used
from icl_mech.measurements.lens.likeliest import Ending, decoded, ending, in_order
from icl_mech.measurements.lens.residuals import (
    LENS,
    LayerLensReading,
    LensRows,
    LensVariant,
    Positions,
    check_demonstrations,
)
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.answer_words import answer_kind
from icl_mech.results.judging import Status, judged

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class LogitLensResult(Result):
    """Label logits and top tokens of each entry of the residual stream.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        log_sum: Log-sum-exp of each entry's logits over the vocabulary, or None.
        top_tokens: Ids of the C top tokens, best first, or None.
        answers: True class of each query, or None.
        labels: Names of the classes.
        displayed: Class each demonstration displays, for lenses at demonstrations.
        top_logits: Logits of `top_tokens`; None without the vocabulary, and in results that were
            saved without them.
        words: Text of these tokens, by id.
        label_words: Text of the first token of each label word.
    """

    shows: ClassVar[tuple[str, ...]] = ("curves", "classes", "words")
    definitions: ClassVar[tuple[Definition, ...]] = (LENS,)
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}

    label_logits: Float[Tensor, "batch *demo layer label"]
    log_sum: Float[Tensor, "batch *demo layer"] | None = None
    top_tokens: Int[Tensor, "batch *demo layer label"] | None = None
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    displayed: Int[Tensor, "batch demo"] | None = None
    top_logits: Float[Tensor, "batch *demo layer label"] | None = None
    words: dict[str, str] = field(default_factory=dict)
    label_words: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Probabilities among the label words: of the true or displayed one, and of each.

        The other quantities are whether the entry is correct, the probability of each class over its own queries,
        the probabilities over the whole vocabulary, their sum, and the logits.
        """
        probs = self.label_probs.double()
        at_target = probs.ndim == 3
        dims = ("layer",) if at_target else ("demo", "layer")
        unit = "probability among the label words"
        quantities = {}
        classes = self.answers if at_target else self.displayed
        if classes is not None:
            index = classes[..., None, None].expand(*probs.shape[:-1], 1)
            name = "true_label" if at_target else "displayed_label"
            quantities[name] = Quantity(
                dims, probs.gather(-1, index)[..., 0], unit=unit, kind="outcome"
            )
            if at_target:
                right = self.label_logits.argmax(-1) == classes[:, None]
                quantities["accuracy"] = Quantity(dims, right, unit="accuracy over label words")
        quantities["label_prob"] = Quantity((*dims, "label"), probs, unit=unit, kind="outcome")
        if self.has_queries_by_class:
            assert self.answers is not None
            quantities["class_prob"] = over_own(probs, self.answers, (*dims, "label"), unit)
        if self.log_sum is not None:
            quantities["prob"] = Quantity(
                (*dims, "label"), self.probs, unit="probability over the vocabulary", kind="outcome"
            )
            quantities["label_space"] = Quantity(
                dims, self.probs.sum(-1), unit="probability of all label words"
            )
        quantities["label_logit"] = Quantity((*dims, "label"), self.label_logits, unit="logit")
        return quantities

    @property
    def probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities of the label words over the whole vocabulary.

        Raises:
            ResultError: read with `vocabulary=False`.
        """
        if self.log_sum is None:
            raise ResultError(
                "Probabilities need the vocabulary; measure with logit_lens(vocabulary=True)."
            )
        return (self.label_logits.double() - self.log_sum.double()[..., None]).exp()

    @property
    def label_probs(self) -> Float[Tensor, "batch *demo layer label"]:
        """Probabilities over the label words alone."""
        return self.label_logits.softmax(-1)

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.label_logits)

    @property
    def lens(self) -> str:
        """The lens it was read with: `logit`, or the kind of a fitted one."""
        return lens_used(self)

    @property
    def at_target(self) -> bool:
        """True if read at the target, false at demonstrations."""
        return self.label_logits.ndim == 3

    # --- is the model's final answer right? ---

    @property
    def is_known(self) -> bool:
        """Whether the true class is known at the positions read."""
        return self.answers is not None and self.at_target

    @property
    def has_queries_by_class(self) -> bool:
        """Whether the queries are of known classes, the same for all prompts."""
        return self.is_known and answer_kind(self.provenance) == "classes"

    @property
    def by_class(self) -> ByClass:
        """What the lens gives each class, over all queries and over its own.

        Raises:
            ResultError: the queries have no known classes.
        """
        own = self.sel("class_prob")
        space = None if self.log_sum is None else self.sel("label_space").values
        return ByClass(self.sel("label_prob"), own, space, self.labels)

    @property
    def label_count(self) -> int:
        """Number of label words."""
        return len(self.labels) or self.label_logits.shape[-1]

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / self.label_count

    @cached_property
    def last_accuracy(self) -> Interval:
        """Accuracy after the last layer."""
        return self.interval("accuracy", layer=self.n_entries - 1)

    @property
    def status(self) -> Status:
        """Status of the claim that the last layer's accuracy is above chance."""
        return judged(self.last_accuracy, null=self.chance, prompts=self.count)

    @property
    def n_entries(self) -> int:
        """Number of entries, including the embedding."""
        return self.label_logits.shape[-2]

    @property
    def accuracies(self) -> tuple[tuple[int, float], ...]:
        """The first, the middle and the last entry with their accuracies; empty where answers are not known."""
        right = self.quantities().get("accuracy")
        if right is None:
            return ()
        shares = right.value()
        return tuple((i, float(shares[i])) for i in (0, self.n_entries // 2, self.n_entries - 1))

    # --- top words ---

    @property
    def has_words(self) -> bool:
        """Whether the top tokens are known with their probabilities."""
        return not any(part is None for part in (self.top_tokens, self.top_logits, self.log_sum))

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the positions at which each prompt was read."""
        if self.at_target:
            return ("last token",)
        return tuple(f"before label {demo + 1}" for demo in range(self.label_logits.shape[1]))

    def likeliest(
        self, prompt: int
    ) -> tuple[Int[Tensor, "place layer k"], Float[Tensor, "place layer k"]]:
        """Ids and probabilities of the top tokens of one prompt, at each of `places`.

        Raises:
            ResultError: no such prompt, or no words in the result.
        """
        if self.top_tokens is None or self.top_logits is None or self.log_sum is None:
            raise ResultError(
                "This result holds no top words: it was measured without the vocabulary, or saved "
                "before top words were recorded. Measure again with logit_lens(vocabulary=True)."
            )
        self.check_number("prompt", prompt, self.count)
        tokens, logits, log_sum = (
            part[prompt] for part in (self.top_tokens, self.top_logits, self.log_sum)
        )
        probs = (logits.double() - log_sum.double()[..., None]).exp()
        return (tokens[None], probs[None]) if self.at_target else (tokens, probs)

    @property
    def endings(self) -> dict[str, Ending]:
        """Final prediction of the entries on the first prompt, by place."""
        columns = zip(self.places, *self.likeliest(0), strict=True)
        return {place: ending(tokens, probs, self.words) for place, tokens, probs in columns}

    def on_page(self) -> tuple[str, ...]:
        """The curves, those of each class if classes are known, and the words of the first prompt if they were kept."""
        there = {"classes": self.has_queries_by_class, "words": self.has_words}
        return tuple(show for show in self.shows if there.get(show, True))

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per prompt, entry and label (and demonstration): its `logit`; or another quantity.

        Args:
            quantity: Name of the quantity; by default the logits.

        Raises:
            ResultError: an unknown quantity.
        """
        if quantity is not None:
            return super().by_prompt(quantity)
        return super().by_prompt("label_logit").rename(columns={"label_logit": "logit"})


Per = Literal["layer", "head", "mlp"]


@dataclass(frozen=True)
class LogitLens(Measurement[LogitLensResult | ComponentLens]):
    """Label logits of every layer, head or MLP.

    Attributes:
        per: `layer` gives a `LogitLensResult`, `head` and `mlp` a `ComponentLens`.
        at: `target`, or `demonstrations`: every token before a label, in one pass (layers only).
        variant: `sound` or `reference` (layers only).
        norm: `frozen` or `own` (heads and MLPs).
        vocabulary: Also keep log-sum-exp and the top tokens (layers only).
        lens: A fitted lens that maps every entry but the last (layers only); None: the logit lens.

    Raises:
        RunError: unknown options, processed weights (heads and MLPs), a lens of another model, or
            components that do not add up to the model's logits.
        PromptError: prompts with different numbers of demonstrations (`at="demonstrations"`).

    Source: Halawi et al. 2023, §4.
    """

    per: Per = "layer"
    at: Positions = "target"
    variant: LensVariant = "sound"
    norm: Norm = "frozen"
    vocabulary: bool = True
    lens: FittedLens | None = None

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject heads anywhere but at the target, and options that do not fit the model or prompts.

        Raises:
            RunError: heads or MLPs at demonstrations, of processed weights, or with a lens; a lens of
                another model.
            PromptError: prompts with different numbers of demonstrations.
        """
        if self.per != "layer":
            if self.lens is not None:
                raise RunError(
                    "lens= maps layers of the residual stream, so it applies only to per='layer', "
                    f"not to {self.per!r}."
                )
            if self.at != "target":
                raise RunError(
                    f"at={self.at!r} applies only to per='layer'; heads and MLPs are read at the "
                    "target."
                )
            check_own_weights(model, "A lens of heads or MLPs")
            return
        check_lens(self.lens, model, self.variant)
        if self.at == "demonstrations":
            if data.answer_kind == "vocabulary":
                raise PromptError(
                    "at='demonstrations' reads the words that demonstrations display, but spans "
                    "of texts display none. Read texts at='target'."
                )
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
    ) -> LogitLensResult | ComponentLens:
        """Build the result from the readout and the prompts' classes.

        Raises:
            RunError: components that do not add up to the model's logits.
        """
        ((readout,),) = read
        answers = data.answers if data.has_answers else None
        if isinstance(readout, LensRows):
            return self._layers(readout, answers, data, model)
        if not isinstance(readout, Components):
            heads, mlp = readout
            logits = heads if self.per == "head" else mlp
            return ComponentLens(label_logits=logits, answers=answers, labels=data.labels)
        check_sum(readout, model)
        rest = readout.mlp.sum(1) if self.per == "head" else readout.heads.sum((1, 2))
        return ComponentLens(
            label_logits=readout.heads if self.per == "head" else readout.mlp,
            embedding=readout.embedding,
            others=rest + readout.attention_bias.sum(1),
            constant=readout.constant,
            answers=answers,
            labels=data.labels,
        )

    def _layers(
        self, readout: LensRows, answers: Tensor | None, data: PromptBatch, model: LanguageModel
    ) -> LogitLensResult:
        everywhere = self.at == "demonstrations"
        rows = slice(None) if everywhere else 0
        return LogitLensResult(
            label_logits=readout.label_logits[:, rows],
            log_sum=None if readout.log_sum is None else readout.log_sum[:, rows],
            top_tokens=None if readout.top_tokens is None else readout.top_tokens[:, rows],
            answers=answers,
            labels=data.labels,
            displayed=data.label_classes if everywhere else None,
            top_logits=None if readout.top_logits is None else readout.top_logits[:, rows],
            words=decoded(readout.top_tokens, model.tokenizer),
            label_words=in_order(data.label_tokens, model.tokenizer)
            if data.has_classes
            else data.labels,
        )


logit_lens = door(LogitLens, "logit_lens", prompts="The prompts.")
