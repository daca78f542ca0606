"""False induction heads: heads that match labels of alike demonstrations and promote them.

Heads are chosen by prefix matching on one task (permuted labels, at the target) and then
tested: are they class-sensitive beyond what the labels' order gives, do they promote the
false label, and how much of the gap between true and false demonstrations does zeroing them
close on *other* tasks, against random heads of the same layers?

Source: Halawi et al. 2023, *Overthinking the Truth*, §5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.heads.ablation import Ablation, ablation
from icl_mech.measurements.heads.scores import HeadScores, head_scores
from icl_mech.metrics import bootstrap_interval
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch, build_prompt_pairs
from icl_mech.results import Result
from icl_mech.shapes import Table
from icl_mech.tasks import Task, as_task

if TYPE_CHECKING:
    import pandas as pd


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
        true, false = _pairs(model, chosen, shots, n, seed)
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

    def drawing(self, rows: int = 10) -> Table:
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
            note="95 % bootstrap intervals over prompts; class-sensitive: above the score with "
            "labels shuffled",
        )

    def summary(self) -> str:
        """The chosen heads and how many hold up."""
        names = ", ".join(f"{layer}.{head}" for layer, head in self.top)
        return (
            f"chosen on {self.task} by prefix matching (layer.head): {names}; "
            f"{sum(self.class_sensitive[: self.chosen])} class-sensitive, {len(self.confirmed)} "
            "class-sensitive and promoting the false label"
        )


def find_false_induction_heads(
    model: Any,
    task: str | Task | PromptBatch = "unnatural",
    *,
    top: int = 5,
    shots: int = 4,
    n: int = 100,
    seed: int = 0,
    batch_size: int | None = None,
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
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        IclMechError: as `build_prompt_pairs` and `head_scores`.

    Source: Halawi et al. 2023, §5.
    """
    if isinstance(task, PromptBatch):
        false = task
    else:
        _, false = _pairs(model, as_task(task), shots, n, seed)
    scores = head_scores(model, false, batch_size=batch_size, progress=progress, seed=seed)
    return rank_heads(scores, top)


def rank_heads(scores: HeadScores, top: int = 5) -> FalseInductionHeads:
    """The table of all heads from their scores.

    Raises:
        ResultError: scores of true prompts, whose labels promote nothing false.
    """
    if scores.promoting is None:
        raise ResultError("Label promoting needs false demonstrations; use labels='permuted'.")
    order = scores.top(scores.prefix_matching.numel())
    layers, heads = (torch.tensor(axis) for axis in zip(*order, strict=True))
    low, high = scores.ends("prefix_matching")
    promoting_low, promoting_high = scores.ends("label_promoting")
    above, _ = bootstrap_interval((scores.matching - scores.shuffled_matching).double())
    return FalseInductionHeads(
        heads=order,
        chosen=min(top, len(order)),
        prefix_matching=scores.prefix_matching[layers, heads],
        matching_low=low[layers, heads],
        matching_high=high[layers, heads],
        class_sensitive=tuple(bool(value > 0) for value in above[layers, heads]),
        promoting=scores.label_promoting[layers, heads],
        promoting_low=promoting_low[layers, heads],
        promoting_high=promoting_high[layers, heads],
        task=str(scores.provenance.get("prompts", {}).get("task", {}).get("name", "prompts")),
        provenance=scores.provenance,
    )


def _pairs(model: Any, task: Task, shots: int, n: int, seed: int) -> Sequence[PromptBatch]:
    tokenizer = model if hasattr(model, "tokenizer") else adapt(model)
    return build_prompt_pairs(
        task, tokenizer, shots=shots, n=n, seed=seed, demonstrations="per_prompt"
    )
