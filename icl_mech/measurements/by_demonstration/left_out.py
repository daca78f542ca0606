"""Leaving one demonstration out: what each of them changes.

`Δ_d = log P(y | all demonstrations) - log P(y | all but d)`, `P` among the label words and `y` the true
class. The prompt without `d` is a prompt of its own: all its tokens, template included, are gone, and
what follows moves forward.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.by_demonstration.texts import LEFT_OUT, left_out
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.shapes import LayerCurves


@dataclass(frozen=True, eq=False, kw_only=True)
class LeftOut(Result):
    """What leaving out single demonstrations changes, in prompt order.

    Attributes:
        change: Log-probability of the true label, among the label words, with a demonstration minus
            without it (nats).
        log_prob: The same with all of them.
        classes: Class each demonstration displays.
        answers: True class of each query.
        labels: Names of the classes.
    """

    change: Float[Tensor, "batch demo"]
    log_prob: Float[Tensor, " batch"]
    classes: Int[Tensor, "batch demo"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()

    title: ClassVar[str] = "Leaving one demonstration out"
    definitions: ClassVar[tuple[Definition, ...]] = LEFT_OUT

    def quantities(self) -> dict[str, Quantity]:
        """`change` by demonstration, and the log-probability with all of them."""
        return {
            "change": Quantity(("demo",), self.change, unit="log-probability (nats)"),
            "log_prob": Quantity((), self.log_prob, unit="log-probability (nats)"),
        }

    def same_class(self) -> Interval | None:
        """Effect of demonstrations of the query's class minus that of the others, mean over prompts.

        Prompts that have one kind only are left out; None if there are no others.
        """
        same = self.classes == self.answers[:, None]
        both = same.any(1) & (~same).any(1)
        if not bool(both.any()):
            return None
        own, change = same[both].double(), self.change[both].double()
        means = [(change * part).sum(1) / part.sum(1) for part in (own, 1 - own)]
        return mean_interval(means[0] - means[1])

    def drawing(self) -> LayerCurves:
        """Mean effects, counted back from the query: of all, and of the query's own class.

        The latter where enough prompts have such a demonstration there.
        """
        count = self.change.shape[1]
        same = self.classes == self.answers[:, None]
        rows = [torch.stack([self.change.double().mean(0), *mean_ends(self.change)])]
        for part in (same, ~same):
            row = torch.full((3, count), torch.nan, dtype=torch.float64)
            for demo in range(count):
                own = self.change[part[:, demo], demo]
                if len(own) >= FEWEST_PROMPTS:
                    low, high = mean_ends(own)
                    row[:, demo] = torch.stack([own.double().mean(), low, high])
            rows.append(row)
        value, low, high = torch.stack(rows, dim=1).flip(-1)
        return LayerCurves(
            "What a demonstration changes",
            ("all", "of the query's class", "of other classes"), value, low, high,
            "log-probability of the true label (nats)", basis(self),
            x=tuple(float(place) for place in range(1, count + 1)),
            x_title="demonstrations back from the query",
            meanings=("other", "label", "text"), levels=((0.0, "changes nothing"),),
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """Which demonstrations help."""
        mean = self.change.double().mean(0)
        place = int(mean.argmax())
        effect, back = self.interval("change", demo=place), len(mean) - place
        return left_out(
            self.same_class(), effect, back, prompts=len(self.change), given=given(self)
        )

    def summary(self) -> str:
        """Own class against others."""
        same = self.same_class()
        return (
            f"effect of the query's class minus that of others: {same} nats, {len(self.change)} prompts"
            if same is not None
            else f"{self.change.shape[1]} demonstrations, {len(self.change)} prompts"
        )


@dataclass(frozen=True)
class LeaveOneOut(Measurement[LeftOut]):
    """The effect of every demonstration on the log-probability of the true label.

    One pass over `batch x demo` prompts; beginnings they share are run once.

    Raises:
        PromptError: prompts without answers, demonstrations or text roles, or with different
            numbers of demonstrations.
    """

    name: ClassVar[str] = "leave_one_out"

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts that lose something else with a demonstration.

        Raises:
            PromptError: prompts without answers, demonstrations or text roles, with different
                numbers of demonstrations, or that consist of one demonstration only.
        """
        _ = data.answers
        check_demonstrations(data, "leaving one out")
        counts = sorted({len(prompt.label_positions) for prompt in data})
        if len(counts) > 1:
            raise PromptError(
                f"The prompts have {counts[0]} to {counts[-1]} demonstrations; effects are averaged "
                "demonstration by demonstration and need the same number in each."
            )
        for number, prompt in enumerate(data):
            if not prompt.has_text_roles:
                raise PromptError(
                    f"Prompt {number} was made from bare positions; where its demonstrations begin and "
                    "end is not known. Build the prompts with build_prompts or prompts_from_text."
                )
            if prompt.label_positions[-1] > prompt.target:
                raise PromptError(
                    f"Prompt {number} goes on behind its target; leave what follows it out."
                )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, and all of them without each demonstration."""
        fewer = tuple(without(prompt, demo) for prompt in data for demo in range(data.n_demos))
        return [
            Pass(data, [PredictionReading()], title="prompts"),
            Pass(PromptBatch(fewer, data.source), [PredictionReading()], title="leaving one out"),
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> LeftOut:
        """Differences of log-probabilities among the label words."""
        logits = [own[0][0].double().log_softmax(-1) for own in read]
        fewer = logits[1].unflatten(0, (len(data), data.n_demos))
        place = data.answers[:, None]
        whole = logits[0].gather(1, place)
        left = fewer.gather(2, place[:, None].expand(-1, data.n_demos, 1))[..., 0]
        return LeftOut(
            change=whole - left,
            log_prob=whole[:, 0].contiguous(),
            classes=data.label_classes,
            answers=data.answers,
            labels=data.labels,
        )


def without(prompt: Prompt, demo: int) -> Prompt:
    """The prompt without one of its demonstrations: its text, label word and template.

    Raises:
        PromptError: there is no such demonstration.
    """
    if not 0 <= demo < len(prompt.label_classes):
        raise PromptError(
            f"demo={demo}; the prompt has demonstrations 0 to {len(prompt.label_classes) - 1}."
        )
    kept: list[int] = []
    spans: list[Span] = []
    for span in prompt.spans:
        if span.demo == demo:
            continue
        start = len(kept)
        kept += range(span.start, span.stop)
        own = span.demo - 1 if span.demo is not None and span.demo > demo else span.demo
        spans.append(replace(span, demo=own, start=start, stop=len(kept)))
    return replace(
        prompt,
        tokens=tuple(prompt.tokens[place] for place in kept),
        spans=tuple(spans),
        label_classes=tuple(c for d, c in enumerate(prompt.label_classes) if d != demo),
        pieces=tuple(prompt.pieces[place] for place in kept) if prompt.pieces else (),
    )


leave_one_out = door(
    LeaveOneOut,
    "leave_one_out",
    prompts="Prompts with answers and the same number of demonstrations each.",
    interventions="Made in every pass; those that go by the number of a prompt are refused.",
)
