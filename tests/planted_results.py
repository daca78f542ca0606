"""Results made by hand: what a page says of them is known beforehand, and no model is run."""

from dataclasses import replace
from typing import Any

import torch

from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracyResult
from icl_mech.measurements.accuracy.early_exit import EarlyExitResult, early_exit
from icl_mech.measurements.accuracy.layer_accuracy import LayerAccuracyResult
from icl_mech.measurements.accuracy.scores import METRICS
from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.conditions import CHOSEN, NONE, RANDOM
from icl_mech.measurements.heads.false_induction import FalseInductionResult, rank_heads
from icl_mech.measurements.heads.head_attention import HeadAttentionResult
from icl_mech.measurements.heads.head_scores import HeadScoresResult
from icl_mech.measurements.isolation.edge_cuts import WINDOWS, EdgeCutsResult
from icl_mech.studies.claim import Claim, Run
from icl_mech.studies.judge import Judgement, judge

TASKS = {"prompts": {"task": {"name": "planted", "labels": ["a", "b", "c", "d"]}, "count": 24}}


def outcomes(share: float, n: int, seed: int) -> torch.Tensor:
    """0/1 outcomes, of which this share is 1, in an order of their own."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return (order < round(share * n)).double()


def side_scores(
    true: list[float], false: list[float], n: int, metric: int = 0, seed: int = 0
) -> torch.Tensor:
    """Scores by metric, side, prompt and entry with these means in the metric; others alike."""
    sides = []
    for number, shares in enumerate((true, false)):
        # One order of prompts a side: paired changes are as small as they can be.
        columns = [outcomes(share, n, seed + number) for share in shares]
        sides.append(torch.stack(columns, -1))
    scores = torch.stack(sides)[None].repeat(len(METRICS), 1, 1, 1)
    if metric:
        scores[0] = 0.0
    return scores


def layer_accuracy_of(
    true: list[float],
    false: list[float],
    n: int = 24,
    classes: int = 4,
    answers: torch.Tensor | None = None,
    **more: Any,
) -> LayerAccuracyResult:
    """Accuracies after each layer as planned; the permuted score is 1 minus accuracy."""
    scores = side_scores(true, false, n)
    scores[METRICS.index("permuted")] = 1 - scores[0]
    entries = len(true)
    probs = torch.rand(2, n, entries, classes, generator=torch.Generator().manual_seed(0)).double()
    probs = probs / probs.sum(-1, keepdim=True)
    return LayerAccuracyResult(
        scores=more.pop("scores", scores),
        true_probs=probs[0],
        false_probs=probs[1],
        answers=torch.arange(n) % classes if answers is None else answers,
        provenance=more.pop("provenance", TASKS),
        **more,
    )


def exit_of(
    false: float, true: float, n: int = 24, layer: int = 11, **more: Any
) -> EarlyExitResult:
    """A change of these sizes on the held-out half of `2 n` pairs."""
    changes = torch.full((1, 2, 2 * n), torch.nan).double()
    for side, change in enumerate((true, false)):
        changes[0, side, n:] = outcomes(abs(change), n, side) * (1 if change > 0 else -1)
    from icl_mech.metrics import mean_ends

    ends = [mean_ends(changes[0, side, n:], "change") for side in range(2)]
    return EarlyExitResult(
        layer=layer,
        change=changes[..., n:].mean(-1),
        low=torch.stack([low for low, _ in ends])[None],
        high=torch.stack([high for _, high in ends])[None],
        tasks=("planted",),
        changes=changes,
        sizes=torch.tensor([[n, n]]),
        provenance=more.pop("provenance", TASKS),
        **more,
    )


def context_of(
    true: list[float], false: list[float], n: int = 24, **more: Any
) -> ContextAccuracyResult:
    """Accuracies after 0, 1, ... demonstrations, at one entry."""
    scores = side_scores(true, false, n)[..., None]
    return ContextAccuracyResult(
        scores=more.pop("scores", scores),
        reachable=more.pop("reachable", torch.ones(len(true)).double()),
        n_labels=more.pop("n_labels", 4),
        provenance=TASKS,
        **more,
    )


def heads_of(
    matching: dict[tuple[int, int], float],
    promoting: dict[tuple[int, int], float] | None = None,
    shape: tuple[int, int] = (12, 12),
    n: int = 24,
    task: str = "planted",
    seed: int = 1,
) -> HeadScoresResult:
    """Heads with these mean scores among noise around 0, drawn by the seed."""
    generator = torch.Generator().manual_seed(seed)

    def noise(scale: float) -> torch.Tensor:
        return scale * torch.randn(n, *shape, generator=generator)

    found = noise(0.02)
    for head, value in matching.items():
        found[(slice(None), *head)] += value
    pushed = None
    if promoting is not None:
        pushed = noise(0.2)
        for head, value in promoting.items():
            pushed[(slice(None), *head)] += value
    return HeadScoresResult(
        matching=found,
        attending=found.abs() + 0.1,
        same=found.abs() + 0.05,
        shuffled_matching=noise(0.01),
        promoting=pushed,
        same_share=torch.full((n,), 0.25).double(),
        n_labels=4,
        provenance={"prompts": {"task": {"name": task}, "count": n}},
    )


def found_of(
    scores: HeadScoresResult, top: int = 5, task: str = "elsewhere"
) -> FalseInductionResult:
    """The heads of these scores, chosen on this task."""
    return rank_heads(scores, top, task)


def ablation_of(
    means: dict[str, tuple[float, float]],
    draws: list[tuple[float, float]] | None = None,
    n: int = 24,
    **more: Any,
) -> AblationResult:
    """Accuracies (true, false) under each condition, and of each draw of random heads."""
    rows = [*means.items(), *((RANDOM, pair) for pair in draws or ())]
    scores = [
        torch.stack([outcomes(share, n, 0) for share in pair]) for _, pair in rows
    ]  # one order of prompts: conditions are paired
    names = tuple(name for name, _ in rows)
    heads = [{"intervention": "ZeroHeads", "heads": [[5, 1], [7, 2]]}]
    changes = [heads if name in (CHOSEN, RANDOM) else [] for name in names]
    assert names[0] == NONE
    return AblationResult(
        scores=torch.stack(scores),
        conditions=names,
        provenance={**TASKS, "conditions": changes},
        **more,
    )


def attention_of(n: int = 1, heads: int = 2) -> HeadAttentionResult:
    """Attention over four tokens, the second a matching label word, the third another."""
    row = torch.tensor([0.2, 0.5, 0.2, 0.1])
    return HeadAttentionResult(
        heads=tuple((3, head) for head in range(heads)),
        values=tuple(row.repeat(heads, 1) for _ in range(n)),
        tokens=tuple((" one", " a", " b", ":") for _ in range(n)),
        marks=tuple(("", "matching", "other", "") for _ in range(n)),
    )


def changed_by_cuts(changed: float, n: int = 24, edges: str = "aggregate") -> EdgeCutsResult:
    """This share of the answers changes with edges cut after the first quarter of the layers, and none later."""
    windows = WINDOWS["after"]
    zeros = torch.zeros(n, 1, len(windows)).double()
    kept = torch.ones(n, 1, len(windows), dtype=torch.bool)
    kept[:, 0, 0] = outcomes(changed, n, 0) == 0
    none = zeros[..., None][..., :0]
    return EdgeCutsResult(
        difference=zeros,
        probability=zeros,
        kept=kept,
        random_difference=none,
        random_probability=none,
        random_kept=none,
        plain_difference=zeros[:, 0, 0],
        plain_probability=zeros[:, 0, 0],
        edges=(edges,),
        windows=windows,
        layers=((3, 11), (6, 11), (9, 11)),
        rows="target",
        provenance=TASKS,
    )


def without_needs(claim: Claim, run: Run) -> Judgement:
    """What a run says of a claim, whatever it needs."""
    alone = replace(claim, needs=None)
    return judge(alone, lambda effect: effect.evidence(run, claim.part))


__all__ = [
    "ablation_of",
    "attention_of",
    "changed_by_cuts",
    "context_of",
    "early_exit",
    "exit_of",
    "found_of",
    "heads_of",
    "layer_accuracy_of",
    "without_needs",
]
