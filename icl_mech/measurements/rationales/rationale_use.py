"""Is the answer read from the rationale? Rationales left out, exchanged and cut off from the answer.

`log P(y)`, among the label words, of the correct answer `y` is compared, on the same queries, with that

* without a rationale at the query (*none*): the gain of the rationale;
* with the rationale of another query of another class (*other*), and with its sentences in another order (*shuffled*);
* with the demonstrations' rationales exchanged instead (*demonstrations*);
* with attention knocked out (`Cut`, masked before the softmax) in all or given layers: from the query's rationale
  (*cut rationale*) or its text (*cut text*) to everything after the rationale, the target included, and from its text to
  its rationale (*cut text to rationale*). The control of each cuts as many other edges of about the same lengths into
  every row.

The claim that the rationale carries part of the answer needs all of: a gain that is clearly more than a tenth of the loss
without a rationale; a loss beyond random edges when the rationale is cut off; a loss with another class's rationale; and,
with three classes or more, that the answer then moves to that class more than to the other wrong ones. With two classes,
or choices, this last measure is not defined: the claim then does not exclude a model that only answers worse whenever the
rationale does not fit the query, without reading the answer from it.

Source: the corruptions are after Lanham et al. 2023, *Measuring Faithfulness in Chain-of-Thought Reasoning* (arXiv
2307.13702); attention knockout by these roles and the claim are ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Cut
from icl_mech.interventions.cut import Mode
from icl_mech.interventions.token_sets import TokenSet
from icl_mech.measurements.base import Measurement, Pass, Variants
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import with_draws
from icl_mech.measurements.rationales.rationale_answers import NO_TEXTS, enough
from icl_mech.measurements.reading import PredictionReading, Read, predicted
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.ratios import ratio_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rationales import (
    Corrupted,
    check_rationales,
    corrupted,
    cut_off,
    rationale_spans,
)
from icl_mech.prompts.rewriting import Rewritten
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, jointly, judged
from icl_mech.results.wording import listed

PATHS = ("cut rationale", "cut text", "cut text to rationale")
"""Edges that are cut: from the query's rationale or text to the answer, and from its text to its rationale."""

FEWEST_DRAWS = 2
"""A single draw has no spread: its loss may be that of any random edges."""

LOST = Definition(
    "fraction of the gain lost",
    r"F_c = \frac{\sum_n \log P(y_n) - \log P_c(y_n)}{\sum_n \log P(y_n) - \log P_{\text{none}}(y_n)}",
    "Loss of the right answer's log-probability, among the label words, under a corruption or cut c of the rationale, as "
    "a fraction of the gain of the rationale over the same prompts without one at the query. Undefined if this gain is "
    "not clearly positive.",
)

FOLLOWED = Definition(
    "move to the other class",
    r"\frac{1}{N} \sum_n \Delta_n(c_n) - \frac{1}{C - 2} \sum_{c \neq c_n, y_n} \Delta_n(c)",
    "Change Δ of a class's log-probability with the rationale of another query: that of the class c_n of this query, beyond "
    "the mean change of the other wrong classes; for C of at least 3.",
)


class Needed(NamedTuple):
    """A measure that the claim needs.

    Attributes:
        name: `gain`, `cut`, `other` or `followed`.
        effect: Its effect; None if it is not defined.
        status: Its status.
    """

    name: str
    effect: Interval | None
    status: Status


