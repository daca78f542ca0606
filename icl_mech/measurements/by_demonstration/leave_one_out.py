"""Leaving one demonstration out: what each of them changes.

`Δ_d = log P(y | all demonstrations) - log P(y | all but d)`, `P` among the label words and `y` the true
class. The prompt without `d` is a prompt of its own: all its tokens, template included, are gone, and
what follows moves forward.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

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
from icl_mech.results import Definition, Figure, Result, basis, quantity
from icl_mech.results.judging import FEWEST_PROMPTS, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said
from icl_mech.shapes import LayerCurves

EFFECT = Definition(
    "effect of a demonstration",
    r"\Delta_d = \log P(y \mid D) - \log P(y \mid D \setminus d)",
    "How much higher the log-probability of the true label y, among the label words, is with "
    "demonstration d than without it. The prompt without it is shorter; nothing stands in its place.",
)

NATS = "log-probability (nats)"


@dataclass(frozen=True, eq=False, kw_only=True)
class LeaveOneOutResult(Result):
    """What leaving out single demonstrations changes, in prompt order.

    Attributes:
        change: Log-probability of the true label, among the label words, with a demonstration minus
            without it (nats).
        log_prob: The same with all of them.
        classes: Class each demonstration displays.
        answers: True class of each query.
        labels: Names of the classes.
    """

    change: Float[Tensor, "batch demo"] = quantity(NATS)
    log_prob: Float[Tensor, " batch"] = quantity(NATS)
    classes: Int[Tensor, "batch demo"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...] = ()

    title: ClassVar[str] = "Leaving one demonstration out"
    definitions: ClassVar[tuple[Definition, ...]] = (EFFECT,)

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
        same = self.classes == self.answers[:, None]
        rows = [torch.stack([self.change.double().mean(0), *mean_ends(self.change)])]
        rows += [_means_where(self.change, kind) for kind in (same, ~same)]
        values, low, high = torch.stack(rows, dim=1).flip(-1)
        return LayerCurves(
            "What a demonstration changes",
            ("all", "of the query's class", "of other classes"),
            *(values, low, high),
            y_title="log-probability of the true label (nats)",
            note=basis(self),
            x=tuple(map(float, range(1, self.change.shape[1] + 1))),
            x_title="demonstrations back from the query",
            meanings=("other", "label", "text"),
            levels=((0.0, "changes nothing"),),
        )

    def figures(self) -> list[Figure]:
        """Which demonstrations help."""
        place, same = int(self.change.double().mean(0).argmax()), self.same_class()
        back, effect = self.change.shape[1] - place, self.interval("change", demo=place)
        words = (
            f"demonstrations of the query's own class {said(same, sign=True)} nats more than the others"
            if same is not None
            else "no prompt has demonstrations of its own class and of others"
        )
        prompts = len(self.change)
        return [
            Figure(
                question="Do demonstrations of the right class help most?",
                answer=f"{opening(judged(same, prompts=prompts))} leaving one out, {words}; the largest "
                f"mean effect has {before_query(back)} ({said(effect, sign=True)} nats; picked as the "
                "largest).",
                caption="**Log-probability of the true label with a demonstration minus without it**, "
                "counted back from the query; dots of one colour: those of the query's class, and all "
                "others. Bands (each point for itself): 95 % intervals over "
                f"{counted(prompts, 'prompt')}{given(self)}.",
                establishes="What single demonstrations change, the model run again without them.",
                limits="what they change together: demonstrations may stand in for each other.",
                short="Leaving one out",
            )
        ]

    def summary(self) -> str:
        """Own class against others."""
        same, prompts = self.same_class(), len(self.change)
        if same is None:
            return f"{self.change.shape[1]} demonstrations, {prompts} prompts"
        return f"effect of the query's class minus that of others: {same} nats, {prompts} prompts"


def _means_where(
    change: Float[Tensor, "batch demo"], kind: Bool[Tensor, "batch demo"]
) -> Float[Tensor, "end demo"]:
    """Mean and ends by demonstration over the prompts in which it is of this kind, where enough are."""
    row = torch.full((3, change.shape[1]), torch.nan, dtype=torch.float64)
    for demo in range(change.shape[1]):
        own = change[kind[:, demo], demo]
        if len(own) >= FEWEST_PROMPTS:
            row[:, demo] = torch.stack([own.double().mean(), *mean_ends(own)])
    return row


def before_query(back: int) -> str:
    """A demonstration by its place before the query."""
    return "the one before the query" if back == 1 else f"number {back} back from the query"


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
        """No: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts that lose something else with a demonstration.

        Raises:
            PromptError: prompts without answers, demonstrations or text roles, with different
                numbers of demonstrations, or that consist of one demonstration only.
        """
        _ = data.answers
        check_same_count(data, "leaving one out")
        for number, prompt in enumerate(data):
            if not prompt.has_text_roles:
                raise PromptError(
                    f"Prompt {number} was made from bare positions; where its demonstrations begin and "
                    "end is not known. Build the prompts with build_prompts or prompts_from_text."
                )
            if prompt.label_positions[-1] > prompt.target:
                raise PromptError(
                    f"Prompt {number} goes on after its target; leave what follows it out."
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
        logits = [own[0][0].double().log_softmax(-1) for own in read]
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
        # What is left stays tokenised as it was beside what is gone.
        exact=False,
        text="",
        parts=(),
    )


leave_one_out = door(
    LeaveOneOut,
    "leave_one_out",
    prompts="Prompts with answers and the same number of demonstrations each.",
    interventions="Made in every pass; those that go by the number of a prompt are refused.",
)
