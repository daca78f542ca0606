"""Sets of heads side by side: which heads they share, and what each does that the others do not.

Heads are found by many measures (prefix matching, effects, induction scores, label promoting), and the
sets overlap. Every set is ablated without the heads of the others, beside random heads of the same layers
that are in no set, on the same pairs of prompts. See `icl_mech.measurements.causal.comparison`.

Source: Yin and Steinhardt 2025, *Which attention heads matter for in-context learning?* (ablation with
exclusion); Halawi et al. 2023, *Overthinking the Truth*, §5 (random heads).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch

from icl_mech.checking import Called, Count, Heads, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention, ZeroHeads
from icl_mech.interventions.zero_heads import Kind
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.base import Pair, PairMeasurement, Variants
from icl_mech.measurements.causal.answers import AnswerReading, check_answers
from icl_mech.measurements.causal.attribution import contrast
from icl_mech.measurements.causal.comparison import HeadComparison, HeadSet
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.random_heads import random_heads
from icl_mech.models import LanguageModel, ModelInfo

Sets = Annotated[
    Mapping[str, Heads], Called("a mapping from names to lists of (layer, head) pairs")
]


@dataclass(frozen=True)
class CompareHeads(PairMeasurement[HeadComparison]):
    """Overlap of sets of heads, and ablation of each without the heads of the others.

    Attributes:
        sets: Heads by name.
        kind: What stands in for an ablated head, see `ZeroHeads`.
        draws: Random draws of heads beside each set.
        seed: Of the draws.

    Raises:
        PromptError: sets of prompts that are not pairs.
        RunError: fewer than two sets, an empty one, heads that are not there, or too few others.

    Source: Yin and Steinhardt 2025; Halawi et al. 2023, §5.
    """

    name: ClassVar[str] = "head_comparison"

    sets: Sets
    kind: Kind = "zero_output"
    draws: Count = 20
    seed: Natural = 0

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are none, heads the model does not have, and prompts that are no pairs.

        Raises:
            PromptError: sets of prompts that are not pairs.
            RunError: fewer than two sets, an empty one, or heads that are not there.
        """
        check_pairs(*data)
        check_answers(data[1], "compare_heads")
        if len(self.sets) < 2 or not all(self.sets.values()):
            raise RunError(
                "compare_heads needs two sets of heads at least, none of them empty; got "
                f"{ {name: len(heads) for name, heads in self.sets.items()} }."
            )
        for heads in self.sets.values():
            ZeroHeads(heads, kind=self.kind).check(model.info)
        _ = self.members(model.info)

    def members(self, info: ModelInfo) -> list[HeadSet]:
        """Every set with what it has alone, and the random heads beside it.

        Raises:
            RunError: too few heads outside of the sets.
        """
        found = []
        for number, (name, heads) in enumerate(self.sets.items()):
            others = {head for other, own in self.sets.items() if other != name for head in own}
            alone = tuple(head for head in heads if head not in others)
            shape = (info.n_layers, info.n_heads)
            seed = self.seed + 7919 * number
            drawn = random_heads(alone, shape, self.draws if alone else 0, seed, without=[*others])
            found.append(HeadSet(name, tuple(heads), alone, tuple(map(tuple, drawn))))
        return found

    def passes(self, model: LanguageModel, data: Pair) -> list[Variants]:
        """Both sides unablated, without each set's own heads, and without random ones."""
        conditions: list[Sequence[Intervention]] = [()]
        for own in self.members(model.info):
            removed = [own.alone, *own.drawn] if own.alone else []
            conditions += [[ZeroHeads(heads, kind=self.kind)] for heads in removed]
        return [
            Variants(side, [AnswerReading()], title="ablations", variants=conditions)
            for side in data
        ]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> HeadComparison:
        """Changes of the logit difference and of right answers."""
        members = self.members(model.info)
        differences, correct = [], []
        for side in read:
            logits = [own.label_logits.double() for (own,) in side]
            differences.append(torch.stack([contrast(own, data[1]) for own in logits], dim=1))
            right = [own.argmax(-1) == data[1].answers for own in logits]
            correct.append(torch.stack(right, dim=1).double())
        values = torch.stack([torch.stack(differences, 1), torch.stack(correct, 1)], dim=1)
        own, random, place = [], [], 1
        nothing = torch.full(values[..., 0].shape, torch.nan, dtype=torch.float64)
        for member in members:
            if not member.alone:
                own.append(nothing)
                random.append(nothing[..., None].expand(*nothing.shape, self.draws))
                continue
            changes = values[..., place : place + 1 + self.draws] - values[..., :1]
            own.append(changes[..., 0])
            random.append(changes[..., 1:])
            place += 1 + self.draws
        return HeadComparison(
            change=torch.stack(own, dim=-1),
            random=torch.stack(random, dim=-2),
            plain=values[..., 0],
            sets=tuple(member.name for member in members),
            heads=tuple(member.heads for member in members),
            alone=tuple(member.alone for member in members),
            kind=self.kind,
            draws=self.draws,
        )


compare_heads = door(
    CompareHeads,
    "compare_heads",
    then=("sets",),
    true="Prompts with true demonstrations; others than the sets were chosen on.",
    false="The same prompts with false ones.",
)
