"""Training steps of one token per prompt.

Everything before the target is constant while only the target's row is re-weighted: keys and
values are computed once, and a step runs one token per prompt of its batch, gradients
included. They take `2 x layers x kv heads x head size` numbers per token of every prompt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Prepared, target_loss
from icl_mech.engine.prepared import merged
from icl_mech.errors import RunError
from icl_mech.interventions import Reweight
from icl_mech.models import HookFunction, KeyValues
from icl_mech.segments import Segment

Beta = Float[Tensor, "layer head label"]


@dataclass(frozen=True)
class Course:
    """How a training went.

    Attributes:
        beta: The factors kept.
        losses: Loss of each step, before its update.
        held_out: Mean held-out loss at the start and after each epoch; empty without one.
        epochs: Epochs run.
        kept: Epoch whose end `beta` is from; 0 is the start.
    """

    beta: Beta
    losses: list[float]
    held_out: list[float]
    epochs: int
    kept: int


def train(
    prepared: Prepared,
    beta: Beta,
    *,
    lr: float,
    epochs: int,
    batch_size: int,
    shuffle: bool,
    seed: int,
    held_out: Prepared | None,
    patience: int | None,
    bar: Any,
) -> Course:
    """Adam on the mean label loss of each batch, from `beta` on.

    Raises:
        RunError: a loss that is not finite, or attention that cannot be re-weighted.
    """
    rows = single_rows(prepared)
    generator = torch.Generator().manual_seed(seed)
    beta = beta.clone().requires_grad_()
    optimizer = torch.optim.Adam([beta], lr=lr, betas=(0.9, 0.999), eps=1e-8)
    losses: list[float] = []
    course = [] if held_out is None else [held_out_loss(held_out, beta)]
    best, kept, epoch = beta.detach().clone(), 0, 0
    with prepared.model.gradients():
        for epoch in range(1, epochs + 1):
            order = torch.randperm(len(rows), generator=generator) if shuffle else range(len(rows))
            indices = [int(index) for index in order]
            for start in range(0, len(indices), batch_size):
                chosen = indices[start : start + batch_size]
                optimizer.zero_grad()
                loss = mean_loss(merged([rows[index] for index in chosen]), beta)
                loss.backward()
                losses.append(float(loss.detach()))
                optimizer.step()
                check_finite(losses, beta, lr)
                bar.advance(len(chosen))
            if held_out is None:
                continue
            course.append(held_out_loss(held_out, beta))
            if course[-1] < min(course[:-1]):
                best, kept = beta.detach().clone(), epoch
            elif patience is not None and epoch - kept >= patience:
                break
    if held_out is None:
        best, kept = beta.detach(), epoch
    return Course(best, losses, course, epoch, kept)


def single_rows(prepared: Prepared) -> list[Segment]:
    """The target row of each prompt apart, without padding, in input order."""
    rows: dict[int, Segment] = {}
    for segment in prepared.segments:
        if segment.cache is None:
            raise RunError("Prepared prompts hold no keys and values; make them with prepare.")
        for row, (index, prompt) in enumerate(zip(segment.indices, segment.prompts, strict=True)):
            own = segment.cache.rows(slice(row, row + 1))
            # Padding stands on the left: the prompt's own columns are the last ones.
            real = slice(own.length - prompt.target, None)
            cache = KeyValues(
                tuple(key[:, :, real] for key in own.keys),
                tuple(value[:, :, real] for value in own.values),
            )
            rows[index] = Segment.build(
                prepared.model,
                segment.prompts[[row]],
                [index],
                spans=[(prompt.target, prompt.target + 1)],
                cache=cache,
                cached=torch.arange(prompt.target)[None],
            )
    return [rows[index] for index in sorted(rows)]


def mean_loss(segment: Segment, beta: Beta) -> Float[Tensor, ""]:
    """Mean cross-entropy over the label logits of a segment's prompts under `beta`."""
    return losses_of(segment, beta).mean()


def losses_of(segment: Segment, beta: Beta) -> Float[Tensor, " batch"]:
    """Cross-entropy over the label logits of each prompt under `beta`.

    Raises:
        RunError: a layer whose attention was not reached.
    """
    fired: set[int] = set()

    def noting(layer: int, function: HookFunction) -> HookFunction:
        def hook(activation: Tensor) -> Tensor | None:
            fired.add(layer)
            return function(activation)

        return hook

    hooks = Reweight(beta).hooks(segment)
    output = segment.model.forward(
        segment.tokens,
        segment.mask,
        segment.positions,
        cache=segment.cache,
        hooks=[(site, noting(site.layer, function)) for site, function in hooks],
    )
    silent = sorted(set(range(len(beta))) - fired)
    if silent:
        raise RunError(
            f"Reweight did not fire in block {silent[0]} of {segment.model.info.architecture}; its "
            "factors there could not be learned."
        )
    return target_loss(segment.at_target(output.residual), segment, "label")


def held_out_loss(prepared: Prepared, beta: Beta) -> float:
    """Mean loss over prepared prompts."""
    with torch.no_grad():
        total = sum(float(losses_of(segment, beta).sum()) for segment in prepared.segments)
    return total / len(prepared.prompts)


def check_finite(losses: Sequence[float], beta: Beta, lr: float) -> None:
    """Refuse a training that left the finite numbers.

    Raises:
        RunError: says at which step.
    """
    if not (math.isfinite(losses[-1]) and bool(beta.isfinite().all())):
        raise RunError(
            f"Training left the finite numbers at step {len(losses)} (loss {losses[-1]:.3g}, lr={lr}); "
            "use a smaller lr, or a model in float32."
        )
