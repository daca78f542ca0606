"""Accuracy by the number of demonstrations, from one pass that reads every demonstration.

The token before the label of demonstration `k` (from 0) has seen `k` demonstrations; its
label follows later and cannot leak. `k = 0` of the true set is zero-shot. The last point is
the query, where it is not itself the last demonstration. The classes of the `k`-th
demonstrations are as balanced as they were drawn; `reachable` says what that costs.

Source: Halawi et al. 2023, *Overthinking the Truth*, §3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Path
from icl_mech.errors import PromptError
from icl_mech.interventions import Intervention
from icl_mech.measurements.accuracy.pairs import (
    METRIC_NAMES,
    OfPairs,
    PairScores,
    entry_scores,
    taught_classes,
)
from icl_mech.measurements.base import Pair
from icl_mech.measurements.lens.residuals import (
    LayerLensReading,
    LensVariant,
    check_demonstrations,
)
from icl_mech.measurements.running import measured
from icl_mech.metrics import IntervalKind, Ties, reachable_accuracy
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import basis
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
        interval_kind: Kind of the intervals.
    """

    title: ClassVar[str] = "Accuracy by number of demonstrations"
    axes: ClassVar[tuple[str, ...]] = ("seen", "layer")

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
        """True and false accuracy, and the permuted score times C where it is defined.

        Args:
            entry: Of the lens; counted from the end if negative.
        """
        layer = entry + self.scores.shape[-1] if entry < 0 else entry
        found = self.sel("calibrated", layer=layer)
        curves = [found.values, found.low, found.high]
        names = ["true demonstrations", "false demonstrations"]
        if self.n_labels > 2 and self.defined("permuted"):
            names.append("permuted score x C, false demonstrations")
            more = self.sel("permuted", side="false", layer=layer)
            ends = (more.values, more.low, more.high)
            curves = [
                torch.cat([own, self.n_labels * end[None]])
                for own, end in zip(curves, ends, strict=True)
            ]
        pairs = f"{self.scores.shape[2]} pairs of prompts"
        return LayerCurves(
            title="Accuracy by number of demonstrations",
            names=tuple(names),
            values=curves[0],
            low=curves[1],
            high=curves[2],
            y_title=METRIC_NAMES["calibrated"],
            x_title="demonstrations seen",
            note=f"{basis(self, pairs)}; a perfect classifier reaches "
            f"{float(self.reachable.min()):.2g} or more",
            levels=((1 / self.n_labels, "chance"),),
        )

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
    """Accuracy after every number of demonstrations, at every layer."""

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
        return [LayerLensReading(self.variant, "demonstrations"), LayerLensReading(self.variant)]

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


def context_accuracy(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    *,
    interventions: Sequence[Intervention] = (),
    variant: LensVariant = "sound",
    interval: IntervalKind = "bootstrap",
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
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
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs, or prompts with different numbers of
            demonstrations, or with the same ones.
        RunError: unknown variant or interval.

    Source: Halawi et al. 2023, §3.
    """
    return measured(
        AccuracyByDemonstrations(variant, interval), model, (true, false),
        interventions=interventions, batch_size=batch_size, memory=memory, path=path,
        progress=progress,
    )  # fmt: skip
