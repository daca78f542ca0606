"""`EarlyExit`: where reading out early helps most under false demonstrations, and by how much."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.definitions import CALIBRATED, EXIT, OVERTHINKING
from icl_mech.measurements.accuracy.exit_texts import rescued
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.metrics import Interval, Ties
from icl_mech.results import Definition, Figure, Quantity, Result, basis, function_of_means
from icl_mech.results.prompts import given
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class EarlyExit(Result):
    """The early-exit layer and what leaving there changes.

    Attributes:
        layer: The entry (0: embedding, l: after l blocks).
        change: Accuracy there minus at the last entry, by task and side (`true`, `false`).
        low: Lower ends of the 95 % intervals (paired score) over the held-out prompts.
        high: Upper ends.
        tasks: Names of the tasks.
        tie_counts: How many scores there and at the last entry are ties, nearly ties, and
            there at all, by task and side (see `near_ties`); None in results saved without them.
        changes: Change of every prompt's score; not-a-number for prompts the entry was chosen
            on, and behind the last prompt of a task that has fewer. None in results saved
            without them.
        sizes: How many pairs of prompts chose the entry, and how many are reported, by task;
            None in results saved without.
    """

    title: ClassVar[str] = "Overthinking"
    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED, EXIT, OVERTHINKING)

    layer: int
    change: Float[Tensor, "task side"]
    low: Float[Tensor, "task side"]
    high: Float[Tensor, "task side"]
    tasks: tuple[str, ...]
    tie_counts: Int[Tensor, "count task side"] | None = None
    changes: Float[Tensor, "task side batch"] | None = None
    sizes: Int[Tensor, "task half"] | None = None

    def quantities(self) -> dict[str, Quantity]:
        """The `change` by task and side, a mean over the held-out prompts of each task."""
        if self.changes is None:
            return {}
        per_prompt = self.changes.movedim(-1, 0)
        held_out = per_prompt.isfinite()
        counted = torch.stack([per_prompt.nan_to_num(), held_out.double()], dim=1)
        # Ends are those of each task's own held-out prompts; differences resample all prompts.
        mean = function_of_means(counted, lambda means: means[:, 0] / means[:, 1])
        unit, ends = "change of calibrated accuracy", (self.low, self.high)
        return {"change": Quantity(("task", "side"), per_prompt, mean, unit, ends)}

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of tasks and sides."""
        return {"task": self.tasks, "side": SIDES}

    @property
    def ties(self) -> Ties:
        """Ties among the held-out scores at this entry and at the last one, all tasks."""
        return Ties.of(self.tie_counts)

    @checked(ResultError)
    def overthinking(self, task: int = 0, side: str = "false") -> Interval:
        """Gain from leaving early, with false demonstrations or with true ones.

        Raises:
            ResultError: no such task or side.
        """
        if side not in SIDES:
            raise ResultError(f"side={side!r}. {near_matches(side, SIDES)}")
        if not 0 <= task < len(self.tasks):
            raise ResultError(f"task={task}; there are {len(self.tasks)} tasks, counted from 0.")
        ends = (self.change, self.low, self.high)
        return Interval(*(float(end[task, SIDES.index(side)]) for end in ends))

    def halves(self, task: int) -> tuple[int, int] | None:
        """How many pairs chose the layer, and how many are reported; None if nobody knows.

        Args:
            task: Its place in `tasks`.
        """
        if self.sizes is not None:
            chose, reported = self.sizes[task].tolist()
            return chose, reported
        if self.changes is None:
            return None
        reported = int(self.changes[task, 0].isfinite().sum())
        total = self.changes.shape[-1] if len(self.tasks) == 1 else 0
        return (total if self.same else total - reported), reported

    def held_out(self, task: int = 0) -> list[int]:
        """Prompts of a task that did not choose the layer: what is done there is tested on these.

        Raises:
            ResultError: the layer was chosen on all prompts, or nobody knows on which.
        """
        if self.changes is None or self.same:
            raise ResultError(
                "All prompts chose this layer, or the result does not say which; choose it with "
                "early_exit(variant='sound') of results at hand."
            )
        found: list[int] = self.changes[task, 0].isfinite().nonzero()[:, 0].tolist()
        return found

    @property
    def same(self) -> bool:
        """True if the layer was chosen and reported on the same prompts (the paper's way)."""
        own = self.provenance.get("early_exit", self.provenance.get("variants", {}))
        return bool(own.get("variant") == "reference")

    def drawing(self) -> Bars:
        """Change of accuracy by task and side, as dots around 0."""
        return Bars(
            title=f"Reading out after layer {self.layer} instead of the last",
            groups=self.tasks,
            names=("true demonstrations", "false demonstrations"),
            values=self.change,
            low=self.low,
            high=self.high,
            y_title="change of calibrated accuracy",
            note=basis(self, self._reported_on()),
            meanings=("true", "false"),
            sides=("hurts", "helps"),
        )

    def figures(self) -> list[Figure]:
        """What leaving early changes."""
        sizes = [self.halves(task) for task in range(len(self.tasks))]
        found = {
            name: (self.overthinking(i), self.overthinking(i, "true"), sizes[i])
            for i, name in enumerate(self.tasks)
        }
        return [rescued(self.layer, found, same=self.same, given=given(self))]

    def _reported_on(self) -> str:
        which = "that chose the layer too" if self.same else "not used to choose the layer"
        if self.changes is None:
            return f"prompts {which}"
        return f"{int(self.changes[:, 0].isfinite().sum())} pairs of prompts {which}"

    def summary(self) -> str:
        """The layer and both changes."""
        parts = [
            f"{name}: false {self.overthinking(i)}, true {self.overthinking(i, 'true')}"
            for i, name in enumerate(self.tasks)
        ]
        text = f"leaving after layer {self.layer} changes calibrated accuracy: " + "; ".join(parts)
        return text + self.ties.note

    def to_pandas(self) -> "pd.DataFrame":
        """One row per task and side."""
        import pandas as pd

        return pd.DataFrame(
            {"task": name, "demonstrations": side, **self.overthinking(i, side)._asdict()}
            for i, name in enumerate(self.tasks)
            for side in SIDES
        )
