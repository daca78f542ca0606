"""Figures of re-weighting: accuracies as dots, factors by layer and head, training curves."""

import math

import torch

from icl_mech.errors import ResultError, near_matches
from icl_mech.measurements.reweighting.evaluate_reweighting import Condition, ReweightingResult
from icl_mech.results import basis
from icl_mech.results.wording import said, told
from icl_mech.shapes import Bars, Grid, LayerCurves, Meaning

CONDITIONS: dict[Condition, str] = {
    "plain": "plain ICL",
    "reweighted": "re-weighted",
    "more_shots": "plain ICL, more shots",
}


def drawing(
    result: ReweightingResult, show: str = "accuracy", *, label: str | None = None
) -> Bars | Grid | LayerCurves:
    """Accuracies, the factors by layer and head, or the training curve.

    Args:
        result: The result to draw.
        show: `accuracy`, `beta` or `training`.
        label: Class whose factors are shown (default: their mean over classes).

    Raises:
        ResultError: the class is unknown, or the factors were not trained.
    """
    if show == "beta":
        return _factors(result, label)
    if show == "training":
        return _training(result)
    groups = [
        f"{CONDITIONS[name]} ({count} demonstrations)" for name, count in result.shots.items()
    ]
    seen, chance = result.seen_in_training, 1 / len(result.labels)
    return result.sel("accuracy").dots(
        "Anchor re-weighting",
        groups,
        ["accuracy"],
        y_title="accuracy",
        note=f"re-weighted − plain: {said(result.difference(), sign=True)}; {basis(result)}"
        + (f"; {seen} of them seen in training" if seen else ""),
        meanings=("label",),
        levels=((chance, f"chance {told(chance)}"),),
    )


def _factors(result: ReweightingResult, label: str | None) -> Grid:
    """Learned factors of one class, or their mean over classes; layers are columns, heads are rows."""
    beta, labels = result.beta, result.labels
    if label is not None and label not in labels:
        raise ResultError(f"Unknown label {label!r}. {near_matches(label, labels)}")
    whose = "mean over classes" if label is None else f"class {label}"
    return Grid(
        title="Learned factors of attention to label words",
        values=(beta.mean(-1) if label is None else beta[..., labels.index(label)]).T,
        row_title="head",
        column_title="layer",
        quantity="β",
        note=f"{whose}; attention is multiplied by exp β",
        signed=True,
    )


def _training(result: ReweightingResult) -> LayerCurves:
    """Loss of each step, its mean over each epoch, and the held-out loss after each epoch."""
    losses, held_out = result.losses, result.held_out_losses
    if losses is None:
        raise ResultError("These factors were given, not learned; there is no training to show.")
    per_epoch = losses.reshape(result.epochs, -1)
    steps = per_epoch.shape[1]
    curves = {"each step": losses, "mean of the epoch": per_epoch.mean(1).repeat_interleave(steps)}
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
        note=f"{result.epochs} epochs of {steps} steps",
        x=tuple(float(step) for step in range(1, len(losses) + 1)),
        x_title="step",
        levels=((result.uniform_loss, "uniform guess"),),
        meanings=meanings[: len(curves)],
    )
