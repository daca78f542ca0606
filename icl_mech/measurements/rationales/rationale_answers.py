"""The answer after each sentence of the query's rationale, at the output and by layer.

The rationale is cut off after each of its sentences, and the template's text before the answer follows at once (*early
answering*). `a_k = log P(y | D, x, r_1 ... r_k)` among the label words, `y` the correct answer, `D` the demonstrations
with their whole rationales; `a_0` is the answer without a rationale, whose introduction is then left out, too.

Every prefix is a whole prompt of its own, tokenised as such; the logit lens reads each at every layer.

Source: Lanham et al. 2023, *Measuring Faithfulness in Chain-of-Thought Reasoning* (arXiv 2307.13702), §2.3, early
answering; the layers are Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.residuals import LENS, LayerLensReading
from icl_mech.measurements.reading import PredictionReading, predicted
from icl_mech.metrics import Interval, above_together, mean_interval
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rationales import check_rationales, cut_off, rationale_of
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Status, judged

SOURCE = "Lanham et al. 2023, Measuring Faithfulness in Chain-of-Thought Reasoning, §2.3"

LEAST = 0.1
"""Fraction of the loss without a rationale that its gain must clearly exceed: less is not worth a claim."""

NO_TEXTS = "rationales stand between a query and its label word or choices"

EARLY = Definition(
    "early answering",
    r"a_k = \frac{1}{N} \sum_{n=1}^{N} \log P(y_n \mid D_n, x_n, r_{n,1} \dots r_{n,k})",
    "Log-probability, among the label words, of the right answer y when the rationale r of the query x is cut off after "
    "its sentence k. Demonstrations D keep their whole rationales.",
    SOURCE,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class RationaleAnswersResult(Result):
    """The answer after each sentence of the query's rationale.

    Attributes:
        log_prob: Log-probability of the correct answer (nats), among the candidates, after 0, 1, ... sentences;
            not-a-number after the last sentence of a prompt.
        right: 1 where the correct answer is the top candidate; not-a-number likewise.
        lens_log_prob: The log-probability that the logit lens reads at each layer (0: the embedding), of first tokens;
            None if it was not read.
        lengths: Number of sentences of each rationale.
        answers: Correct answer of each query.
        labels: Names of the candidates.
    """

    log_prob: Float[Tensor, "batch prefix"]
    right: Float[Tensor, "batch prefix"]
    lens_log_prob: Float[Tensor, "batch prefix layer"] | None = None
    lengths: Int[Tensor, " batch"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()

    definitions: ClassVar[tuple[Definition, ...]] = (EARLY, LENS)
    shows: ClassVar[tuple[str, ...]] = ("prefixes", "layers")
    axis_labels: ClassVar[Mapping[str, str]] = {"sentence": "numbers"}

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.lengths)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the sentences, from 1."""
        return tuple(range(1, self.log_prob.shape[1]))

    @property
    def last_layer(self) -> int:
        """Index of the last entry that the lens reads; 0 if it was not read."""
        return 0 if self.lens_log_prob is None else self.lens_log_prob.shape[-1] - 1

    @property
    def chance(self) -> float | None:
        """Accuracy of guessing; None for choices, whose number may differ between prompts."""
        return 1 / len(self.labels) if self.labels else None

    @property
    def steps(self) -> Float[Tensor, "batch sentence"]:
        """Change of the log-probability with each sentence."""
        return self.log_prob[:, 1:] - self.log_prob[:, :-1]

    def _last(self, values: Float[Tensor, "batch prefix"]) -> Float[Tensor, " batch"]:
        return values.gather(1, self.lengths[:, None])[:, 0]

    @cached_property
    def added(self) -> Interval:
        """Change of the log-probability with the whole rationale: the last value minus the first, paired."""
        return mean_interval(self._last(self.log_prob) - self.log_prob[:, 0])

    @cached_property
    def accuracy_added(self) -> Interval:
        """Change of the fraction of correct answers with the whole rationale, paired."""
        return mean_interval(self._last(self.right) - self.right[:, 0], "change")

    @property
    def status(self) -> Status:
        """Status of the claim that the rationale makes the correct answer more probable, by a tenth of its loss or more."""
        bare = self.log_prob[:, 0]
        return enough(self._last(self.log_prob) - bare, bare).status

    @property
    def tested(self) -> int:
        """The largest number of sentences that at least `FEWEST_PROMPTS` prompts have; 0 with fewer prompts."""
        return max((k for k in self.numbers if self.having(k) >= FEWEST_PROMPTS), default=0)

    def having(self, sentences: int) -> int:
        """Number of prompts whose rationale has at least so many sentences."""
        return int((self.lengths >= sentences).sum())

    @cached_property
    def turns(self) -> "Turns":
        """Sentences that make the right answer more, and less, probable, with a family-wise error of 5 % for both.

        Tested are the sentences up to `tested`, on the prompts that have all of them (max-T, see `above_together`).
        """
        shared = self.steps[self.lengths >= self.tested, : self.tested]
        if not self.tested:
            return Turns((), ())
        up, down = (_numbers(above_together(sign * shared, level=ONE_SIDED)) for sign in (1, -1))
        return Turns(up, down)

    def quantities(self) -> dict[str, Quantity]:
        """Log-probability and accuracy after each sentence, the change with each, and the lens by layer.

        Averaged over the prompts whose rationale has so many sentences; no interval where only one has.
        """
        nats, right = "log-probability of the right answer (nats)", "fraction of right answers"
        quantities = {
            "log_prob": _known(("prefix",), self.log_prob, nats),
            "accuracy": _known(("prefix",), self.right, right, outcome=True),
            "step": _known(("sentence",), self.steps, f"change of the {nats}"),
        }
        if self.lens_log_prob is not None:
            quantities["lens_log_prob"] = _known(("prefix", "layer"), self.lens_log_prob, nats)
        return quantities

    def on_page(self) -> tuple[str, ...]:
        """The curve over sentences, and the map by layer if it was read."""
        return self.shows if self.lens_log_prob is not None else self.shows[:1]


