"""The figures of re-weighting, from its numbers."""

import math
from collections.abc import Mapping

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ResultError, near_matches
from icl_mech.metrics import Interval
from icl_mech.results.wording import told
from icl_mech.shapes import Bars, Grid, LayerCurves, Meaning


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
