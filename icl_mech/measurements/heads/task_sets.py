"""The two sets of task heads that scores choose, and random heads to compare them with."""

from typing import NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.causal.head_maps import Head, ordered
from icl_mech.measurements.heads.chosen import random_heads
from icl_mech.measurements.heads.label_span import SpanScores
from icl_mech.metrics import mean_ends
from icl_mech.models import ModelInfo
from icl_mech.results.judging import CHANCE

Scored = Float[Tensor, "batch layer head"]


class TaskSets(NamedTuple):
    """Disjoint sets of heads, best first.

    Attributes:
        recognition: Heads with the highest recognition above its control that are not in the other set.
        learning: Heads with the highest learning above its control.
        shared: Heads that were among the first by both scores, and went to learning.
    """

    recognition: tuple[Head, ...]
    learning: tuple[Head, ...]
    shared: tuple[Head, ...]

    @property
    def both(self) -> tuple[tuple[Head, ...], tuple[Head, ...]]:
        """Recognition, then learning heads."""
        return self.recognition, self.learning


def choose(scores: SpanScores, answers: Int[Tensor, " batch"], top: int) -> TaskSets:
    """The first heads by each score.

    Only heads whose mean excess over the control lies above 0 (pointwise interval over prompts); for recognition also above
    97.5 % of the draws of random directions.
    """
    learning, blind = right_and_blind(scores.towards, answers)
    by_learning = _above(learning - blind)
    recognition, random = scores.recognition.double(), scores.random.double()
    exceeding = (random.mean(0) >= recognition.mean(0)[..., None]).double().mean(-1)
    by_recognition = [
        head for head in _above(recognition - random.mean(-1)) if float(exceeding[head]) <= CHANCE
    ]
    chosen = by_learning[:top]
    others = [head for head in by_recognition if head not in chosen][:top]
    shared = tuple(head for head in chosen if head in by_recognition[:top])
    return TaskSets(tuple(others), tuple(chosen), shared)


def drawn_beside(sets: TaskSets, info: ModelInfo, draws: int, seed: int) -> list[list[Head]]:
    """Draws of random heads of each set's layers that are in neither set, those for recognition first."""
    shape = (info.n_layers, info.n_heads)
    return [
        heads
        for number, (members, other) in enumerate(zip(sets.both, sets.both[::-1], strict=True))
        for heads in random_heads(members, shape, draws, seed + number, without=other)
    ]


def right_and_blind(
    towards: Float[Tensor, "batch layer head label"], answers: Int[Tensor, " batch"]
) -> tuple[Scored, Scored]:
    """Learning towards the right class, and towards the classes of all queries: the mean over exchanged answers."""
    right = towards[torch.arange(len(answers)), :, :, answers]
    frequency = answers.bincount(minlength=towards.shape[-1]) / len(answers)
    return right, towards @ frequency.to(towards.dtype)


def _above(excess: Scored) -> list[Head]:
    """Heads whose mean excess lies above 0, largest first."""
    low, _ = mean_ends(excess.double())
    return [head for head in ordered(excess.double().mean(0), low.numel()) if float(low[head]) > 0]
