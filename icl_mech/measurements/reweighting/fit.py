"""Learning to re-weight: attention from the target to each label word, scaled by learned factors.

`A[l,h,q,p_c] -> exp(beta[l,h,c]) A[l,h,q,p_c]` after softmax, row `q` only, without
renormalising. `beta` starts at 0, which is exactly the plain model, and minimises the
cross-entropy over the label logits on a few labelled queries (the paper: four per class) behind
the same demonstrations; the model stays as it is. Only the target's row changes, so a step
costs one token per prompt.

    prompts = build_prompts(task, model, shots=1, n=100)
    extra = build_prompts(task, model, shots=1, n=4 * len(task.labels), split="train")
    reweighting = fit_reweighting(model, extra)
    evaluate_reweighting(model, reweighting, prompts)

Training steps of one token per prompt.

Everything before the target is constant while only the target's row is re-weighted: keys and
values are computed once, and a step runs one token per prompt of its batch, gradients
included. They take `2 x layers x kv heads x head size` numbers per token of every prompt.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1.
"""

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, check_fields
from icl_mech.engine import Prepared, Progress, Work, fill_means, prepare, single_rows
from icl_mech.engine.prepared import merged
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import FittedReweight, Intervention, Reweight
from icl_mech.measurements.base import Options
from icl_mech.measurements.demonstrations import displayed
from icl_mech.measurements.running import check_numbers
from icl_mech.models import adapt, exclusive
from icl_mech.prompts import Prompt, PromptBatch, check_batch, check_classes


def check_learnable(prompts: PromptBatch, what: str) -> None:
    """Refuse prompts nothing can be learned from.

    Raises:
        PromptError: a prompt without an answer, or without a demonstration before its target.
    """
    check_classes(prompts, "Re-weighting")
    missing = sum(prompt.answer is None for prompt in prompts)
    if missing:
        raise PromptError(
            f"{missing} of {len(prompts)} {what} prompts have no answer; re-weighting is learned "
            "and judged by true classes, so give answers= when building them."
        )
    shown = [displayed(prompt) for prompt in prompts]
    bare = sum(not classes for classes in shown)
    if bare:
        raise PromptError(
            f"{bare} of {len(prompts)} {what} prompts have no demonstration before their target, "
            "so there is no label word to re-weight; build them with shots >= 1."
        )


def warn_unseen_classes(prompts: PromptBatch) -> None:
    """Warn of classes no demonstration displays."""
    shown = [displayed(prompt) for prompt in prompts]
    never = [name for c, name in enumerate(prompts.labels) if not any(c in own for own in shown)]
    if never:
        warnings.warn(
            f"No demonstration displays {', '.join(map(repr, never))}; their factors get no "
            "gradient and stay 1 (beta 0).",
            stacklevel=3,
        )


def check_held_out(validation: PromptBatch, prompts: PromptBatch) -> None:
    """Refuse validation prompts that are trained on, or of another task.

    Raises:
        PromptError: says how many, or names the label words.
    """
    if validation[0].label_words != prompts[0].label_words:
        raise PromptError(
            f"The validation prompts have the labels {', '.join(validation.labels)}, the training "
            f"prompts {', '.join(prompts.labels)}; use prompts of one task."
        )
    known = {prompt.tokens for prompt in prompts}
    shared = sum(prompt.tokens in known for prompt in validation)
    if shared:
        raise PromptError(
            f"{shared} of {len(validation)} validation prompts are also trained on; hold other "
            "prompts out, for example build more of them and split the batch."
        )


def check_same_queries(more_shots: PromptBatch, prompts: PromptBatch) -> None:
    """Refuse prompts whose queries are not those of the test prompts.

    Raises:
        PromptError: says how to build them.
    """
    same = [prompt.answer for prompt in more_shots] == [prompt.answer for prompt in prompts]
    if same and all(p.has_text_roles for batch in (more_shots, prompts) for p in batch):
        same = [query(prompt) for prompt in more_shots] == [query(prompt) for prompt in prompts]
    if not same:
        raise PromptError(
            "more_shots must hold the queries of the test prompts in the same order; build both "
            "with the same task, n and seed, and larger shots."
        )


def query(prompt: Prompt) -> list[tuple[int, ...]]:
    """Tokens of the query's texts."""
    return [prompt.tokens[s.start : s.stop] for s in prompt.spans if s.role == "query_text"]


def digest(prompt: Prompt) -> str:
    """Short name of a prompt's tokens, by which a fit remembers what it has seen."""
    return hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()[:16]


def count_seen(factors: Reweight, prompts: PromptBatch) -> int:
    """How many of the prompts the factors were learned from."""
    known = set(factors.training.get("seen", ())) if isinstance(factors, FittedReweight) else set()
    return sum(digest(prompt) in known for prompt in prompts)


