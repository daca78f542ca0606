"""Predictions: label logits and probabilities at the target.

`predicted` is the class with the largest score among the label words. Scores of label
words with several tokens: `first` (the first token, the papers' choice), `sum` (log-probability
of the whole word, teacher-forced) or `mean` (per token), as the prompts or `Predict.score` say.

Open answers, and texts that go on after their target, are also judged by the whole answer: how likely it
is, how many tokens are likelier than its first, and whether the model says it by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.open_answers_given import answered, share_bars, shares
from icl_mech.measurements.reading import PredictionReading, Read, predicted
from icl_mech.measurements.right_answers import ALL, DEFINITIONS, RightAnswers
from icl_mech.measurements.whole_answers import accepted_passes, best_of, word_pass
from icl_mech.measurements.whole_words import longer_words, scored
from icl_mech.metrics import Interval
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import ANSWER_KINDS, PromptBatch, WordScore
from icl_mech.results import Definition, Figure, Quantity, Result, basis, quantity
from icl_mech.results.prompts import answer_kind, given
from icl_mech.results.wording import counted
from icl_mech.shapes import Bars, LabelMatrix

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions(Result):
    """What the model predicts at the target.

    Attributes:
        label_logits: Logits of the label words' first tokens, in class order; of prompts that score whole
            words the same as `log_probs`.
        log_probs: Log-probability of the label words over the whole vocabulary: of the first
            token, of the whole word (`sum`) or per token of it (`mean`).
        predicted: Class with the largest score.
        top_tokens: Ids of the likeliest next tokens, best first.
        answers: True class of each query, or None.
        labels: Names of the classes.
        answer_log_prob: Log-probability of the whole accepted answer after the target, teacher-forced; of
            several accepted ones the log-sum-exp. None (so also the next two) where answers are classes,
            or where it is not known what is right: texts that end with their target.
        answer_rank: Tokens of the vocabulary that are likelier than the first one of an accepted answer; of
            several the least.
        exact_match: The greedy continuation of the same length is an accepted answer.
        top_log_probs: Log-probability (nats) of each of `top_tokens`; None in results saved before.
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
    exact_match: Bool[Tensor, " batch"] | None = quantity("share of prompts", default=None)
    top_log_probs: Float[Tensor, "batch k"] | None = None

    title: ClassVar[str] = "Predictions"
    shows: ClassVar[tuple[str, ...]] = ("confusion", "accuracy")
    axis_labels: ClassVar[Mapping[str, str]] = {"label": "labels"}
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    def quantities(self) -> dict[str, Quantity]:
        """Whether each prediction is right, where that is known, and the label words' scores."""
        right = None if self.answers is None else Quantity((), self.predicted == self.answers)
        return {**({} if right is None else {"accuracy": right}), **super().quantities()}

    def drawing(self, show: str = "confusion") -> LabelMatrix | Bars:
        """How often each true class was predicted as which (or mean probabilities).

        Args:
            show: `confusion`, or `accuracy`: right answers by class beside constant answers. Answers that
                are no classes have shares by what is answered, whatever is asked for.

        Raises:
            ResultError: another, or accuracy without answers.
        """
        self.check_show(show)
        if answer_kind(self) != "classes" and self.answers is not None:
            return share_bars(self._shares, self.labels, basis(self))
        if show == "accuracy":
            return self.right.by_class(basis(self))
        if self.answers is not None:
            return self.right.confusion()
        return LabelMatrix(
            "Mean label probabilities",
            self.label_probs.mean(0, keepdim=True),
            *((ALL,), self.labels),
            *("", "label word", "probability"),
        )

    def figures(self) -> list[Figure]:
        """Right answers beside constant ones, and which classes are taken for which."""
        if answer_kind(self) != "classes" and self.answers is not None:
            log_prob = None if self.answer_log_prob is None else self.interval("answer_log_prob")
            count = len(self.predicted)
            return [answered(self._shares, self.labels, count, log_prob, given(self))]
        if self.answers is not None and self.labels:
            return [self.right.beside_constant(given(self)), self.right.mistakes()]
        counts = self.predicted.bincount(minlength=max(1, len(self.labels)))
        most, prompts = int(counts.argmax()), counted(len(self.predicted), "prompt")
        name = self.labels[most] if most < len(self.labels) else f"class {most}"
        return [
            Figure(
                "confusion",
                "Which answers does the model give?",
                f"“{name}” for {int(counts[most])} of {prompts}; what would be right is not known.",
                f"**Mean probability of each label word among the label words**, {prompts}.",
                limits="whether the answers are right.",
                short="Answers",
            )
        ]

    @property
    def _shares(self) -> dict[str, Interval]:
        return shares(self.predicted, self.labels, self.exact_match, self.answer_rank)

    @property
    def _names(self) -> tuple[str, ...]:
        """Of what is predicted: of texts also a token that is neither of two."""
        return (*self.labels, "another token")

    @property
    def right(self) -> RightAnswers:
        """Predicted classes beside the true ones.

        Raises:
            ResultError: if the true classes are not known.
        """
        if self.answers is None:
            raise ResultError("These prompts have no answers; accuracy needs them.")
        return RightAnswers(self.predicted, self.answers, self.labels)

    @property
    def accuracy(self) -> Interval:
        """Share of prompts whose predicted class is the true one, with Wilson interval.

        Raises:
            ResultError: if the true classes are not known.
        """
        return self.right.accuracy

    @property
    def label_probs(self) -> Float[Tensor, "batch label"]:
        """Probabilities over the label words alone (softmax of `label_logits`)."""
        return self.label_logits.softmax(-1)

    def summary(self) -> str:
        """Accuracy, or the share of the commonest prediction."""
        if self.answers is not None:
            text = f"accuracy {self.accuracy} over {counted(len(self.predicted), 'prompt')}"
            if self.exact_match is None:
                return text
            return f"{text}, exact match {self.interval('exact_match')}"
        counts = torch.bincount(self.predicted, minlength=len(self.labels))
        return f"{self._names[int(counts.argmax())]} predicted for {int(counts.max())} prompts"

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per prompt: its classes and the logits of the label words; or one quantity of each.

        Args:
            quantity: Which one; None: the usual table.
        """
        import pandas as pd

        if quantity is not None:
            return super().by_prompt(quantity)
        table = {"predicted": [self._names[c] for c in self.predicted.tolist()]}
        if self.answers is not None:
            table["answer"] = [self.labels[c] for c in self.answers.tolist()]
        for name in ("answer_log_prob", "answer_rank", "exact_match"):
            if (own := getattr(self, name)) is not None:
                table[name] = own.tolist()
        columns = {f"logit {name}": self.label_logits[:, c] for c, name in enumerate(self.labels)}
        return pd.DataFrame(table | {key: value.tolist() for key, value in columns.items()})


@dataclass(frozen=True)
class Predict(Measurement[Predictions]):
    """Label logits, predicted classes and likeliest next tokens at the target.

    Attributes:
        score: How label words of several tokens are scored: `first`, `sum` or `mean`; None: as the
            prompts say (`build_prompts(..., score=)`).
        top_k: Number of likeliest next tokens kept.

    Raises:
        RunError: unknown `score`.
    """

    name: ClassVar[str] = "predictions"

    score: WordScore | None = None
    top_k: int = 5

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """Only if it was asked to."""
        return self.score == "first"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "Predict":
        """With the score of the prompts."""
        return replace(self, score=self.score or data.score)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse numbers of tokens the vocabulary does not have.

        Raises:
            RunError: says how many there are.
        """
        check_top_k(self.top_k, model.info)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and whole words after them where all their tokens count."""
        longer = longer_words(data).values() if self._differs(data) else ()
        words = [word_pass(data, own, "label words") for own in longer]
        if self.score == "first" != data.score:
            data = PromptBatch(tuple(replace(own, score="first") for own in data), data.source)
        one = Pass(data, [PredictionReading(self.top_k)], title="predictions")
        return [one, *words, *accepted_passes(data)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Predictions:
        """Predictions by the first tokens, or by whole words; and how the accepted answers fare."""
        (first,), *words = read
        found = predictions(first, data)
        labels = [*longer_words(data)] if self._differs(data) else []
        if best := best_of([own for (own,) in words[len(labels) :]], data):
            found = replace(
                found, answer_log_prob=best.log_prob, answer_rank=best.rank, exact_match=best.greedy
            )
        if not self._differs(data) or not self.score:
            return found
        sums = {label: own.log_prob for label, (own,) in zip(labels, words, strict=False)}
        _, log_probs, *_ = scored(first, sums, data, self.score)
        if data.answer_kind == "vocabulary":
            return replace(found, log_probs=log_probs)
        logits = found.label_logits if data.score == "first" else log_probs
        predicted = log_probs.argmax(-1)
        return replace(found, label_logits=logits, log_probs=log_probs, predicted=predicted)

    def _differs(self, data: PromptBatch) -> bool:
        """True if whole words are scored, and not as the prompts say."""
        return self.score not in (None, "first", data.score)


def predictions(read: Read, prompts: PromptBatch) -> Predictions:
    """Predictions from what `PredictionReading` read."""
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


def check_top_k(top_k: int, info: ModelInfo) -> None:
    """Refuse numbers of tokens the vocabulary does not have.

    Raises:
        RunError: says how many there are.
    """
    if not 1 <= top_k <= info.d_vocab:
        raise RunError(
            f"top_k={top_k}; the vocabulary has {info.d_vocab} tokens, at least 1 is compared."
        )


predict = door(Predict, "predict", prompts="The prompts.")
