"""Prompts with label words, windows of isolation, and plain runs to compare with."""

import torch

from icl_mech.interventions import Isolate
from icl_mech.measurements.predictions import predict
from icl_mech.prompts import Prompt, PromptBatch
from tests.engine.cases import LABEL_TOKENS, prompt
from tests.tiny import N_LAYERS


def many(n=24, *, shared=False):
    """Prompts with three label words; their demonstrations are shared or their own."""
    head = prompt(12, (3, 7, 10), (0, 1, 2), seed=100).tokens
    rows = []
    for seed in range(n):
        start = head if shared else prompt(12, (3, 7, 10), (0, 1, 2), seed=200 + seed).tokens
        tail = prompt(3 + seed % 4, (), (), seed=300 + seed).tokens
        rows.append(
            Prompt.from_positions(
                (*start, *tail),
                label_positions=(3, 7, 10),
                label_classes=(0, 1, 2),
                label_tokens=LABEL_TOKENS,
                answer=seed % 3,
            )
        )
    return PromptBatch(tuple(rows), {"demonstrations": "shared" if shared else "per_prompt"})


def layers_of(side, depth):
    return range(depth) if side == "first" else range(N_LAYERS - depth, N_LAYERS)


def cuts_of(sides=("first", "last"), depths=(1, 2, 3), tokens=("label", "random"), **options):
    """No cut at all, and those of all windows, as lists of interventions behind `edits`."""
    edits = options.pop("edits", [])
    seeds = {"label": (0,), "random": (0, 1)}
    first = options.pop("seed", 0)
    return [edits] + [
        [*edits, Isolate(layers_of(side, depth), kind, seed=first + seed, **options)]
        for side in sides
        for depth in depths
        for kind in tokens
        for seed in seeds[kind]
    ]


def by_separate_runs(model, prompts, window, seeds, edits=(), **options):
    """Mean over draws of what is kept, by sets of top tokens and one run per draw."""
    side, depth, tokens = window
    plain = predict(model, prompts, interventions=edits)
    kept, overlap = [], []
    for seed in seeds:
        cut = Isolate(layers_of(side, depth), tokens, seed=seed, **options)
        read = predict(model, prompts, interventions=[*edits, cut])
        kept.append((read.predicted == plain.predicted).double())
        pairs = zip(read.top_tokens.tolist(), plain.top_tokens.tolist(), strict=True)
        sets = [(set(one), set(other)) for one, other in pairs]
        shares = [len(a & b) / len(a | b) for a, b in sets]
        overlap.append(torch.tensor(shares, dtype=torch.float64))
    return torch.stack(kept), torch.stack(overlap)
