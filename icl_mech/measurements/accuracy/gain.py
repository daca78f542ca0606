"""What demonstrations add: over none at all, and over the same ones with their label words in another order.

`G_0 = mean over prompts of log P(y | demonstrations) - log P(y | zero-shot)`, `P` among the label words (of
texts over the vocabulary) and `y` the right answer; `G_1` the same against shuffled label words. Both are also
given as accuracy. Zero-shot prompts have the same template, narrative and label words; shuffled ones the same
texts in the same order, and every label word as often.

Source: Min et al. 2022, *Rethinking the Role of Demonstrations*, for the comparison; in nats it is our own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import Status, judged
from icl_mech.results.prompts import answer_kind, given
from icl_mech.results.wording import counted, listed, said, told
from icl_mech.shapes import Bars

CONTEXTS = {
    "demonstrations": "with demonstrations",
    "zero_shot": "zero-shot",
    "shuffled": "with shuffled labels",
}
OVER = {"zero_shot": "over zero-shot", "shuffled": "over shuffled labels"}

WORDS: dict[tuple[str, Status], str] = {
    ("zero_shot", "supported"): "they help",
    ("zero_shot", "not shown"): "that they help is not shown",
    ("zero_shot", "opposite"): "the model does better without them",
    ("zero_shot", "cannot be judged"): "whether they help cannot be judged from so few prompts",
    ("shuffled", "supported"): "which label stands beside which text matters",
    ("shuffled", "not shown"): "that their labels teach anything is not shown",
    ("shuffled", "opposite"): "it does better with their labels shuffled",
    ("shuffled", "cannot be judged"): "what their labels teach cannot be judged",
}
"""What follows, by baseline and status."""

OWN_ANSWERS = (
    "These texts end with their target: what counts as right is the token the model says itself after all of the "
    "text, so that with all of it every answer is right by construction."
)

GAIN = Definition(
    "gain",
    r"G = \frac{1}{N} \sum_{n=1}^{N} \log P(y_n \mid D_n, x_n) - \log P(y_n \mid D'_n, x_n)",
    "How much likelier the right answer y of the query x is, among the label words, with the demonstrations D "
    "than with D': none in the same template (G₀), or the same ones with their label words in another order (G₁).",
)


class Gained(NamedTuple):
    """What demonstrations add over one baseline, with 95 % intervals over prompts.

    Attributes:
        value: Log-probability of the right answer (nats): mean of paired differences.
        low: Lower end.
        high: Upper end.
        accuracy: Change of the share of right answers, paired likewise.
    """

    value: float
    low: float
    high: float
    accuracy: Interval

    @property
    def nats(self) -> Interval:
        """The log-probability alone."""
        return Interval(self.value, self.low, self.high)


@dataclass(frozen=True, eq=False, kw_only=True)
class GainResult(Result):
    """Right answers with demonstrations, without them, and with their label words in another order.

    Attributes:
        log_prob: Of the right answer (nats), among the candidates; of texts over the vocabulary. With shuffled
            labels the mean over draws.
        right: 1 where the right answer is the likeliest candidate (of texts token); with shuffled labels the
            share of draws.
        contexts: `demonstrations`, and of `zero_shot`, `shuffled` those that could be made.
        answers: Right answer of each query.
        labels: Names of the candidates.
        notes: Why a context is missing.
    """

    log_prob: Float[Tensor, "batch context"]
    right: Float[Tensor, "batch context"]
    contexts: tuple[str, ...]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    title: ClassVar[str] = "What demonstrations add"
    definitions: ClassVar[tuple[Definition, ...]] = (GAIN,)
    shows: ClassVar[tuple[str, ...]] = ("gain", "accuracy")
    axis_labels: ClassVar[Mapping[str, str]] = {"context": "contexts", "over": "baselines"}

    @property
    def baselines(self) -> tuple[str, ...]:
        """The contexts beside the demonstrations themselves."""
        return self.contexts[1:]

    def added(self, baseline: str) -> Float[Tensor, " batch"] | None:
        """Log-probability of the right answer with demonstrations minus that of a baseline; None without it."""
        if baseline not in self.contexts:
            return None
        return self.log_prob[:, 0] - self.log_prob[:, self.contexts.index(baseline)]

    def _over(self, baseline: str) -> Gained | None:
        added = self.added(baseline)
        if added is None:
            return None
        place, nats = self.contexts.index(baseline), mean_interval(added)
        right = mean_interval(self.right[:, 0] - self.right[:, place], "change")
        return Gained(nats.value, nats.low, nats.high, right)

    @property
    def over_zero_shot(self) -> Gained | None:
        """G₀: with demonstrations minus zero-shot; None where there are no zero-shot prompts."""
        return self._over("zero_shot")

    @property
    def over_shuffled(self) -> Gained | None:
        """G₁: with demonstrations minus shuffled labels; None where these cannot be made."""
        return self._over("shuffled")

    def quantities(self) -> dict[str, Quantity]:
        """Gains in nats and in accuracy (paired), and what each context has."""
        nats, right = "log-probability of the right answer (nats)", "share of right answers"
        gain, more = (own[:, :1] - own[:, 1:] for own in (self.log_prob, self.right))
        return {
            "gain": Quantity(("over",), gain, unit=f"change of the {nats}"),
            "accuracy_gain": Quantity(
                ("over",), more, unit=f"change of the {right}", kind="change"
            ),
            "log_prob": Quantity(("context",), self.log_prob, unit=nats),
            "accuracy": Quantity(("context",), self.right, unit=right, kind="outcome"),
        }

    def drawing(self, show: str = "gain") -> Bars:
        """Both gains in nats and in accuracy, or the accuracy of each context.

        Args:
            show: `gain` or `accuracy`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        if show == "accuracy":
            chance, classes = 1 / max(1, len(self.labels)), answer_kind(self) != "vocabulary"
            return self.sel("accuracy").dots(
                "Right answers with and without demonstrations",
                [CONTEXTS[own] for own in self.contexts],
                ["accuracy"],
                note=basis(self, quantity="accuracy"),
                meanings=("label",),
                levels=((chance, f"chance {told(chance)}"),) if classes and self.labels else (),
            )
        both = [self.sel(own) for own in ("gain", "accuracy_gain")]
        value, low, high = (
            torch.stack([getattr(own, end) for own in both], dim=1).double()
            for end in ("values", "low", "high")
        )
        return Bars(
            "What demonstrations add",
            tuple(OVER[own] for own in self.baselines),
            ("log-probability", "accuracy"),
            *(value, low, high),
            y_title="with demonstrations minus without, or minus shuffled labels",
            note=basis(self),
            meanings=("label", "target"),
            levels=((0.0, "adds nothing"),),
            apart=("log-probability of the right answer (nats)", "share of right answers"),
        )

    def figures(self) -> list[Figure]:
        """What demonstrations add, and how often each context gets it right."""
        count = counted(len(self.right), "prompt")
        rests = f"Bars: 95 % intervals over {count}{given(self)}"
        zero, other = (self._status(own) for own in OVER)
        found = {
            "that the right answer is likelier with these demonstrations than without": zero,
            "that which label stands beside which text matters": other,
        }
        clear = [text for text, status in found.items() if status == "supported"]
        shares = (
            f"{said(self.interval('accuracy', context=own))} {CONTEXTS[own]}"
            for own in self.contexts
        )
        return [
            Figure(
                "gain",
                "What do demonstrations add?",
                self._answer(),
                "**Log-probability of the right answer among the candidates, and share of right answers: with "
                "demonstrations minus the same queries without any (same template and label words), and minus the "
                f"same demonstrations with their label words in another order.** {rests}, paired.",
                f"{'; '.join(clear)}." if clear else "",
                "how they add it. Zero-shot prompts hold the model's preference for some label words and lack the "
                "format, which any demonstrations show; shuffled ones show the format, too, but also labels that are "
                "wrong (of two demonstrations of two classes both). So one number without the other says little.",
                "Gain",
            ),
            Figure(
                "accuracy",
                "How many answers are right with and without demonstrations?",
                f"{listed(shares)}.",
                f"**Share of right answers in each context, on the same queries.** {rests}; changes between contexts "
                "are paired and in the figure above.",
                "",
                "how sure the answers are: only the likeliest candidate counts.",
                "Right answers by context",
            ),
        ]

    def _status(self, baseline: str) -> Status | None:
        """Of the claim that demonstrations add nats over a baseline; None where it is missing."""
        found = self._over(baseline)
        return None if found is None else judged(found.nats, prompts=len(self.right))

    def _answer(self) -> str:
        amounts = []
        for baseline in self.baselines:
            own = self._over(baseline)
            assert own is not None
            points = Interval(*(100 * end for end in own.accuracy))
            amounts.append(
                f"{OVER[baseline]} {said(own.nats)} nats and {_whole(points)} points of accuracy"
            )
        statuses = (self._status(own) for own in self.baselines)
        words = [
            WORDS[own, status]
            for own, status in zip(self.baselines, statuses, strict=True)
            if status
        ]
        notes = "".join(f" {own}" for own in self.notes)
        return f"Demonstrations add {'; '.join(amounts)}: {', and '.join(words)}.{notes}"

    def summary(self) -> str:
        """Both gains."""
        parts = []
        for baseline in self.baselines:
            own = self._over(baseline)
            assert own is not None
            parts.append(f"{OVER[baseline]} {own.nats} nats, accuracy {own.accuracy}")
        return f"demonstrations add {'; '.join(parts)}; {counted(len(self.right), 'prompt')}"


