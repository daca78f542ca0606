"""`FalseInductionHeads`: all heads by prefix matching, the chosen ones, and what controls say."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.errors import ResultError
from icl_mech.measurements.heads.ablating import ablation
from icl_mech.measurements.heads.ablation import Ablation
from icl_mech.measurements.heads.definitions import MATCHING, PROMOTING, SHUFFLED
from icl_mech.measurements.heads.false_prompts import pairs_of
from icl_mech.measurements.heads.false_texts import found_heads
from icl_mech.measurements.heads.texts import head_name
from icl_mech.metrics import ONE_SIDED, Interval, above_together, ends_together
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import said
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


def tested_together(
    above: Float[Tensor, "batch layer head"],
    promoting: Float[Tensor, "batch layer head"],
    heads: Sequence[tuple[int, int]],
) -> dict[str, tuple[Interval, Interval]]:
    """Prefix matching above its control and label promoting of some heads, by name.

    Intervals hold for all these heads together (max-T).
    """
    layers, numbers = (list(axis) for axis in zip(*heads, strict=True))
    columns = []
    for scores in (above, promoting):
        own = scores[:, layers, numbers].double()
        ends = torch.stack([own.mean(0), *ends_together(own)], dim=1)
        columns.append([Interval(*row) for row in ends.tolist()])
    return dict(zip(map(head_name, heads), zip(*columns, strict=True), strict=True))


@dataclass(frozen=True, eq=False, kw_only=True)
class FalseInductionHeads(Result):
    """Heads ranked by prefix matching, best first, and what each control says.

    Attributes:
        heads: (layer, head) pairs, all heads of the model.
        chosen: How many of the first count as found.
        prefix_matching: Mean score of each ranked head.
        matching_low: Lower end of its 95 % bootstrap interval over prompts.
        matching_high: Upper end.
        class_sensitive: The score is above its shuffled-label control, corrected for all heads
            of the model (max-T, one-sided 2.5 %): the best were picked on the same prompts.
        promoting: Mean logit of the false label above the true one.
        promoting_low: Lower end of its interval.
        promoting_high: Upper end.
        task: Where they were chosen.
        scores: Of every prompt and head (by its place in the model, not by rank): those of
            `SCORES`; None in results that were saved without them.
    """

    title: ClassVar[str] = "False induction heads"
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
        """Chosen heads that are class-sensitive and promote the false label.

        Both are corrected for all heads of the model, since these were chosen on the same prompts.
        """
        return tuple(
            head
            for head, sensitive, promotes in zip(
                self.top, self.class_sensitive, self._promotes, strict=False
            )
            if sensitive and promotes
        )

    @cached_property
    def _promotes(self) -> tuple[bool, ...]:
        """By rank, whether a head promotes the false label."""
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

    def held_out(self) -> dict[str, tuple[Interval, Interval]] | None:
        """The check of the choice: heads chosen on one half of the prompts, scored on the other.

        Returns:
            By head as `layer.head`, best first: prefix matching above its shuffled control, and
            label promoting, both of the other half, with intervals that hold for all of them
            together. None for results saved without the scores of every prompt, or of one
            prompt.
        """
        if self.scores is None or len(self.scores) < 2:
            return None
        order = torch.from_numpy(np.random.default_rng(0).permutation(len(self.scores)))
        half = (len(order) + 1) // 2
        choosing, testing = (self.scores[part].double() for part in (order[:half], order[half:]))
        matching = choosing[:, 0].mean(0)
        best = matching.flatten().argsort(descending=True, stable=True)[: self.chosen].tolist()
        heads = [divmod(int(place), matching.shape[1]) for place in best]
        return tested_together(testing[:, 1], testing[:, 2], heads)

    def drawing(self, rows: Count = 10) -> Table:
        """The first ranks as a table."""
        return Table(
            title=f"Heads by prefix matching on {self.task}",
            columns=("head", "prefix matching", "class-sensitive", "label promoting (logits)"),
            rows=tuple(
                (
                    head_name(head) + (" (chosen)" if i < self.chosen else ""),
                    said(Interval(*(float(end[i]) for end in self._matching))),
                    "yes" if self.class_sensitive[i] else "no",
                    said(Interval(*(float(end[i]) for end in self._promoting)), sign=True),
                )
                for i, head in enumerate(self.heads[:rows])
            ),
            note=f"{basis(self)}; class-sensitive: above the score with labels shuffled",
        )

    @property
    def _matching(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.prefix_matching, self.matching_low, self.matching_high

    @property
    def _promoting(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.promoting, self.promoting_low, self.promoting_high

    def figures(self) -> list[Figure]:
        """Who was chosen on what, and the check on the other half of the prompts."""
        prompts = 0 if self.scores is None else len(self.scores)
        names, sure = (tuple(map(head_name, heads)) for heads in (self.top, self.confirmed))
        return [found_heads(names, sure, self.task, self.held_out(), prompts, given=given(self))]

    def summary(self) -> str:
        """The chosen heads and how many hold up."""
        names = ", ".join(f"{layer}.{head}" for layer, head in self.top)
        return (
            f"chosen on {self.task} by prefix matching (layer.head): {names}; "
            f"{sum(self.class_sensitive[: self.chosen])} class-sensitive, {len(self.confirmed)} "
            "class-sensitive and promoting the false label"
        )
