"""Figures of the use of rationales: losses by context and path, or the accuracy of each context."""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.rationales.rationale_use import RationaleUseResult
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import Bars, Meaning

CONTEXTS = {
    "rationale": "rationale",
    "none": "no rationale",
    "other": "of another class",
    "shuffled": "sentences shuffled",
    "demonstrations": "exchanged in demonstrations",
    "cut rationale": "cut: rationale → answer",
    "cut text": "cut: text → answer",
    "cut text to rationale": "cut: text → rationale",
}


def drawing(result: RationaleUseResult, show: str = "losses") -> Bars:
    """Losses with changed rationales and with paths cut, beside random edges; or accuracies.

    Args:
        result: The result to draw.
        show: `losses` or `accuracy`.
    """
    if show == "accuracy":
        chance = 1 / max(1, len(result.labels))
        return result.sel("accuracy").dots(
            "Right answers by rationale",
            [CONTEXTS[context] for context in result.contexts],
            ["accuracy"],
            note=basis(result, quantity="accuracy"),
            meanings=("label",),
            levels=((chance, f"chance {told(chance)}"),) if result.labels else (),
        )
    lost, control = result.sel("loss"), bool(result.random.shape[-1])
    random = result.sel("random_loss") if control else None

    def laid(end: str) -> Float[Tensor, "row series"]:
        columns = [getattr(lost, end).double()]
        if random is not None:
            columns.append(torch.full_like(columns[0], torch.nan))
            columns[1][-len(result.paths) :] = getattr(random, end).double()
        return torch.stack(columns, 1)

    meanings: tuple[Meaning, ...] = ("label", "reference")
    value, low, high = map(laid, ("values", "low", "high"))
    return Bars(
        "What the answer loses without its rationale",
        tuple(CONTEXTS[change] for change in result.changes),
        ("changed or cut", "random edges")[: 1 + control],
        value,
        low,
        high,
        y_title=lost.unit,
        note=basis(result),
        meanings=meanings[: 1 + control],
        levels=((0.0, "no loss"),),
    )
