"""Learning to re-weight: attention from the target to each label word, scaled by learned factors.

`A[l,h,q,p_c] -> exp(beta[l,h,c]) A[l,h,q,p_c]` after softmax, row `q` only, without
renormalising. `beta` starts at 0, which is exactly the plain model, and minimises the
cross-entropy over the label logits on a few labelled queries (the paper: four per class) with
the same demonstrations; the model itself is not changed. Only the target's row changes, so a step
costs one token per prompt.

    prompts = build_prompts(task, model, shots=1, n=100)
    extra = build_prompts(task, model, shots=1, n=4 * len(task.labels), split="train")
    reweighting = fit_reweighting(model, extra)
    evaluate_reweighting(model, reweighting, prompts)

`Reweighting` learns and evaluates on one set of prompts: the factors are learned on the first few of each
class (the paper: four), and the accuracy with and without them is measured on all others, which are held out.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1, table 1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from icl_mech.checking import Count, Natural
from icl_mech.engine import Progress, fill_means, prepare
from icl_mech.errors import PromptError, RunError
from icl_mech.interventions import FittedReweight, Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reweighting.evaluate_reweighting import (
    EvaluateReweighting,
    ReweightingResult,
)
from icl_mech.measurements.reweighting.training import (
    Training,
    check_held_out,
    check_learnable,
    digest,
    train,
    warn_unseen_classes,
)
from icl_mech.measurements.running import check_numbers
from icl_mech.models import LanguageModel, adapt, exclusive
from icl_mech.prompts import PromptBatch, check_batch


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
    """Learn the factors from these prompts: an intervention for every analysis.

    Adam with betas (0.9, 0.999) and eps 1e-8 on the mean loss of each batch. Keys and values of
    all prompts are kept meanwhile. A class no demonstration displays gets no gradient: its
    factors stay 1, with a warning.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Training prompts: queries with answers after the demonstrations that will be
            used (`build_prompts(..., split="train")`).
        lr: Learning rate (the paper 0.01; its code defaults to 0.1).
        epochs: Passes over the prompts.
        batch_size: Prompts per step.
        shuffle: Draw the order of the prompts anew in each epoch.
        seed: Seed of that order.
        validation: Prompts held out from training; the factors after the epoch with the lowest
            mean loss on them are kept, which may be none at all (beta 0).
        patience: Stop after this many epochs without a lower loss on `validation`.
        interventions: Applied before the re-weighting in every step, also on `validation`; means
            they need are those of `prompts`. Use the factors under the same ones.
        memory: Budget for keys and values, such as `"8GB"`.
        progress: Show a progress bar.

    Raises:
        RunError: an option out of range, an intervention that did nothing, or a training that
            diverged.
        PromptError: prompts without answers or demonstrations, or a `validation` that is not
            held out or has other label words.

    Source: Wang et al. 2023, §3.1.
    """
    how = Training(lr, epochs, batch_size, shuffle, seed, patience)
    options = Options(interventions, memory=memory, progress=progress)
    if patience is not None and validation is None:
        raise RunError(
            f"patience={patience} stops training by the loss on held-out prompts; give these as "
            "validation=."
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
        course = train(kept, start, how, held_out=next(iter(held_out), None), bar=bar)
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


def split(prompts: PromptBatch, per_class: int) -> tuple[PromptBatch, PromptBatch]:
    """Split off the first few prompts of each class for training; return these and all others.

    Raises:
        PromptError: a class with fewer than twice as many prompts.
    """
    answers = prompts.answers.tolist()
    rarest = min(answers.count(label) for label in range(prompts.n_labels))
    if rarest < 2 * per_class:
        raise PromptError(
            f"Re-weighting needs at least {2 * per_class} prompts of every class, but the rarest "
            f"class has only {rarest}."
        )
    chosen: list[int] = []
    for label in range(prompts.n_labels):
        chosen += [number for number, answer in enumerate(answers) if answer == label][:per_class]
    others = [number for number in range(len(prompts)) if number not in set(chosen)]
    return prompts[sorted(chosen)], prompts[others]


@dataclass(frozen=True)
class Reweighting(Measurement[ReweightingResult]):
    """Factors learned on the first few prompts of each class and evaluated on all others.

    Attributes:
        per_class: Prompts of each class for training (the paper: four).
        lr: Learning rate.
        epochs: Passes over the training prompts.
        batch_size: Prompts per training step.
        seed: Seed of the training order.
    """

    per_class: Count = 4
    lr: float = 0.01
    epochs: Count = 10
    batch_size: Count = 1
    seed: Natural = 0

    why_not = "its factors belong to classes"

    @property
    def training(self) -> Training:
        """Settings of the training."""
        return Training(self.lr, self.epochs, self.batch_size, seed=self.seed)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject options out of range, and too few prompts for training and evaluation.

        Raises:
            RunError: names the option.
            PromptError: prompts without answers or demonstrations, or too few of a class.
        """
        _ = self.training
        check_learnable(data, "given")
        split(data, self.per_class)

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Reject interventions that depend on prompt numbers, which differ in the two parts.

        Raises:
            RunError: names the intervention.
        """
        for part in split(data, self.per_class):
            check_numbers(part, data, options.interventions)

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[ReweightingResult]:
        """Learn under the user's interventions, then evaluate under them.

        Means that an intervention still needs are those of the prompts it acts on: the training
        prompts, then the test prompts.
        """
        training, test = split(data, self.per_class)
        fitted = fit_reweighting(
            model,
            training,
            **asdict(self.training),
            interventions=options.interventions,
            memory=options.memory,
            progress=options.progress,
        )
        evaluation = EvaluateReweighting(fitted)
        evaluation.check(model, test)
        read = yield evaluation.passes(model, test)
        return self.result(model, data, [fitted, *read])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """No passes are known before the factors are learned, see `steps`."""
        return []

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ReweightingResult:
        """The result of the evaluation, from the learned factors and the values of its passes."""
        fitted, *values = read
        _, test = split(data, self.per_class)
        result = EvaluateReweighting(fitted).result(model, test, values)
        return replace(result, provenance={**result.provenance, "tested_on": prompt_source(test)})
