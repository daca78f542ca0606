"""Accuracy by the number of demonstrations, from one pass that reads every demonstration.

The token before the label of demonstration `k` (from 0) has seen `k` demonstrations; its
label follows later and cannot leak. `k = 0` of the true set is zero-shot. The last point is
the query, where it is not itself the last demonstration. The classes of the `k`-th
demonstrations are as balanced as they were drawn; `reachable` says what that costs.

Source: Halawi et al. 2023, *Overthinking the Truth*, §3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError
from icl_mech.measurements.accuracy.scores import (
    CALIBRATED,
    ENDS,
    METRIC_NAMES,
    METRICS,
    PERMUTED,
    REACHABLE,
    SCORE,
    OfPairs,
    PairScores,
    Sides,
    entry_scores,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.demonstrations import SIDES, taught_classes
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.residuals import LayerLensReading, check_demonstrations
from icl_mech.metrics import mean_interval
from icl_mech.metrics.calibration import Ties, reachable_accuracy
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis
from icl_mech.results.judging import judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves, Meaning, Panel


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextAccuracyResult(PairScores):
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
        ends = found.values, found.low, found.high
        zero = float(found.values[0, 0])
        levels = [level, (zero, f"without demonstrations {told(zero)}")]
        drawn: list[tuple[str, Meaning, Sequence[Tensor]]] = [
            ("true demonstrations", "true", [end[0] for end in ends]),
            ("false demonstrations", "false", [end[1] for end in ends]),
        ]
        if float(best.max() - best.min()) < 1e-9:
            levels.append((float(best[0]), f"highest reachable {told(float(best[0]))}"))
        else:
            nothing = torch.full_like(best, torch.nan)
            drawn.append(("highest reachable", "reference", (best, nothing, nothing)))
        unit = METRIC_NAMES["calibrated"]
        places = tuple(range(len(drawn)))
        panels = [Panel("Calibrated accuracy", places, unit, tuple(levels), y_range=ENDS)]
        if self.n_labels > 2 and self.defined("permuted"):
            score = self.sel("permuted", side="false", layer=layer)
            own = (len(drawn),), score.unit, (level,)
            panels.append(Panel("False label answered", *own, y_range=ENDS))
            drawn.append(("false label", "false", (score.values, score.low, score.high)))
        names, meanings, rows = zip(*drawn, strict=True)
        values, low, high = map(torch.stack, zip(*rows, strict=True))
        return LayerCurves(
            "Accuracy by number of demonstrations",
            names,
            *(values, low, high),
            y_title=unit,
            x_title="demonstrations seen",
            note=basis(self, f"{counted(self.scores.shape[2], 'pair')} of prompts"),
            meanings=meanings,
            panels=tuple(panels),
            columns=1,
            apart=0.06,
        )

    def figures(self) -> list[Figure]:
        """Accuracy at the last layer against the number of demonstrations."""
        last, count = self.scores.shape[-1] - 1, self.scores.shape[3] - 1
        true, false = (self.interval(side=side, seen=count, layer=last) for side in SIDES)
        scores = self.scores[METRICS.index("calibrated"), ..., -1]
        gaps = scores[0] - scores[1]
        gap = mean_interval(gaps[:, -1], "change")
        own = Sides(true, false, gap, len(gaps), given(self), self.interval_kind)
        growth, start = None, opening("cannot be judged")
        grown = "; with one number of demonstrations nothing can grow."
        if count > 1:
            growth = mean_interval(gaps[:, -1] - gaps[:, 1], "contrast")
            start = opening(judged(growth, prompts=own.pairs), own.few)
            first = mean_interval(gaps[:, 1], "change")
            none = self.interval(side="true", seen=0, layer=last)
            grown = (
                f", a gap of {said(gap)}, after the first one the gap is {said(first)} (change "
                f"{said(growth, sign=True)}). Without any, accuracy is {said(none)}."
            )
        permuted = (
            " On an axis of its own: how often the label that false demonstrations teach is the "
            "calibrated answer (permuted score)."
        ) * (self.n_labels > 2 and self.defined("permuted"))
        return [
            Figure(
                question="Does the harm grow with the number of false demonstrations?",
                answer=f"{start} after {counted(count, 'demonstration')} accuracy is {own.both}{grown}",
                caption=f"**Calibrated accuracy after 0 to {count} demonstrations, true and false.**"
                f"{permuted} {SCORE} Bars or bands: {own.basis}. Dashes: chance, the accuracy without "
                "demonstrations, and what a perfect classifier reaches at each point, which is below 1 "
                "where the classes of the queries there are not balanced.",
                establishes="that more false demonstrations do more harm on these prompts."
                * (judged(growth, prompts=own.pairs) == "supported"),
                limits="the order of neighbouring points: each is about other texts (the k-th "
                "demonstration serves as the query after k demonstrations), and few prompts decide "
                "between them.",
                short="Number of demonstrations",
            )
        ]

    def summary(self) -> str:
        """Both accuracies with no and with all demonstrations, at the last entry."""
        true, false = (self.accuracy(side)[:, -1] for side in ("true", "false"))
        last = len(true) - 1
        return (
            f"calibrated accuracy without demonstrations {float(true[0]):.3g}, with {last}: "
            f"{float(true[-1]):.3g} (true), {float(false[-1]):.3g} (false){self.ties.note}"
        )


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
    why_not = "calibrated accuracy at a demonstration goes by classes that all prompts share"

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs, or cannot be read demonstration by demonstration.

        Raises:
            PromptError: says which.
        """
        super().check(model, data)
        if "claims" in data[0].source:
            raise PromptError(
                "Accuracy by number of demonstrations reads every demonstration as a query, and in these "
                "prompts (pairs_from_text) none stands before the query; take layer_accuracy."
            )
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

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> ContextAccuracyResult:
        """Scores at every demonstration, and at the query where it is another one."""
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
    ContextAccuracy,
    "context_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