def _whole(points: Interval) -> str:
    """Points of a hundred with their interval, `19 [8, 30]`."""
    value, low, high = (told(own, digits=0) for own in points)
    return f"{value} [{low}, {high}]"


class _Others(NamedTuple):
    """What stands beside the prompts.

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
    """What demonstrations add over zero-shot prompts, and over the same ones with shuffled labels.

    Costs one more pass over the queries alone, and one over whole prompts for each draw. Demonstrations are
    what the prompts show, right labels or not.

    Attributes:
        draws: Orders of shuffled label words.
        seed: Of the first order.

    Raises:
        PromptError: prompts without answers or demonstrations, or of which neither baseline can be made.
    """

    draws: Count = 1
    seed: Natural = 0

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def _others(self, model: LanguageModel, data: PromptBatch) -> _Others:
        bare = zero_shot(data, model.tokenizer)
        # Tokens cut out of a prompt where its text is not known.
        alone = bare.prompts or without_demonstrations(data)
        notes = [] if alone else [f"There are no zero-shot prompts ({bare.why_not})."]
        if data.answer_kind == "vocabulary":
            notes.append("There are no shuffled labels: texts display none.")
            if not data.has_answers:
                notes.append(OWN_ANSWERS)
            return _Others(alone, (), tuple(notes))
        orders = []
        for seed in range(self.seed, self.seed + self.draws):
            order = shuffled(data, model.tokenizer, seed)
            if order.prompts is None:
                notes.append(f"There are no shuffled labels ({order.why_not}).")
                break
            orders.append(order.prompts)
        return _Others(alone, tuple(orders), tuple(notes))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts that nothing can be compared with.

        Raises:
            PromptError: says what is missing.
        """
        check_answers(data, "gain")
        check_demonstrations(data, "gain")
        others = self._others(model, data)
        if others.zero_shot is None and not others.shuffled:
            raise PromptError(
                f"Demonstrations can be compared with nothing here. {' '.join(others.notes)} Build the prompts with "
                "build_prompts or prompts_from_text, and load the model with its tokenizer."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, the queries alone, and each order of label words."""
        others, reading = self._others(model, data), [PredictionReading(1)]
        passes = [Pass(data, reading, title="prompts")]
        if others.zero_shot is not None:
            passes.append(Pass(others.zero_shot, reading, title="zero-shot"))
        return passes + [Pass(own, reading, title="shuffled labels") for own in others.shuffled]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> GainResult:
        """The right answer's log-probability and rank in every context."""
        others = self._others(model, data)
        log_probs, right = (
            torch.stack(own, dim=1)
            for own in zip(*(_scored(values, data) for (values,) in read), strict=True)
        )
        count = 1 + (others.zero_shot is not None)
        names = ("demonstrations", "zero_shot")[:count]
        parts = [own[:, :count] for own in (log_probs, right)]
        if others.shuffled:
            names = (*names, "shuffled")
            drawn = (own[:, count:].mean(1, keepdim=True) for own in (log_probs, right))
            parts = [torch.cat(own, dim=1) for own in zip(parts, drawn, strict=True)]
        return GainResult(
            log_prob=parts[0].contiguous(),
            right=parts[1].contiguous(),
            contexts=names,
            answers=data.answers,
            labels=data.labels,
            notes=others.notes,
        )


def _scored(read: Read, data: PromptBatch) -> tuple[Tensor, Tensor]:
    """Log-probability of the right answer, and whether it is given."""
    logits, over_all, top, _ = read
    among = data.answer_kind != "vocabulary"
    scores = logits.double().log_softmax(-1) if among else over_all.double()
    right = predicted(logits, top, data) == data.answers
    return scores.gather(1, data.answers[:, None])[:, 0], right.double()


gain = door(Gain, "gain", prompts="With demonstrations and answers.")
