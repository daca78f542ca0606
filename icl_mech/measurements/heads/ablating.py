"""Runs pairs of prompts unablated and under ablations at the target, see
`icl_mech.measurements.heads.ablation`.

Conditions are late layers or their parts, chosen heads with random ones as their control, and
interventions of one's own. All of them run on one path, so that equal scores are equal.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from icl_mech.checking import Called, Head, Heads, Natural
from icl_mech.errors import RunError, near_matches
from icl_mech.interventions import Intervention, ZeroHeads, ZeroLayers
from icl_mech.interventions.zero_heads import Kind as HeadKind
from icl_mech.interventions.zero_layers import Part
from icl_mech.measurements.accuracy.pairs import METRICS, check_pairs, entry_scores
from icl_mech.measurements.base import Pair, PairMeasurement, Variants
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.ablation import CHOSEN, NONE, RANDOM, Ablation
from icl_mech.measurements.heads.label_attention import random_heads
from icl_mech.measurements.lens.residuals import LastEntryReading, LensVariant
from icl_mech.metrics import reachable_accuracy
from icl_mech.models import LanguageModel, ModelInfo

PARTS: dict[str, Part] = {
    "late layers": "block",
    "late attention": "attention",
    "late MLPs": "mlp",
}

What = Annotated[
    Mapping[str, Sequence[Intervention]] | Sequence[str | Head] | None,
    Called(
        "names of late parts, pairs (layer, head), or a mapping from names to lists of "
        "interventions"
    ),
]
"""What to ablate."""

Condition = tuple[str, Sequence[Intervention]]
"""Its name and what it changes."""


@dataclass(frozen=True)
class Ablate(PairMeasurement[Ablation]):
    """Calibrated accuracy with and without ablations at the target.

    Attributes:
        what: Late parts by name, (layer, head) pairs, or named sets of interventions; None:
            the late parts if `start` is given.
        start: First layer of the late parts.
        heads: Heads to ablate; beside them random heads, disjoint from them.
        kind: See `ZeroHeads`; late attention and MLPs are `reference` with `uniform_attention`
            and `zero_output` with the others, late layers always the latter.
        draws: Number of random draws of heads.
        variant: Of the scores' lens, `sound` or `reference`.
        seed: Of the random heads.

    Raises:
        PromptError: sets that are not pairs.
        RunError: nothing to ablate, unknown options or parts, names of conditions that are
            taken, or heads the model does not have.

    Source: Halawi et al. 2023, §4 and §5.
    """

    name: ClassVar[str] = "ablation"

    what: What = None
    start: int | None = None
    heads: Heads = ()
    kind: HeadKind = "zero_output"
    draws: Natural = 20
    variant: LensVariant = "sound"
    seed: Natural = 0

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse what cannot be ablated or compared.

        Raises:
            PromptError: sets that are not pairs.
            RunError: nothing to ablate, unknown parts, names of conditions that are taken, or
                heads and layers the model does not have.
        """
        check_pairs(*data)
        conditions = self.conditions(model.info)
        if len(conditions) == 1:
            raise RunError("Nothing to ablate: give start=, heads=, or interventions of your own.")
        for _, interventions in conditions:
            for intervention in interventions:
                intervention.check(model.info)

    def conditions(self, info: ModelInfo) -> list[Condition]:
        """What is run: unablated, interventions of one's own, late parts, heads, random heads.

        Raises:
            RunError: as `check`.
        """
        found: list[Condition] = [(NONE, ())]
        what = self.what
        if isinstance(what, Mapping):
            taken = {NONE, CHOSEN, RANDOM, *PARTS} & set(what)
            if taken:
                raise RunError(f"{min(taken)!r} is the name of a condition already; take another.")
            found += what.items()
            what = None
        names = list(PARTS) if what is None and self.start is not None else []
        heads = tuple(self.heads)
        if what is not None:
            names = [item for item in what if isinstance(item, str)]
            heads = (*(item for item in what if not isinstance(item, str)), *heads)
        found += [(name, [self._late(name)]) for name in names]
        if heads:
            found.append((CHOSEN, [ZeroHeads(heads, kind=self.kind)]))
            drawn = random_heads(heads, (info.n_layers, info.n_heads), self.draws, self.seed)
            found += [(RANDOM, [ZeroHeads(draw, kind=self.kind)]) for draw in drawn]
        return found

    def _late(self, name: str) -> ZeroLayers:
        if name not in PARTS:
            raise RunError(f"Unknown part {name!r}. {near_matches(name, PARTS)}")
        if self.start is None:
            raise RunError(f"{name!r} needs start=, the first layer to zero.")
        # Kinds of single heads have no counterpart for whole layers, and blocks have one kind.
        reference = self.kind == "uniform_attention" and PARTS[name] != "block"
        return ZeroLayers(
            self.start, part=PARTS[name], kind="reference" if reference else "zero_output"
        )

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Each side under all conditions, on one path."""
        changes = [interventions for _, interventions in self.conditions(model.info)]
        reading = LastEntryReading(self.variant)
        return [Variants(side, [reading], title="ablations", variants=changes) for side in data]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> Ablation:
        """Calibrated scores, with thresholds of their own in every run."""
        true, _ = data
        found = [
            [
                entry_scores(
                    lens, 0, true.answers, None, true.label_tokens,
                    exact_ties=self.variant == "reference",
                )
                for (lens,) in side
            ]
            for side in read
        ]  # fmt: skip
        calibrated = METRICS.index("calibrated")
        scores = [torch.stack([own.scores[calibrated, :, -1] for own in side]) for side in found]
        counts = [torch.stack([own.tie_counts[:, -1] for own in side], dim=1) for side in found]
        conditions = self.conditions(model.info)
        return Ablation(
            scores=torch.stack(scores, dim=1),
            conditions=tuple(name for name, _ in conditions),
            tie_counts=torch.stack(counts, dim=2),
            n_labels=true.n_labels,
            reachable=reachable_accuracy(true.answers, true.n_labels),
            provenance={"conditions": [[c.to_dict() for c in own] for _, own in conditions]},
        )


ablation = door(
    Ablate,
    "ablation",
    then=("what",),
    true="Prompts with true demonstrations.",
    false="The same prompts with false ones.",
    interventions="Made in every run, the unablated one included.",
)
