"""Leave-one-out: the effect of removing each demonstration.

`Δ_d = log P(y | all demonstrations) - log P(y | all but d)`, `P` among the label words and `y` the true
class. The prompt without `d` is run as a separate prompt: all its tokens, template included, are removed, and
later tokens move forward.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.demonstrations import check_same_count
from icl_mech.measurements.doors import door
from icl_mech.measurements.reading import PredictionReading
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch, Span
from icl_mech.results import Definition, Result, quantity
from icl_mech.results.judging import FEWEST_PROMPTS, Status, judged
from icl_mech.results.quantities import kept

EFFECT = Definition(
    "effect of a demonstration",
    r"\Delta_d = \log P(y \mid D) - \log P(y \mid D \setminus d)",
    "By how much demonstration d raises the log-probability of the true label y among the label "
    "words. The prompt without it is shorter: nothing is inserted in its place.",
)

NATS = "log-probability (nats)"


class Largest(NamedTuple):
    """The demonstration with the largest mean effect; its interval ignores that it was selected as the largest.

    Attributes:
        back: Its position, counted back from the query, from 1.
        effect: Its mean effect.
    """

    back: int
    effect: Interval


@dataclass(frozen=True, eq=False, kw_only=True)
class LeaveOneOutResult(Result):
    """Effect of leaving out single demonstrations, in prompt order.

    Attributes:
        change: Log-probability of the true label, among the label words, with a demonstration minus
            without it (nats).
        log_prob: The log-probability with all of them.
        classes: Class each demonstration displays.
        answers: True class of each query.
        labels: Names of the classes.
    """

    change: Float[Tensor, "batch demo"] = quantity(NATS)
    log_prob: Float[Tensor, " batch"] = quantity(NATS)
    classes: Int[Tensor, "batch demo"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()

    definitions: ClassVar[tuple[Definition, ...]] = (EFFECT,)

    @property
    def count(self) -> int:
        """Number of demonstrations."""
        return self.change.shape[1]

    @property
    def prompts(self) -> int:
        """Number of prompts."""
        return len(self.change)

    @kept
    def same_class(self) -> Interval | None:
        """Effect of demonstrations of the query's class minus that of the others, mean over prompts.

        Prompts that have only one of these groups are left out; None if there are no others.
        """
        return above_other_classes(self.change, self._of_same_class)

    @property
    def _of_same_class(self) -> Bool[Tensor, "batch demo"]:
        return self.classes == self.answers[:, None]

    @property
    def status(self) -> Status:
        """Status of the claim that demonstrations of the query's class help more than the others."""
        return judged(self.same_class(), prompts=self.prompts)

    @property
    def largest(self) -> Largest:
        """The demonstration that helps most."""
        demo = int(self.change.double().mean(0).argmax())
        return Largest(self.count - demo, self.interval("change", demo=demo))

    def effects(self) -> Float[Tensor, "kind end demo"]:
        """Mean effects with their intervals: of all demonstrations, of the query's class, and of other classes.

        The latter two are over the prompts that have such a demonstration at that position, and not-a-number where
        too few have.
        """
        every = torch.stack([self.change.double().mean(0), *mean_ends(self.change)])
        same = self._of_same_class
        return torch.stack([every, *(means_where(self.change, of) for of in (same, ~same))])


def means_where(
    change: Float[Tensor, "batch demo"], member: Bool[Tensor, "batch demo"]
) -> Float[Tensor, "end demo"]:
    """Means and their ends by demonstration over the prompts in which it is a member, where there are enough."""
    row = torch.full((3, change.shape[1]), torch.nan, dtype=torch.float64)
    for demo in range(change.shape[1]):
        changes = change[member[:, demo], demo]
        if len(changes) >= FEWEST_PROMPTS:
            row[:, demo] = torch.stack([changes.double().mean(), *mean_ends(changes)])
    return row


