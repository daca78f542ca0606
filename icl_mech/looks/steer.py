"""Figure of a steering vector's effect: accuracy and logit difference by the block whose output it is put in."""

import torch

from icl_mech.measurements.causal.steer import RIGHT, SteerResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import LayerCurves, Panel


def drawing(result: SteerResult) -> LayerCurves:
    """Accuracy and logit difference by block, on separate axes."""
    right, gain = result.sel("accuracy"), result.sel("difference_change")
    plain, chance = result.interval("plain_accuracy").value, 1 / result.n_labels
    levels = ((plain, f"without the vector {told(plain)}"), (chance, f"chance {told(chance)}"))
    return LayerCurves(
        title="Right answers with the vector after a block",
        names=("accuracy", "logit difference"),
        values=torch.stack([right.values, gain.values]),
        low=torch.stack([right.low, gain.low]),
        high=torch.stack([right.high, gain.high]),
        y_title=RIGHT,
        x=tuple(map(float, result.layers)),
        x_title=f"output of block, where the vector is {result.sentences.say('put', result=result)}",
        note=basis(result),
        meanings=("target", "label"),
        panels=(
            Panel("Accuracy", (0,), RIGHT, levels),
            Panel("Change of the logit difference", (1,), "logits", ((0.0, "no change"),)),
        ),
    )
