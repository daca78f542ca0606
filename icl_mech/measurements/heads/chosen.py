"""Chosen heads: their names, random heads as their control, and their scores on prompts they were not chosen on."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Heads
from icl_mech.errors import RunError
from icl_mech.metrics import Interval, ends_together
from icl_mech.results.judging import FEWEST_PROMPTS, Status, judged


def head_name(head: Sequence[int]) -> str:
    """Name of a head, `layer.head`."""
    return f"{head[0]}.{head[1]}"


def random_heads(
    chosen: Heads, shape: tuple[int, int], draws: int, seed: int = 0, *, without: Heads = ()
) -> list[list[tuple[int, int]]]:
    """Random heads, as many per layer as chosen and disjoint from them.

    Where a layer has too few other heads, they are taken from the nearest layers that have heads to spare.

    Args:
        chosen: Heads that they are the control of.
        shape: Layers and heads of the model.
        draws: Number of draws.
        seed: Seed of the draws.
        without: Heads that are not drawn either.

    Raises:
        RunError: more chosen heads than other heads.
    """
    n_layers, n_heads = shape
    outside = [head for head in chosen if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads)]
    if outside:
        raise RunError(
            f"Head {outside[0]} does not exist; the model has {n_layers} layers with {n_heads} "
            "heads each."
        )
    taken = {(layer, head) for layer, head in (*chosen, *without)}
    if len(set(chosen)) > n_layers * n_heads - len(taken):
        raise RunError(
            f"{len(set(chosen))} of {n_layers * n_heads} heads are chosen, which leaves too few "
            "others for a random control."
        )
    wanted = Counter(layer for layer, _ in set(chosen))
    used = Counter(layer for layer, _ in taken)
    inside = Counter({layer: min(n, n_heads - used[layer]) for layer, n in wanted.items()})
    layers = [*sorted(inside.elements()), *sorted((wanted - inside).elements())]
    generator = np.random.default_rng(seed)
    result = []
    for _ in range(draws):
        free: Bool[Tensor, "layer head"] = torch.ones(n_layers, n_heads, dtype=torch.bool)
        for layer, head in taken:
            free[layer, head] = False
        drawn: list[tuple[int, int]] = []
        for layer in layers:
            nearest = min(
                (candidate for candidate in range(n_layers) if bool(free[candidate].any())),
                key=lambda candidate: (abs(candidate - layer), candidate),
            )
            head = int(generator.choice(free[nearest].nonzero()[:, 0].numpy()))
            free[nearest, head] = False
            drawn.append((nearest, head))
        result.append(drawn)
    return result


HeldOut = Mapping[str, tuple[Interval, Interval]] | None
"""Prefix matching above its control and label promoting, by head, on prompts that did not choose the heads."""


def both(held_out: HeldOut, prompts: int | None = None) -> list[str]:
    """Heads that match beyond their control and promote the false label, on held-out prompts."""
    return [
        name
        for name, (above, promoting) in (held_out or {}).items()
        if judged(above, prompts=prompts) == judged(promoting, prompts=prompts) == "supported"
    ]


def status_of(held_out: HeldOut, prompts: int | None = None) -> Status:
    """Status of the claim that some of the chosen heads are false induction heads.

    Args:
        held_out: Scores of these heads on prompts that did not choose them.
        prompts: Number of these prompts.
    """
    if not held_out or (prompts is not None and prompts < FEWEST_PROMPTS):
        return "cannot be judged"
    return "supported" if both(held_out, prompts) else "not shown"


def of_heads(
    scores: Float[Tensor, "batch layer head"], heads: Sequence[tuple[int, int]]
) -> Float[Tensor, "batch chosen"]:
    """The scores of some heads."""
    layers, numbers = (list(axis) for axis in zip(*heads, strict=True))
    return scores[:, layers, numbers].double()


def ends_by_head(
    above: Float[Tensor, "batch chosen"],
    promoting: Float[Tensor, "batch chosen"],
    heads: Sequence[tuple[int, int]],
) -> dict[str, tuple[Interval, Interval]]:
    """Prefix matching above its control and label promoting of some heads, by name.

    Intervals hold for all these heads together (max-T).
    """
    columns = []
    for scores in (above, promoting):
        ends = torch.stack([scores.mean(0), *ends_together(scores)], dim=1)
        columns.append([Interval(*row) for row in ends.tolist()])
    return dict(zip(map(head_name, heads), zip(*columns, strict=True), strict=True))