@dataclass(frozen=True, eq=False, kw_only=True)
class RationaleUseResult(Result):
    """Correct answers with the rationale, with changed rationales, and with attention to it knocked out.

    Attributes:
        log_prob: Log-probability of the correct answer (nats), among the candidates.
        right: 1 where the correct answer is the top candidate.
        contexts: `rationale`, `none`, `other`, and of `shuffled` and `demonstrations` those that could be built.
        cut: Log-probability of the correct answer with the edges of each path cut.
        random: The same with random edges cut.
        paths: Names of the paths.
        followed: See the definition; None with fewer than three classes.
        answers: Correct answer of each query.
        labels: Names of the candidates.
        notes: Reasons why a context is missing.
    """

    log_prob: Float[Tensor, "batch context"]
    right: Float[Tensor, "batch context"]
    contexts: tuple[str, ...]
    cut: Float[Tensor, "batch path"]
    random: Float[Tensor, "batch path draw"]
    paths: tuple[str, ...]
    followed: Float[Tensor, " batch"] | None = None
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    definitions: ClassVar[tuple[Definition, ...]] = (LOST, FOLLOWED)
    shows: ClassVar[tuple[str, ...]] = ("losses", "accuracy")
    axis_labels: ClassVar[Mapping[str, str]] = {
        "context": "contexts",
        "changed": "changes",
        "path": "paths",
    }

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.answers)

    @property
    def draws(self) -> int:
        """Number of draws of random edges."""
        return self.random.shape[-1]

    @property
    def lacks_draws(self) -> bool:
        """True if there are too few draws for the claim."""
        return self.draws < FEWEST_DRAWS

    @property
    def changes(self) -> tuple[str, ...]:
        """The contexts other than the rationale itself, and the paths that are cut."""
        return (*self.contexts[1:], *self.paths)

    @property
    def losses(self) -> Float[Tensor, "batch changed"]:
        """Log-probability with the rationale minus that with each change."""
        return self.log_prob[:, :1] - torch.cat([self.log_prob[:, 1:], self.cut], 1)

    @property
    def random_losses(self) -> Float[Tensor, "batch path draw"]:
        """The same with random edges cut."""
        return self.log_prob[:, :1, None] - self.random

    def _loss(self, name: str) -> Float[Tensor, " batch"]:
        """Loss with a change.

        Raises:
            ResultError: it was not measured.
        """
        if name not in self.changes:
            raise ResultError(f"There is no loss {name!r}; available are {listed(self.changes)}.")
        return self.losses[:, self.changes.index(name)]

    def lost(self, name: str) -> Interval:
        """Loss of the correct answer's log-probability with a change (nats).

        Raises:
            ResultError: it was not measured.
        """
        return mean_interval(self._loss(name))

    def lost_beside(self, path: str) -> Interval | None:
        """Loss with a path cut minus that with random edges, including the spread of the draws.

        None for fewer than two draws, whose spread is unknown.

        Raises:
            ResultError: no such path.
        """
        loss = self._loss(path)
        if path not in self.paths or self.lacks_draws:
            return None
        gaps = loss[:, None] - self.random_losses[:, self.paths.index(path)]
        return with_draws(mean_interval(gaps.mean(1)), gaps.mean(0))

    def fraction(self, name: str) -> Interval:
        """The loss as a fraction of the gain of the rationale; not-a-number where the gain is not clearly positive.

        Raises:
            ResultError: it was not measured.
        """
        loss, gain = self._loss(name), self._loss("none")
        if float(gain.mean()) < 0:
            return Interval(nan, nan, nan)
        return ratio_interval(loss, gain)

    @property
    def gain(self) -> Interval:
        """Gain of the rationale: log-probability with it minus that without (nats)."""
        return self.lost("none")

    @cached_property
    def needed(self) -> tuple[Needed, ...]:
        """What the claim needs, each with its status."""
        effects: dict[str, Interval | None] = {
            "cut": self.lost_beside("cut rationale"),
            "other": self.lost("other"),
        }
        if self.followed is not None:
            effects["followed"] = mean_interval(self.followed)
        rest = (
            Needed(name, effect, judged(effect, prompts=self.count))
            for name, effect in effects.items()
        )
        gain = enough(self._loss("none"), self.log_prob[:, self.contexts.index("none")])
        return (Needed("gain", gain.effect, gain.status), *rest)

    @property
    def status(self) -> Status:
        """Status of the claim that the rationale carries part of the answer."""
        return jointly(*(measure.status for measure in self.needed))

    def quantities(self) -> dict[str, Quantity]:
        """Losses by change, for paths also with random edges; log-probability and accuracy by context."""
        nats, lost = "log-probability of the right answer (nats)", "loss of log-probability (nats)"
        beside = [self.lost_beside(path) for path in self.paths]
        quantities = {
            "loss": Quantity(("changed",), self.losses, unit=lost),
            "log_prob": Quantity(("context",), self.log_prob, unit=nats),
            "accuracy": Quantity(
                ("context",), self.right, unit="fraction of right answers", kind="outcome"
            ),
        }
        random = self.random_losses.mean(-1)
        if self.draws:
            quantities["random_loss"] = Quantity(("path",), random, unit=lost)
        intervals = [interval for interval in beside if interval is not None]
        if len(intervals) == len(self.paths):
            low, high = torch.tensor(intervals, dtype=torch.float64)[:, 1:].unbind(-1)
            quantities["beside_random"] = Quantity(
                ("path",),
                self.losses[:, -len(self.paths) :] - random,
                unit=f"{lost} beyond random edges",
                known=(low, high),
            )
        if self.followed is not None:
            unit = "log-probability beyond other wrong classes (nats)"
            quantities["followed"] = Quantity((), self.followed, unit=unit)
        return quantities

    def on_page(self) -> tuple[str, ...]:
        """Both figures."""
        return self.shows


