"""Measures the scores of attention heads at the target, see `icl_mech.measurements.heads.scores`.

One pass: attention to label words and, where a false class is taught, the heads' lens.

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import AnyReading
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.label_attention import (
    Attended,
    LabelAttentionReading,
    attention_scores,
    matched_classes,
)
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.lens.components import (
    Components,
    FrozenComponentReading,
    Norm,
    OwnComponentReading,
    check_own_weights,
    check_sum,
)
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class HeadScoring(Measurement[HeadScores]):
    """Prefix matching, label attending and label promoting of every head, at the target.

    Attributes:
        norm: Of label promoting: `frozen` or `own`.
        over: Attention to the `labels`, or to the tokens `before_labels`.
        permutations: Of the labels in the shuffled control.
        seed: Of the permutations.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no one rule.
        RunError: unknown options, processed weights, or components that do not add up.

    Source: Halawi et al. 2023, §5.
    """

    name: ClassVar[str] = "head_scores"
    side: ClassVar[Literal["true", "false"] | None] = "false"

    norm: Norm = "frozen"
    over: Attended = "labels"
    permutations: Count = 20
    seed: Natural = 0

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without a class to match, and weights that are not the checkpoint's.

        Raises:
            PromptError: prompts without demonstrations, or whose labels follow no one rule.
            RunError: processed weights, or no permutations.
        """
        _classes(data)
        check_own_weights(model)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Attention to label words and, where a false class is taught, the heads' lens."""
        readings: list[AnyReading] = [LabelAttentionReading(self.over)]
        if data.has_answers and all(prompt.false_answer is not None for prompt in data):
            frozen = self.norm == "frozen"
            readings.append(FrozenComponentReading() if frozen else OwnComponentReading())
        return [Pass(data, readings, title="head scores")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> HeadScores:
        """Scores of heads.

        Raises:
            RunError: components that do not add up.
        """
        attention, *components = read[0]
        classes = _classes(data)
        scores = attention_scores(
            attention[:, :, 0], data, classes,
            over=self.over, permutations=self.permutations, seed=self.seed,
        )  # fmt: skip
        promoting = None
        for found in components:
            if isinstance(found, Components):
                check_sum(found, model)
            heads = (found.heads if isinstance(found, Components) else found[0]).movedim(-1, 1)
            each = torch.arange(len(data))
            promoting = heads[each, classes] - heads[each, data.answers]
        return HeadScores(**scores._asdict(), promoting=promoting, n_labels=data.n_labels)


def _classes(prompts: PromptBatch) -> Int[Tensor, " batch"]:
    """The class each target would match.

    Raises:
        PromptError: prompts without demonstrations, or whose labels follow no one rule.
    """
    if not all(prompt.label_classes for prompt in prompts):
        raise PromptError("Head scores need prompts with demonstrations; use shots >= 1.")
    classes = matched_classes(prompts)
    if classes is None:
        raise PromptError(
            f"Prefix matching needs one class that the demonstrations teach for the query; with "
            f"labels={prompts.source.get('labels')!r} there is none. Use 'permuted', "
            "'half_permuted' or 'correct'."
        )
    return classes


head_scores = door(
    HeadScoring,
    "head_scores",
    prompts='False prompts (`labels="permuted"` or `"half_permuted"`), or true ones.',
)
