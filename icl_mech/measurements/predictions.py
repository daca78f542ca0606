"""Predictions: label logits and probabilities at the target.

`predicted` is the class with the largest score among the label words. Scores of label
words with several tokens: `first` (the first token, the papers' choice), `sum` (log-probability
of the whole word, teacher-forced) or `mean` (per token).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading, run
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements.provenance import provenance
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.models import ModelInfo, Site, adapt
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Result
from icl_mech.segments import Segment
from icl_mech.shapes import LabelMatrix

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
        logits = segment.model.logits(segment.at_target(activation)).float()
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

    def drawing(self) -> LabelMatrix:
        """How often each true class was predicted as which (or mean probabilities)."""
        n = len(self.labels)
        if self.answers is None:
            return LabelMatrix(
                "Mean label probabilities", self.label_probs.mean(0, keepdim=True), ("all prompts",),
                self.labels, "", "label word", "probability",
            )  # fmt: skip
        counts = torch.bincount(self.answers * n + self.predicted, minlength=n * n)
        return LabelMatrix(
            "True and predicted classes", counts.reshape(n, n).double(), self.labels, self.labels,
            "true class", "predicted class", "prompts",
        )  # fmt: skip

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
            total += segment.model.logits(residual).float().log_softmax(-1)[:, token]
        return total

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt]`."""
        return kept.stacked()[:, 0]


def predict(
    model: Any,
    prompts: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    score: WordScore = "first",
    top_k: int = 5,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Predictions:
    """Label logits, predicted classes and likeliest next tokens.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: The prompts.
        interventions: Made during the pass.
        score: How label words of several tokens are scored: `first`, `sum` or `mean`.
        top_k: Number of likeliest next tokens kept.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        RunError: unknown `score`.
    """
    if score not in get_args(WordScore):
        raise RunError(f"Unknown score {score!r}. {near_matches(score, get_args(WordScore))}")
    adapted = adapt(model)
    (read,) = run(
        adapted, prompts, [PredictionReading(top_k)], interventions,
        batch_size=batch_size, progress=progress, title="predictions",
    )  # fmt: skip
    result = prediction_result(
        read, prompts, provenance(adapted, prompts, interventions, score=score)
    )
    if score == "first":
        return result
    words = prompts[0].label_words
    log_probs = torch.stack(
        [
            run(
                adapted, _continued(prompts, word), [WordReading(word)], interventions,
                batch_size=batch_size, progress=progress, title="label words",
            )[0]
            for word in words
        ],
        dim=1,
    )  # fmt: skip
    if score == "mean":
        log_probs = log_probs / torch.tensor([len(word) for word in words])
    return replace(result, log_probs=log_probs, predicted=log_probs.argmax(-1))


def prediction_result(
    read: tuple[Tensor, Tensor, Tensor], prompts: PromptBatch, origin: dict[str, Any]
) -> Predictions:
    """Predictions from what `PredictionReading` read."""
    label_logits, log_probs, top_tokens = read
    return Predictions(
        label_logits=label_logits,
        log_probs=log_probs,
        predicted=label_logits.argmax(-1),
        top_tokens=top_tokens,
        answers=prompts.answers if prompts.has_answers else None,
        labels=prompts.labels,
        provenance=origin,
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
