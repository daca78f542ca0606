"""Anchor re-weighting: attention from the target to each label word, scaled by learned factors.

`A[l,h,q,p_c] -> exp(beta[l,h,c]) A[l,h,q,p_c]` after softmax, row `q` only, without
renormalising. `beta` starts at 0, which is exactly the plain model, and minimises the
cross-entropy over the label logits on a few labelled queries (the paper: four per class) behind
the same demonstrations; the model stays as it is. Only the target's row changes, so a step
costs one token per prompt.

    prompts = build_prompts(task, model, shots=1, n=100)
    extra = build_prompts(task, model, shots=1, n=4 * len(task.labels), split="train")
    reweighting = fit_reweighting(model, extra)
    evaluate_reweighting(model, reweighting, prompts)

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.prefix import can_share, common_prefix
from icl_mech.engine.progress import Progress
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import FittedReweight, Intervention, Reweight
from icl_mech.measurements._old import provenance
from icl_mech.measurements.drawings import accuracy_bars, factor_grid, training_curve
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.measurements.reweighting.learnable import (
    check_held_out,
    check_learnable,
    check_same_queries,
    count_seen,
    digest,
    warn_unseen_classes,
)
from icl_mech.measurements.reweighting.training import train
from icl_mech.metrics import Interval, mean_interval, wilson_interval
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import Bars, Grid, LayerCurves

if TYPE_CHECKING:
    import pandas as pd

Condition = Literal["plain", "reweighted", "more_shots"]
Drawing = Literal["accuracy", "beta", "training"]
NAMES: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class ReweightingResult(Result):
    """Accuracy of plain and re-weighted in-context learning on the same test prompts.

    Attributes:
        label_logits: Logits of the label words' first tokens under each condition.
        answers: True class of each query.
        beta: Logarithm of the factors.
        losses: Loss of each training step, if the factors were learned here.
        held_out_losses: Mean loss on held-out prompts, at the start and after each epoch.
        conditions: `plain`, `reweighted` and, if asked for, `more_shots`.
        demonstrations: Number of demonstrations under each condition.
        labels: Names of the classes.
        seen_in_training: How many of the test prompts the factors were learned from.
    """

    title: ClassVar[str] = "Anchor re-weighting"

    label_logits: Float[Tensor, "condition batch label"]
    answers: Int[Tensor, " batch"]
    beta: Float[Tensor, "layer head label"]
    losses: Float[Tensor, " step"] | None = None
    held_out_losses: Float[Tensor, " epoch"] | None = None
    conditions: tuple[Condition, ...]
    demonstrations: tuple[int, ...]
    labels: tuple[str, ...]
    seen_in_training: int = 0

    @property
    def predicted(self) -> Int[Tensor, "condition batch"]:
        """Class with the largest label logit."""
        return self.label_logits.argmax(-1)

    @property
    def correct(self) -> Bool[Tensor, "condition batch"]:
        """Whether the predicted class is the true one."""
        return self.predicted == self.answers

    def accuracy(self, condition: Condition) -> Interval:
        """Accuracy under one condition, with Wilson interval.

        Raises:
            ResultError: unknown condition.
        """
        return wilson_interval(self.correct[self._index(condition)])

    def difference(
        self, condition: Condition = "reweighted", reference: Condition = "plain"
    ) -> Interval:
        """Accuracy under one condition minus another, paired bootstrap over prompts.

        Raises:
            ResultError: unknown condition.
        """
        one, other = (self.correct[self._index(name)].double() for name in (condition, reference))
        return mean_interval(one - other)

    def _index(self, condition: str) -> int:
        if condition not in self.conditions:
            raise ResultError(
                f"Unknown condition {condition!r}. {near_matches(condition, self.conditions)}"
            )
        return self.conditions.index(condition)

    def drawing(
        self, what: Drawing = "accuracy", *, label: str | None = None
    ) -> Bars | Grid | LayerCurves:
        """Accuracies, the factors by layer and head, or the training curve.

        Args:
            what: `accuracy`, `beta` or `training`.
            label: Class whose factors are shown (default: their mean over classes).

        Raises:
            ResultError: unknown choice, or no training to show.
        """
        if what not in get_args(Drawing):
            raise ResultError(f"what={what!r}. {near_matches(what, get_args(Drawing))}")
        if what == "beta":
            return factor_grid(self.beta, self.labels, label)
        if what == "training":
            return self._training_curve()
        return accuracy_bars(
            {
                f"{NAMES[name]} ({count} demonstrations)": self.accuracy(name)
                for name, count in zip(self.conditions, self.demonstrations, strict=True)
            },
            f"re-weighted − plain: {self.difference()}; {len(self.answers)} test prompts"
            + self._caveats(),
        )

    def _training_curve(self) -> LayerCurves:
        if self.losses is None:
            raise ResultError(
                "These factors were given, not learned; there is no training to show."
            )
        (fitted,) = self.provenance["interventions"]
        epochs = int(fitted["training"].get("epochs_run", 1))
        return training_curve(self.losses, self.held_out_losses, epochs, len(self.labels))

    def summary(self) -> str:
        """Accuracies, the paired difference and whether it can be told from 0."""
        gain = self.difference()
        verdict = "" if gain.low > 0 or gain.high < 0 else " (not clearly different from 0)"
        more = (
            f"; {self.demonstrations[2]} demonstrations {self.accuracy('more_shots')}"
            if "more_shots" in self.conditions
            else ""
        )
        return (
            f"re-weighted {self.accuracy('reweighted')}, plain {self.accuracy('plain')} on "
            f"{len(self.answers)} prompts: difference {gain}{verdict}{more}{self._caveats()}"
        )

    def _caveats(self) -> str:
        shared = self.provenance.get("conditional_on_demonstrations")
        seen = (
            f"; {self.seen_in_training} of them seen in training" if self.seen_in_training else ""
        )
        return seen + ("; intervals given the shared demonstrations" if shared else "")

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition: condition, accuracy, low, high."""
        import pandas as pd

        return pd.DataFrame(
            {"condition": name, **self.accuracy(name)._asdict()} for name in self.conditions
        ).rename(columns={"value": "accuracy"})


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
        memory: Budget for keys and values, such as `"8GB"`.
        progress: Show a progress bar.

    Raises:
        RunError: an option out of range, or a training that left the finite numbers.
        PromptError: prompts without answers or demonstrations, or a `validation` that is not
            held out or has other label words.

    Source: Wang et al. 2023, §3.1.
    """
    check_options(lr, epochs, batch_size, validation, patience)
    check_learnable(prompts, "training")
    warn_unseen_classes(prompts)
    if validation is not None:
        check_learnable(validation, "validation")
        check_held_out(validation, prompts)
    adapted = adapt(model)
    info = adapted.info
    start = torch.zeros(info.n_layers, info.n_heads, prompts.n_labels, device=adapted.device)
    prepared = prepare(adapted, prompts, memory=memory)
    held_out = None if validation is None else prepare(adapted, validation, memory=memory)
    with Progress("training", epochs * len(prompts), progress) as bar:
        course = train(
            prepared, start, lr=lr, epochs=epochs, batch_size=batch_size, shuffle=shuffle,
            seed=seed, held_out=held_out, patience=patience, bar=bar,
        )  # fmt: skip
    return FittedReweight(
        beta=course.beta.cpu(),
        losses=torch.tensor(course.losses),
        held_out_losses=torch.tensor(course.held_out) if course.held_out else None,
        training={
            "model": info.name,
            "lr": lr, "epochs": epochs, "batch_size": batch_size, "shuffle": shuffle,
            "seed": seed, "patience": patience, "epochs_run": course.epochs,
            "epoch_kept": course.kept,
            "prompts": {**prompts.source, "count": len(prompts)},
            "held_out": None if validation is None else {"count": len(validation)},
            "seen": [digest(prompt) for batch in (prompts, validation or ()) for prompt in batch],
        },
    )  # fmt: skip


def evaluate_reweighting(
    model: Any,
    reweighting: Reweight,
    prompts: PromptBatch,
    *,
    more_shots: PromptBatch | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> ReweightingResult:
    """Plain against re-weighted in-context learning on the same test prompts.

    What both have in common is computed once: the shared demonstrations, or everything before
    the targets.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        reweighting: The factors, learned (`fit_reweighting`) or given.
        prompts: Test prompts with answers.
        more_shots: The same queries behind more demonstrations, run plain for comparison.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Warns:
        UserWarning: if the factors were learned from some of these prompts.

    Raises:
        PromptError: prompts without answers, or `more_shots` with other queries.
        RunError: factors of another model's size or number of classes.

    Source: Wang et al. 2023, §3.1, table 1.
    """
    check_learnable(prompts, "test")
    if more_shots is not None:
        check_same_queries(more_shots, prompts)
    fitted = reweighting if isinstance(reweighting, FittedReweight) else None
    seen = count_seen(fitted, prompts)
    adapted = adapt(model)
    read = read_both(adapted, prompts, reweighting, batch_size=batch_size, progress=progress)
    conditions: list[Condition] = ["plain", "reweighted"]
    demonstrations = [prompts.n_demos, prompts.n_demos]
    if more_shots is not None:
        (values,) = run(
            adapted, more_shots, [PredictionReading()], batch_size=batch_size, progress=progress,
            title="more shots",
        )  # fmt: skip
        read.append(values[0])
        conditions.append("more_shots")
        demonstrations.append(more_shots.n_demos)
    more_source = None if more_shots is None else more_shots.source
    return ReweightingResult(
        label_logits=torch.stack(read),
        answers=prompts.answers,
        beta=reweighting.beta,
        losses=None if fitted is None else fitted.losses,
        held_out_losses=None if fitted is None else fitted.held_out_losses,
        conditions=tuple(conditions),
        demonstrations=tuple(demonstrations),
        labels=prompts.labels,
        seen_in_training=seen,
        provenance=provenance(adapted, prompts, [reweighting], more_shots=more_source),
    )


def read_both(
    model: LanguageModel, prompts: PromptBatch, reweighting: Reweight, **options: Any
) -> list[Float[Tensor, "batch label"]]:
    """Label logits of the plain and of the re-weighted model, both along the same path.

    Behind long shared demonstrations two passes over the queries cost less than one over whole
    prompts with a single token for each condition.
    """
    readings = [PredictionReading()]
    variants: list[list[Intervention]] = [[], [reweighting]]
    whole = float(prompts.lengths.double().mean())
    rest = whole - common_prefix(prompts)
    if can_share(model, prompts, [reweighting], True) and len(variants) * rest < whole:
        values = [run(model, prompts, readings, v, title="prompts", **options) for v in variants]
    else:
        values = run_variants(model, prompts, readings, variants, **options)
    return [label_logits for ((label_logits, *_),) in values]


def check_options(
    lr: float,
    epochs: int,
    batch_size: int,
    validation: PromptBatch | None,
    patience: int | None,
) -> None:
    """Refuse options out of range.

    Raises:
        RunError: names the option.
    """
    if not (math.isfinite(lr) and lr > 0):
        raise RunError(f"lr={lr}; the learning rate must be above 0 (the paper uses 0.01).")
    for name, value in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        if value is not None and value < 1:
            raise RunError(f"{name}={value}; it must be at least 1.")
    if patience is not None and validation is None:
        raise RunError(
            f"patience={patience} stops by the loss on held-out prompts; give them as validation=."
        )
