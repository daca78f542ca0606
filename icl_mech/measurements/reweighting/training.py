"""Training of the factors: its requirements, its steps, and its record.

Everything before the target is constant while only the target's row is re-weighted: keys and
values are computed once, and a step runs one token per prompt of its batch, gradients
included. They take `2 x layers x kv heads x head size` numbers per token of every prompt.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1.
"""

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, check_fields
from icl_mech.engine import Prepared, Progress, Work, single_rows
from icl_mech.engine.finite import NonFiniteError
from icl_mech.engine.prepared import merged
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import FittedReweight, Reweight
from icl_mech.measurements.any_answer import check_kind
from icl_mech.measurements.demonstrations import displayed
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Definition
from icl_mech.segments import Segment

Beta = Float[Tensor, "layer head label"]

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.1"

REWEIGHTING = Definition(
    "re-weighting",
    r"\hat{A}_{l,h}[q, p_c] = \exp(\beta_{l,h,c}) \, A_{l,h}[q, p_c]",
    "Attention A from the target q to the label word p of class c is multiplied by a factor for "
    "each layer l, head h and class c, after the softmax and without renormalising. β = 0 is the "
    "unmodified model.",
    SOURCE,
)

TRAINING = Definition(
    "training",
    r"\beta^* = \arg\min_\beta \; -\sum_n \log P(y_n \mid x_n, \beta)",
    "Cross-entropy of the true class y over the label words on separate prompts x; the model is "
    "frozen, and Adam starts at β = 0.",
    SOURCE,
)


@dataclass(frozen=True)
class Training:
    """Training settings of the factors.

    Attributes:
        lr: Learning rate.
        epochs: Passes over the prompts.
        batch_size: Prompts per step.
        shuffle: Draw the order of the prompts anew in each epoch.
        seed: Seed of that order.
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
                f"lr={self.lr}, but the learning rate must be above 0 (the paper uses 0.01)."
            )


@dataclass(frozen=True)
class Course:
    """Record of a training.

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
    prepared: Prepared, beta: Beta, how: Training, *, held_out: Prepared | None, bar: Progress
) -> Course:
    """Run Adam on the mean label loss of each batch, starting at `beta`, under the prompts' interventions.

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
                loss = _loss(work, batch, len(losses), how.lr)
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


def _loss(work: Work, batch: Segment, steps: int, lr: float) -> Float[Tensor, ""]:
    """Mean loss of a batch after some steps; an error names the step that made it not finite."""
    try:
        return work.losses(batch, "label").mean()
    except NonFiniteError as error:
        if not steps:
            raise  # not the factors' doing
        raise RunError(
            f"Training diverged to non-finite values at step {steps + 1} (lr={lr}); use a smaller lr, or a "
            f"model in float32. {error}"
        ) from error


def held_out_loss(prepared: Prepared, work: Work) -> float:
    """Mean loss over prepared prompts."""
    with torch.no_grad():
        total = sum(float(work.losses(part, "label").sum()) for part in prepared.segments)
    return total / len(prepared.prompts)


def check_finite(losses: Sequence[float], beta: Beta, lr: float) -> None:
    """Reject a training that diverged.

    Raises:
        RunError: gives the step.
    """
    if not (math.isfinite(losses[-1]) and bool(beta.isfinite().all())):
        raise RunError(
            f"Training diverged to non-finite values at step {len(losses)} (loss {losses[-1]:.3g}, lr={lr}); "
            "use a smaller lr, or a model in float32."
        )


def check_learnable(prompts: PromptBatch, what: str) -> None:
    """Reject prompts without a learning signal.

    Raises:
        PromptError: a prompt without an answer, or without a demonstration before its target.
    """
    check_kind(prompts, ("classes",), "Re-weighting", "its factors belong to classes")
    missing = sum(prompt.answer is None for prompt in prompts)
    if missing:
        raise PromptError(
            f"{missing} of {len(prompts)} {what} prompts have no answer. Re-weighting is trained "
            "and evaluated on true classes, so give answers= when building the prompts."
        )
    shown = [displayed(prompt) for prompt in prompts]
    bare = sum(not classes for classes in shown)
    if bare:
        raise PromptError(
            f"{bare} of {len(prompts)} {what} prompts have no demonstration before their target, "
            "so there is no label word to re-weight. Build them with shots >= 1."
        )


def warn_unseen_classes(prompts: PromptBatch) -> None:
    """Warn of classes that no demonstration displays."""
    shown = [displayed(prompt) for prompt in prompts]
    never = [
        name for c, name in enumerate(prompts.labels) if not any(c in classes for classes in shown)
    ]
    if never:
        warnings.warn(
            f"No demonstration displays {', '.join(map(repr, never))}; the factors of these "
            "classes receive no gradient and stay 1 (beta 0).",
            stacklevel=3,
        )


def check_held_out(validation: PromptBatch, prompts: PromptBatch) -> None:
    """Reject validation prompts that are trained on, or from another task.

    Raises:
        PromptError: gives their number, or names the label words.
    """
    if validation[0].label_words != prompts[0].label_words:
        raise PromptError(
            f"The validation prompts have the labels {', '.join(validation.labels)}, but the "
            f"training prompts have {', '.join(prompts.labels)}. Use prompts of one task."
        )
    known = {prompt.tokens for prompt in prompts}
    shared = sum(prompt.tokens in known for prompt in validation)
    if shared:
        raise PromptError(
            f"{shared} of {len(validation)} validation prompts are also training prompts. Hold out "
            "other prompts, for example by building more of them and splitting the batch."
        )


def digest(prompt: Prompt) -> str:
    """Short digest of a prompt's tokens, by which a fit records its training prompts."""
    return hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()[:16]


def count_seen(factors: Reweight, prompts: PromptBatch) -> int:
    """Number of these prompts that the factors were learned from."""
    known = set(factors.training.get("seen", ())) if isinstance(factors, FittedReweight) else set()
    return sum(digest(prompt) in known for prompt in prompts)


def warn_seen(factors: Reweight, prompts: PromptBatch) -> None:
    """Warn of prompts the factors were learned from."""
    seen = count_seen(factors, prompts)
    if seen:
        warnings.warn(
            f"The factors were trained on {seen} of these {len(prompts)} prompts, so the accuracy "
            "is not held-out. Use prompts of the test split.",
            stacklevel=3,
        )
