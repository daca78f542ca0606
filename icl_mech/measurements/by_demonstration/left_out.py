"""Leaving one demonstration out: what each of them changes.

`Δ_d = log P(y | all demonstrations) - log P(y | all but d)`, `P` among the label words and `y` the true
class. The prompt without `d` is a prompt of its own: all its tokens, template included, are gone, and
what follows moves forward.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.by_demonstration.left_out_result import LeftOut
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.doors import door
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch, Span


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
