"""Accuracy by layer with true and with false demonstrations, their gap and critical layer.

Entry `l` of the logit lens is read as if the model ended there. The *gap* is the accuracy
with true minus with false demonstrations; the *critical layer* is the first entry from which
the gap stays at or above half its final value (`reference`: the first crossing).

Source: Halawi et al. 2023, *Overthinking the Truth*, §4.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    METRICS,
    OUTCOMES,
    SIDES,
    OfPairs,
    PairScores,
    entry_scores,
    taught_classes,
)
from icl_mech.measurements.accuracy.texts import (
    Sides,
    constant_answer,
    followed,
    format_found,
    harm,
    uncalibrated,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted_texts import noted
from icl_mech.measurements.lens.layer_lens import LENS
from icl_mech.measurements.lens.residuals import LensVariant
from icl_mech.measurements.lens.words import AFTER
from icl_mech.metrics import (
    Interval,
    Kind,
    bootstrap_interval,
    critical_layer,
    mean_interval,
    reachable_accuracy,
)
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Figure, Quantity, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Meaning, Panel

if TYPE_CHECKING:
    import pandas as pd

PAPER = "Halawi et al. 2023, Overthinking the Truth"

CALIBRATED = Definition(
    "calibrated accuracy",
    r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\!\left[\tilde p_n(y_n) > Q_{(C-1)/C}\big(\tilde p_{1\dots N}"
    r"(y_n)\big)\right], \quad \tilde p(c) = \frac{p(c) + 10^{-14}}{\sum_{c'} p(c') + C\,10^{-14}}",
    "A prompt counts as right if the probability of its true label y, normalised over the C label "
    "words, lies above that label's (C − 1)/C quantile Q over all prompts of the same kind and at the "
    "same layer; a tie counts 1/C. A model that always prefers one label word gains nothing: any "
    "constant answer scores 1/C.",
    f"{PAPER}, §2",
)

REACHABLE = Definition(
    "highest reachable calibrated accuracy",
    r"\frac{1}{N} \sum_{c} \min\!\left(N_c,\ \left\lfloor\tfrac{N-1}{C}\right\rfloor + \tau\right), \quad "
    r"\tau = \begin{cases} 1/C & C \mid N - 1 \\ 1 & \text{else} \end{cases}",
    "What a perfect classifier scores: no more prompts than lie above a label's quantile can count as "
    "right. N_c is the number of queries of class c; it is 1 only where the classes are balanced.",
    "follows from the definition of calibrated accuracy",
)

PERMUTED = Definition(
    "permuted score",
    r"\text{calibrated accuracy with } \tilde y_n \text{ in place of } y_n",
    "The same for the label that the false demonstrations teach for the query (ỹ).",
    f"{PAPER}, §3",
)

PLAIN = Definition(
    "accuracy over label words",
    r"\frac{1}{N} \sum_n \mathbb{1}\!\left[p_n(y_n) \ge \max_c p_n(c)\right]",
    "Share of prompts in which no label word is likelier than the true one.",
)

GAP = Definition(
    "accuracy gap",
    r"g_\ell = \operatorname{acc}_\ell(\text{true}) - \operatorname{acc}_\ell(\text{false})",
    "Calibrated accuracy with true minus with false demonstrations of the same queries.",
    f"{PAPER}, §4",
)

CRITICAL = Definition(
    "critical layer",
    r"\min\{\ell : g_{\ell'} \ge g_L / 2 \text{ for all } \ell' \ge \ell\}",
    "The first layer from which the gap stays at or above half its final value. Not defined where "
    "the interval of the final gap includes 0.",
    f"{PAPER}, §4",
)

EXIT = Definition(
    "early-exit layer",
    r"\operatorname*{argmax}_{\ell < L}\ \frac{1}{T}\sum_{t=1}^{T} \left(\operatorname{acc}^{t}_\ell"
    r"(\text{false}) - \operatorname{acc}^{t}_L(\text{false})\right)",
    "The layer at which reading out helps most with false demonstrations, over T tasks; the first of "
    "equals. Chosen on one half of the prompts, reported on the other; every half has thresholds of "
    "its own.",
    f"{PAPER}, §4",
)

OVERTHINKING = Definition(
    "overthinking",
    r"\operatorname{acc}_{\ell^*}(\text{false}) - \operatorname{acc}_L(\text{false})",
    "Calibrated accuracy at the early-exit layer minus that at the last layer.",
    f"{PAPER}, §4",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerAccuracy(PairScores):
    """Scores of every pair of prompts at every entry; entry 0 is the embedding.

    Attributes:
        scores: By metric, side, prompt and entry.
        true_probs: Normalised label probabilities with true demonstrations.
        false_probs: The same with false ones.
        answers: True class of each query.
        variant: Of lens and critical layer.
        interval_kind: Kind of the intervals.
    """

    title: ClassVar[str] = "True and false demonstrations by layer"
    shows: ClassVar[tuple[str, ...]] = (*METRICS, "gap")
    definitions: ClassVar[tuple[Definition, ...]] = (
        LENS, CALIBRATED, REACHABLE, GAP, CRITICAL, PERMUTED, PLAIN,
    )  # fmt: skip

    true_probs: Float[Tensor, "batch entry label"]
    false_probs: Float[Tensor, "batch entry label"]
    answers: Int[Tensor, " batch"]
    variant: LensVariant = "sound"

    def quantities(self) -> dict[str, Quantity]:
        """The metrics by side and layer, and the `gap`, paired over prompts."""
        paired = self.pair_scores[:, 0] - self.pair_scores[:, 1]
        return {
            **super().quantities(),
            "gap": Quantity(("layer",), paired, unit="accuracy gap", kind="change"),
        }

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
        """The critical layer with its bootstrap interval.

        None where it is not defined: the interval of the final gap includes 0. Resamples
        without a final gap are left out.
        """
        if self.final_gap.low <= 0:
            return None

        def statistic(means: Tensor) -> Tensor:
            gap = means[:, 0] - means[:, 1]
            layer = critical_layer(gap, self.variant).double()
            return torch.where(gap[:, -1] > 0, layer, torch.nan)

        # Not a quantity: which layer is critical must not hang on how a mean is rounded.
        low, high = bootstrap_interval(self.pair_scores, statistic)
        return Interval(float(critical_layer(self.gap, self.variant)), float(low), float(high))

    @property
    def reachable(self) -> float:
        """Calibrated accuracy of a perfect classifier: below 1 where classes are unbalanced."""
        return reachable_accuracy(self.answers, self.true_probs.shape[-1])

    def drawing(self, show: str = "calibrated") -> LayerCurves:
        """One metric after each layer on both sides; beside calibrated accuracy the gap.

        Args:
            show: One of `shows`.

        Raises:
            ResultError: unknown `show`, or a metric that is not defined for these prompts.
        """
        self.check_show(show)
        found = self.sel(show)
        ends = [found.values, found.low, found.high]
        names: tuple[str, ...] = ("true demonstrations", "false demonstrations")
        meanings: tuple[Meaning, ...] = ("true", "false")
        chance = 1 / self.true_probs.shape[-1]
        levels: tuple[tuple[float, str], ...] = ((chance, f"chance {told(chance)}"),)
        marks: tuple[tuple[float, str], ...] = ()
        panels: tuple[Panel, ...] = ()
        y_range = None if show == "gap" else (-0.03, 1.05)
        if show == "gap":
            names, meanings, ends = ("gap",), ("other",), [end[None] for end in ends]
            levels = ((0.0, "no gap"),)
        elif show == "calibrated":
            gap, critical = self.sel("gap"), self.critical
            more = (gap.values, gap.low, gap.high)
            ends = [torch.cat([own, end[None]]) for own, end in zip(ends, more, strict=True)]
            names, meanings = (*names, "gap"), (*meanings, "other")
            levels = (*levels, (self.reachable, f"highest reachable {told(self.reachable)}"))
            panels = (
                Panel("Calibrated accuracy", (0, 1), METRIC_NAMES[show], levels, y_range=y_range),
                Panel("Gap, true minus false", (2,), "accuracy gap", ((0.0, "no gap"),)),
            )
            if critical is not None and len(self.answers) >= FEWEST_PROMPTS:
                marks = ((critical.value, "critical layer"),)
        elif show == "plain":
            constant = constant_answer(self.commonest, chance)
            levels = () if self.commonest <= chance else levels
            levels = (*levels, (self.commonest, f"{constant} {told(self.commonest)}"))
        elif show in ("top_labels", "label_space"):
            levels = ()
        pairs = counted(len(self.answers), "pair") + " of prompts"
        return LayerCurves(
            title=f"{found.unit[0].upper()}{found.unit[1:]} by layer",
            names=names,
            values=ends[0],
            low=ends[1],
            high=ends[2],
            y_title=found.unit,
            x_title=AFTER,
            note=noted(self) + basis(self, pairs),
            meanings=meanings,
            panels=panels,
            marks=marks,
            levels=() if panels else levels,
            y_range=None if panels else y_range,
        )

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

    def figures(self) -> list[Figure]:
        """Calibrated accuracy with its gap, the permuted score, and what calibration leaves out."""
        chance, own = 1 / self.true_probs.shape[-1], self._sides("calibrated")
        counts = self.tie_counts
        alike = counts is not None and bool((counts[0, :, 0] == counts[2, :, 0]).all())
        shown = [harm(own, self.critical, chance, self.reachable, alike=alike)]
        # Of two classes the wrong one is the false one: nothing that accuracy does not say.
        if self.true_probs.shape[-1] > 2 and self.defined("permuted"):
            score = self.interval("permuted", side="false", layer=self.scores.shape[-1] - 1)
            shown.append(followed(score, chance, own))
        space = self.accuracy("true", "label_space") >= 0.5
        half = self.scores.shape[-1] - int(space.flip(0).int().cummin(0).values.sum())
        return [
            *shown,
            uncalibrated(self._sides("plain"), self.commonest, chance),
            format_found(
                self._sides("label_space"), half if half < self.scores.shape[-1] else None
            ),
        ]

    def summary(self) -> str:
        """Final accuracies, gap and critical layer."""
        critical = self.critical
        where = (
            "no critical layer (the gap's interval includes 0)"
            if critical is None
            else f"critical layer {critical}"
        )
        last = self.sel(layer=self.scores.shape[-1] - 1)
        true, false = (last.interval(side=side) for side in ("true", "false"))
        return (
            f"calibrated accuracy {true} with true and {false} with false "
            f"demonstrations, gap {self.final_gap}; {where}{self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per metric, side and entry."""
        import pandas as pd

        metrics = [name for name in METRICS if self.defined(name)]
        tables = [self.sel(name).to_pandas() for name in metrics]
        found = pd.concat(tables, keys=metrics, names=["metric"]).reset_index(level=0)
        return found.reset_index(drop=True).rename(columns={"side": "demonstrations"})


