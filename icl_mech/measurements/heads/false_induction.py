"""False induction heads: heads that match labels of alike demonstrations and promote them.

Heads are chosen by prefix matching on one task (permuted labels, at the target) and then
tested: are they class-sensitive beyond what the labels' order gives, do they promote the
false label, and how much of the gap between true and false demonstrations does zeroing them
close on *other* tasks, against random heads of the same layers?

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import Path
from icl_mech.errors import PromptError, ResultError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.false_prompts import false_prompts, pairs_of
from icl_mech.measurements.heads.scores import HeadScores
from icl_mech.measurements.heads.scoring import HeadScoring
from icl_mech.measurements.running import measured
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Quantity, Result, basis
from icl_mech.shapes import Table
from icl_mech.tasks import Task, as_task

if TYPE_CHECKING:
    import pandas as pd

SCORES = {
    "prefix_matching": "prefix-matching score",
    "above_shuffled": "prefix matching above its control",
    "label_promoting": "logit of false label above true label",
}
"""By what heads are ranked, and what makes them class-sensitive and promoting."""


@dataclass(frozen=True, eq=False, kw_only=True)
class FalseInductionHeads(Result):
    """Heads ranked by prefix matching, best first, and what each control says.

    Attributes:
        heads: (layer, head) pairs, all heads of the model.
        chosen: How many of the first count as found.
        prefix_matching: Mean score of each ranked head.
        matching_low: Lower end of its 95 % bootstrap interval over prompts.
        matching_high: Upper end.
        class_sensitive: The score is above its shuffled-label control: the interval of the
            paired difference lies above 0.
        promoting: Mean logit of the false label above the true one.
        promoting_low: Lower end of its interval.
        promoting_high: Upper end.
        task: Where they were chosen.
        scores: Of every prompt and head (by its place in the model, not by rank): those of
            `SCORES`; None in results that were saved without them.
    """

    title: ClassVar[str] = "False induction heads"

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
        """The scores heads are ranked and tested by."""
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
        """Chosen heads that are class-sensitive and promote the false label."""
        return tuple(
            head
            for i, head in enumerate(self.top)
            if self.class_sensitive[i] and float(self.promoting_low[i]) > 0
        )

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
    ) -> Ablation:
        """Zero the chosen heads on another task, against random heads.

        Raises:
            ResultError: the task the heads were chosen on.
        """
        chosen = as_task(task)
        if chosen.name == self.task:
            raise ResultError(
                f"The heads were chosen on {self.task!r}; testing them there would flatter them. "
                "Give another task."
            )
        true, false = pairs_of(model, chosen, shots, n, seed)
        return ablation(model, true, false, heads=self.top, draws=draws, progress=progress)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, by rank."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": layer,
                "head": head,
                "prefix_matching": float(self.prefix_matching[i]),
                "low": float(self.matching_low[i]),
                "high": float(self.matching_high[i]),
                "class_sensitive": self.class_sensitive[i],
                "label_promoting": float(self.promoting[i]),
                "promoting_low": float(self.promoting_low[i]),
                "promoting_high": float(self.promoting_high[i]),
                "chosen": i < self.chosen,
            }
            for i, (layer, head) in enumerate(self.heads)
        )

    def drawing(self, rows: Count = 10) -> Table:
        """The first ranks as a table."""
        return Table(
            title=f"Heads by prefix matching on {self.task}",
            columns=("head", "prefix matching", "class-sensitive", "label promoting (logits)"),
            rows=tuple(
                (
                    f"{layer}.{head}" + (" (chosen)" if i < self.chosen else ""),
                    f"{float(self.prefix_matching[i]):.3f} [{float(self.matching_low[i]):.3f}, "
                    f"{float(self.matching_high[i]):.3f}]",
                    "yes" if self.class_sensitive[i] else "no",
                    f"{float(self.promoting[i]):.3f} [{float(self.promoting_low[i]):.3f}, "
                    f"{float(self.promoting_high[i]):.3f}]",
                )
                for i, (layer, head) in enumerate(self.heads[:rows])
            ),
            note=f"{basis(self)}; class-sensitive: above the score with labels shuffled",
        )

    def summary(self) -> str:
        """The chosen heads and how many hold up."""
        names = ", ".join(f"{layer}.{head}" for layer, head in self.top)
        return (
            f"chosen on {self.task} by prefix matching (layer.head): {names}; "
            f"{sum(self.class_sensitive[: self.chosen])} class-sensitive, {len(self.confirmed)} "
            "class-sensitive and promoting the false label"
        )


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
    above_low, _ = above.ends()
    return FalseInductionHeads(
        heads=order,
        chosen=min(top, len(order)),
        prefix_matching=matching.value()[layers, heads],
        matching_low=matching_low[layers, heads],
        matching_high=matching_high[layers, heads],
        class_sensitive=tuple(bool(value > 0) for value in above_low[layers, heads]),
        promoting=promoting.value()[layers, heads],
        promoting_low=promoting_low[layers, heads],
        promoting_high=promoting_high[layers, heads],
        task=task,
        scores=torch.stack([quantities[name].per_prompt for name in SCORES], dim=1),
    )


def find_false_induction_heads(
    model: Any,
    task: str | Task | PromptBatch = "unnatural",
    *,
    top: int = 5,
    shots: int = 4,
    n: int = 100,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
) -> FalseInductionHeads:
    """Rank all heads by prefix matching on false demonstrations of one task.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        task: Name, task, or prompts with permuted labels.
        top: How many heads are chosen.
        shots: Demonstrations per class.
        n: Prompts.
        seed: Of texts, order and shifts.
        interventions: Made during the pass.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        IclMechError: as `build_prompt_pairs` and `head_scores`.

    Source: Halawi et al. 2023, §5.
    """
    false = false_prompts(model, task, shots=shots, n=n, seed=seed)
    return measured(
        FindHeads(top, seed), model, false, interventions=interventions,
        batch_size=batch_size, memory=memory, path=path, progress=progress,
    )  # fmt: skip
