"""False induction heads: heads that match labels of similar demonstrations and promote them.

Heads are chosen by prefix matching on one task (permuted labels, at the target) and then
tested: are they class-sensitive beyond the effect of the labels' order, do they promote the
false label, and how much of the gap between true and false demonstrations does zeroing them
close on *other* tasks, compared with random heads of the same layers?

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.measurements.base import Measurement, Pair, Pass
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.heads.ablation import AblationResult, ablation
from icl_mech.measurements.heads.chosen import both, ends_by_head, of_heads, status_of
from icl_mech.measurements.heads.head_scores import HeadScores, HeadScoresResult
from icl_mech.measurements.heads.label_attention import MATCHING, SHUFFLED
from icl_mech.measurements.heads.promoting import PROMOTING
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.metrics import Interval, above_together
from icl_mech.metrics.intervals import ONE_SIDED
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, Status
from icl_mech.results.quantities import kept
from icl_mech.tasks import Task, as_task

SCORES = {
    "prefix_matching": "prefix-matching score",
    "above_shuffled": "prefix matching above its control",
    "label_promoting": "logit of false label above true label",
}
"""Scores by which heads are ranked, and tested for class sensitivity and promotion."""


class HeldOutHead(NamedTuple):
    """Scores of a head on prompts that did not choose it.

    Attributes:
        name: The head as `layer.head`.
        above: Its prefix matching minus the score with shuffled labels.
        promoting: Its label promoting.
    """

    name: str
    above: Interval
    promoting: Interval


@dataclass(frozen=True, eq=False, kw_only=True)
class FalseInductionResult(Result):
    """Heads ranked by prefix matching, best first, with the results of each control.

    Attributes:
        heads: (layer, head) pairs, all heads of the model.
        chosen: Number of top heads that count as chosen.
        prefix_matching: Mean score of each ranked head.
        matching_low: Lower end of its 95 % bootstrap interval over prompts.
        matching_high: Upper end.
        class_sensitive: The score is above its shuffled-label control, corrected for all heads
            of the model (max-T, one-sided 2.5 %): the best were picked on the same prompts.
        promoting: Mean logit of the false label above the true one.
        promoting_low: Lower end of its interval.
        promoting_high: Upper end.
        task: Task they were chosen on.
        scores: Scores of every prompt and head (by its index in the model, not by rank): those of
            `SCORES`; None in results that were saved without them.
    """

    ranked: ClassVar[bool] = True
    definitions: ClassVar[tuple[Definition, ...]] = (MATCHING, SHUFFLED, PROMOTING)

    heads: tuple[tuple[int, int], ...]
    chosen: int
    prefix_matching: Float[Tensor, " rank"]
    matching_low: Float[Tensor, " rank"]
    matching_high: Float[Tensor, " rank"]
    class_sensitive: tuple[bool, ...]
    promoting: Float[Tensor, " rank"]
    promoting_low: Float[Tensor, " rank"]
    promoting_high: Float[Tensor, " rank"]
    task: str
    scores: Float[Tensor, "batch score layer head"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """Scores by which heads are ranked and tested."""
        if self.scores is None:
            return {}
        return {
            name: Quantity(("layer", "head"), values, unit=SCORES[name])
            for name, values in zip(SCORES, self.scores.unbind(1), strict=True)
        }

    @property
    def top(self) -> tuple[tuple[int, int], ...]:
        """The chosen heads."""
        return self.heads[: self.chosen]

    @property
    def confirmed(self) -> tuple[tuple[int, int], ...]:
        """Chosen heads that are class-sensitive and promote the false label.

        Both are corrected for all heads of the model, since the chosen ones were selected on the same prompts.
        """
        return tuple(
            head
            for head, sensitive, promotes in zip(
                self.top, self.class_sensitive, self._promotes, strict=False
            )
            if sensitive and promotes
        )

    @property
    @kept
    def _promotes(self) -> tuple[bool, ...]:
        """Whether each head promotes the false label, by rank."""
        if self.scores is None:
            return tuple((self.promoting_low > 0).tolist())
        clear = above_together(
            self.scores[:, list(SCORES).index("label_promoting")], level=ONE_SIDED
        )
        return tuple(bool(clear[head]) for head in self.heads)

    def test(
        self,
        model: Any,
        task: str | Task,
        *,
        shots: int = 2,
        n: int = 100,
        seed: int = 0,
        draws: int = 20,
        progress: bool | None = None,
    ) -> AblationResult:
        """Zero the chosen heads on another task, and compare with random heads.

        Raises:
            ResultError: the task the heads were chosen on.
        """
        chosen = as_task(task)
        if chosen.name == self.task:
            raise ResultError(
                f"The heads were chosen on {self.task!r}; testing them on the same task would be "
                "biased in their favour. Give another task."
            )
        true, false = pairs_of(model, chosen, shots, n, seed)
        return ablation(model, true, false, heads=self.top, draws=draws, progress=progress)

    def more_columns(self) -> Mapping[str, list[bool]]:
        """Whether each head, by its index in the model, is class-sensitive, and whether it is chosen."""
        order = sorted(range(len(self.heads)), key=self.heads.__getitem__)
        return {
            "class_sensitive": [self.class_sensitive[rank] for rank in order],
            "chosen": [rank < self.chosen for rank in order],
        }

    @kept
    def held_out(self) -> dict[str, tuple[Interval, Interval]] | None:
        """Held-out check of the choice: heads chosen on one half of the prompts, scored on the other.

        Returns:
            Scores by head as `layer.head`, best first: prefix matching above its shuffled control, and
            label promoting, both on the other half, with simultaneous intervals for all of
            them. None for results saved without the scores of every prompt, or of one
            prompt.
        """
        half = self.second_half()
        return None if half is None else ends_by_head(half[1], half[2], half[0])

    def second_half(
        self,
    ) -> (
        tuple[
            tuple[tuple[int, int], ...],
            Float[Tensor, "batch chosen"],
            Float[Tensor, "batch chosen"],
        ]
        | None
    ):
        """Heads chosen on one half of the prompts, and their scores on the other.

        Returns:
            The heads, best first, their prefix matching above its shuffled control, and their label promoting.
            None for results saved without the scores of every prompt, or of one prompt.
        """
        if self.scores is None or len(self.scores) < 2:
            return None
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(self.scores)))
        half = (len(order) + 1) // 2
        choosing, testing = (self.scores[part].double() for part in (order[:half], order[half:]))
        matching = choosing[:, 0].mean(0)
        best = matching.flatten().argsort(descending=True, stable=True)[: self.chosen].tolist()
        heads = tuple(divmod(int(place), matching.shape[1]) for place in best)
        above, promoting = (of_heads(testing[:, score], heads) for score in (1, 2))
        return heads, above, promoting

    # --- facts ---

    @property
    def count(self) -> int:
        """Number of prompts that chose the heads; 0 where single prompts were not kept."""
        return 0 if self.scores is None else len(self.scores)

    @property
    def too_few(self) -> bool:
        """True if there are too few prompts for a conclusion about the chosen heads."""
        return self.scores is not None and self.count < FEWEST_PROMPTS

    @property
    def tested(self) -> int:
        """Number of prompts in the half that did not choose."""
        return self.count // 2

    @property
    def status(self) -> Status:
        """Status of the claim that some heads chosen on one half of the prompts hold up on the other."""
        return status_of(self.held_out(), self.tested if self.count else None)

    @property
    def holding_up(self) -> tuple[str, ...]:
        """Names of the heads that hold up."""
        return tuple(both(self.held_out(), self.tested))

    @property
    def highest_held_out(self) -> HeldOutHead | None:
        """The head of `held_out` with the highest prefix matching above its control."""
        heads = self.held_out()
        if not heads:
            return None
        name = max(heads, key=lambda name: heads[name][0].value)
        return HeldOutHead(name, *heads[name])


@checked(RunError)
def false_prompts(
    model: Any, task: Any, *, shots: Count = 4, n: Count, seed: Natural
) -> PromptBatch:
    """Prompts of a task (or its name) with permuted labels and separate demonstrations each, or
    the given prompts.

    Raises:
        IclMechError: see `build_prompt_pairs`.
    """
    return task if isinstance(task, PromptBatch) else pairs_of(model, task, shots, n, seed)[1]


def pairs_of(model: Any, task: str | Task, shots: int, n: int, seed: int) -> Pair:
    """Pairs of prompts of a task, with separate demonstrations each."""
    tokenizer = model if hasattr(model, "tokenizer") else adapt(model)
    return build_prompt_pairs(
        as_task(task), tokenizer, shots=shots, n=n, seed=seed, demonstrations="per_prompt"
    )


@dataclass(frozen=True)
class FalseInduction(Measurement[FalseInductionResult]):
    """All heads ranked by prefix matching on false prompts, with the results of each control.

    Attributes:
        top: Number of heads that are chosen.
        seed: Seed of the permutations of the shuffled control.
    """

    side: ClassVar[Literal["true", "false"] | None] = "false"

    top: Count = 5
    seed: Natural = 0

    why_not = "prefix matching compares demonstrations of the query's class with the others"

    @property
    def scoring(self) -> HeadScores:
        """The measurement that scores the heads."""
        return HeadScores(seed=self.seed)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts whose labels promote no false class.

        Raises:
            PromptError: true prompts, and prompts that head scores reject.
            RunError: no heads chosen, or processed weights.
        """
        self.scoring.check(model, data)
        if not data.has_answers or any(prompt.false_answer is None for prompt in data):
            raise PromptError(
                "Label promoting needs false demonstrations; build the prompts with "
                "labels='permuted'."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The passes of head scores."""
        return self.scoring.passes(model, data)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> FalseInductionResult:
        """The table of all heads from their scores."""
        task = data.source.get("task", {}).get("name", "prompts")
        return rank_heads(self.scoring.result(model, data, read), self.top, str(task))


def rank_heads(scores: HeadScoresResult, top: int, task: str) -> FalseInductionResult:
    """All heads by prefix matching, of which the first `top` are chosen on this task."""
    order = scores.top(scores.prefix_matching.numel())
    layers, heads = (torch.tensor(axis) for axis in zip(*order, strict=True))
    quantities = scores.quantities()
    matching, above, promoting = (quantities[name] for name in SCORES)
    matching_low, matching_high = matching.ends()
    promoting_low, promoting_high = promoting.ends()
    # All heads together: the best were picked among them on these prompts.
    sensitive = above_together(above.per_prompt, level=ONE_SIDED)
    return FalseInductionResult(
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
) -> FalseInductionResult:
    """Rank all heads by prefix matching on false demonstrations of one task.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        task: Name, task, or prompts with permuted labels.
        top: Number of heads that are chosen.
        shots: Demonstrations per class.
        n: Number of prompts.
        seed: Seed of texts, order and shifts.

    Raises:
        IclMechError: see `build_prompt_pairs` and `head_scores`.

    Source: Halawi et al. 2023, §5.
    """
    false = false_prompts(model, task, shots=shots, n=n, seed=seed)
    return measured(FalseInduction(top, seed), model, false, **how)