class Enough(NamedTuple):
    """A gain minus `LEAST` times the loss without a rationale.

    Attributes:
        effect: Its mean over prompts.
        status: `opposite` only if the gain itself is clearly below 0.
    """

    effect: Interval
    status: Status


def enough(gain: Float[Tensor, " batch"], bare: Float[Tensor, " batch"]) -> Enough:
    """Status of a gain in log-probability, given the log-probability without a rationale."""
    effect, prompts = mean_interval(gain + LEAST * bare), len(gain)
    if judged(mean_interval(gain), prompts=prompts) == "opposite":
        return Enough(effect, "opposite")
    return Enough(effect, judged(effect, prompts=prompts, opposite=-inf))


class Turns(NamedTuple):
    """Sentences after which the correct answer is clearly more, or less, probable.

    Attributes:
        up: Their numbers, from 1.
        down: Likewise.
    """

    up: tuple[int, ...]
    down: tuple[int, ...]


def _numbers(chosen: Bool[Tensor, " sentence"]) -> tuple[int, ...]:
    return tuple((1 + chosen.nonzero().flatten()).tolist())


def _known(dims: tuple[str, ...], values: Tensor, unit: str, *, outcome: bool = False) -> Quantity:
    """A mean over the prompts in which each value is known, with the interval of its kind over these."""
    quantity = Quantity(dims, values, unit=unit, kind="outcome" if outcome else "value")
    missing = values.isnan()
    if not bool(missing.any()):
        return quantity
    flat, there = values.double().nan_to_num().flatten(1), (~missing).double().flatten(1)

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        mean = (weights @ flat) / (weights @ there)  # 0 / 0 where no prompt is drawn that has one
        return mean.reshape(len(weights), *values.shape[1:])

    return replace(quantity, statistic=statistic, known=_ends(quantity))


