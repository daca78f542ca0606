"""Figures of the gain: dots for both baselines in nats and in accuracy, or the accuracy of each context."""

import torch

from icl_mech.measurements.accuracy.gain import GainResult
from icl_mech.results import basis
from icl_mech.results.prompts import answer_kind
from icl_mech.results.wording import told
from icl_mech.shapes import Bars

CONTEXTS = {
    "demonstrations": "with demonstrations",
    "zero_shot": "zero-shot",
    "shuffled": "with shuffled labels",
}
OVER = {"zero_shot": "over zero-shot", "shuffled": "over shuffled labels"}


def drawing(result: GainResult, show: str = "gain") -> Bars:
    """Gains over both baselines in nats and in accuracy, or the accuracy of each context.

    Args:
        result: The result to draw.
        show: `gain` or `accuracy`.
    """
    if show == "accuracy":
        chance, classes = 1 / max(1, len(result.labels)), answer_kind(result) != "vocabulary"
        return result.sel("accuracy").dots(
            "Right answers with and without demonstrations",
            [CONTEXTS[context] for context in result.contexts],
            ["accuracy"],
            note=basis(result, quantity="accuracy"),
            meanings=("label",),
            levels=((chance, f"chance {told(chance)}"),) if classes and result.labels else (),
        )
    both = [result.sel(quantity) for quantity in ("gain", "accuracy_gain")]
    value, low, high = (
        torch.stack([getattr(samples, end) for samples in both], dim=1).double()
        for end in ("values", "low", "high")
    )
    return Bars(
        "What demonstrations add",
        tuple(OVER[baseline] for baseline in result.baselines),
        ("log-probability", "accuracy"),
        *(value, low, high),
        y_title="with demonstrations minus without, or minus shuffled labels",
        note=basis(result),
        meanings=("label", "target"),
        levels=((0.0, "adds nothing"),),
        apart=("log-probability of the right answer (nats)", "fraction of right answers"),
    )
