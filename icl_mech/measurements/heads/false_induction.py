"""False induction heads: heads that match labels of alike demonstrations and promote them.

Heads are chosen by prefix matching on one task (permuted labels, at the target) and then
tested: are they class-sensitive beyond what the labels' order gives, do they promote the
false label, and how much of the gap between true and false demonstrations does zeroing them
close on *other* tasks, against random heads of the same layers?

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.heads.false_heads import SCORES, FalseInductionHeads, false_prompts
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.metrics import ONE_SIDED, above_together
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.tasks import Task

__all__ = ["FalseInductionHeads", "FindHeads", "find_false_induction_heads", "rank_heads"]


@dataclass(frozen=True)
class FindHeads(Measurement[FalseInductionHeads]):
    """All heads ranked by prefix matching on false prompts, with what each control says.

    Attributes:
        top: How many heads are chosen.
        seed: Of the permutations of the shuffled control.
    """

    name: ClassVar[str] = "false_induction"
    side: ClassVar[Literal["true", "false"] | None] = "false"

    top: Count = 5
    seed: Natural = 0

    @property
    def scoring(self) -> HeadScoring:
        """How the heads are scored."""
        return HeadScoring(seed=self.seed)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts whose labels promote nothing false.

        Raises:
            PromptError: true prompts, and what head scores refuse.
            RunError: no heads chosen, or processed weights.
        """
        self.scoring.check(model, data)
        if not data.has_answers or any(prompt.false_answer is None for prompt in data):
            raise PromptError("Label promoting needs false demonstrations; use labels='permuted'.")

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Those of head scores."""
        return self.scoring.passes(model, data)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> FalseInductionHeads:
        """The table of all heads from their scores."""
        task = data.source.get("task", {}).get("name", "prompts")
        return rank_heads(self.scoring.result(model, data, read), self.top, str(task))


def rank_heads(scores: HeadScores, top: int, task: str) -> FalseInductionHeads:
    """All heads by prefix matching, of which the first `top` are chosen on this task."""
    order = scores.top(scores.prefix_matching.numel())
    layers, heads = (torch.tensor(axis) for axis in zip(*order, strict=True))
    quantities = scores.quantities()
    matching, above, promoting = (quantities[name] for name in SCORES)
    matching_low, matching_high = matching.ends()
    promoting_low, promoting_high = promoting.ends()
    # All heads together: the best were picked among them on these prompts.
    sensitive = above_together(above.per_prompt, level=ONE_SIDED)
    return FalseInductionHeads(
        heads=order,
        chosen=min(top, len(order)),
        prefix_matching=matching.value()[layers, heads],
        matching_low=matching_low[layers, heads],
        matching_high=matching_high[layers, heads],
        class_sensitive=tuple(sensitive[layers, heads].tolist()),
        promoting=promoting.value()[layers, heads],
        promoting_low=promoting_low[layers, heads],
        promoting_high=promoting_high[layers, heads],
        task=task,
        scores=torch.stack([quantities[name].per_prompt for name in SCORES], dim=1),
    )


@with_options
def find_false_induction_heads(
    model: Any,
    task: str | Task | PromptBatch = "unnatural",
    *,
    top: int = 5,
    shots: int = 4,
    n: int = 100,
    seed: int = 0,
    **how: Unpack[How],
) -> FalseInductionHeads:
    """Rank all heads by prefix matching on false demonstrations of one task.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        task: Name, task, or prompts with permuted labels.
        top: How many heads are chosen.
        shots: Demonstrations per class.
        n: Prompts.
        seed: Of texts, order and shifts.

    Raises:
        IclMechError: as `build_prompt_pairs` and `head_scores`.

    Source: Halawi et al. 2023, §5.
    """
    false = false_prompts(model, task, shots=shots, n=n, seed=seed)
    return measured(FindHeads(top, seed), model, false, **how)
