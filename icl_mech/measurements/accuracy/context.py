"""Accuracy by the number of demonstrations, from one pass that reads every demonstration.

The token before the label of demonstration `k` (from 0) has seen `k` demonstrations; its
label follows later and cannot leak. `k = 0` of the true set is zero-shot. The last point is
the query, where it is not itself the last demonstration. The classes of the `k`-th
demonstrations are as balanced as they were drawn; `reachable` says what that costs.

Source: Halawi et al. 2023, *Overthinking the Truth*, §3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import run
from icl_mech.errors import PromptError, RunError, near_matches
from icl_mech.interventions import Intervention
from icl_mech.measurements._old import provenance
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    SIDES,
    PairScores,
    check_pairs,
    entry_scores,
    pair_source,
    taught_classes,
)
from icl_mech.measurements.lens.residuals import (
    LayerLensReading,
    LensRows,
    LensVariant,
    check_demonstrations,
)
from icl_mech.metrics import IntervalKind, Ties, reachable_accuracy
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class ContextAccuracy(PairScores):
    """Scores of every pair of prompts after every number of demonstrations.

    Attributes:
        scores: By metric, side, prompt, number of demonstrations and entry.
        n_labels: Number of classes.
        reachable: Calibrated accuracy of a perfect classifier, by number of demonstrations.
        interval: Kind of the intervals.
    """

    title: ClassVar[str] = "Accuracy by number of demonstrations"

    reachable: Float[Tensor, " shown"]
    n_labels: int

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
        """True and false accuracy, and the permuted score times C where it is defined."""
        curves = [("true", "calibrated", 1.0), ("false", "calibrated", 1.0)]
        names = ["true demonstrations", "false demonstrations"]
        if self.n_labels > 2 and self.defined("permuted"):
            curves.append(("false", "permuted", float(self.n_labels)))
            names.append("permuted score x C, false demonstrations")
        values = [factor * self.accuracy(side, m)[:, entry] for side, m, factor in curves]
        ends = [
            tuple(factor * end[:, entry] for end in self.ends(side, m))
            for side, m, factor in curves
        ]
        return LayerCurves(
            title="Accuracy by number of demonstrations",
            names=tuple(names),
            values=torch.stack(values),
            low=torch.stack([low for low, _ in ends]),
            high=torch.stack([high for _, high in ends]),
            y_title=METRIC_NAMES["calibrated"],
            x_title="demonstrations seen",
            note=f"{self.scores.shape[2]} pairs of prompts, 95 % intervals over prompts; a perfect "
            f"classifier reaches {float(self.reachable.min()):.2g} or more",
            levels=((1 / self.n_labels, "chance"),),
        )

    def summary(self) -> str:
        """Both accuracies with no and with all demonstrations, at the last entry."""
        true, false = (self.accuracy(side)[:, -1] for side in SIDES)
        last = len(true) - 1
        return (
            f"calibrated accuracy without demonstrations {float(true[0]):.3g}, with {last}: "
            f"{float(true[-1]):.3g} (true), {float(false[-1]):.3g} (false){self.ties.note}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per side, number and entry, calibrated accuracy."""
        import pandas as pd

        rows = []
        for side in SIDES:
            low, high = self.ends(side)
            values = self.accuracy(side)
            rows += [
                {
                    "demonstrations": side,
                    "seen": shown,
                    "layer": entry,
                    "value": float(values[shown, entry]),
                    "low": float(low[shown, entry]),
                    "high": float(high[shown, entry]),
                }
                for shown in range(values.shape[0])
                for entry in range(values.shape[1])
            ]
        return pd.DataFrame(rows)


def context_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    variant: LensVariant = "sound",
    interval: IntervalKind = "bootstrap",
    batch_size: int | None = None,
    progress: bool | None = None,
) -> ContextAccuracy:
    """Accuracy after every number of demonstrations, at every layer.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones, see `build_prompt_pairs`.
        interventions: Made during both passes.
        variant: Lens and ties, `sound` or `reference`.
        interval: `bootstrap` or `reference`.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs, or prompts with different numbers of
            demonstrations, or with the same ones.
        RunError: unknown variant or interval.

    Source: Halawi et al. 2023, §3.
    """
    for name, value, kind in (("variant", variant, LensVariant), ("interval", interval, IntervalKind)):
        if value not in get_args(kind):
            raise RunError(f"{name}={value!r}. {near_matches(value, get_args(kind))}")
    check_context(true, false)
    adapted = adapt(model)
    lenses = [
        run(
            adapted, prompts, context_readings(variant), interventions,
            batch_size=batch_size, progress=progress, title=f"{side} demonstrations",
        )
        for side, prompts in zip(SIDES, (true, false), strict=True)
    ]  # fmt: skip
    origin = provenance(adapted, true, interventions, lens=variant, interval=interval)
    return context_result(lenses, true, false, variant, interval, origin)


def check_context(true: PromptBatch, false: PromptBatch) -> None:
    """Refuse sets that are not pairs, or cannot be read demonstration by demonstration.

    Raises:
        PromptError: says which.
    """
    check_pairs(true, false)
    for prompts in (true, false):
        check_demonstrations(prompts)
    if len(true) > 1 and bool((true.label_classes == true.label_classes[0]).all()):
        raise PromptError(
            "All prompts show the same classes in the same order, so accuracy at a demonstration has "
            "no meaning: one class would be the whole test. Build them with "
            "demonstrations='per_prompt'."
        )


def context_readings(variant: LensVariant) -> list[LayerLensReading]:
    """Lenses at every demonstration and at the target."""
    return [LayerLensReading(variant, "demonstrations"), LayerLensReading(variant)]


def context_result(
    lenses: Sequence[Sequence[LensRows]],
    true: PromptBatch,
    false: PromptBatch,
    variant: LensVariant,
    interval: IntervalKind,
    origin: dict[str, Any],
) -> ContextAccuracy:
    """Scores from what `context_readings` read on both sides."""
    ends_in_demonstration = bool((true.targets == true.label_positions[:, -1] - 1).all())
    exact = variant == "reference"
    scores, counts = [], []
    for at_demonstrations, at_target in lenses:
        # The demonstrations' texts are the same on both sides; the true set shows their classes.
        shown, _, ties = entry_scores(
            at_demonstrations, slice(None), true.label_classes,
            _taught_in_context(true, false, at_demonstration=ends_in_demonstration),
            true.label_tokens, exact_ties=exact,
        )  # fmt: skip
        if not ends_in_demonstration:
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
        reachable=_reachable(true, query=not ends_in_demonstration),
        n_labels=true.n_labels,
        interval=interval,
        provenance={**origin, **pair_source(true, false)},
    )


def _reachable(true: PromptBatch, *, query: bool) -> Float[Tensor, " shown"]:
    """Calibrated accuracy of a perfect classifier, by number of demonstrations."""
    classes = [*true.label_classes.unbind(1), *([true.answers] if query else [])]
    best = [reachable_accuracy(own, true.n_labels) for own in classes]
    return torch.tensor(best, dtype=torch.float64)


def _taught_in_context(
    true: PromptBatch, false: PromptBatch, *, at_demonstration: bool
) -> Int[Tensor, "batch demo"] | None:
    """The class the false labels teach for each demonstration's text.

    `(y + s) mod C`, also where a half-permuted demonstration is right; in prompts read at
    their last demonstration (the reference) what each displays.
    """
    if at_demonstration:
        return false.label_classes
    taught = taught_classes(false)
    if taught is None:
        return None
    shift = (taught - true.answers) % true.n_labels
    return (true.label_classes + shift[:, None]) % true.n_labels
