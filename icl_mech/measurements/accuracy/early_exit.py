"""Overthinking: how much better the model would answer if it stopped earlier.

The early-exit layer is the argmax over entries before the last of the mean over tasks of
(calibrated accuracy with false demonstrations there - at the last entry), first on ties. It
is chosen on one half of the prompts (split by seed and class, thresholds per half) and
reported on the other; `reference`: chosen and reported on the same prompts.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Natural, checked, conformed
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.exit_texts import rescued
from icl_mech.measurements.accuracy.layers import (
    CALIBRATED,
    EXIT,
    OVERTHINKING,
    AccuracyByLayer,
    LayerAccuracy,
)
from icl_mech.measurements.accuracy.pairs import SIDES
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.metrics import (
    Interval,
    Ties,
    calibrated_scores,
    early_exit_layer,
    mean_ends,
    near_ties,
    stratified_halves,
)
from icl_mech.models import LanguageModel
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


__all__ = ["EarlyExit", "LeavingEarly", "early_exit"]


@dataclass(frozen=True)
class LeavingEarly(PairMeasurement[EarlyExit]):
    """The early-exit layer of one task, from the passes of `AccuracyByLayer`.

    Attributes:
        variant: `sound` splits the prompts; `reference` does not, and takes the paper's lens.
        seed: Of the split.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    name: ClassVar[str] = "early_exit"

    variant: LensVariant = "sound"
    seed: Natural = 0
    lens: FittedLens | None = None

    @property
    def accuracy(self) -> AccuracyByLayer:
        """What it is computed from."""
        return AccuracyByLayer(self.variant, lens=self.lens)

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, or too few to be split.

        Raises:
            PromptError: sets that are not pairs.
            ResultError: too few prompts.
        """
        self.accuracy.check(model, data)
        self.parts(data[0].answers)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Those of the accuracy by layer."""
        return self.accuracy.passes(model, data)

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> EarlyExit:
        """The exit of this one task."""
        scores = self.accuracy.result(model, data, read)
        return self.exit([scores], [_task(data[0].source)])

    def parts(self, answers: Int[Tensor, " batch"]) -> tuple[Tensor, Tensor]:
        """Prompts that choose, and prompts that are reported.

        Raises:
            ResultError: too few prompts.
        """
        if self.variant == "reference":
            return torch.arange(len(answers)), torch.arange(len(answers))
        first, second = stratified_halves(answers, self.seed)
        if not len(second):
            raise ResultError("An early-exit layer needs at least two prompts per task.")
        return first, second

    def exit(self, results: Sequence[LayerAccuracy], tasks: Sequence[str]) -> EarlyExit:
        """One exit for all tasks, by what leaving there changes in each."""
        parts = [self.parts(result.answers) for result in results]
        chosen, held_out, counts = [], [], []
        for result, (first, second) in zip(results, parts, strict=True):
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
        ends = [mean_ends(change, "change") for change in changes]
        most = max(len(result.answers) for result in results)
        by_prompt = torch.full((len(results), 2, most), torch.nan, dtype=torch.float64)
        for task, ((_, second), change) in enumerate(zip(parts, changes, strict=True)):
            by_prompt[task, :, second] = change.T
        return EarlyExit(
            layer=layer,
            change=torch.stack([change.mean(0) for change in changes]),
            low=torch.stack([low for low, _ in ends]),
            high=torch.stack([high for _, high in ends]),
            tasks=tuple(tasks),
            tie_counts=torch.stack(counts, dim=1)[..., [layer, -1]].sum(-1),
            changes=by_prompt,
            sizes=torch.tensor([[len(first), len(second)] for first, second in parts]),
        )


def early_exit(
    results: LayerAccuracy | Sequence[LayerAccuracy],
    *,
    variant: LensVariant = "sound",
    seed: int = 0,
) -> EarlyExit:
    """The early-exit layer of one or several tasks.

    Args:
        results: One `LayerAccuracy`, or several of one model.
        variant: `sound` splits the prompts, `reference` does not.
        seed: Of the split.

    Raises:
        ResultError: no results, or of models with different numbers of layers; too few
            prompts.
        RunError: unknown variant.
    """
    kind = LayerAccuracy | Sequence[LayerAccuracy]
    results = conformed("results", results, kind, ResultError)
    several = list(results) if isinstance(results, Sequence) else [results]
    entries = {result.true_probs.shape[1] for result in several}
    if len(entries) != 1:
        raise ResultError(
            f"Results of models with {sorted(entries)} entries; give those of one model."
        )
    measurement = LeavingEarly(variant, seed)
    origins = [result.provenance for result in several]
    found = measurement.exit(several, [_task(origin.get("prompts", {})) for origin in origins])
    return replace(found, provenance=_provenance(measurement, origins))


def _provenance(measurement: LeavingEarly, origins: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """That of the accuracies, with the prompts of all tasks."""
    first = origins[0]
    origin = {
        **first,
        "measurement": measurement.name,
        "variants": measurement.variants(),
        "layer_accuracy": first.get("variants", {}),
    }
    for side in ("prompts", "false_prompts"):
        sets = [own.get(side, {}) for own in origins]
        if len(sets) > 1:
            digests = [own.get("digest") for own in sets]
            known = all(isinstance(digest, str) for digest in digests)
            origin[side] = {
                "tasks": sets,
                "count": sum(own.get("count", 0) for own in sets),
                "digest": " ".join(digests) if known else None,
            }
    return origin


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


def _task(source: dict[str, Any]) -> str:
    return str(source.get("task", {}).get("name", "prompts"))
