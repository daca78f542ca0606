"""Figure of the lens of heads and MLPs: a heatmap of heads, or a curve of MLPs over layers."""

from icl_mech.measurements.lens.components import ComponentLens
from icl_mech.shapes import Shape


def drawing(result: ComponentLens) -> Shape:
    """Logit of the true label minus the mean of the others, by layer and head.

    If the true classes are not known, the logits of all labels.
    """
    samples = result.sel()
    if result.answers is None:
        return samples.drawing()
    title = "Logit of the true label minus the mean of the others"
    if samples.dims == ("layer",):
        levels = ((0.0, "adds nothing"),)
        return samples.curves(title, ("MLP",), levels=levels, meanings=("label",), x=None)
    return samples.heatmap(title, quantity="logits", signed=True)
