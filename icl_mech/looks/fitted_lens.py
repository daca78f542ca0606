"""Figure of a fitted lens: held-out KL by layer, compared with the logit lens."""

from icl_mech.errors import ResultError
from icl_mech.looks.lenses import AFTER, NAMES
from icl_mech.measurements.lens.fitted import FittedLens
from icl_mech.results.wording import counted
from icl_mech.shapes import LayerCurves


def drawing(result: FittedLens) -> LayerCurves:
    """Held-out KL of both lenses by layer.

    Raises:
        ResultError: nothing was held out.
    """
    if result.held_out_kl is None:
        raise ResultError(
            "No prompts were held out when this lens was fitted, so there is nothing to draw; evaluate "
            "it with compare_lenses."
        )
    return result.sel("kl").curves(
        "Divergence of each layer's readout from the model's output",
        (NAMES[result.kind], NAMES["logit"]),
        x_title=AFTER,
        note=f"{counted(len(result.held_out_kl), 'held-out prompt')}, 95 % intervals over prompts",
        meanings=("label", "reference"),
    )