def _ends(quantity: Quantity) -> tuple[Tensor, Tensor]:
    """Ends by number of sentences (the first axis of a cell); not-a-number for fewer than two prompts."""
    columns = []
    for column in quantity.per_prompt.unbind(1):
        there = column[~column.reshape(len(column), -1).isnan().any(1)]
        nothing = torch.full(column.shape[1:], torch.nan, dtype=torch.float64)
        part = replace(quantity, dims=quantity.dims[1:], per_prompt=there)
        columns.append(part.ends() if len(there) > 1 else (nothing, nothing))
    low, high = (torch.stack(ends) for ends in zip(*columns, strict=True))
    return low, high


@dataclass(frozen=True)
class RationaleAnswers(Measurement[RationaleAnswersResult]):
    """The answer after each sentence of the query's rationale, at the output and by layer.

    Costs one forward pass over the prompts for each number of sentences, 0 included.

    Attributes:
        lens: Read every layer with the logit lens.

    Raises:
        PromptError: prompts without answers, or whose rationales are missing or cannot be cut off.
    """

    lens: bool = True

    takes = ("classes", "choices")
    why_not = NO_TEXTS

    def reads_first_tokens(self) -> bool:
        """True for the lens; else whole words are scored where the prompts say so."""
        return self.lens

    def _prefixes(
        self, model: LanguageModel, data: PromptBatch
    ) -> list[tuple[list[int], PromptBatch]]:
        """Prompts with 0, 1, ... sentences, each with the numbers of the prompts that have so many.

        Raises:
            PromptError: prompts that cannot be rewritten.
        """
        counts = [len(rationale_of(prompt)) for prompt in data]
        made = []
        for count in range(max(counts) + 1):
            there = [number for number, many in enumerate(counts) if many >= count]
            cut = cut_off(data[there], model.tokenizer, count)
            if cut.prompts is None:
                raise PromptError(
                    f"A rationale cannot be cut off after {count} sentences: {cut.why_not}. Build the prompts "
                    "with build_prompts, and load the model with its tokenizer."
                )
            made.append((there, cut.prompts))
        return made

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without rationales, or that cannot be rewritten.

        Raises:
            PromptError: says what is missing.
        """
        check_answers(data, self.name)
        check_rationales(data, self.name)
        self._prefixes(model, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass for each number of sentences."""
        readings: list[Any] = [PredictionReading(1)]
        readings += [LayerLensReading(vocabulary=False)] * self.lens
        return [
            Pass(prompts, readings, title=f"after {count} sentences")
            for count, (_, prompts) in enumerate(self._prefixes(model, data))
        ]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> RationaleAnswersResult:
        """The correct answer's log-probability and rank after each sentence."""
        prefixes = self._prefixes(model, data)
        shape = (len(data), len(prefixes))
        log_prob, right = (torch.full(shape, torch.nan, dtype=torch.float64) for _ in range(2))
        layers = model.info.n_layers + 1
        by_layer = (
            torch.full((*shape, layers), torch.nan, dtype=torch.float64) if self.lens else None
        )
        for place, ((there, prompts), (values, *lens)) in enumerate(
            zip(prefixes, read, strict=True)
        ):
            answers = data.answers[there]
            scores = values[0].double().log_softmax(-1)
            log_prob[there, place] = scores.gather(1, answers[:, None])[:, 0]
            right[there, place] = (predicted(values[0], values[2], prompts) == answers).double()
            if by_layer is not None:
                inside = lens[0].label_logits[:, 0].double().log_softmax(-1)
                chosen = answers[:, None, None].expand(-1, layers, 1)
                by_layer[there, place] = inside.gather(2, chosen)[..., 0]
        return RationaleAnswersResult(
            log_prob=log_prob,
            right=right,
            lens_log_prob=by_layer,
            lengths=torch.tensor([len(rationale_of(prompt)) for prompt in data]),
            answers=data.answers,
            labels=data.labels if data.has_classes else (),
        )


rationale_answers = door(
    RationaleAnswers, "rationale_answers", prompts="With rationales and answers."
)
