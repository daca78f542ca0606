"""Gain from demonstrations: over none at all, and over the same demonstrations with their label words permuted.

`G_0 = mean over prompts of log P(y | demonstrations) - log P(y | zero-shot)`, `P` among the label words (for
texts over the vocabulary) and `y` the correct answer; `G_1` the same against shuffled label words. Both are also
given as accuracy. Zero-shot prompts have the same template, narrative and label words; shuffled ones the same
texts in the same order, and every label word equally often.

Source: Min et al. 2022, *Rethinking the Role of Demonstrations*; measuring the comparison in nats is ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.measurements.demonstrations import check_demonstrations, without_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading, Read, predicted
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.prompts.rewriting import shuffled, zero_shot
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged

OWN_ANSWERS = (
    "These texts end with their target, so the model's own next token after the whole text counts "
    "as correct: with the whole text, every answer is correct by construction."
)

GAIN = Definition(
    "gain",
    r"G = \frac{1}{N} \sum_{n=1}^{N} \log P(y_n \mid D_n, x_n) - \log P(y_n \mid D'_n, x_n)",
    "By how much the demonstrations D raise the log-probability, among the label words, of the "
    "right answer y to the query x, compared with D': no demonstrations in the same template "
    "(G₀), or the same ones with their label words permuted (G₁).",
)


class Gained(NamedTuple):
    """Gain from demonstrations over one baseline, with 95 % intervals over prompts.

    Attributes:
        value: Log-probability of the correct answer (nats): mean of paired differences.
        low: Lower end.
        high: Upper end.
        accuracy: Paired change of the fraction of correct answers.
    """

    value: float
    low: float
    high: float
    accuracy: Interval

    @property
    def nats(self) -> Interval:
        """The gain in log-probability alone."""
        return Interval(self.value, self.low, self.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class GainResult(Result):
    """Correct answers with demonstrations, without them, and with their label words permuted.

    Attributes:
        log_prob: Log-probability of the correct answer (nats), among the candidates; for texts over the vocabulary.
            With shuffled labels the mean over draws.
        right: 1 where the correct answer is the top candidate (for texts: token); with shuffled labels the
            fraction of draws.
        contexts: `demonstrations`, and of `zero_shot` and `shuffled` those that could be built.
        answers: Correct answer of each query.
        labels: Names of the candidates.
        notes: Reasons why a context is missing.
    """

    log_prob: Float[Tensor, "batch context"]
    right: Float[Tensor, "batch context"]
    contexts: tuple[str, ...]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    definitions: ClassVar[tuple[Definition, ...]] = (GAIN,)
    shows: ClassVar[tuple[str, ...]] = ("gain", "accuracy")
    axis_labels: ClassVar[Mapping[str, str]] = {"context": "contexts", "over": "baselines"}

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.right)

    @property
    def baselines(self) -> tuple[str, ...]:
        """The contexts other than the demonstrations themselves."""
        return self.contexts[1:]

    def added(self, baseline: str) -> Float[Tensor, " batch"] | None:
        """Log-probability of the correct answer with demonstrations minus that of a baseline; None without it."""
        if baseline not in self.contexts:
            return None
        return self.log_prob[:, 0] - self.log_prob[:, self.contexts.index(baseline)]

    def over(self, baseline: str) -> Gained | None:
        """Gain from demonstrations over a baseline, `zero_shot` or `shuffled`; None without it."""
        return self._gains.get(baseline)

    @cached_property
    def _gains(self) -> dict[str, Gained]:
        """Gains by baseline."""
        gains = {}
        for place, baseline in enumerate(self.baselines, start=1):
            nats = mean_interval(self.log_prob[:, 0] - self.log_prob[:, place])
            right = mean_interval(self.right[:, 0] - self.right[:, place], "change")
            gains[baseline] = Gained(nats.value, nats.low, nats.high, right)
        return gains

    @property
    def over_zero_shot(self) -> Gained | None:
        """G₀: with demonstrations minus zero-shot; None where there are no zero-shot prompts."""
        return self.over("zero_shot")

    @property
    def over_shuffled(self) -> Gained | None:
        """G₁: with demonstrations minus shuffled labels; None where these cannot be built."""
        return self.over("shuffled")

    def status_of(self, baseline: str) -> Status | None:
        """Status of the claim that demonstrations add nats over a baseline; None where it is missing."""
        gained = self.over(baseline)
        return None if gained is None else judged(gained.nats, prompts=self.count)

    def quantities(self) -> dict[str, Quantity]:
        """Gains in nats and in accuracy (paired), and the values of each context."""
        nats, right = "log-probability of the right answer (nats)", "fraction of right answers"
        gain, more = (values[:, :1] - values[:, 1:] for values in (self.log_prob, self.right))
        return {
            "gain": Quantity(("over",), gain, unit=f"change of the {nats}"),
            "accuracy_gain": Quantity(
                ("over",), more, unit=f"change of the {right}", kind="change"
            ),
            "log_prob": Quantity(("context",), self.log_prob, unit=nats),
            "accuracy": Quantity(("context",), self.right, unit=right, kind="outcome"),
        }

    def on_page(self) -> tuple[str, ...]:
        """Both figures."""
        return self.shows


class _Others(NamedTuple):
    """Contexts that the prompts are compared with.

    Attributes:
        zero_shot: The queries alone; None where they cannot be cut out.
        shuffled: One batch for each draw; none where label words cannot be exchanged.
        notes: Why something is missing.
    """

    zero_shot: PromptBatch | None
    shuffled: tuple[PromptBatch, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Gain(Measurement[GainResult]):
    """Gain from demonstrations over zero-shot prompts and over the same demonstrations with shuffled labels.

    Costs one more pass over the queries alone, and one over whole prompts for each draw. The demonstrations are
    those of the prompts, whether their labels are correct or not.

    Attributes:
        draws: Number of orders of shuffled label words.
        seed: Seed of the first order.

    Raises:
        PromptError: prompts without answers or demonstrations, or for which neither baseline can be built.
    """

    draws: Count = 1
    seed: Natural = 0

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def _others(self, model: LanguageModel, data: PromptBatch) -> _Others:
        bare = zero_shot(data, model.tokenizer)
        # Tokens cut out of a prompt where its text is not known.
        alone = bare.prompts or without_demonstrations(data)
        notes = [] if alone else [f"There is no zero-shot baseline ({bare.why_not})."]
        if data.answer_kind == "vocabulary":
            notes.append("There is no shuffled-label baseline: texts display no labels.")
            if not data.has_answers:
                notes.append(OWN_ANSWERS)
            return _Others(alone, (), tuple(notes))
        orders = []
        for seed in range(self.seed, self.seed + self.draws):
            order = shuffled(data, model.tokenizer, seed)
            if order.prompts is None:
                notes.append(f"There is no shuffled-label baseline ({order.why_not}).")
                break
            orders.append(order.prompts)
        return _Others(alone, tuple(orders), tuple(notes))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without any baseline.

        Raises:
            PromptError: says what is missing.
        """
        check_answers(data, "gain")
        check_demonstrations(data, "gain")
        others = self._others(model, data)
        if others.zero_shot is None and not others.shuffled:
            raise PromptError(
                "These prompts have no baseline to compare demonstrations with. "
                f"{' '.join(others.notes)} Build the prompts with build_prompts or "
                "prompts_from_text, and load the model with its tokenizer."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, the queries alone, and each order of label words."""
        others, reading = self._others(model, data), [PredictionReading(1)]
        passes = [Pass(data, reading, title="prompts")]
        if others.zero_shot is not None:
            passes.append(Pass(others.zero_shot, reading, title="zero-shot"))
        return passes + [
            Pass(prompts, reading, title="shuffled labels") for prompts in others.shuffled
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> GainResult:
        """The correct answer's log-probability and rank in every context."""
        others = self._others(model, data)
        log_probs, right = (
            torch.stack(columns, dim=1)
            for columns in zip(*(answer_scores(values, data) for (values,) in read), strict=True)
        )
        count = 1 + (others.zero_shot is not None)
        names = ("demonstrations", "zero_shot")[:count]
        parts = [scores[:, :count] for scores in (log_probs, right)]
        if others.shuffled:
            names = (*names, "shuffled")
            drawn = (scores[:, count:].mean(1, keepdim=True) for scores in (log_probs, right))
            parts = [torch.cat(pair, dim=1) for pair in zip(parts, drawn, strict=True)]
        return GainResult(
            log_prob=parts[0].contiguous(),
            right=parts[1].contiguous(),
            contexts=names,
            answers=data.answers,
            labels=data.labels,
            notes=others.notes,
        )


def answer_scores(read: Read, data: PromptBatch) -> tuple[Tensor, Tensor]:
    """Log-probability of the correct answer among the candidates (texts: the vocabulary), and 1 where it is given."""
    logits, over_all, top, _ = read
    among = data.answer_kind != "vocabulary"
    scores = logits.double().log_softmax(-1) if among else over_all.double()
    right = predicted(logits, top, data) == data.answers
    return scores.gather(1, data.answers[:, None])[:, 0], right.double()


gain = door(Gain, "gain", prompts="With demonstrations and answers.")
