"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value, or another share of it (`reference`: the first
crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import RunError
from icl_mech.looks.lenses import AFTER, noted
from icl_mech.measurements.accuracy.critical import CRITICAL, GAP, critical_interval, said_share
from icl_mech.measurements.accuracy.scores import (
    CALIBRATED,
    ENDS,
    METRICS,
    OPEN_SCORE,
    OUTCOMES,
    PERMUTED,
    PLAIN,
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
from icl_mech.measurements.lens.fitted import lens_used
from icl_mech.measurements.lens.residuals import LENS, LensVariant
from icl_mech.metrics import Interval, mean_interval
from icl_mech.metrics.calibration import reachable_accuracy
from icl_mech.metrics.layers import HALF
from icl_mech.metrics.means import Kind
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Figure, Quantity, basis
from icl_mech.results.judging import FEWEST_PROMPTS, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LayerCurves, Panel


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAccuracyResult(PairScores):
    """Scores of every pair of prompts at every entry; entry 0 is the embedding.

    Attributes:
        scores: By metric, side, prompt and entry.
        true_probs: Normalised label probabilities with true demonstrations.
        false_probs: The same with false ones.
        answers: True class of each query.
        variant: Of lens and critical layer.
        interval_kind: Kind of the intervals.
        threshold: Share of the final gap that is there from the critical layer on.
    """

    title: ClassVar[str] = "True and false demonstrations by layer"
    shows: ClassVar[tuple[str, ...]] = (*METRICS, "gap")
    definitions: ClassVar[tuple[Definition, ...]] = (
        LENS,
        *(CALIBRATED, REACHABLE, GAP, CRITICAL),
        *(PERMUTED, PLAIN),
    )

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"
    threshold: float = HALF

    def quantities(self) -> dict[str, Quantity]:
        """The metrics by side and layer, and the `gap`, paired over prompts."""
        paired = self.pair_scores[:, 0] - self.pair_scores[:, 1]
        gap = Quantity(("layer",), paired, unit="accuracy gap", kind="change")
        return {**super().quantities(), "gap": gap}

    def _labels(self) -> int:
        return self.true_probs.shape[-1]

    @property
    def pair_scores(self) -> Float[Tensor, "batch side entry"]:
        """Calibrated scores, paired."""
        return self.scores[0].transpose(0, 1)

    @property
    def gap(self) -> Float[Tensor, " entry"]:
        """Calibrated accuracy with true minus with false demonstrations."""
        return self.accuracy("true") - self.accuracy("false")

    @property
    def final_gap(self) -> Interval:
        """The gap at the last entry."""
        return self.interval("gap", layer=self.scores.shape[-1] - 1)

    @property
    def critical(self) -> Interval | None:
        """The critical layer with its bootstrap interval, at the measurement's `threshold`."""
        return self.critical_at(self.threshold)

    def critical_at(self, threshold: float) -> Interval | None:
        """The critical layer at another share of the final gap, such as a quarter or three quarters.

        None where the interval of the final gap includes 0. Resamples without a final gap are left out.

        Raises:
            ResultError: a share that is not above 0 and at most 1.
        """
        if self.final_gap.low <= 0:
            return None
        return critical_interval(self.pair_scores, self.gap, self.variant, threshold)

    @property
    def reachable(self) -> float:
        """Calibrated accuracy of a perfect classifier: below 1 where classes are unbalanced."""
        own = reachable_accuracy(self.answers, self.true_probs.shape[-1])
        return 1.0 if self.own_choices else own

    def drawing(self, show: str = "calibrated") -> LayerCurves:
        """One metric, one of `shows`, after each layer on both sides; beside calibrated accuracy the gap.

        Raises:
            ResultError: unknown `show`, or a metric that is not defined for these prompts.
        """
        self.check_show(show)
        found, names = self.sel(show), ("true demonstrations", "false demonstrations")
        title = f"{found.unit[0].upper()}{found.unit[1:]} by layer"
        about: dict[str, Any] = {
            "x": None,
            "x_title": AFTER,
            "note": noted(lens_used(self))
            + basis(self, f"{counted(len(self.answers), 'pair')} of prompts"),
        }
        if show == "gap":
            zero = ((0.0, "no gap"),)
            return found.curves(title, ("gap",), meanings=("other",), levels=zero, **about)
        levels = self._levels(show)
        if show != "calibrated":
            about |= {"levels": levels, "y_range": ENDS, "meanings": ("true", "false")}
            return found.curves(title, names, **about)
        gap, critical = self.sel("gap"), self.critical
        if critical is not None and len(self.answers) >= FEWEST_PROMPTS:
            about["marks"] = ((critical.value, "critical layer"),)
        rows = ((found.values, gap.values), (found.low, gap.low), (found.high, gap.high))
        values, low, high = (torch.cat([own, last[None]]) for own, last in rows)
        return LayerCurves(
            title,
            (*names, "gap"),
            *(values, low, high),
            y_title=found.unit,
            meanings=("true", "false", "other"),
            panels=(
                Panel(self._named("Calibrated accuracy"), (0, 1), found.unit, levels, y_range=ENDS),
                Panel("Gap, true minus false", (2,), "accuracy gap", ((0.0, "no gap"),)),
            ),
            **about,
        )

    def _levels(self, metric: str) -> tuple[tuple[float, str], ...]:
        """What a metric is compared with."""
        chance = (self._chance, f"chance {told(self._chance)}")
        if metric in ("top_labels", "label_space"):
            return ()
        if metric == "calibrated" and not self.own_choices:
            return chance, (self.reachable, f"highest reachable {told(self.reachable)}")
        if metric != "plain" or self.own_choices:
            return (chance,)
        own = (self.commonest, f"{self._constant} {told(self.commonest)}")
        return (own,) if self.commonest <= self._chance else (chance, own)

    @property
    def commonest(self) -> float:
        """Share of the most frequent true class: what a constant answer scores uncalibrated."""
        return float(torch.bincount(self.answers).max()) / len(self.answers)

    def _sides(self, metric: str) -> Sides:
        """One metric at the last layer, its gap paired."""
        last = self.scores.shape[-1] - 1
        true, false = (self.interval(metric, side=side, layer=last) for side in SIDES)
        scores = self.scores[METRICS.index(metric), ..., -1]
        kind: Kind = "change" if metric in OUTCOMES else "value"
        gap = (
            self.final_gap if metric == "calibrated" else mean_interval(scores[0] - scores[1], kind)
        )
        return Sides(true, false, gap, len(self.answers), given(self), self.interval_kind)

    @property
    def _constant(self) -> str:
        """Which answer scores the share of the most frequent class."""
        even = self.commonest <= self._chance + 1e-9
        return "any constant answer" if even else "always the commonest class"

    @property
    def _chance(self) -> float:
        """One over the number of classes."""
        return 1 / self.true_probs.shape[-1]

    def figures(self) -> list[Figure]:
        """Calibrated accuracy with its gap, the permuted score, and what calibration leaves out."""
        own = self._sides("calibrated")
        shown = [self._harm(own)]
        # Of two classes the wrong one is the false one: nothing that accuracy does not say.
        if self.true_probs.shape[-1] > 2 and self.defined("permuted"):
            shown.append(self._followed(own))
        # Accuracy of choices is not calibrated, and the first figure is about it.
        plain = [] if self.own_choices else [self._uncalibrated()]
        return [*shown, *plain, self._format_found()]

    def _harm(self, own: Sides) -> Figure:
        """Calibrated accuracy by layer."""
        status, gap = judged(own.gap, prompts=own.pairs), said(own.gap)
        critical = self.critical if status == "supported" else None
        start = opening(status, own.few, supported="Yes.", opposite="No.")
        end = " that includes 0." if status == "not shown" else "."
        mark = ""
        limits = (
            "that a layer at chance knows nothing: its answer may be there in another form than the "
            "last layer reads."
        )
        if critical is not None:
            first, low, high = (f"{x:.{0 if x == round(x) else 1}f}" for x in critical)
            end = f"; it stays open from layer {first} on."
            mark = (
                f" Dotted: the critical layer, {first} (95 % interval {low} to {high}), from which the "
                f"gap stays at {said_share(self.threshold)} its final value or more."
            )
        else:
            limits += f" Where the curves part: that needs a gap clear of 0, and here it is {gap}."
        if status == "opposite":
            end = ": false demonstrations do not hurt here, they help."
        counts = self.tie_counts
        if counts is not None and bool((counts[0, :, 0] == counts[2, :, 0]).all()):
            mark += " At the embedding all prompts are alike: every score there is a tie."
        return Figure(
            "calibrated",
            "Do false demonstrations hurt, and from which layer on?",
            f"{start} {'At' if start.endswith('.') else 'at'} the last layer {self._named('calibrated accuracy')} is "
            f"{own.both}, a gap of {gap}{end}",
            f"**{self._named('Calibrated accuracy')} after each layer, with true and with false "
            f"demonstrations**, and the gap between the two. {OPEN_SCORE if self.own_choices else SCORE} Layer 0 is the embedding, the last one the model's own "
            f"answer. Bands (each point for itself): {own.basis}. {self._lines()}{mark} "
            "Curves of the paper are not drawn: they are of other models and data sets, and this package "
            "carries their averages only (section on published numbers).",
            {
                "supported": "that the labels of the demonstrations, not only their texts, move the "
                "answers.",
                "opposite": "that false labels do not lower accuracy on these prompts.",
            }.get(status, ""),
            limits,
            "Accuracy by layer",
        )

    def _lines(self) -> str:
        """What the dashed lines of calibrated accuracy are."""
        if self.own_choices:
            return f"Dashes: chance ({told(self._chance)})."
        text = (
            f"Dashes: chance, which is also what any constant answer scores ({told(self._chance)})"
        )
        if self.reachable >= 1:
            return f"{text}. A perfect classifier reaches 1."
        return (
            f"{text}, and the most a perfect classifier can reach: {told(self.reachable)}, not 1, since "
            "the true classes of the queries are not balanced."
        )

    def _followed(self, own: Sides) -> Figure:
        """The permuted score of the false side: is the false label the answer?"""
        score = self.interval("permuted", side="false", layer=self.scores.shape[-1] - 1)
        status = judged(score, null=self._chance, prompts=own.pairs)
        where = {"supported": "above", "opposite": "below"}.get(status, "not clear of")
        yes = status == "supported"
        return Figure(
            "permuted",
            "Does the model answer the false label instead?",
            f"{opening(status, own.few)} after the last layer the label that false demonstrations teach "
            f"scores {said(score)} in place of the true one, {where} chance ({told(self._chance)}).",
            f"**Permuted score after each layer**: {self._named('calibrated accuracy')} with the label that the "
            "false demonstrations teach for the query in place of the true one, on an axis of its own. "
            f"Bands (each point for itself): {own.basis}. Dashes: chance.",
            "that errors under false demonstrations follow the rule the demonstrations show." * yes,
            "how the model gets there: copying labels and learning the rule look alike here."
            if yes
            else "that false labels leave the answers alone: they may lower accuracy without being "
            "followed.",
            "Following false labels",
        )

    def _uncalibrated(self) -> Figure:
        """Accuracy over the label words."""
        own, chance = self._sides("plain"), told(self._chance)
        kind = "mean ± 1.96 standard errors" if own.kind == "reference" else "Wilson"
        even = self.commonest <= self._chance + 1e-9
        return Figure(
            "plain",
            "Is the gap there without calibration too?",
            f"{opening(judged(own.gap, prompts=own.pairs), own.few)} the likeliest label word is right in "
            f"{own.both}, a difference of {said(own.gap)}; {self._constant} is right in {told(self.commonest)}.",
            "**Share of prompts whose likeliest label word is right, after each layer.** Bands (each "
            f"point for itself): 95 % intervals ({kind}), {own.few}{own.given}; the difference is paired "
            f"(Tango). Dashes: {self._constant} ({told(self.commonest)}), "
            f"{'which is chance' if even else f'and chance ({chance})'}.",
            "",
            "what the model knows of a class it never names: one preferred label word pulls this "
            "measure to the base rate. Calibrated accuracy does not have that fault.",
            "Without calibration",
        )

    def _format_found(self) -> Figure:
        """Probability of all label words."""
        own, entries = self._sides("label_space"), self.scores.shape[-1]
        most = self.accuracy("true", "label_space") >= 0.5
        first = entries - int(most.flip(0).int().cummin(0).values.sum())
        when = f"with true ones they hold half of it or more from layer {first} on"
        return Figure(
            "label_space",
            "From which layer on does the model answer in label words?",
            f"After the last layer all label words together have a probability of {own.both}; "
            f"{when if first < entries else 'they never hold half of it'}.",
            "**Probability of all label words together, after each layer**: where the format of the "
            f"answer is understood, right or wrong. Bands (each point for itself): {own.basis}.",
            "",
            "that the answer is right: the label words may share the probability in any way.",
            "Label words at all",
        )

    def summary(self) -> str:
        """Final accuracies, gap and critical layer."""
        critical = self.critical
        where = f"critical layer {critical}"
        if critical is None:
            where = "no critical layer (the gap's interval includes 0)"
        last = self.sel(layer=self.scores.shape[-1] - 1)
        true, false = (last.interval(side=side) for side in ("true", "false"))
        return (
            f"calibrated accuracy {true} with true and {false} with false "
            f"demonstrations, gap {self.final_gap}; {where}{self.ties.note}"
        )


@dataclass(frozen=True)
class LayerAccuracy(OfPairs[LayerAccuracyResult]):
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Attributes:
        threshold: Share of the final gap that is there from the critical layer on, a half in the paper.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, a lens of another model, or a share that is none.

    Source: Halawi et al. 2023, §4.
    """

    threshold: float = HALF

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and what it may be.
        """
        super().__post_init__()
        if not 0 < self.threshold <= 1:
            raise RunError(
                f"threshold={self.threshold}; expected a share of the final gap, above 0 to 1."
            )

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> LayerAccuracyResult:
        """Scores at the targets of both sides."""
        true, false = data
        taught, exact = taught_classes(false), self.variant == "reference"
        sides = [
            entry_scores(lens, 0, true.answers, taught, true, exact_ties=exact) for (lens,) in read
        ]
        return LayerAccuracyResult(
            scores=torch.stack([side.scores for side in sides], dim=1),
            true_probs=sides[0].probs,
            false_probs=sides[1].probs,
            tie_counts=torch.stack([side.tie_counts for side in sides], dim=1),
            answers=true.answers,
            variant=self.variant,
            interval_kind=self.interval,
            own_choices=not true.has_classes,
            threshold=self.threshold,
        )


layer_accuracy = door(
    LayerAccuracy,
    "layer_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