__all__ = ["AccuracyByLayer", "LayerAccuracy", "layer_accuracy"]


@dataclass(frozen=True)
class AccuracyByLayer(OfPairs[LayerAccuracy]):
    """Accuracy at every layer with true and with false demonstrations of the same queries.

    Raises:
        PromptError: sets that are not pairs, or have no answers.
        RunError: unknown variant or interval, or a lens of another model.

    Source: Halawi et al. 2023, §4.
    """

    name: ClassVar[str] = "layer_accuracy"

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> LayerAccuracy:
        """Scores at the targets of both sides."""
        true, false = data
        sides = [
            entry_scores(
                lens, 0, true.answers, taught_classes(false), true.label_tokens,
                exact_ties=self.variant == "reference",
            )
            for (lens,) in read
        ]  # fmt: skip
        return LayerAccuracy(
            scores=torch.stack([side.scores for side in sides], dim=1),
            true_probs=sides[0].probs,
            false_probs=sides[1].probs,
            tie_counts=torch.stack([side.tie_counts for side in sides], dim=1),
            answers=true.answers,
            variant=self.variant,
            interval_kind=self.interval,
        )


layer_accuracy = door(
    AccuracyByLayer,
    "layer_accuracy",
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones, see `build_prompt_pairs`.",
)
