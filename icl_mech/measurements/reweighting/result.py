"""What judging re-weighting gives: accuracies, their paired difference, factors, training, and what they say."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError, near_matches
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import OPENINGS, Status, judged
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, percent, said, told
from icl_mech.shapes import Bars, Grid, LayerCurves, Meaning

if TYPE_CHECKING:
    import pandas as pd

Condition = Literal["plain", "reweighted", "more_shots"]
NAMES: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.1"

DEFINITIONS = (
    Definition(
        "re-weighting",
        r"\hat{A}_{l,h}[q, p_c] = \exp(\beta_{l,h,c}) \, A_{l,h}[q, p_c]",
        "Attention A of the target q to the label word p of class c is multiplied by a factor for "
        "each layer l, head h and class c, after the softmax and without normalising again. β = 0 is "
        "the plain model.",
        SOURCE,
    ),
    Definition(
        "training",
        r"\beta^* = \arg\min_\beta \; -\sum_n \log P(y_n \mid x_n, \beta)",
        "Cross-entropy of the true class y over the label words on extra prompts x; the model is "
        "frozen, Adam starts at β = 0.",
        SOURCE,
    ),
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

    def coordinates(self) -> dict[str, tuple[Condition, ...]]:
        """Names of the conditions."""
        return {"condition": self.conditions}

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
            return self._training_curve()
        return accuracy_dots(
            {
                f"{NAMES[name]} ({count} demonstrations)": self.accuracy(name)
                for name, count in zip(self.conditions, self.demonstrations, strict=True)
            },
            f"re-weighted − plain: {said(self.difference(), sign=True)}; {basis(self)}{self._seen()}",
            1 / len(self.labels),
        )

    def _training_curve(self) -> LayerCurves:
        if self.losses is None:
            raise ResultError(
                "These factors were given, not learned; there is no training to show."
            )
        epochs = int(self.training.get("epochs_run", 1))
        return training_curve(self.losses, self.held_out_losses, epochs, len(self.labels))

    def figures(self) -> list[Figure]:
        """The accuracies, the factors and, if they were learned here, their training."""
        return figures(self)

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

    def to_pandas(self) -> "pd.DataFrame":
        """One row per condition: condition, accuracy, low, high."""
        return super().to_pandas().rename(columns={"value": "accuracy"})


def accuracy_dots(accuracies: Mapping[str, Interval], note: str, chance: float) -> Bars:
    """One dot per condition."""
    ends = torch.tensor([list(interval) for interval in accuracies.values()])
    values, low, high = ends.T[..., None]
    return Bars(
        title="Anchor re-weighting",
        groups=tuple(accuracies),
        names=("accuracy",),
        values=values,
        low=low,
        high=high,
        y_title="accuracy",
        note=note,
        meanings=("label",),
        levels=((chance, f"chance {told(chance)}"),),
    )


def factor_grid(
    beta: Float[Tensor, "layer head label"], labels: tuple[str, ...], label: str | None
) -> Grid:
    """Learned factors of one class, or their mean over classes; layers across, heads down.

    Raises:
        ResultError: unknown class.
    """
    if label is not None and label not in labels:
        raise ResultError(f"Unknown label {label!r}. {near_matches(label, labels)}")
    return Grid(
        title="Learned factors of attention to label words",
        values=(beta.mean(-1) if label is None else beta[..., labels.index(label)]).T,
        row_title="head",
        column_title="layer",
        quantity="β",
        note=("mean over classes" if label is None else f"class {label}")
        + "; attention is multiplied by exp β",
        signed=True,
    )


def training_curve(
    losses: Float[Tensor, " step"],
    held_out: Float[Tensor, " epoch"] | None,
    epochs: int,
    n_labels: int,
) -> LayerCurves:
    """Loss of each step, its mean over each epoch, and the held-out loss behind each epoch."""
    per_epoch = losses.reshape(epochs, -1)
    steps = per_epoch.shape[1]
    curves = {
        "each step": losses,
        "mean of the epoch": per_epoch.mean(1).repeat_interleave(steps),
    }
    if held_out is not None:
        points = torch.full((len(losses),), math.nan)
        points[steps - 1 :: steps] = held_out[1:]
        curves["held out, after the epoch"] = points
    values = torch.stack(list(curves.values()))
    meanings: tuple[Meaning, ...] = ("other", "label", "target")
    return LayerCurves(
        title="Training of the factors",
        names=tuple(curves),
        values=values,
        low=values,
        high=values,
        y_title="cross-entropy over label words (nats)",
        note=f"{epochs} epochs of {steps} steps",
        x=tuple(float(step) for step in range(1, len(losses) + 1)),
        x_title="step",
        levels=((math.log(n_labels), "uniform guess"),),
        meanings=meanings[: len(curves)],
    )


def figures(result: ReweightingResult) -> list[Figure]:
    """The accuracies, the factors and, if they were learned here, their training."""
    found = [_accuracy(result), _factors(result)]
    if result.losses is not None:
        found.append(_training(result))
    return found


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
        why = (
            f"{result.seen_in_training} of the {counted(len(result.answers), 'prompt')} were also learned from"
            if result.seen_in_training
            else "too few prompts"
        )
        return f"{OPENINGS[own]}, {why}: {effect}."
    than = "" if own in ("supported", "opposite") else "; the interval includes or touches 0"
    return f"{OPENINGS[own]}. Re-weighted, {effect}{than}."


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


def _factors(result: ReweightingResult) -> Figure:
    beta = result.beta.double()
    low, high = float(beta.min()), float(beta.max())
    if low == high == 0:
        text = "All factors are 1 (β = 0): this is the plain model."
    else:
        place = int(beta.abs().mean(-1).argmax())
        layer, head = divmod(place, beta.shape[1])
        raised = float((beta > 0).double().mean())
        text = (
            f"β lies between {told(low, sign=True)} and {told(high, sign=True)}, and {percent(raised)} of the "
            f"factors raise attention to label words; head {layer}.{head} is changed most (mean over "
            f"classes {told(float(beta[layer, head].mean()), sign=True)})."
        )
    return Figure(
        "beta",
        "Which heads get other factors?",
        text,
        "**Logarithm β of the factors by layer and head**, mean over classes: attention from the target to "
        "label words is multiplied by exp β.",
        limits="which heads matter: small steps from 0 spread over all factors, and no interval is known "
        "from one training.",
        short="Learned factors",
    )


def _training(result: ReweightingResult) -> Figure:
    losses = torch.as_tensor(result.losses, dtype=torch.float64)
    epochs = int(result.training.get("epochs_run", 1))
    means = losses.reshape(epochs, -1).mean(1)
    uniform = math.log(len(result.labels))
    text = f"The mean loss falls from {told(float(means[0]))} in the first epoch to {told(float(means[-1]))} in the last"
    if means[-1] >= means[0]:
        text = f"The mean loss does not fall: {told(float(means[0]))} in the first epoch, {told(float(means[-1]))} in the last"
    held = "; no prompts were held out"
    if result.held_out_losses is not None and len(result.held_out_losses):
        ends = result.held_out_losses[0], result.held_out_losses[-1]
        held = f"; on held-out prompts {told(float(ends[0]))} at the start and {told(float(ends[1]))} at the end"
    return Figure(
        "training",
        "How did the training go?",
        f"{text} (a uniform guess: {told(uniform)}){held}.",
        "**Cross-entropy of the true class over the label words at each step**, its mean over each epoch"
        + (" and that of held-out prompts." if result.held_out_losses is not None else "."),
        limits="how the factors do on other prompts; that is their accuracy above.",
        short="Training",
    )
