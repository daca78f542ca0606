"""Evaluation of re-weighting: plain against re-weighted in-context learning on the same test prompts.

Accuracy is the fraction of prompts whose largest label logit is that of the true class. Both
conditions take one path through the model, so with all factors 1 they are equal bit by bit.
`icl_mech.measurements.reweighting.reweighting` describes how factors are learned.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1, table 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import FittedReweight, Reweight
from icl_mech.measurements.base import Measurement, Pass, Variants
from icl_mech.measurements.demonstrations import check_same_queries
from icl_mech.measurements.doors import door
from icl_mech.measurements.heads.chosen import head_name
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.reweighting.training import (
    REWEIGHTING,
    SOURCE,
    TRAINING,
    check_learnable,
    count_seen,
    warn_seen,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged

Condition = Literal["plain", "reweighted", "more_shots"]

DEFINITIONS = (
    REWEIGHTING,
    TRAINING,
    Definition(
        "accuracy",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = y_n\right]",
        "Fraction of the N test prompts, none of which was trained on, whose predicted class ŷ is "
        "the true class y.",
        SOURCE,
    ),
)


class MostChanged(NamedTuple):
    """A head and its factors.

    Attributes:
        head: Its name.
        beta: Mean logarithm of its factors over classes.
    """

    head: str
    beta: float


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
        seen_in_training: Number of test prompts that the factors were learned from.
    """

    shows: ClassVar[tuple[str, ...]] = ("accuracy", "beta", "training")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"condition": "conditions"}

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

    def quantities(self) -> dict[str, Quantity]:
        """Correctness of each prediction, under each condition."""
        return {"accuracy": Quantity(("condition",), self.correct.T)}

    @checked(ResultError)
    def accuracy(self, condition: Condition) -> Interval:
        """Accuracy under one condition, with Wilson interval.

        Raises:
            ResultError: unknown condition.
        """
        return self.interval("accuracy", condition=condition)

    @checked(ResultError)
    def difference(
        self, condition: Condition = "reweighted", reference: Condition = "plain"
    ) -> Interval:
        """Accuracy under one condition minus another, paired score interval over prompts.

        Raises:
            ResultError: unknown condition.
        """
        left, right = (
            self.sel("accuracy", condition=name).quantities()["accuracy"].per_prompt
            for name in (condition, reference)
        )
        return mean_interval(left.double() - right.double(), "change")

    @property
    def count(self) -> int:
        """Number of test prompts."""
        return len(self.answers)

    @property
    def shots(self) -> dict[Condition, int]:
        """Number of demonstrations under each condition."""
        return dict(zip(self.conditions, self.demonstrations, strict=True))

    @property
    def compared(self) -> bool:
        """True if plain and re-weighted were both run."""
        return {"plain", "reweighted"} <= set(self.conditions)

    @property
    def training(self) -> dict[str, Any]:
        """Settings of the training, as far as known."""
        # Files of earlier versions name the factors among the interventions.
        origins = [self.provenance, *self.provenance.get("interventions", ())]
        return next((origin["training"] for origin in origins if "training" in origin), {})

    @property
    def learned_from(self) -> int | None:
        """Number of prompts the factors were learned from, if it is known."""
        seen = self.training.get("seen")
        if seen:
            return len(seen)
        whole = self.provenance.get("prompts", {}).get("count")
        return whole - len(self.answers) if whole and "tested_on" in self.provenance else None

    @property
    def status(self) -> Status:
        """Status of the claim that re-weighting improves accuracy; not tested on prompts it was learned from."""
        if self.seen_in_training or not self.compared:
            return "cannot be judged"
        return judged(self.difference(), prompts=self.count)

    # --- the factors and their training ---

    @property
    def beta_range(self) -> tuple[float, float]:
        """The smallest and the largest β."""
        low, high = self.beta.aminmax()
        return float(low), float(high)

    @property
    def raised(self) -> float:
        """Fraction of the factors that raise attention."""
        return float((self.beta > 0).double().mean())

    @property
    def most_changed(self) -> MostChanged:
        """The head whose factors differ most from 1."""
        beta = self.beta.double()
        layer, head = divmod(int(beta.abs().mean(-1).argmax()), beta.shape[1])
        return MostChanged(head_name((layer, head)), float(beta[layer, head].mean()))

    @property
    def epochs(self) -> int:
        """Number of epochs that were run."""
        return int(self.training.get("epochs_run", 1))

    @property
    def epoch_losses(self) -> tuple[float, ...]:
        """Mean training loss of each epoch; empty if the factors were given."""
        if self.losses is None:
            return ()
        return tuple(self.losses.double().reshape(self.epochs, -1).mean(1).tolist())

    @property
    def held_out(self) -> tuple[float, ...]:
        """Mean loss on held-out prompts at the start and after each epoch; empty if none were held out."""
        return () if self.held_out_losses is None else tuple(self.held_out_losses.tolist())

    @property
    def uniform_loss(self) -> float:
        """Loss of a uniform guess."""
        return math.log(len(self.labels))

    def on_page(self) -> tuple[str, ...]:
        """Accuracies, factors and, if they were learned here, their training."""
        return self.shows if self.losses is not None else self.shows[:2]


