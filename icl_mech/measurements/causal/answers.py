"""Confidence in the correct answer at the target: the metrics by which interventions are evaluated.

* `probability`: of the correct label word's first token, over the whole vocabulary;
* `difference`: its logit minus the mean logit of the other label words (with two classes: the incorrect
  one).
"""

from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import AtLast
from icl_mech.errors import PromptError
from icl_mech.models import Site, at_least_float32, to_device
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment


@dataclass(frozen=True)
class Answers:
    """Answers to every prompt.

    Attributes:
        label_logits: Logits of the label words; where whole words are scored, their scores.
        log_sum: Log-sum-exp of all logits.
        log_probs: Log P of each whole label word; None if first tokens are scored, as theirs follow from the other fields.
    """

    label_logits: Float[Tensor, "batch label"]
    log_sum: Float[Tensor, " batch"]
    log_probs: Float[Tensor, "batch label"] | None = None

    def probability(self, answers: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Probability of the correct label word."""
        whole = self.label_logits.double() - self.log_sum.double()[:, None]
        log_probs = whole if self.log_probs is None else self.log_probs.double()
        return log_probs.gather(1, answers[:, None])[:, 0].exp()

    def right(self, answers: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """1 where the correct label word has the largest logit of the label words."""
        return (self.label_logits.argmax(-1) == answers).double()

    def log_right(self, answers: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Log-probability of the correct label word among the label words (nats)."""
        return self.label_logits.double().log_softmax(-1).gather(1, answers[:, None])[:, 0]

    @property
    def log_inside(self) -> Float[Tensor, " batch"]:
        """Log of the probability of the label words' first tokens together (nats)."""
        inside = self.label_logits.double().logsumexp(-1) - self.log_sum.double()
        return inside.clamp(max=0.0)

    @property
    def outside(self) -> Float[Tensor, " batch"]:
        """Probability outside the label words' first tokens."""
        return 1 - self.log_inside.exp()

    def difference(self, answers: Int[Tensor, " batch"]) -> Float[Tensor, " batch"]:
        """Logit of the correct label word minus the mean of the others."""
        return above_others(self.label_logits.double(), answers)


@dataclass
class AnswerReading(AtLast, Reading[Answers]):
    """Label logits and log-sum-exp at the target."""

    target_only = True

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Return label logits and log-sum-exp packed as `[batch, label | log-sum]`."""
        logits = at_least_float32(segment.model.logits(segment.at_target(activation)))
        labels = logits.gather(1, segment.label_tokens)
        return torch.cat([labels, logits.logsumexp(-1, keepdim=True)], dim=-1)

    def collect(self, kept: Kept) -> Answers:
        """Unpack the label logits and the log-sum-exp."""
        packed = kept.stacked()[:, 0]
        return Answers(packed[:, :-1], packed[:, -1])


def above_others(
    logits: Float[Tensor, "batch label"], answers: Int[Tensor, " batch"]
) -> Float[Tensor, " batch"]:
    """Logit of the correct label minus the mean of the others."""
    right = logits.gather(1, answers[:, None])[:, 0]
    return right - (logits.sum(1) - right) / (logits.shape[1] - 1)


def contrast(logits: Float[Tensor, "batch label"], prompts: PromptBatch) -> Float[Tensor, " batch"]:
    """Logit of the correct label minus that of the demonstrated false one or, without one, the mean of the others."""
    answers = to_device(prompts.answers, logits.device)
    taught = [prompt.false_answer for prompt in prompts]
    if any(label is None for label in taught):
        return above_others(logits, answers)
    wrong = to_device(torch.tensor([int(label or 0) for label in taught]), logits.device)
    return (logits.gather(1, answers[:, None]) - logits.gather(1, wrong[:, None]))[:, 0]


def check_answers(prompts: PromptBatch, what: str) -> None:
    """Reject prompts whose correct answers are unknown, or that have only one label word.

    Raises:
        PromptError: says what is missing.
    """
    _ = prompts.answers
    if prompts.n_labels < 2:
        raise PromptError(
            f"{what} compares the right label word with others, but there is only one label word."
        )


def check_label_words(one: PromptBatch, other: PromptBatch) -> None:
    """Reject sets of prompts with different label words.

    Raises:
        PromptError: names both.
    """
    shared = one.has_classes and other.has_classes
    if shared and one[0].label_words != other[0].label_words:
        raise PromptError(
            f"The sets have different label words ({', '.join(one.labels)} and "
            f"{', '.join(other.labels)}); build both from the same task."
        )
