"""Re-weighting judged: plain against re-weighted in-context learning on the same test prompts.

Accuracy is the share of prompts whose largest label logit is that of the true class. Both
conditions take one path through the model, so with all factors 1 they are equal to the last bit.
How factors are learned: `icl_mech.measurements.reweighting.reweighting`.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.1, table 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import FittedReweight, Reweight
from icl_mech.measurements.base import Measurement, Pass, Variants
from icl_mech.measurements.demonstrations import check_same_queries
from icl_mech.measurements.doors import door
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.reweighting.training import (
    REWEIGHTING,
    SOURCE,
    TRAINING,
    check_learnable,
    count_seen,
    factor_figure,
    factor_grid,
    training_curve,
    training_figure,
    warn_seen,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import OPENINGS, Status, judged, opening
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import Bars, Grid, LayerCurves

Condition = Literal["plain", "reweighted", "more_shots"]
NAMES: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


DEFINITIONS = (
    REWEIGHTING,
    TRAINING,
    Definition(
        "accuracy",
        r"\frac{1}{N} \sum_{n=1}^{N} \mathbb{1}\left[\hat{y}_n = y_n\right]",
        "Share of the N test prompts, none of them trained on, whose predicted class ŷ is the true y.",
        SOURCE,
    ),
)


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
        """Whether each prediction is right, under each condition."""
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
        one, other = (
            self.sel("accuracy", condition=name).quantities()["accuracy"].per_prompt
            for name in (condition, reference)
        )
        return mean_interval(one.double() - other.double(), "change")

    @property
    def training(self) -> dict[str, Any]:
        """How the factors were learned, as far as it is known."""
        # Files of before name the factors among the interventions.
        origins = [self.provenance, *self.provenance.get("interventions", ())]
        return next((own["training"] for own in origins if "training" in own), {})

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
        """Of the claim that re-weighting helps; not judged on prompts it was learned from."""
        if self.seen_in_training or not {"plain", "reweighted"} <= set(self.conditions):
            return "cannot be judged"
        return judged(self.difference(), prompts=len(self.answers))

    def drawing(
        self, show: str = "accuracy", *, label: str | None = None
    ) -> Bars | Grid | LayerCurves:
        """Accuracies, the factors by layer and head, or the training curve.

        Args:
            show: `accuracy`, `beta` or `training`.
            label: Class whose factors are shown (default: their mean over classes).

        Raises:
            ResultError: unknown choice, or no training to show.
        """
        self.check_show(show)
        if show == "beta":
            return factor_grid(self.beta, self.labels, label)
        if show == "training":
            if self.losses is None:
                raise ResultError(
                    "These factors were given, not learned; there is no training to show."
                )
            return training_curve(self.losses, *self._course)
        groups = [
            f"{NAMES[name]} ({count} demonstrations)"
            for name, count in zip(self.conditions, self.demonstrations, strict=True)
        ]
        gain, chance = said(self.difference(), sign=True), 1 / len(self.labels)
        return self.sel("accuracy").dots(
            "Anchor re-weighting",
            groups,
            ["accuracy"],
            y_title="accuracy",
            note=f"re-weighted − plain: {gain}; {basis(self)}{self._seen()}",
            meanings=("label",),
            levels=((chance, f"chance {told(chance)}"),),
        )

    @property
    def _course(self) -> tuple[Tensor | None, int, int]:
        """Held-out losses, epochs that were run, and the number of classes."""
        epochs = int(self.training.get("epochs_run", 1))
        return self.held_out_losses, epochs, len(self.labels)

    def figures(self) -> list[Figure]:
        """The accuracies, the factors and, if they were learned here, their training."""
        found = [_accuracy(self), factor_figure(self.beta)]
        if self.losses is not None:
            found.append(training_figure(self.losses, *self._course))
        return found

    def summary(self) -> str:
        """Accuracies, the paired difference and whether it can be told from 0."""
        gain = self.difference()
        verdict = "" if gain.low > 0 or gain.high < 0 else " (not clearly different from 0)"
        more = (
            f"; {self.demonstrations[2]} demonstrations {said(self.accuracy('more_shots'))}"
            if "more_shots" in self.conditions
            else ""
        )
        shared = bool(self.provenance.get("conditional_on_demonstrations"))
        given = "; intervals given the shared demonstrations" * shared
        return (
            f"re-weighted {said(self.accuracy('reweighted'))}, plain {said(self.accuracy('plain'))} on "
            f"{counted(len(self.answers), 'prompt')}: difference {said(gain, sign=True)}{verdict}{more}{self._seen()}{given}"
        )

    def _seen(self) -> str:
        count = self.seen_in_training
        return f"; {count} of them seen in training" if count else ""


def halves(result: ReweightingResult) -> str:
    """On how many prompts the factors were learned and judged."""
    judged_on = counted(len(result.answers), "prompt")
    learned = result.learned_from
    return f"learned from {learned}, judged on {judged_on}" if learned else f"judged on {judged_on}"


def answer(result: ReweightingResult) -> str:
    """The paired difference, both accuracies and the sizes of the held-out halves."""
    own, sizes = result.status, halves(result)
    if "reweighted" not in result.conditions or "plain" not in result.conditions:
        return "Cannot be judged: plain and re-weighted were not both run."
    effect = (
        f"accuracy changes by {said(result.difference(), sign=True)}, from "
        f"{said(result.accuracy('plain'))} to {said(result.accuracy('reweighted'))} ({sizes})"
    )
    if own == "cannot be judged":
        n, seen = counted(len(result.answers), "prompt"), result.seen_in_training
        why = f"{seen} of the {n} were also learned from" if seen else "too few prompts"
        return f"{OPENINGS[own]}, {why}: {effect}."
    than = "; the interval includes or touches 0" if own == "not shown" else ""
    return f"{opening(own)} re-weighted, {effect}{than}."


def _accuracy(result: ReweightingResult) -> Figure:
    n = counted(len(result.answers), "prompt")
    more = ""
    if "more_shots" in result.conditions:
        more = f" With {result.demonstrations[result.conditions.index('more_shots')]} demonstrations instead: {said(result.accuracy('more_shots'))}."
    return Figure(
        "accuracy",
        "Does re-weighting attention to label words help?",
        answer(result) + more,
        f"**Share of right answers with and without learned factors on attention to label words** "
        f"({halves(result)}). Bars: 95 % Wilson intervals over {n}{given(result)}; the difference is "
        "paired, with a score interval.",
        establishes="such factors can be learned from few prompts and hold on others."
        if result.status == "supported"
        else "",
        limits="that label words are the only place where such factors would help; no other tokens "
        "were re-weighted.",
        short="Re-weighting",
    )


@dataclass(frozen=True)
class EvaluateReweighting(Measurement[ReweightingResult]):
    """Plain against re-weighted in-context learning on the same test prompts.

    What both have in common is computed once: the shared demonstrations, or everything before
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

    why_not = "its factors are those of classes"

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse what cannot be judged; warn of prompts the factors were learned from.

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
                f"beta has {self.reweighting.beta.shape[2]} classes, the prompts have "
                f"{data.n_labels}."
            )
        warn_seen(self.reweighting, data)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """Both conditions over the test prompts, and the plain model over those of more shots."""
        readings = [PredictionReading()]
        passes: list[Pass] = [Variants(data, readings, variants=[[], [self.reweighting]])]
        if self.more_shots is not None:
            passes.append(Pass(self.more_shots, readings, title="more shots"))
        return passes

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ReweightingResult:
        """The label logits of every condition, and how the factors came about."""
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
