"""Figure of alignment: fractions of answers by side and by what they follow."""

from icl_mech.measurements.alignment.alignment import FOLLOWED, SIDES, AlignmentResult
from icl_mech.results import basis
from icl_mech.results.wording import counted, told
from icl_mech.shapes import Bars

NAMES = {
    "truth": "the true label",
    "prompt": "the demonstrated label",
    "prior": "the zero-shot answer",
}


def drawing(result: AlignmentResult) -> Bars:
    """Fractions of answers by side.

    Args:
        result: The result to draw.
    """
    chance = 1 / len(result.labels)
    return result.sel("alignment").dots(
        "What the answers follow",
        [f"{side} demonstrations" for side in SIDES],
        [NAMES[name] for name in FOLLOWED],
        note=basis(result, f"{counted(result.count, 'pair')} of prompts"),
        meanings=("true", "false", "reference"),
        levels=((chance, f"chance {told(chance)}"),),
    )
