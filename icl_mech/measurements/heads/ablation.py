"""Ablation at the target: what is lost with true, and won with false demonstrations.

The same pairs of prompts are run unablated and under each ablation; calibrated accuracy has
thresholds of its own in every run. *Gap reduction* is `1 - (true - ablated false) / (true -
false)` with unablated `true` and `false`.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_args

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import run_variants
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Intervention, ZeroHeads, ZeroLayers
from icl_mech.interventions.zero_heads import Kind
from icl_mech.measurements._old import provenance
from icl_mech.measurements.accuracy.pairs import METRICS, check_pairs, entry_scores, pair_source
from icl_mech.measurements.heads.random_heads import Heads, random_heads
from icl_mech.measurements.lens.residuals import LastEntryReading
from icl_mech.measurements.lens.residuals import LensRows as Lens
from icl_mech.measurements.lens.residuals import LensVariant as Variant
from icl_mech.metrics import Interval, Ties, bootstrap_interval, reduction_interval
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Bars

if TYPE_CHECKING:
    import pandas as pd

SIDES = ("true", "false")
NONE, CHOSEN, RANDOM = "none", "chosen heads", "random heads"
PARTS = {"late layers": "block", "late attention": "attention", "late MLPs": "mlp"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Ablation(Result):
    """Calibrated scores of every pair of prompts under every condition.

    Attributes:
        scores: By condition, side (`true`, `false` demonstrations) and prompt.
        conditions: Names; the first is `none`, random draws are called `random heads`.
        tie_counts: How many scores are ties, nearly ties, and there at all, by condition and
            side (see `near_ties`); None in results that were saved without them.
    """

    title: ClassVar[str] = "Ablations"

    scores: Float[Tensor, "condition side batch"]
    conditions: tuple[str, ...]
    tie_counts: Int[Tensor, "count condition side"] | None = None

    @property
    def ties(self) -> Ties:
        """Ties among the scores of all conditions and both sides."""
        return Ties.of(self.tie_counts)

    def _indices(self, condition: str) -> list[int]:
        found = [i for i, name in enumerate(self.conditions) if name == condition]
        if not found:
            raise ResultError(
                f"No condition {condition!r}. {near_matches(condition, set(self.conditions))}"
            )
        return found

    def accuracy(self, condition: str = NONE, side: str = "false") -> Interval:
        """Calibrated accuracy (random draws: their mean).

        Raises:
            ResultError: unknown condition or side.
        """
        if side not in SIDES:
            raise ResultError(f"Unknown {side!r}. {near_matches(side, SIDES)}")
        per_prompt = self.scores[self._indices(condition), SIDES.index(side)].mean(0)
        low, high = bootstrap_interval(per_prompt)
        return Interval(float(per_prompt.mean()), float(low), float(high))

    @property
    def gap(self) -> Interval:
        """Unablated accuracy with true minus with false demonstrations, paired."""
        difference = self.scores[0, 0] - self.scores[0, 1]
        low, high = bootstrap_interval(difference)
        return Interval(float(difference.mean()), float(low), float(high))

    def reduction(self, condition: str) -> Interval | None:
        """Share of the gap that the ablation closes; None where the gap's interval holds 0.

        Raises:
            ResultError: unknown condition.
        """
        ablated = self.scores[self._indices(condition), 1].mean(0)
        if self.gap.low <= 0:
            return None
        return reduction_interval([self.scores[0, 0]], [self.scores[0, 1]], [ablated])

    def draws(self) -> Float[Tensor, " draw"]:
        """Gap reduction of each random draw; not-a-number where the gap's interval holds 0.

        Raises:
            ResultError: no random heads were drawn.
        """
        ablated = self.scores[self._indices(RANDOM), 1].mean(-1)
        if self.gap.low <= 0:
            return torch.full_like(ablated, torch.nan)
        true, false = self.scores[0].mean(-1)
        reductions: Tensor = 1 - (true - ablated) / (true - false)
        return reductions

    def change_with_true(self, condition: str) -> Interval:
        """Accuracy with true demonstrations under the ablation, minus without it; paired."""
        change = self.scores[self._indices(condition), 0].mean(0) - self.scores[0, 0]
        low, high = bootstrap_interval(change)
        return Interval(float(change.mean()), float(low), float(high))

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition, random draws together."""
        import pandas as pd

        rows = []
        for condition in dict.fromkeys(self.conditions):
            true, false = (self.accuracy(condition, side) for side in ("true", "false"))
            reduction = None if condition == NONE else self.reduction(condition)
            change = self.change_with_true(condition)
            row = {"condition": condition, "draws": len(self._indices(condition))}
            for name, interval in (
                ("true", true), ("false", false), ("gap_reduction", reduction),
                ("change_with_true", change),
            ):  # fmt: skip
                ends = Interval(torch.nan, torch.nan, torch.nan) if interval is None else interval
                row |= {name: ends.value, f"{name}_low": ends.low, f"{name}_high": ends.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def drawing(self) -> Bars:
        """Accuracy of both sides under every condition."""
        names = tuple(dict.fromkeys(self.conditions))
        cells = [[self.accuracy(name, side) for side in ("true", "false")] for name in names]
        values, low, high = (
            torch.tensor([[cell[part] for cell in row] for row in cells], dtype=torch.float64)
            for part in range(3)
        )
        return Bars(
            title="Ablations at the target",
            groups=names,
            names=("true demonstrations", "false demonstrations"),
            values=values,
            low=low,
            high=high,
            y_title="calibrated accuracy",
            note=f"{self.scores.shape[-1]} pairs of prompts, 95 % bootstrap intervals; "
            f"{RANDOM}: mean of {self.conditions.count(RANDOM)} draws",
        )

    def summary(self) -> str:
        """Gap and gap reductions."""
        gap = f"gap {self.gap}"
        if self.gap.low <= 0:
            return f"{gap}: its interval includes 0, so no share of it can be given{self.ties.note}"
        parts = [
            f"{condition} closes {self.reduction(condition)}"
            for condition in dict.fromkeys(self.conditions)
            if condition not in (NONE, RANDOM)
        ]
        if RANDOM in self.conditions:
            low, high = np.quantile(self.draws().numpy(), [0.025, 0.975])
            parts.append(
                f"{self.conditions.count(RANDOM)} random draws {float(self.draws().mean()):.3g} "
                f"(95 % of draws in [{low:.3g}, {high:.3g}])"
            )
        return f"{gap}; share of it " + ", ".join(parts) + self.ties.note


def ablation(
    model: Any,
    true: PromptBatch,
    false: PromptBatch,
    what: Mapping[str, Sequence[Intervention]] | Sequence[str] | Heads | None = None,
    *,
    start: int | None = None,
    heads: Heads = (),
    kind: Kind = "zero_output",
    draws: int = 20,
    variant: Variant = "sound",
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> Ablation:
    """Calibrated accuracy with and without ablations at the target.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        true: Prompts with true demonstrations.
        false: The same prompts with false ones.
        what: `late layers`, `late attention`, `late MLPs` (they need `start`); (layer, head)
            pairs; or named sets of interventions of your own. Default: the late components
            if `start` is given. `heads` are ablated besides.
        start: First layer of the late components.
        heads: Heads to ablate; beside them as many random heads per layer, disjoint from them.
        kind: See `ZeroHeads`; late attention and MLPs are `reference` with `uniform_attention`
            and `zero_output` with the others, late layers always the latter.
        draws: Number of random draws of heads.
        variant: Of the scores' lens, `sound` or `reference`.
        seed: Of the random heads.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        PromptError: sets that are not pairs.
        RunError: nothing to ablate, unknown options or parts, names of conditions that are
            taken, or heads the model does not have.

    Source: Halawi et al. 2023, §4 and §5.
    """
    for option, value, known in (("variant", variant, Variant), ("kind", kind, Kind)):
        if value not in get_args(known):
            raise RunError(f"{option}={value!r}. {near_matches(value, get_args(known))}")
    check_pairs(true, false)
    adapted = adapt(model)
    conditions: list[tuple[str, Sequence[Intervention]]] = [(NONE, [])]
    if isinstance(what, Mapping):
        taken = {NONE, CHOSEN, RANDOM, *PARTS} & set(what)
        if taken:
            raise RunError(f"{min(taken)!r} is the name of a condition already; take another.")
        conditions += list(what.items())
        what = None
    parts, pairs = _parts_and_heads(what, start, heads)
    for name in parts:
        if start is None:
            raise RunError(f"{name!r} needs start=, the first layer to zero.")
        part_kind = "zero_output" if name == "late layers" else _layers_kind(kind)
        conditions.append((name, [ZeroLayers(start, part=PARTS[name], kind=part_kind)]))  # type: ignore[arg-type]
    if pairs:
        shape = (adapted.info.n_layers, adapted.info.n_heads)
        conditions.append((CHOSEN, [ZeroHeads(pairs, kind=kind)]))
        drawn = random_heads(pairs, shape, draws, seed)
        conditions += [(RANDOM, [ZeroHeads(draw, kind=kind)]) for draw in drawn]
    if len(conditions) == 1:
        raise RunError("Nothing to ablate: give start=, heads=, or interventions of your own.")
    scores, counts = zip(
        *(
            _scores(adapted, prompts, true.answers, conditions, variant, batch_size, progress)
            for prompts in (true, false)
        ),
        strict=True,
    )
    changes = [i for _, interventions in conditions for i in interventions]
    return Ablation(
        scores=torch.stack(scores, dim=1),
        conditions=tuple(name for name, _ in conditions),
        tie_counts=torch.stack(counts, dim=2),
        provenance={
            **provenance(
                adapted, true, changes, lens=variant, start=start, kind=kind, draws=draws, seed=seed
            ),
            **pair_source(true, false),
        },
    )


def _parts_and_heads(
    what: Sequence[str] | Heads | None, start: int | None, heads: Heads
) -> tuple[list[str], list[tuple[int, int]]]:
    if what is None:
        return list(PARTS) if start is not None else [], [(int(la), int(h)) for la, h in heads]
    names = [item for item in what if isinstance(item, str)]
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise RunError(f"Unknown part {unknown[0]!r}. {near_matches(unknown[0], PARTS)}")
    pairs = [(int(item[0]), int(item[1])) for item in what if not isinstance(item, str)]
    return names, pairs + [(int(la), int(h)) for la, h in heads]


def _layers_kind(kind: str) -> str:
    """`ZeroLayers` has two kinds; those of single heads have no counterpart there."""
    return "reference" if kind == "uniform_attention" else "zero_output"


def _scores(
    model: Any,
    prompts: PromptBatch,
    answers: Int[Tensor, " batch"],
    conditions: Sequence[tuple[str, Sequence[Intervention]]],
    variant: Variant,
    batch_size: int | None,
    progress: bool | None,
) -> tuple[Float[Tensor, "condition batch"], Int[Tensor, "count condition"]]:
    """Calibrated scores of one side under every condition, and how many are ties."""
    lenses: list[list[Lens]] = run_variants(
        model,
        prompts,
        [LastEntryReading(variant)],
        [interventions for _, interventions in conditions],
        batch_size=batch_size,
        progress=progress,
        title="ablations",
    )
    calibrated = METRICS.index("calibrated")
    read = [
        entry_scores(
            lens, 0, answers, None, prompts.label_tokens, exact_ties=variant == "reference"
        )
        for (lens,) in lenses
    ]
    scores = torch.stack([own.scores[calibrated, :, -1] for own in read])
    return scores, torch.stack([own.tie_counts[:, -1] for own in read], dim=1)