def above_other_classes(
    values: Float[Tensor, "batch demo"], same: Bool[Tensor, "batch demo"]
) -> Interval | None:
    """Mean over demonstrations of the query's class minus the mean over the others, averaged over prompts with both.

    None if no prompt has both.
    """
    both = same.any(1) & (~same).any(1)
    if not bool(both.any()):
        return None
    member, inside = same[both].double(), values[both].double()
    means = [(inside * part).sum(1) / part.sum(1) for part in (member, 1 - member)]
    return mean_interval(means[0] - means[1])


@dataclass(frozen=True)
class LeaveOneOut(Measurement[LeaveOneOutResult]):
    """The effect of every demonstration on the log-probability of the true label.

    One pass over `batch x demo` prompts; beginnings they share are run once.

    Raises:
        PromptError: prompts without answers, demonstrations or text roles, or with different
            numbers of demonstrations.
    """

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts in which leaving a demonstration out would remove more than the demonstration.

        Raises:
            PromptError: prompts without answers, demonstrations or text roles, with different
                numbers of demonstrations, or that consist of one demonstration only.
        """
        _ = data.answers
        check_same_count(data, "leaving one out")
        for number, prompt in enumerate(data):
            if not prompt.has_text_roles:
                raise PromptError(
                    f"Prompt {number} was built from bare positions, so it is unknown where its "
                    "demonstrations begin and end. Build the prompts with build_prompts or "
                    "prompts_from_text."
                )
            if prompt.label_positions[-1] > prompt.target:
                raise PromptError(
                    f"Prompt {number} continues after its target; remove the tokens after the "
                    "target."
                )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and all of them without each demonstration."""
        fewer = tuple(without(prompt, demo) for prompt in data for demo in range(data.n_demos))
        return [
            Pass(data, [PredictionReading()], title="prompts"),
            Pass(PromptBatch(fewer, data.source), [PredictionReading()], title="leaving one out"),
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> LeaveOneOutResult:
        """Differences of log-probabilities among the label words."""
        logits = [values[0][0].double().log_softmax(-1) for values in read]
        fewer = logits[1].unflatten(0, (len(data), data.n_demos))
        place = data.answers[:, None]
        whole = logits[0].gather(1, place)
        left = fewer.gather(2, place[:, None].expand(-1, data.n_demos, 1))[..., 0]
        return LeaveOneOutResult(
            change=whole - left,
            log_prob=whole[:, 0].contiguous(),
            classes=data.label_classes,
            answers=data.answers,
            labels=data.labels,
        )


def without(prompt: Prompt, demo: int) -> Prompt:
    """The prompt without one of its demonstrations, whose text, label word and template are removed.

    Raises:
        PromptError: there is no such demonstration.
    """
    if not 0 <= demo < len(prompt.label_classes):
        raise PromptError(
            f"demo={demo}, but the prompt has demonstrations 0 to {len(prompt.label_classes) - 1}."
        )
    kept: list[int] = []
    spans: list[Span] = []
    for span in prompt.spans:
        if span.demo == demo:
            continue
        start = len(kept)
        kept += range(span.start, span.stop)
        shifted = span.demo - 1 if span.demo is not None and span.demo > demo else span.demo
        spans.append(replace(span, demo=shifted, start=start, stop=len(kept)))
    return replace(
        prompt,
        tokens=tuple(prompt.tokens[place] for place in kept),
        spans=tuple(spans),
        label_classes=tuple(c for d, c in enumerate(prompt.label_classes) if d != demo),
        pieces=tuple(prompt.pieces[place] for place in kept) if prompt.pieces else (),
        # The remaining tokens are kept as they were tokenised with the removed ones.
        exact=False,
        text="",
        parts=(),
    )


leave_one_out = door(
    LeaveOneOut,
    "leave_one_out",
    prompts="Prompts with answers and the same number of demonstrations each.",
    interventions=(
        "Applied in every pass; those that depend on the index of a prompt raise an error."
    ),
)
