"""Figure of attention knockout: a panel per kind of edge, changes by window compared with random edges."""

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.isolation.edge_cuts import EdgeCutsResult
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves, Meaning, Panel


def drawing(result: EdgeCutsResult) -> LayerCurves:
    """Changes of the correct answer's log-probability by window, with the cut and with random edges.

    Changes of the logit difference if log-probabilities were not kept.

    Args:
        result: The result to draw.
    """
    quantity = "change" if result.losses is None else "log_prob_change"
    cut, random = result.sel(quantity), result.sel(f"random_{quantity}")
    curves = [
        (samples, number, name)
        for number, edges in enumerate(result.edges)
        for samples, name in ((cut, "these edges"), (random, "random edges"))
        if samples is cut or result.has_control(edges)
    ]

    def laid(end: str) -> Float[Tensor, "curve window"]:
        return torch.stack(
            [getattr(samples, end)[number] for samples, number, _ in curves]
        ).double()

    def panel(number: int, edges: str) -> Panel:
        places = tuple(place for place, (_, of, _) in enumerate(curves) if of == number)
        title = result.sentences.say("edges", result=result, edges=edges).capitalize()
        return Panel(title, places, levels=((0.0, "no change"),))

    meanings: tuple[Meaning, ...] = ("label",)
    first, last = result.layers[0]
    x, x_title = (
        ([start for start, _ in result.layers], f"first of {last - first + 1} cut layers")
        if result.slides
        else ([*range(1, len(result.windows) + 1)], "cut layers")
    )
    return LayerCurves(
        title="Effect of attention knockout",
        names=tuple(name for *_, name in curves),
        values=laid("values"),
        low=laid("low"),
        high=laid("high"),
        y_title=cut.unit,
        note=basis(result),
        x=tuple(map(float, x)),
        x_title=x_title,
        x_names=() if result.slides else result.windows,
        meanings=meanings * len(curves),
        panels=tuple(panel(*numbered) for numbered in enumerate(result.edges)),
        nulls=tuple(i for i, (samples, *_) in enumerate(curves) if samples is random),
    )
