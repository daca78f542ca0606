"""The control of every head ablation: random heads, matched by layer."""

from collections import Counter

import numpy as np
import torch

from icl_mech._typing import Bool, Tensor
from icl_mech.checking import Heads
from icl_mech.errors import RunError


def random_heads(
    chosen: Heads, shape: tuple[int, int], draws: int, seed: int = 0, *, without: Heads = ()
) -> list[list[tuple[int, int]]]:
    """Random heads, as many per layer as chosen and disjoint from them.

    Where a layer has too few other heads, those the nearest layers do not need are taken.

    Args:
        chosen: What they are the control of.
        shape: Layers and heads of the model.
        draws: Number of draws.
        seed: Of the draws.
        without: Heads that are not drawn either.

    Raises:
        RunError: more heads chosen than there are others.
    """
    n_layers, n_heads = shape
    outside = [head for head in chosen if not (0 <= head[0] < n_layers and 0 <= head[1] < n_heads)]
    if outside:
        raise RunError(
            f"Head {outside[0]} does not exist; the model has {n_layers} layers of {n_heads} heads."
        )
    taken = {(layer, head) for layer, head in (*chosen, *without)}
    if len(set(chosen)) > n_layers * n_heads - len(taken):
        raise RunError(
            f"{len(set(chosen))} of {n_layers * n_heads} heads are chosen: too few others for a "
            "random control."
        )
    wanted = Counter(layer for layer, _ in set(chosen))
    used = Counter(layer for layer, _ in taken)
    own = Counter({layer: min(n, n_heads - used[layer]) for layer, n in wanted.items()})
    layers = [*sorted(own.elements()), *sorted((wanted - own).elements())]
    generator = np.random.default_rng(seed)
    result = []
    for _ in range(draws):
        free: Bool[Tensor, "layer head"] = torch.ones(n_layers, n_heads, dtype=torch.bool)
        for layer, head in taken:
            free[layer, head] = False
        drawn: list[tuple[int, int]] = []
        for layer in layers:
            nearest = min(
                (other for other in range(n_layers) if bool(free[other].any())),
                key=lambda other: (abs(other - layer), other),
            )
            head = int(generator.choice(free[nearest].nonzero()[:, 0].numpy()))
            free[nearest, head] = False
            drawn.append((nearest, head))
        result.append(drawn)
    return result
