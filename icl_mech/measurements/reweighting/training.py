"""Training steps of one token per prompt.

Everything before the target is constant while only the target's row is re-weighted: keys and
values are computed once, and a step runs one token per prompt of its batch, gradients
included. They take `2 x layers x kv heads x head size` numbers per token of every prompt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, check_fields
from icl_mech.engine import Prepared, Progress, Work, single_rows
from icl_mech.engine.prepared import merged
from icl_mech.errors import RunError
from icl_mech.interventions import Reweight

Beta = Float[Tensor, "layer head label"]


@dataclass(frozen=True)
class Training:
    """How factors are learned.

    Attributes:
        lr: Learning rate.
        epochs: Passes over the prompts.
        batch_size: Prompts per step.
        shuffle: Draw the order of the prompts anew in each epoch.
        seed: Of that order.
        patience: Stop after this many epochs without a lower held-out loss.
    """

    lr: float = 0.01
    epochs: Count = 10
    batch_size: Count = 1
    shuffle: bool = True
    seed: Natural = 0
    patience: Count | None = None

    def __post_init__(self) -> None:
        """Check the fields against their types, and the learning rate.

        Raises:
            RunError: names the option.
        """
        check_fields(self)
        if self.lr <= 0:
            raise RunError(
                f"lr={self.lr}; the learning rate must be above 0 (the paper uses 0.01)."
            )


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
    how: Training,
    *,
    held_out: Prepared | None,
    bar: Progress,
) -> Course:
    """Adam on the mean label loss of each batch, from `beta` on, under the prompts' interventions.

    Raises:
        RunError: a loss that is not finite, attention that cannot be re-weighted, or an
            intervention that did nothing.
    """
    rows = single_rows(prepared)
    generator = torch.Generator().manual_seed(how.seed)
    beta = beta.clone().requires_grad_()
    # Its hooks read the factors anew in every pass, so one serves for all steps.
    work = Work([], [*prepared.interventions, Reweight(beta)], checkpoint=False)
    work.take_over(prepared.acted)
    optimizer = torch.optim.Adam([beta], lr=how.lr, betas=(0.9, 0.999), eps=1e-8)
    losses: list[float] = []
    course = [] if held_out is None else [held_out_loss(held_out, work)]
    best, kept, epoch = beta.detach().clone(), 0, 0
    with prepared.model.undo.kept(), prepared.model.gradients():
        for epoch in range(1, how.epochs + 1):
            order = (
                torch.randperm(len(rows), generator=generator) if how.shuffle else range(len(rows))
            )
            indices = [int(index) for index in order]
            for start in range(0, len(indices), how.batch_size):
                chosen = indices[start : start + how.batch_size]
                optimizer.zero_grad()
                batch = merged([rows[index] for index in chosen])
                try:
                    loss = work.losses(batch, "label").mean()
                except RunError as error:
                    if not losses or "and only then" not in str(error):
                        raise  # not the factors' doing
                    raise RunError(
                        f"Training left the finite numbers at step {len(losses) + 1} (lr={how.lr}); use a "
                        f"smaller lr, or a model in float32. {error}"
                    ) from error
                loss.backward()
                losses.append(float(loss.detach()))
                optimizer.step()
                check_finite(losses, beta, how.lr)
                bar.advance(len(chosen))
            work.check_acted()
            if held_out is None:
                continue
            course.append(held_out_loss(held_out, work))
            if course[-1] < min(course[:-1]):
                best, kept = beta.detach().clone(), epoch
            elif how.patience is not None and epoch - kept >= how.patience:
                break
    if held_out is None:
        best, kept = beta.detach(), epoch
    return Course(best, losses, course, epoch, kept)


def held_out_loss(prepared: Prepared, work: Work) -> float:
    """Mean loss over prepared prompts."""
    with torch.no_grad():
        total = sum(float(work.losses(part, "label").sum()) for part in prepared.segments)
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
