"""Predictions: label logits and probabilities at the target.

`predicted` is the class with the largest score among the label words. Scores of label
words with several tokens: `first` (the first token, the papers' choice), `sum` (log-probability
of the whole word, teacher-forced) or `mean` (per token), as the prompts or `Predict.score` specify.

Free-form answers, and texts that continue after their target, are also scored by the whole answer: its
log-probability, the rank of its first token, and whether the greedy continuation is an accepted answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading, Read, predicted
from icl_mech.measurements.right_answers import DEFINITIONS, RightAnswers
from icl_mech.measurements.whole_answers import accepted_passes, best_of, word_pass
from icl_mech.measurements.whole_words import longer_words, scored
from icl_mech.metrics import Interval, wilson_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch, WordScore
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.prompts import answer_kind

if TYPE_CHECKING:
    import pandas as pd

ANOTHER, FIRST, WHOLE = "another", "first token likeliest", "whole answer said"
"""Further keys of `Predictions.shares`, next to the words of a prompt."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions(Result):
    """Predictions of the model at the target.

    Attributes:
        label_logits: Logits of the label words' first tokens, in class order; of prompts that score whole
            words the same as `log_probs`.
        log_probs: Log-probability of the label words over the whole vocabulary: of the first
            token, of the whole word (`sum`) or per token of it (`mean`).
        predicted: Class with the largest score.
        top_tokens: Ids of the most probable next tokens, best first.
        answers: True class of each query, or None.
        labels: Names of the classes.
        answer_log_prob: Log-probability of the whole accepted answer after the target, teacher-forced; the
            log-sum-exp if several are accepted. None, like the next two, where answers are classes or the right
            answer is unknown (texts that end with their target).
        answer_rank: Number of tokens in the vocabulary that are more probable than the first token of an
            accepted answer; the smallest if several are accepted.
        exact_match: Whether the greedy continuation of the same length is an accepted answer.
        top_log_probs: Log-probability (nats) of each of `top_tokens`; None in results saved by earlier
            versions.
    """

    label_logits: Float[Tensor, "batch label"] = quantity("logit", name="label_logit")
    log_probs: Float[Tensor, "batch label"] = quantity("log-probability (nats)", name="log_prob")
    predicted: Int[Tensor, " batch"]
    top_tokens: Int[Tensor, "batch k"]
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    answer_log_prob: Float[Tensor, " batch"] | None = quantity(
        "log-probability (nats)", default=None
    )
    answer_rank: Int[Tensor, " batch"] | None = None
    exact_match: Bool[Tensor, " batch"] | None = quantity("fraction of prompts", default=None)
    top_log_probs: Float[Tensor, "batch k"] | None = None

    shows: ClassVar[tuple[str, ...]] = ("confusion", "accuracy")
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    def quantities(self) -> dict[str, Quantity]:
        """Accuracy, where the answers are known, and the scores of the label words."""
        right = None if self.answers is None else Quantity((), self.predicted == self.answers)
        return {**({} if right is None else {"accuracy": right}), **super().quantities()}

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.predicted)

    @property
    def open_answers(self) -> bool:
        """True if every prompt has its own answer options, so that there is no majority class and no confusion of classes."""
        return answer_kind(self) != "classes" and self.answers is not None

    @property
    def shares(self) -> dict[str, Interval]:
        """Fractions of prompts by type of answer, with Wilson intervals, for prompts with their own answer options.

        Keys are the names of the words, as far as they are the same in all prompts, and `ANOTHER`; where known,
        also `FIRST` (the top token begins an accepted answer) and `WHOLE` (the greedy continuation is one).
        """
        named = {name: self.predicted == place for place, name in enumerate(self.labels[:2])}
        if "taught" not in self.labels and "its rival" not in self.labels:
            named = {self.labels[0]: named[self.labels[0]]}
        named[ANOTHER] = ~torch.stack([*named.values()]).any(0)
        if self.answer_rank is not None:
            named[FIRST] = self.answer_rank == 0
        if self.exact_match is not None:
            named[WHOLE] = self.exact_match
        return {name: wilson_interval(those) for name, those in named.items()}

    @property
    def commonest(self) -> tuple[int, int]:
        """The most frequently predicted class, the first one on ties, and its number of prompts."""
        counts = self.predicted.bincount(minlength=max(1, len(self.labels)))
        return int(counts.argmax()), int(counts.max())

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the predicted classes or tokens; for texts, the last stands for any other token."""
        return (*self.labels, "another token")

    def on_page(self) -> tuple[str, ...]:
        """Accuracy, where the answers are known, and the confusion of classes if they have names."""
        if self.open_answers:
            return ("accuracy",)
        known = self.answers is not None and self.labels
        return ("accuracy", "confusion") if known else ("confusion",)

    def is_drawn(self, show: str) -> bool:
        """False for the confusion if no answer is wrong."""
        known = self.answers is not None and self.labels and not self.open_answers
        return not (show == "confusion" and known and self.right.confused is None)

    @property
    def right(self) -> RightAnswers:
        """Predicted classes compared with the true ones.

        Raises:
            ResultError: if the true classes are not known.
        """
        if self.answers is None:
            raise ResultError(
                "These prompts have no answers, which accuracy needs; build them with answers."
            )
        return RightAnswers(self.predicted, self.answers, self.labels)

    @property
    def accuracy(self) -> Interval:
        """Fraction of prompts whose predicted class is the true one, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        return self.right.accuracy

    @property
    def label_probs(self) -> Float[Tensor, "batch label"]:
        """Probabilities over the label words alone (softmax of `label_logits`)."""
        return self.label_logits.softmax(-1)

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per prompt: its classes and the logits of the label words; or one quantity of each.

        Args:
            quantity: Which one; None: the usual table.
        """
        import pandas as pd

        if quantity is not None:
            return super().by_prompt(quantity)
        table = {"predicted": [self.names[c] for c in self.predicted.tolist()]}
        if self.answers is not None:
            table["answer"] = [self.labels[c] for c in self.answers.tolist()]
        for name in ("answer_log_prob", "answer_rank", "exact_match"):
            if (values := getattr(self, name)) is not None:
                table[name] = values.tolist()
        columns = {f"logit {name}": self.label_logits[:, c] for c, name in enumerate(self.labels)}
        return pd.DataFrame(table | {key: value.tolist() for key, value in columns.items()})


@dataclass(frozen=True)
class Predict(Measurement[Predictions]):
    """Label logits, predicted classes and most probable next tokens at the target.

    Attributes:
        score: How label words of several tokens are scored: `first`, `sum` or `mean`; None: as the prompts
            specify (`build_prompts(..., score=)`).
        top_k: Number of most probable next tokens kept.

    Raises:
        RunError: unknown `score`.
    """

    name: ClassVar[str] = "predictions"

    score: WordScore | None = None
    top_k: int = 5

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """True only if `score` is `first`."""
        return self.score == "first"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "Predict":
        """A copy with the score of the prompts as default."""
        return replace(self, score=self.score or data.score)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject a `top_k` that the vocabulary does not have.

        Raises:
            RunError: gives the size of the vocabulary.
        """
        check_top_k(self.top_k, model)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and the prompts followed by whole words where all their tokens count."""
        longer = longer_words(data).values() if self._differs(data) else ()
        words = [word_pass(data, label_words, "label words") for label_words in longer]
        if self.score == "first" != data.score:
            data = PromptBatch(
                tuple(replace(prompt, score="first") for prompt in data), data.source
            )
        first = Pass(data, [PredictionReading(self.top_k)], title="predictions")
        return [first, *words, *accepted_passes(data)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Predictions:
        """Predictions from first tokens or whole words, with the scores of accepted answers."""
        (first,), *words = read
        result = predictions(first, data)
        labels = [*longer_words(data)] if self._differs(data) else []
        if best := best_of([scores for (scores,) in words[len(labels) :]], data):
            result = replace(
                result,
                answer_log_prob=best.log_prob,
                answer_rank=best.rank,
                exact_match=best.greedy,
            )
        if not self._differs(data) or not self.score:
            return result
        sums = {
            (row, label): log_prob
            for label, (scores,) in zip(labels, words, strict=False)
            for row, log_prob in enumerate(scores.log_prob)
        }
        _, log_probs, *_ = scored(first, sums, data, self.score)
        if data.answer_kind == "vocabulary":
            return replace(result, log_probs=log_probs)
        logits = result.label_logits if data.score == "first" else log_probs
        predicted = log_probs.argmax(-1)
        return replace(result, label_logits=logits, log_probs=log_probs, predicted=predicted)

    def _differs(self, data: PromptBatch) -> bool:
        """True if whole words are scored differently from what the prompts specify."""
        return self.score not in (None, "first", data.score)


def predictions(read: Read, prompts: PromptBatch) -> Predictions:
    """Predictions from the values of `PredictionReading`."""
    label_logits, log_probs, top_tokens, top_log_probs = read
    return Predictions(
        label_logits=label_logits,
        log_probs=log_probs,
        predicted=predicted(label_logits, top_tokens, prompts),
        top_tokens=top_tokens,
        top_log_probs=top_log_probs,
        answers=prompts.answers if prompts.has_answers else None,
        labels=prompts.labels,
    )


def check_top_k(top_k: int, model: LanguageModel) -> None:
    """Reject a `top_k` that the vocabulary does not have.

    Raises:
        RunError: gives the size of the vocabulary.
    """
    size = model.info.d_vocab
    if not 1 <= top_k <= size:
        raise RunError(
            f"top_k={top_k}, but it must be between 1 and {size}, the size of the vocabulary."
        )


predict = door(Predict, "predict", prompts="The prompts.")
