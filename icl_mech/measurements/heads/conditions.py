"""Conditions under which pairs of prompts are run, and the fraction of the gap that an ablation closes.

They are: unablated, without late layers or their parts, without chosen heads, with random ones ablated as their
control, and under custom interventions.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 and §5.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Called, Head, Heads, Natural
from icl_mech.errors import RunError, near_matches
from icl_mech.interventions import Intervention, ZeroHeads, ZeroLayers
from icl_mech.interventions.zeroing import Kind as HeadKind
from icl_mech.interventions.zeroing import Part
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.measurements.heads.label_attention import PAPER
from icl_mech.metrics import Interval
from icl_mech.metrics.layers import reduction_interval
from icl_mech.models import ModelInfo
from icl_mech.results import Definition
from icl_mech.results.judging import Status, jointly, judged

NONE, CHOSEN, RANDOM = "none", "chosen heads", "random heads"
"""Reserved names of conditions: unablated, the chosen heads, their control."""

ABLATION = Definition(
    "ablation",
    r"z_h[q] = 0",
    "At the last token of the prompt, the output of a head (or of whole attention layers, MLPs or "
    "blocks) is set to 0; the layer's biases remain. The variant “uniform attention” makes the "
    "head attend uniformly to all earlier tokens; “mean” replaces its output with its mean over "
    "the prompts.",
    PAPER,
)

PARTS: dict[str, Part] = {"late layers": "block", "late attention": "attention", "late MLPs": "mlp"}

What = Annotated[
    Mapping[str, Sequence[Intervention]] | Sequence[str | Head] | None,
    Called(
        "names of late parts, pairs (layer, head), or a mapping from names to lists of "
        "interventions"
    ),
]
"""The parts to ablate."""

Condition = tuple[str, Sequence[Intervention]]
"""Name and interventions of a condition."""


@dataclass(frozen=True)
class Conditions:
    """Conditions that are run in addition to the unablated model.

    Attributes:
        what: Late parts by name, (layer, head) pairs, or named sets of interventions; None:
            the late parts if `start` is given.
        start: First layer of the late parts.
        heads: Heads to ablate; the control is random heads, disjoint from them.
        kind: See `ZeroHeads`; late attention and MLPs are `reference` with `uniform_attention`
            and `zero_output` with the others, late layers always the latter.
        draws: Number of random draws of heads.
        seed: Seed of the random heads.
    """

    what: What = None
    start: int | None = None
    heads: Heads = ()
    kind: HeadKind = "zero_output"
    draws: Natural = 20
    seed: Natural = 0

    def conditions(self, info: ModelInfo) -> list[Condition]:
        """The conditions: unablated, custom interventions, late parts, heads, random heads.

        Raises:
            RunError: see `check_conditions`.
        """
        conditions: list[Condition] = [(NONE, ())]
        what = self.what
        if isinstance(what, Mapping):
            taken = {NONE, CHOSEN, RANDOM, *PARTS} & set(what)
            if taken:
                raise RunError(f"{min(taken)!r} is a reserved condition name; choose another name.")
            conditions += what.items()
            what = None
        names = list(PARTS) if what is None and self.start is not None else []
        heads = tuple(self.heads)
        if what is not None:
            names = [item for item in what if isinstance(item, str)]
            heads = (*(item for item in what if not isinstance(item, str)), *heads)
        conditions += [(name, [self._late(name)]) for name in names]
        if heads:
            conditions.append((CHOSEN, [ZeroHeads(heads, kind=self.kind)]))
            drawn = random_heads(heads, (info.n_layers, info.n_heads), self.draws, self.seed)
            conditions += [(RANDOM, [ZeroHeads(draw, kind=self.kind)]) for draw in drawn]
        return conditions

    def check_conditions(self, info: ModelInfo) -> None:
        """Reject conditions that cannot be ablated.

        Raises:
            RunError: nothing to ablate, unknown parts, names of conditions that are already used, or
                heads and layers the model does not have.
        """
        conditions = self.conditions(info)
        if len(conditions) == 1:
            raise RunError(
                "There is nothing to ablate: give start=, heads=, or what= (interventions by name)."
            )
        for _, interventions in conditions:
            for intervention in interventions:
                intervention.check(info)

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


REDUCTION = Definition(
    "fraction of the gap closed",
    r"1 - \frac{\operatorname{acc}(\text{true}) - \operatorname{acc}_{-H}(\text{false})}"
    r"{\operatorname{acc}(\text{true}) - \operatorname{acc}(\text{false})}",
    "Calibrated accuracy with false demonstrations and the parts H ablated, relative to both "
    "unablated accuracies, all over the same pairs of prompts. Undefined unless the interval of "
    "the gap lies above 0.",
    PAPER,
)


def gap_reduction(means: Float[Tensor, "*r condition side"]) -> Float[Tensor, "*r condition"]:
    """Gap reduction `1 - (true - ablated false) / (true - false)`; the first condition is the unablated one."""
    true, false = means[..., :1, 0], means[..., :1, 1]
    return 1 - (true - means[..., 1]) / (true - false)


def closed_ends(scores: Float[Tensor, "batch condition side"]) -> tuple[Tensor, Tensor]:
    """Ends of the fraction of the gap, by condition; the unablated one closes nothing."""
    true, false = scores[:, 0].unbind(1)
    ends = [(0.0, 0.0)]
    ends += [
        reduction_interval([true], [false], [ablated])[1:] for ablated in scores[:, 1:, 1].unbind(1)
    ]
    low, high = torch.tensor(ends, dtype=torch.float64).unbind(1)
    return low.clone(), high.clone()


def heads_close(change: Interval, beside: Interval | None, gap: Interval, prompts: int) -> Status:
    """Status of the claim that ablating the chosen heads closes part of the gap.

    Accuracy with false demonstrations must rise, and more than without random heads.

    Args:
        change: Change of accuracy with false demonstrations.
        beside: The same minus that of random heads; None with fewer than two draws: the claim cannot be tested.
        gap: Gap between true and false demonstrations, unablated.
        prompts: Number of pairs of prompts.
    """
    if gap.low <= 0:
        return "cannot be judged"
    return jointly(*(judged(effect, prompts=prompts) for effect in (change, beside)))
