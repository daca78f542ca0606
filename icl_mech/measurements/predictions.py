"""Predictions: label logits and probabilities at the target.

`predicted` is the class with the largest score among the label words. Scores of label
words with several tokens: `first` (the first token, the papers' choice), `sum` (log-probability
of the whole word, teacher-forced) or `mean` (per token).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.right_answers import DEFINITIONS, answered, by_class, confusion
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.models import LanguageModel, ModelInfo, Site, at_least_float32
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.segments import Segment
from icl_mech.shapes import Bars, LabelMatrix

if TYPE_CHECKING:
    import pandas as pd

WordScore = Literal["first", "sum", "mean"]


@dataclass
class PredictionReading(Reading[tuple[Tensor, Tensor, Tensor]]):
    """Label logits, their log-probabilities and the top tokens, at the target."""

    top_k: int = 5

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The residual entering the final norm."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Packed as `[batch, label | label | top_k]`."""
        logits = at_least_float32(segment.model.logits(segment.at_target(activation)))
        labels = logits.gather(1, segment.label_tokens)
        log_probs = labels - logits.logsumexp(-1, keepdim=True)
        # Ids below 2^24 are exact in float32, and every vocabulary is smaller.
        top = logits.topk(self.top_k, dim=-1).indices.float()
        return torch.cat([labels, log_probs, top], dim=1)

    def collect(self, kept: Kept) -> tuple[Tensor, Tensor, Tensor]:
        """`(label_logits, log_probs, top_tokens)`."""
        packed = kept.stacked()[:, 0]
        n_labels = (packed.shape[1] - self.top_k) // 2
        logits, log_probs, top = torch.split(packed, [n_labels, n_labels, self.top_k], dim=1)
        return logits, log_probs, top.long()


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions(Result):
    """What the model predicts at the target.

    Attributes:
        label_logits: Logits of the label words' first tokens, in class order.
        log_probs: Log-probability of the label words over the whole vocabulary: of the first
            token, of the whole word (`sum`) or per token of it (`mean`).
        predicted: Class with the largest score.
        top_tokens: Ids of the likeliest next tokens, best first.
        answers: True class of each query, or None.
        labels: Names of the classes.
    """

    label_logits: Float[Tensor, "batch label"]
    log_probs: Float[Tensor, "batch label"]
    predicted: Int[Tensor, " batch"]
    top_tokens: Int[Tensor, "batch k"]
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()

    title: ClassVar[str] = "Predictions"
    shows: ClassVar[tuple[str, ...]] = ("confusion", "accuracy")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    def quantities(self) -> dict[str, Quantity]:
        """Whether each prediction is right, where that is known, and the label words' scores."""
        found = {}
        if self.answers is not None:
            found["accuracy"] = Quantity((), self.predicted == self.answers)
        found["label_logit"] = Quantity(("label",), self.label_logits, unit="logit")
        found["log_prob"] = Quantity(("label",), self.log_probs, unit="log-probability (nats)")
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the classes."""
        return {"label": self.labels}

    def drawing(self, show: str = "confusion") -> LabelMatrix | Bars:
        """How often each true class was predicted as which (or mean probabilities).

        Args:
            show: `confusion`, or `accuracy`: right answers by class beside constant answers.

        Raises:
            ResultError: another, or accuracy without answers.
        """
        self.check_show(show)
        return by_class(self) if show == "accuracy" else confusion(self)

    def figures(self) -> list[Figure]:
        """Right answers beside constant ones, and which classes are taken for which."""
        return answered(self)

    @property
    def accuracy(self) -> Interval:
        """Share of prompts whose predicted class is the true one, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        if self.answers is None:
            raise ResultError("These prompts have no answers; accuracy needs them.")
        return wilson_interval(self.predicted == self.answers)

    @property
    def label_probs(self) -> Float[Tensor, "batch label"]:
        """Probabilities over the label words alone (softmax of `label_logits`)."""
        return self.label_logits.softmax(-1)

    def summary(self) -> str:
        """Accuracy, or the share of the commonest prediction."""
        if self.answers is not None:
            return f"accuracy {self.accuracy} over {len(self.predicted)} prompts"
        counts = torch.bincount(self.predicted, minlength=len(self.labels))
        return f"{self.labels[int(counts.argmax())]} predicted for {int(counts.max())} prompts"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per prompt."""
        import pandas as pd

        table = {"predicted": [self.labels[c] for c in self.predicted.tolist()]}
        if self.answers is not None:
            table["answer"] = [self.labels[c] for c in self.answers.tolist()]
        columns = {f"logit {name}": self.label_logits[:, c] for c, name in enumerate(self.labels)}
        return pd.DataFrame(table | {key: value.tolist() for key, value in columns.items()})


@dataclass
class WordReading(Reading[Tensor]):
    """Log-probability of a word that follows the target, summed over its tokens."""

    word: tuple[int, ...]

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The residual entering the final norm."""
        return [Site("resid_post", info.n_layers - 1)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """One number per prompt."""
        total = torch.zeros(len(segment.prompts), device=activation.device)
        for offset, token in enumerate(self.word):
            residual = activation[segment.rows, segment.target_row + offset]
            total += at_least_float32(segment.model.logits(residual)).log_softmax(-1)[:, token]
        return total

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt]`."""
        return kept.stacked()[:, 0]


@dataclass(frozen=True)
class Predict(Measurement[Predictions]):
    """Label logits, predicted classes and likeliest next tokens at the target.

    Attributes:
        score: How label words of several tokens are scored: `first`, `sum` or `mean`.
        top_k: Number of likeliest next tokens kept.

    Raises:
        RunError: unknown `score`.
    """

    name: ClassVar[str] = "predictions"

    score: WordScore = "first"
    top_k: int = 5

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse numbers of tokens the vocabulary does not have.

        Raises:
            RunError: says how many there are.
        """
        check_top_k(self.top_k, model.info)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and behind them each label word where all its tokens count."""
        passes = [Pass(data, [PredictionReading(self.top_k)], title="predictions")]
        if self.score != "first":
            passes += [
                Pass(_continued(data, word), [WordReading(word)], title="label words")
                for word in data[0].label_words
            ]
        return passes

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Predictions:
        """Predictions by the first tokens, or by whole words."""
        (first,), *words = read
        found = predictions(first, data)
        if not words:
            return found
        log_probs = torch.stack([value for (value,) in words], dim=1)
        if self.score == "mean":
            log_probs = log_probs / torch.tensor([len(word) for word in data[0].label_words])
        return replace(found, log_probs=log_probs, predicted=log_probs.argmax(-1))


def predictions(read: tuple[Tensor, Tensor, Tensor], prompts: PromptBatch) -> Predictions:
    """Predictions from what `PredictionReading` read."""
    label_logits, log_probs, top_tokens = read
    return Predictions(
        label_logits=label_logits,
        log_probs=log_probs,
        predicted=label_logits.argmax(-1),
        top_tokens=top_tokens,
        answers=prompts.answers if prompts.has_answers else None,
        labels=prompts.labels,
    )


def check_top_k(top_k: int, info: ModelInfo) -> None:
    """Refuse numbers of tokens the vocabulary does not have.

    Raises:
        RunError: says how many there are.
    """
    if not 1 <= top_k <= info.d_vocab:
        raise RunError(
            f"top_k={top_k}; the vocabulary has {info.d_vocab} tokens, at least 1 is compared."
        )


predict = door(
    Predict,
    "predict",
    prompts="The prompts.",
)


def _continued(prompts: PromptBatch, word: tuple[int, ...]) -> PromptBatch:
    """The prompts up to their targets, with all but the last token of a word behind them."""
    if len(word) == 1:
        return prompts

    def continued(prompt: Prompt) -> Prompt:
        end = prompt.target + 1
        tokens = (*prompt.tokens[:end], *word[:-1])
        spans = tuple(span for span in prompt.spans if span.stop <= end)
        classes = prompt.label_classes[: sum(span.role == "label_word" for span in spans)]
        spans = (*spans, Span("format", None, end, len(tokens)))
        return replace(prompt, tokens=tokens, spans=spans, label_classes=classes, pieces=())

    return PromptBatch(tuple(continued(prompt) for prompt in prompts), prompts.source)
