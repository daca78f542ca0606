"""Accuracy by the number of demonstrations, from one pass that reads every demonstration.

The token before the label of demonstration `k` (from 0) has seen `k` demonstrations; its
label follows later and cannot leak. `k = 0` of the true set is zero-shot. The last point is
the query, where it is not itself the last demonstration. The classes of the `k`-th
demonstrations are only as balanced as their random draw; `reachable` gives the effect on accuracy.

Source: Halawi et al. 2023, *Overthinking the Truth*, §3.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.accuracy.scores import (
    CALIBRATED,
    METRICS,
    PERMUTED,
    REACHABLE,
    OfPairs,
    PairScores,
    Sides,
    entry_scores,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.demonstrations import SIDES, taught_classes
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.residuals import LayerLensReading, check_demonstrations
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.calibration import Ties, reachable_accuracy
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition
from icl_mech.results.judging import Status, judged


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextAccuracyResult(PairScores):
    """Scores of every pair of prompts after every number of demonstrations.

    Attributes:
        scores: Scores by metric, side, prompt, number of demonstrations and entry.
        n_labels: Number of classes.
        reachable: Calibrated accuracy of a perfect classifier, by number of demonstrations.
        interval_kind: Kind of the intervals.
    """

    axes: ClassVar[tuple[str, ...]] = ("seen", "layer")
    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED, REACHABLE, PERMUTED)

    reachable: Float[Tensor, " shown"]
    n_labels: int

    def _labels(self) -> int:
        return self.n_labels

    @property
    def ties(self) -> Ties:
        """Ties among the scores that the summary reports, at the last entry.

        They are those of the true set without demonstrations, and of both sets with all of them.
        """
        if self.tie_counts is None:
            return Ties()
        none, both = self.tie_counts[:, :1, 0, -1], self.tie_counts[:, :, -1, -1]
        return Ties.of(torch.cat([none, both], dim=1))

    @property
    def demonstrations(self) -> int:
        """Number of demonstrations at the last point."""
        return self.scores.shape[3] - 1

    def after(self, side: str, seen: int) -> Interval:
        """Calibrated accuracy of the last entry after so many demonstrations."""
        return self.interval(side=side, seen=seen, layer=self.scores.shape[-1] - 1)

    def mean_after(self, side: str, seen: int) -> float:
        """The same accuracy without interval."""
        return float(self.accuracy(side)[seen, -1])

    @property
    def _gaps(self) -> Float[Tensor, "batch shown"]:
        """Accuracy with true minus with false demonstrations at the last entry."""
        sides: Tensor = self.scores[METRICS.index("calibrated"), ..., -1]
        return sides[0] - sides[1]

    def gap_after(self, seen: int) -> Interval:
        """Gap between true and false demonstrations at the last entry after so many of them, paired."""
        return mean_interval(self._gaps[:, seen], "change")

    @property
    def at_end(self) -> Sides:
        """Both accuracies of the last entry after all demonstrations."""
        seen = self.demonstrations
        true, false = (self.after(side, seen) for side in SIDES)
        return Sides(true, false, self.gap_after(seen), self.pairs)

    @property
    def growth(self) -> Interval | None:
        """The gap after all demonstrations minus that after the first; None with one number of them."""
        if self.demonstrations <= 1:
            return None
        return mean_interval(self._gaps[:, -1] - self._gaps[:, 1], "contrast")

    @property
    def status(self) -> Status:
        """Status of the claim that the harm grows with the number of false demonstrations."""
        return judged(self.growth, prompts=self.pairs)


@dataclass(frozen=True)
class ContextAccuracy(OfPairs[ContextAccuracyResult]):
    """Accuracy after every number of demonstrations, at every layer.

    Raises:
        PromptError: sets that are not pairs, or prompts with different numbers of
            demonstrations, or with the same ones.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §3.
    """

    takes = ("classes",)
    why_not = (
        "it scores calibrated accuracy at each demonstration, which needs classes that all "
        "prompts share"
    )

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs, or cannot be read demonstration by demonstration.

        Raises:
            PromptError: says which.
        """
        super().check(model, data)
        if "claims" in data[0].source:
            raise PromptError(
                "Accuracy by number of demonstrations reads every demonstration as a query, but "
                "in prompts from pairs_from_text no demonstration precedes the query. Use "
                "layer_accuracy."
            )
        for prompts in data:
            check_demonstrations(prompts)
        shown = data[0].label_classes
        if len(shown) > 1 and bool((shown == shown[0]).all()):
            raise PromptError(
                "All prompts show the same classes in the same order, so every query at a given "
                "demonstration would have the same class and accuracy there would be meaningless. "
                "Build the prompts with demonstrations='per_prompt'."
            )

    def readings(self) -> list[LayerLensReading]:
        """Lenses at every demonstration and at the target."""
        return [
            LayerLensReading(self.variant, at, lens=self.lens)
            for at in ("demonstrations", "target")
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> ContextAccuracyResult:
        """Scores at every demonstration, and at the query where it is not a demonstration."""
        true, false = data
        own_query = bool((true.targets != true.label_positions[:, -1] - 1).any())
        exact = self.variant == "reference"
        scores, counts = [], []
        for at_demonstrations, at_target in read:
            # The demonstrations' texts are the same on both sides; the true set shows their
            # classes.
            shown, _, ties = entry_scores(
                at_demonstrations,
                slice(None),
                true.label_classes,
                _taught_in_context(true, false, own_query=own_query),
                true,
                exact_ties=exact,
            )
            if own_query:
                query, _, last = entry_scores(
                    at_target, 0, true.answers, taught_classes(false), true, exact_ties=exact
                )
                shown = torch.cat([shown, query[:, :, None]], dim=2)
                ties = torch.cat([ties, last[:, None]], dim=1)
            scores.append(shown)
            counts.append(ties)
        return ContextAccuracyResult(
            scores=torch.stack(scores, dim=1),
            tie_counts=torch.stack(counts, dim=1),
            reachable=_reachable(true, query=own_query),
            n_labels=true.n_labels,
            interval_kind=self.interval,
        )


def _reachable(true: PromptBatch, *, query: bool) -> Float[Tensor, " shown"]:
    """Calibrated accuracy of a perfect classifier, by number of demonstrations."""
    classes = [*true.label_classes.unbind(1), *([true.answers] if query else [])]
    best = [reachable_accuracy(labels, true.n_labels) for labels in classes]
    return torch.tensor(best, dtype=torch.float64)


def _taught_in_context(
    true: PromptBatch, false: PromptBatch, *, own_query: bool
) -> Int[Tensor, "batch demo"] | None:
    """The class the false labels teach for each demonstration's text.

    The class is `(y + s) mod C`, also where a half-permuted demonstration is correct; in prompts read at
    their last demonstration (the reference) it is the displayed class.
    """
    if not own_query:
        return false.label_classes
    taught = taught_classes(false)
    if taught is None:
        return None
    shift = (taught - true.answers) % true.n_labels
    return (true.label_classes + shift[:, None]) % true.n_labels


context_accuracy = door(
    ContextAccuracy,
    "context_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
