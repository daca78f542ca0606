"""Figure of the saliency check: a scatter plot of layers for each group of edges."""

from icl_mech.measurements.causal.saliency_check import GROUPS, SaliencyCheckResult
from icl_mech.shapes import Scatter

EDGES = {"wp": "texts to label words", "pq": "label words to target"}


def drawing(result: SaliencyCheckResult) -> Scatter:
    """A scatter plot of layers: saliency against the absolute change of the loss.

    Args:
        result: The result to draw.
    """
    layers = result.saliency.shape[2]
    return Scatter(
        title="Saliency and effect of attention knockout",
        x=result.saliency.double().mean(0).flatten(),
        y=result.change.double().abs().mean(0).flatten(),
        names=tuple(f"layer {layer}" for _ in GROUPS for layer in range(layers)),
        groups=tuple(EDGES[group] for group in GROUPS for _ in range(layers)),
        x_title="saliency, summed over edges",
        y_title="absolute change of the loss, in nats",
        note=f"means over {result.count} prompts",
        order=tuple(EDGES.values()),
        meanings=("text", "label"),
    )
