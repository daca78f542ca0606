"""Overthinking: how much better the model would answer if it stopped earlier.

The early-exit layer is the argmax over entries before the last of the mean over tasks of
(calibrated accuracy with false demonstrations there - at the last entry), first on ties. It
is chosen on one half of the prompts (split by seed and class, thresholds per half) and
reported on the other; `reference`: chosen and reported on the same prompts.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import (
    Interval,
    Ties,
    bootstrap_interval,
    calibrated_scores,
    early_exit_layer,
    near_ties,
    stratified_halves,
)
from icl_mech.results import Result
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class EarlyExit(Result):
    """The early-exit layer and what leaving there changes.

    Attributes:
        layer: The entry (0: embedding, l: after l blocks).
        change: Accuracy there minus at the last entry, by task and side (`true`, `false`).
        low: Lower ends of the 95 % bootstrap intervals over the held-out prompts.
        high: Upper ends.
        tasks: Names of the tasks.
        tie_counts: How many scores there and at the last entry are ties, nearly ties, and
            there at all, by task and side (see `near_ties`); None in results saved without them.
    """

    title: ClassVar[str] = "Overthinking"

    layer: int
    change: Float[Tensor, "task side"]
    low: Float[Tensor, "task side"]
    high: Float[Tensor, "task side"]
    tasks: tuple[str, ...]
    tie_counts: Int[Tensor, "count task side"] | None = None

    @property
    def ties(self) -> Ties:
        """Ties among the held-out scores at this entry and at the last one, all tasks."""
        return Ties.of(self.tie_counts)

    def overthinking(self, task: int = 0) -> Interval:
        """Gain with false demonstrations from leaving early."""
        return self._interval(task, 1)

    def _interval(self, task: int, side: int) -> Interval:
        ends = (self.change, self.low, self.high)
        return Interval(*(float(end[task, side]) for end in ends))

    def drawing(self) -> Bars:
        """Change of accuracy by task and side."""
        return Bars(
            title=f"Leaving after entry {self.layer} instead of the last",
            groups=self.tasks,
            names=("true demonstrations", "false demonstrations"),
            values=self.change,
            low=self.low,
            high=self.high,
            y_title="change of calibrated accuracy",
            note="on prompts not used to choose the entry, 95 % bootstrap intervals",
        )

    def summary(self) -> str:
        """The layer and both changes."""
        parts = [
            f"{name}: false {self._interval(i, 1)}, true {self._interval(i, 0)}"
            for i, name in enumerate(self.tasks)
        ]
        text = f"leaving at entry {self.layer} changes calibrated accuracy: " + "; ".join(parts)
        return text + self.ties.note

    def to_pandas(self) -> "pd.DataFrame":
        """One row per task and side."""
        import pandas as pd

        return pd.DataFrame(
            {"task": name, "demonstrations": side, **self._interval(i, j)._asdict()}
            for i, name in enumerate(self.tasks)
            for j, side in enumerate(SIDES)
        )


def early_exit(
    results: Sequence[Any] | Any, *, variant: LensVariant = "sound", seed: int = 0
) -> EarlyExit:
    """The early-exit layer of one or several tasks.

    Args:
        results: One `LayerAccuracy`, or several of one model.
        variant: `sound` splits the prompts, `reference` does not.
        seed: Of the split.

    Raises:
        ResultError: no results, or of models with different numbers of layers; too few
            prompts; unknown variant.
    """
    if variant not in get_args(LensVariant):
        raise ResultError(f"variant={variant!r}. {near_matches(variant, get_args(LensVariant))}")
    several = list(results) if isinstance(results, Sequence) else [results]
    entries = {result.true_probs.shape[1] for result in several}
    if len(entries) != 1:
        raise ResultError(
            f"Results of models with {sorted(entries)} entries; give those of one model."
        )
    chosen, held_out, counts = [], [], []
    for result in several:
        first = second = torch.arange(len(result.answers))
        if variant == "sound":
            first, second = stratified_halves(result.answers, seed)
            if not len(second):
                raise ResultError("An early-exit layer needs at least two prompts per task.")
        exact = result.variant == "reference"
        chosen.append(_scores(result.false_probs, result.answers, first, exact)[0].mean(0))
        sides = [
            _scores(probs, result.answers, second, exact)
            for probs in (result.true_probs, result.false_probs)
        ]
        held_out.append(torch.stack([scores for scores, _ in sides], dim=1))
        counts.append(torch.stack([ties for _, ties in sides], dim=1))
    layer = early_exit_layer(torch.stack(chosen))
    changes = [scores[..., layer] - scores[..., -1] for scores in held_out]
    ends = [bootstrap_interval(change) for change in changes]
    return EarlyExit(
        layer=layer,
        change=torch.stack([change.mean(0) for change in changes]),
        low=torch.stack([low for low, _ in ends]),
        high=torch.stack([high for _, high in ends]),
        tasks=tuple(_task(result.provenance) for result in several),
        tie_counts=torch.stack(counts, dim=1)[..., [layer, -1]].sum(-1),
        provenance={**several[0].provenance, "early_exit": {"variant": variant, "seed": seed}},
    )


def _scores(
    probs: Float[Tensor, "batch entry label"],
    answers: Int[Tensor, " batch"],
    part: Int[Tensor, " part"],
    exact_ties: bool,
) -> tuple[Float[Tensor, "part entry"], Int[Tensor, "count entry"]]:
    """Calibrated scores of a part of the prompts, thresholds from that part; and their ties."""
    classes = answers[part][:, None].expand(-1, probs.shape[1])
    own = probs[part], classes
    return calibrated_scores(*own, exact_ties=exact_ties), near_ties(*own, exact_ties=exact_ties)


def _task(origin: dict[str, Any]) -> str:
    return str(origin.get("prompts", {}).get("task", {}).get("name", "prompts"))
