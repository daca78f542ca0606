"""Accuracy by the number of demonstrations, from one pass that reads every demonstration.

The token before the label of demonstration `k` (from 0) has seen `k` demonstrations; its
label follows later and cannot leak. `k = 0` of the true set is zero-shot. The last point is
the query, where it is not itself the last demonstration. The classes of the `k`-th
demonstrations are as balanced as they were drawn; `reachable` says what that costs.

Source: Halawi et al. 2023, *Overthinking the Truth*, §3.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.accuracy.layers import CALIBRATED, PERMUTED, REACHABLE
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    METRICS,
    SIDES,
    OfPairs,
    PairScores,
    entry_scores,
    taught_classes,
)
from icl_mech.measurements.accuracy.texts import Sides, growing
from icl_mech.measurements.base import Pair
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.residuals import (
    LayerLensReading,
    check_demonstrations,
)
from icl_mech.metrics import Ties, mean_interval, reachable_accuracy
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Meaning, Panel

if TYPE_CHECKING:
    import pandas as pd

ENDS = (-0.03, 1.05)
"""Of the axes of accuracies."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextAccuracy(PairScores):
    """Scores of every pair of prompts after every number of demonstrations.

    Attributes:
        scores: By metric, side, prompt, number of demonstrations and entry.
        n_labels: Number of classes.
        reachable: Calibrated accuracy of a perfect classifier, by number of demonstrations.
        interval_kind: Kind of the intervals.
    """

    title: ClassVar[str] = "Accuracy by number of demonstrations"
    axes: ClassVar[tuple[str, ...]] = ("seen", "layer")
    definitions: ClassVar[tuple[Definition, ...]] = (CALIBRATED, REACHABLE, PERMUTED)

    reachable: Float[Tensor, " shown"]
    n_labels: int

    def _labels(self) -> int:
        return self.n_labels

    @property
    def ties(self) -> Ties:
        """Ties among the scores that the summary speaks of, at the last entry.

        They are those of the true set without demonstrations, and of both sets with all of them.
        """
        if self.tie_counts is None:
            return Ties()
        none, both = self.tie_counts[:, :1, 0, -1], self.tie_counts[:, :, -1, -1]
        return Ties.of(torch.cat([none, both], dim=1))

    def drawing(self, entry: int = -1) -> LayerCurves:
        """Both accuracies, and the permuted score on axes of its own where it is defined.

        Args:
            entry: Of the lens; counted from the end if negative.
        """
        layer = entry + self.scores.shape[-1] if entry < 0 else entry
        chance, best = 1 / self.n_labels, self.reachable
        level = (chance, f"chance {told(chance)}")
        found = self.sel("calibrated", layer=layer)
        curves = [found.values, found.low, found.high]
        names = ["true demonstrations", "false demonstrations"]
        meanings: list[Meaning] = ["true", "false"]
        zero = float(found.values[0, 0])
        levels = [level, (zero, f"without demonstrations {told(zero)}")]
        places = [0, 1]
        if float(best.max() - best.min()) < 1e-9:
            levels.append((float(best[0]), f"highest reachable {told(float(best[0]))}"))
        else:
            nothing = torch.full_like(best, torch.nan)[None]
            more = (best[None], nothing, nothing)
            curves = [torch.cat(pair) for pair in zip(curves, more, strict=True)]
            names, meanings = [*names, "highest reachable"], [*meanings, "reference"]
            places.append(2)
        own = Panel("Calibrated accuracy", tuple(places), METRIC_NAMES["calibrated"], tuple(levels), y_range=ENDS)  # fmt: skip
        panels = [own]
        if self.n_labels > 2 and self.defined("permuted"):
            score = self.sel("permuted", side="false", layer=layer)
            ends = (score.values[None], score.low[None], score.high[None])
            curves = [torch.cat(pair) for pair in zip(curves, ends, strict=True)]
            panels.append(
                Panel(
                    "False label answered", (len(names),), METRIC_NAMES["permuted"], (level,),
                    y_range=ENDS,
                )
            )  # fmt: skip
            names, meanings = [*names, "false label"], [*meanings, "false"]
        pairs = f"{counted(self.scores.shape[2], 'pair')} of prompts"
        return LayerCurves(
            title="Accuracy by number of demonstrations",
            names=tuple(names),
            values=curves[0],
            low=curves[1],
            high=curves[2],
            y_title=METRIC_NAMES["calibrated"],
            x_title="demonstrations seen",
            note=basis(self, pairs),
            meanings=tuple(meanings),
            panels=tuple(panels),
            columns=1,
            apart=0.06,
        )

    def figures(self) -> list[Figure]:
        """Accuracy at the last layer against the number of demonstrations."""
        last = self.scores.shape[-1] - 1
        count = self.scores.shape[3] - 1
        true, false = (self.interval(side=side, seen=count, layer=last) for side in SIDES)
        gaps = self.scores[METRICS.index("calibrated"), ..., -1]
        gaps = gaps[0] - gaps[1]
        own = Sides(
            true,
            false,
            mean_interval(gaps[:, -1], "change"),
            len(gaps),
            given(self),
            self.interval_kind,
        )
        growth = mean_interval(gaps[:, -1] - gaps[:, 1], "contrast") if count > 1 else None
        none = self.interval(side="true", seen=0, layer=last)
        first = mean_interval(gaps[:, min(1, count)], "change")
        permuted = self.n_labels > 2 and self.defined("permuted")
        return [growing(none, own, first, growth, count, permuted=permuted)]

    def summary(self) -> str:
        """Both accuracies with no and with all demonstrations, at the last entry."""
        true, false = (self.accuracy(side)[:, -1] for side in ("true", "false"))
        last = len(true) - 1
        return (
            f"calibrated accuracy without demonstrations {float(true[0]):.3g}, with {last}: "
            f"{float(true[-1]):.3g} (true), {float(false[-1]):.3g} (false){self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per side, number and entry, calibrated accuracy."""
        return self.sel().to_pandas().rename(columns={"side": "demonstrations"})


@dataclass(frozen=True)
class AccuracyByDemonstrations(OfPairs[ContextAccuracy]):
    """Accuracy after every number of demonstrations, at every layer.

    Raises:
        PromptError: sets that are not pairs, or prompts with different numbers of
            demonstrations, or with the same ones.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §3.
    """

    name: ClassVar[str] = "context_accuracy"

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, or cannot be read demonstration by demonstration.

        Raises:
            PromptError: says which.
        """
        super().check(model, data)
        for prompts in data:
            check_demonstrations(prompts)
        shown = data[0].label_classes
        if len(shown) > 1 and bool((shown == shown[0]).all()):
            raise PromptError(
                "All prompts show the same classes in the same order, so accuracy at a demonstration "
                "has no meaning: one class would be the whole test. Build them with "
                "demonstrations='per_prompt'."
            )

    def readings(self) -> list[LayerLensReading]:
        """Lenses at every demonstration and at the target."""
        return [
            LayerLensReading(self.variant, at, lens=self.lens)
            for at in ("demonstrations", "target")
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> ContextAccuracy:
        """Scores at every demonstration, and at the query where it is another one."""
        true, false = data
        own_query = bool((true.targets != true.label_positions[:, -1] - 1).any())
        exact = self.variant == "reference"
        scores, counts = [], []
        for at_demonstrations, at_target in read:
            # The demonstrations' texts are the same on both sides; the true set shows their
            # classes.
            shown, _, ties = entry_scores(
                at_demonstrations, slice(None), true.label_classes,
                _taught_in_context(true, false, own_query=own_query), true.label_tokens,
                exact_ties=exact,
            )  # fmt: skip
            if own_query:
                query, _, last = entry_scores(
                    at_target, 0, true.answers, taught_classes(false), true.label_tokens,
                    exact_ties=exact,
                )  # fmt: skip
                shown = torch.cat([shown, query[:, :, None]], dim=2)
                ties = torch.cat([ties, last[:, None]], dim=1)
            scores.append(shown)
            counts.append(ties)
        return ContextAccuracy(
            scores=torch.stack(scores, dim=1),
            tie_counts=torch.stack(counts, dim=1),
            reachable=_reachable(true, query=own_query),
            n_labels=true.n_labels,
            interval_kind=self.interval,
        )


def _reachable(true: PromptBatch, *, query: bool) -> Float[Tensor, " shown"]:
    """Calibrated accuracy of a perfect classifier, by number of demonstrations."""
    classes = [*true.label_classes.unbind(1), *([true.answers] if query else [])]
    best = [reachable_accuracy(own, true.n_labels) for own in classes]
    return torch.tensor(best, dtype=torch.float64)


def _taught_in_context(
    true: PromptBatch, false: PromptBatch, *, own_query: bool
) -> Int[Tensor, "batch demo"] | None:
    """The class the false labels teach for each demonstration's text.

    `(y + s) mod C`, also where a half-permuted demonstration is right; in prompts read at
    their last demonstration (the reference) what each displays.
    """
    if not own_query:
        return false.label_classes
    taught = taught_classes(false)
    if taught is None:
        return None
    shift = (taught - true.answers) % true.n_labels
    return (true.label_classes + shift[:, None]) % true.n_labels


context_accuracy = door(
    AccuracyByDemonstrations,
    "context_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