@dataclass(frozen=True)
class EvaluateReweighting(Measurement[ReweightingResult]):
    """Plain against re-weighted in-context learning on the same test prompts.

    Shared computation is done once: the shared demonstrations, or everything before
    the targets. Warns if the factors were learned from some of these prompts.

    Attributes:
        reweighting: The factors, learned (`fit_reweighting`) or given.
        more_shots: The same queries with more demonstrations, run plain for comparison.

    Raises:
        PromptError: prompts without answers, or `more_shots` with other queries.
        RunError: factors of another model's size or number of classes.

    Source: Wang et al. 2023, §3.1, table 1.
    """

    reweighting: Reweight
    more_shots: PromptBatch | None = None

    why_not = "its factors belong to classes"

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts or factors that do not fit; warn of prompts the factors were learned from.

        Raises:
            PromptError: prompts without answers or demonstrations, or `more_shots` with other
                queries.
            RunError: factors of another model's size or number of classes.
        """
        check_learnable(data, "test")
        if self.more_shots is not None:
            check_same_queries(self.more_shots, data)
        self.reweighting.check(model.info)
        if self.reweighting.beta.shape[2] != data.n_labels:
            raise RunError(
                f"beta is for {self.reweighting.beta.shape[2]} classes, but the prompts have "
                f"{data.n_labels}."
            )
        warn_seen(self.reweighting, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Both conditions over the test prompts, and the plain model over the prompts with more shots."""
        readings = [PredictionReading()]
        passes: list[Pass] = [Variants(data, readings, variants=[[], [self.reweighting]])]
        if self.more_shots is not None:
            passes.append(Pass(self.more_shots, readings, title="more shots"))
        return passes

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ReweightingResult:
        """The label logits of every condition, and the training record of the factors."""
        conditions, *more = read
        factors = self.reweighting
        fitted = factors if isinstance(factors, FittedReweight) else None
        batches = [data, data, *([] if self.more_shots is None else [self.more_shots])]
        names: tuple[Condition, ...] = ("plain", "reweighted", "more_shots")
        origin = {} if fitted is None else {"training": fitted.training}
        if self.more_shots is not None:
            origin["more_shots"] = prompt_source(self.more_shots)
        return ReweightingResult(
            label_logits=torch.stack(
                [label_logits for ((label_logits, *_),) in (*conditions, *more)]
            ),
            answers=data.answers,
            beta=factors.beta,
            losses=None if fitted is None else fitted.losses,
            held_out_losses=None if fitted is None else fitted.held_out_losses,
            conditions=names[: len(batches)],
            demonstrations=tuple(batch.n_demos for batch in batches),
            labels=data.labels,
            seen_in_training=count_seen(factors, data),
            provenance=origin,
        )


evaluate_reweighting = door(
    EvaluateReweighting,
    "evaluate_reweighting",
    first=("reweighting",),
    prompts="Test prompts with answers.",
)