@dataclass(frozen=True)
class RationaleUse(Measurement[RationaleUseResult]):
    """Is the answer read from the rationale? Rationales left out, exchanged, and cut off from the answer.

    Costs one forward pass over the prompts for each context (up to five), each path (three) and each draw of random edges
    for each path.

    Attributes:
        layers: Layers in which attention is knocked out; None: all.
        mode: `mask` (before softmax) or `zero` (after).
        draws: Number of draws of random edges; with fewer than two, nothing can be claimed.
        seed: Seed of draws, exchanged rationales and orders of sentences.

    Raises:
        PromptError: prompts without answers or rationales, that cannot be rewritten, or of one class only; rationales so
            long that there are no random edges for a control, unless `draws=0`.
    """

    layers: Sequence[Natural] | None = None
    mode: Mode = "mask"
    draws: Natural = 3
    seed: Natural = 0

    takes = ("classes", "choices")
    why_not = NO_TEXTS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def _cuts(self, data: PromptBatch) -> list[Cut]:
        """The cut of each path."""
        after = [[(rationale_spans(p)[-1].stop, p.target + 1)] for p in data]
        rows: Any = TokenSet(positions=after)
        layers = None if self.layers is None else tuple(self.layers)
        ends: list[tuple[Any, Any]] = [
            ("query_rationale", rows),
            ("query_text", rows),
            ("query_text", "query_rationale"),
        ]
        return [Cut(src, dst, layers=layers, mode=self.mode) for src, dst in ends]

    def _controls(self, cut: Cut) -> list[Cut]:
        return [replace(cut, control=True, seed=self.seed + draw) for draw in range(self.draws)]

    def _contexts(
        self, model: LanguageModel, data: PromptBatch
    ) -> tuple[dict[str, PromptBatch], Corrupted, tuple[str, ...]]:
        """Changed prompts by context, those with other rationales, and notes on missing contexts."""
        tokenizer = model.tokenizer
        other = corrupted(data, tokenizer, "other", "query", self.seed)
        made: dict[str, Rewritten | Corrupted] = {
            "none": cut_off(data, tokenizer, 0),
            "other": other,
            "shuffled": corrupted(data, tokenizer, "shuffled", "query", self.seed),
            "demonstrations": corrupted(data, tokenizer, "other", "demonstrations", self.seed),
        }
        batches = {name: new.prompts for name, new in made.items() if new.prompts is not None}
        notes = tuple(
            f"There are no prompts with {LACKING[name]} ({new.why_not})."
            for name, new in made.items()
            if new.prompts is None
        )
        return batches, other, notes

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without rationales, that cannot be rewritten, or without edges for a control.

        Raises:
            PromptError: says what is missing.
        """
        check_answers(data, self.name)
        check_rationales(data, self.name)
        for path, cut in zip(PATHS, self._cuts(data), strict=True):
            cut.check_prompts(data)
            try:
                for control in self._controls(cut)[:1]:
                    control.check_prompts(data)
            except PromptError as error:
                raise PromptError(
                    f"{path!r} has no random control: {error} With draws=0 these edges are cut without a "
                    "control, but nothing is claimed."
                ) from None
        batches, _, notes = self._contexts(model, data)
        if not {"none", "other"} <= set(batches):
            raise PromptError(
                f"These rationales cannot be changed. {' '.join(notes)} Build the prompts with build_prompts, "
                "with queries of several classes, and load the model with its tokenizer."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, plain and with edges cut, and each other context."""
        reading = [PredictionReading(1)]
        cuts = self._cuts(data)
        changed = [(cut,) for cut in (*cuts, *(c for cut in cuts for c in self._controls(cut)))]
        batches, _, _ = self._contexts(model, data)
        plain = Pass(data, reading, title="prompts")
        cut_off_runs = Variants(data, reading, variants=[(), *changed], title="cut edges")
        return [
            plain,
            *(Pass(prompts, reading, title=name) for name, prompts in batches.items()),
            cut_off_runs,
        ]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> RationaleUseResult:
        """The correct answer's log-probability in every context and run."""
        batches, other, notes = self._contexts(model, data)
        *contexts, runs = read
        each = [values for (values,) in contexts]
        log_probs = torch.stack([_right_log_prob(values, data) for values in each], 1)
        right = [
            (predicted(values[0], values[2], data) == data.answers).double() for values in each
        ]
        # Changes are relative to the plain run on the same path.
        base, *changed = (_right_log_prob(values, data) for (values,) in runs)
        moved = [log_probs[:, 0] + (values - base) for values in changed]
        count = len(PATHS)
        drawn = [
            torch.stack(moved[count + n * self.draws : count + (n + 1) * self.draws], 1)
            if self.draws
            else torch.zeros(len(data), 0, dtype=torch.float64)
            for n in range(count)
        ]
        names = ("rationale", *batches)
        return RationaleUseResult(
            log_prob=log_probs,
            right=torch.stack(right, 1),
            contexts=names,
            cut=torch.stack(moved[:count], 1),
            random=torch.stack(drawn, 1),
            paths=PATHS,
            followed=_followed(each[0], each[names.index("other")], other.classes, data),
            answers=data.answers,
            labels=data.labels if data.has_classes else (),
            notes=notes,
        )


LACKING = {
    "none": "no rationale at the query",
    "other": "rationales of other queries",
    "shuffled": "shuffled sentences",
    "demonstrations": "exchanged rationales in the demonstrations",
}
"""Contexts in notes."""


def _right_log_prob(read: Read, data: PromptBatch) -> Float[Tensor, " batch"]:
    scores = read[0].double().log_softmax(-1)
    return scores.gather(1, data.answers[:, None])[:, 0]


def _followed(
    plain: Read, exchanged: Read, classes: Sequence[int | None], data: PromptBatch
) -> Float[Tensor, " batch"] | None:
    """Change of the other class's log-probability beyond that of the remaining wrong classes; None if undefined."""
    if data.n_labels < 3 or None in classes:
        return None
    there = torch.tensor([int(c or 0) for c in classes])[:, None]
    change = exchanged[0].double().log_softmax(-1) - plain[0].double().log_softmax(-1)
    moved = change.gather(1, there)[:, 0]
    rest = change.sum(1) - moved - change.gather(1, data.answers[:, None])[:, 0]
    return moved - rest / (data.n_labels - 2)


rationale_use = door(RationaleUse, "rationale_use", prompts="With rationales and answers.")
