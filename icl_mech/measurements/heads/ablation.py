"""Ablation at the target: accuracy lost with true, and gained with false demonstrations.

The same pairs of prompts are run unablated and under each ablation, all on one path, so that equal
scores are equal; calibrated accuracy has separate thresholds in every run. *Gap reduction* is `1 - (true - ablated
false) / (true - false)` with unablated `true` and `false`.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.accuracy.scores import CALIBRATED, METRICS, OwnChoices, entry_scores
from icl_mech.measurements.base import Pair, PairMeasurement, Variants
from icl_mech.measurements.demonstrations import SIDES, check_balance, check_pairs
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.heads.conditions import (
    ABLATION,
    CHOSEN,
    NONE,
    RANDOM,
    REDUCTION,
    Conditions,
    closed_ends,
    gap_reduction,
    heads_close,
)
from icl_mech.measurements.lens.residuals import LastEntryReading, LensVariant
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.metrics.calibration import Ties, reachable_accuracy, score_interval
from icl_mech.metrics.means import beyond_draws
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS
from icl_mech.results import Definition, Quantity, Result, function_of_means
from icl_mech.results.judging import Status, judged, together
from icl_mech.results.quantities import kept

CHANGE = "change of calibrated accuracy"


class Drawn(NamedTuple):
    """Gap reduction by random heads.

    Attributes:
        draws: Number of draws.
        mean: Mean over draws.
        low: Lower end of the central 95 % of the draws.
        high: Upper end.
    """

    draws: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, kw_only=True)
class AblationResult(OwnChoices, Result):
    """Calibrated scores of every pair of prompts under every condition.

    Attributes:
        scores: Scores by condition, side (`true`, `false` demonstrations) and prompt.
        conditions: Names; the first is `none`, random draws are called `random heads`.
        tie_counts: Number of scores that are ties, nearly ties, and in all, by condition and side.
        n_labels, reachable: Number of classes, and calibrated accuracy of a perfect classifier, or None.
        own_choices: True if each prompt has its own choices as answers; accuracy is then not calibrated.
    """

    shows: ClassVar[tuple[str, ...]] = ("change", "accuracy")
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"condition": "names", "side": SIDES}
    definitions: ClassVar[tuple[Definition, ...]] = (ABLATION, REDUCTION, CALIBRATED)

    scores: Float[Tensor, "condition side batch"]
    conditions: tuple[str, ...]
    tie_counts: Int[Tensor, "count condition side"] | None = None
    n_labels: int | None = None
    reachable: float | None = None
    own_choices: bool = False

    @property
    def ties(self) -> Ties:
        """Ties among the scores of all conditions and both sides."""
        return Ties.of(self.tie_counts)

    def quantities(self) -> dict[str, Quantity]:
        """Accuracies, the gap, and the effect of each condition on them; random draws averaged.

        `change` is accuracy under the condition minus without it, paired. `gap_reduction` is the fraction
        of the gap that the condition closes; it is undefined unless the interval of the gap lies above 0.
        """
        drawn = [self.scores[self.places(name)].mean(0) for name in self.names]
        scores = torch.stack(drawn).permute(2, 0, 1)
        changes, gap = scores - scores[:, :1], self.scores[0, 0] - self.scores[0, 1]
        dims = ("condition", "side")
        low, high = mean_ends(changes, "change")
        low[0] = high[0] = 0.0  # relative to itself
        labels = None if self.own_choices else self.n_labels
        known, unit = score_interval(scores, n_labels=labels), self._named("calibrated accuracy")
        quantities = {
            "accuracy": Quantity(dims, scores, None, unit, known, "outcome"),
            "change": Quantity(dims, changes, None, self._named(CHANGE), (low, high), "change"),
            "gap": Quantity((), gap, unit=unit, kind="change"),
        }
        if self.has_gap:
            closed = function_of_means(scores, gap_reduction)
            quantities["gap_reduction"] = Quantity(
                dims[:1], scores, closed, "fraction of the gap", closed_ends(scores)
            )
        return quantities

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the conditions, random draws as one."""
        return tuple(dict.fromkeys(self.conditions))

    def more_columns(self) -> Mapping[str, list[int]]:
        """Number of runs that each row is the mean of."""
        draws = [self.conditions.count(name) for name in self.names]
        return {"draws": [count for count in draws for _ in SIDES]}

    def places(self, condition: str) -> list[int]:
        """Indices of the runs of a condition in `conditions`.

        Raises:
            ResultError: unknown condition.
        """
        places = [i for i, name in enumerate(self.conditions) if name == condition]
        if not places:
            raise ResultError(
                f"There is no condition {condition!r}. "
                f"{near_matches(condition, set(self.conditions))}"
            )
        return places

    @property
    @kept
    def gap(self) -> Interval:
        """Unablated accuracy with true minus with false demonstrations, paired."""
        return mean_interval(self.scores[0, 0] - self.scores[0, 1], "change")

    @checked(ResultError)
    def reduction(self, condition: str) -> Interval | None:
        """Fraction of the gap that the ablation closes; None unless the gap's interval lies above 0.

        Raises:
            ResultError: unknown condition.
        """
        self.places(condition)
        return self.interval("gap_reduction", condition=condition) if self.has_gap else None

    def draws(self) -> Float[Tensor, " draw"]:
        """Gap reduction of each random draw; not-a-number unless the gap's interval lies above 0.

        Raises:
            ResultError: no random heads were drawn.
        """
        places = self.places(RANDOM)
        if self.gap.low <= 0:
            return torch.full((len(places),), torch.nan, dtype=self.scores.dtype)
        return gap_reduction(self.scores[[0, *places]].mean(-1))[1:]

    def heads(self, condition: str = CHOSEN) -> tuple[tuple[int, int], ...]:
        """The (layer, head) pairs a condition ablates, where the result records them; else none.

        Raises:
            ResultError: unknown condition.
        """
        place, known = self.places(condition)[0], self.provenance.get("conditions", [])
        changes = known[place] if len(known) > place else []
        pairs = [pair for change in changes for pair in change.get("heads", ())]
        return tuple((int(layer), int(head)) for layer, head in pairs)

    def beside_random(self, side: str = "false") -> Interval | None:
        """Accuracy without the chosen heads minus that without random ones, paired over prompts.

        The interval includes the spread of the draws, see `beyond_draws`. None without chosen heads, or with fewer
        than two draws of random heads.
        """
        if CHOSEN not in self.conditions or RANDOM not in self.conditions:
            return None
        place = SIDES.index(side)
        chosen = self.scores[self.places(CHOSEN)[0], place]
        drawn = self.scores[self.places(RANDOM), place]
        return beyond_draws(chosen, drawn.T, "change")

    # --- facts ---

    @property
    def count(self) -> int:
        """Number of pairs of prompts."""
        return self.scores.shape[-1]

    @property
    def has_gap(self) -> bool:
        """True if the interval of the gap lies above 0."""
        return self.gap.low > 0

    @property
    def of_heads(self) -> bool:
        """True if chosen heads were ablated."""
        return CHOSEN in self.names

    @property
    def head_names(self) -> tuple[str, ...]:
        """The chosen heads as `layer.head`, where the result records them."""
        return tuple(map(head_name, self.heads())) if self.of_heads else ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Conditions other than the unablated one and random heads."""
        return tuple(name for name in self.names if name not in (NONE, RANDOM))

    @property
    @kept
    def status(self) -> Status:
        """Status of the claim that the gap closes: without the chosen heads, else without each of the other parts."""
        changes = {
            name: self.interval("change", condition=name, side="false") for name in self.parts
        }
        if self.of_heads:
            return heads_close(changes[CHOSEN], self.beside_random(), self.gap, self.count)
        status = together(*(judged(change, prompts=self.count) for change in changes.values()))
        return status if self.has_gap else "cannot be judged"

    @property
    def random_reduction(self) -> Drawn | None:
        """Fraction of the gap that random heads close; None without random heads or a gap."""
        if RANDOM not in self.names or not self.has_gap:
            return None
        draws = self.draws()
        low, high = np.quantile(draws.numpy(), [0.025, 0.975])
        return Drawn(len(draws), float(draws.mean()), float(low), float(high))

    @property
    def gaps(self) -> dict[str, Interval]:
        """Accuracy with true minus with false demonstrations under every condition, paired."""
        accuracy = self.quantities()["accuracy"].per_prompt
        gaps = (accuracy[..., 0] - accuracy[..., 1]).unbind(1)
        return {
            name: mean_interval(gap, "change") for name, gap in zip(self.names, gaps, strict=True)
        }

    def on_page(self) -> tuple[str, ...]:
        """Change under each condition, and the accuracies before and after."""
        return self.shows


@dataclass(frozen=True)
class Ablation(Conditions, PairMeasurement[AblationResult]):
    """Calibrated accuracy with and without ablations at the target.

    Attributes:
        variant: Variant of the lens for the scores, `sound` or `reference`.

    Raises:
        PromptError: sets that are not pairs.
        RunError: nothing to ablate, unknown options or parts, names of conditions that are already
            used, or heads the model does not have.

    Source: Halawi et al. 2023, §4 and §5.
    """

    variant: LensVariant = "sound"

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject conditions that cannot be ablated, and sets that cannot be compared.

        Raises:
            PromptError: sets that are not pairs.
            RunError: see `check_conditions`.
        """
        check_pairs(*data)
        check_balance(data[0])
        self.check_conditions(model.info)

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Each side under all conditions, on one path."""
        changes = [interventions for _, interventions in self.conditions(model.info)]
        reading = LastEntryReading(self.variant)
        return [Variants(side, [reading], title="ablations", variants=changes) for side in data]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> AblationResult:
        """Calibrated scores, with separate thresholds in every run."""
        (true, _), exact = data, self.variant == "reference"
        runs = [
            [entry_scores(lens, 0, true.answers, None, true, exact_ties=exact) for (lens,) in side]
            for side in read
        ]
        calibrated = METRICS.index("calibrated")
        scores = [torch.stack([run.scores[calibrated, :, -1] for run in side]) for side in runs]
        counts = [torch.stack([run.tie_counts[:, -1] for run in side], dim=1) for side in runs]
        conditions = self.conditions(model.info)
        return AblationResult(
            scores=torch.stack(scores, dim=1),
            conditions=tuple(name for name, _ in conditions),
            tie_counts=torch.stack(counts, dim=2),
            n_labels=true.n_labels,
            reachable=reachable_accuracy(true.answers, true.n_labels) if true.has_classes else 1.0,
            own_choices=not true.has_classes,
            provenance={
                "conditions": [[c.to_dict() for c in changes] for _, changes in conditions]
            },
        )


ablation = door(
    Ablation,
    "ablation",
    then=("what",),
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones.",
    interventions="Applied in every run, including the unablated one.",
)