def warn_seen(factors: Reweight, prompts: PromptBatch) -> None:
    """Warn of prompts the factors were learned from."""
    seen = count_seen(factors, prompts)
    if seen:
        warnings.warn(
            f"The factors were learned from {seen} of these {len(prompts)} prompts; the accuracy is "
            "not held out. Use prompts of the test split.",
            stacklevel=3,
        )


def split(prompts: PromptBatch, per_class: int) -> tuple[PromptBatch, PromptBatch]:
    """The first few prompts of each class, to learn from, and all others.

    Raises:
        PromptError: a class with fewer prompts than twice as many.
    """
    answers = prompts.answers.tolist()
    rarest = min(answers.count(label) for label in range(prompts.n_labels))
    if rarest < 2 * per_class:
        raise PromptError(
            f"Re-weighting needs at least {2 * per_class} prompts of every class, the rarest has "
            f"{rarest}."
        )
    chosen: list[int] = []
    for label in range(prompts.n_labels):
        chosen += [number for number, own in enumerate(answers) if own == label][:per_class]
    others = [number for number in range(len(prompts)) if number not in set(chosen)]
    return prompts[sorted(chosen)], prompts[others]


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


@exclusive
def fit_reweighting(
    model: Any,
    prompts: PromptBatch,
    *,
    lr: float = 0.01,
    epochs: int = 10,
    batch_size: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    validation: PromptBatch | None = None,
    patience: int | None = None,
    interventions: Sequence[Intervention] = (),
    memory: str | int | None = None,
    progress: bool | None = None,
) -> FittedReweight:
    """The factors learned from these prompts: an intervention for every analysis.

    Adam with betas (0.9, 0.999) and eps 1e-8 on the mean loss of each batch. Keys and values of
    all prompts are kept meanwhile. A class no demonstration displays gets no gradient: its
    factors stay 1, with a warning.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: What to learn from: queries with answers behind the demonstrations that will be
            used (`build_prompts(..., split="train")`).
        lr: Learning rate (the paper 0.01; its code defaults to 0.1).
        epochs: Passes over the prompts.
        batch_size: Prompts per step.
        shuffle: Draw the order of the prompts anew in each epoch.
        seed: Of that order.
        validation: Prompts held out from training; the factors after the epoch with the lowest
            mean loss on them are kept, which may be none at all (beta 0).
        patience: Stop after this many epochs without a lower loss on `validation`.
        interventions: Made before the re-weighting in every step, also on `validation`; means
            they need are those of `prompts`. Use the factors under the same ones.
        memory: Budget for keys and values, such as `"8GB"`.
        progress: Show a progress bar.

    Raises:
        RunError: an option out of range, an intervention that did nothing, or a training that
            left the finite numbers.
        PromptError: prompts without answers or demonstrations, or a `validation` that is not
            held out or has other label words.

    Source: Wang et al. 2023, §3.1.
    """
    how = Training(lr, epochs, batch_size, shuffle, seed, patience)
    options = Options(interventions, memory=memory, progress=progress)
    if patience is not None and validation is None:
        raise RunError(
            f"patience={patience} stops by the loss on held-out prompts; give them as validation=."
        )
    check_learnable(check_batch(prompts), "training")
    warn_unseen_classes(prompts)
    if validation is not None:
        check_learnable(check_batch(validation, "validation"), "validation")
        check_held_out(validation, prompts)
        check_numbers(validation, prompts, options.interventions)
    for intervention in options.interventions:
        intervention.check_prompts(prompts)
    adapted = adapt(model)
    info = adapted.info
    (changes,) = fill_means(adapted, prompts, [options.interventions])
    kept, *held_out = (
        prepare(adapted, batch, interventions=changes, memory=memory)
        for batch in (prompts, validation)
        if batch is not None
    )
    start = torch.zeros(info.n_layers, info.n_heads, prompts.n_labels, device=adapted.device)
    with Progress("training", how.epochs * len(prompts), progress) as bar:
        course = train(
            kept,
            start,
            how,
            held_out=held_out[0] if held_out else None,
            bar=bar,
        )
    return FittedReweight(
        beta=course.beta.cpu(),
        losses=torch.tensor(course.losses),
        held_out_losses=torch.tensor(course.held_out) if course.held_out else None,
        training={
            "model": info.name,
            **asdict(how),
            "epochs_run": course.epochs,
            "epoch_kept": course.kept,
            "interventions": [intervention.to_dict() for intervention in changes],
            "prompts": {**prompts.source, "count": len(prompts)},
            "held_out": None if validation is None else {"count": len(validation)},
            "seen": [digest(prompt) for batch in (prompts, validation or ()) for prompt in batch],
        },
    )
