"""Figure of the isolation map: bars over the isolated layers, one row of axes for each width."""

import torch

from icl_mech.looks.constant_answers import constants
from icl_mech.looks.isolation import SHOWN, TITLES
from icl_mech.measurements.isolation.agreement import LOYALTIES
from icl_mech.measurements.isolation.isolation_map import IsolationMapResult
from icl_mech.results import basis
from icl_mech.results.figures import ABOUT
from icl_mech.results.prompts import answer_kind
from icl_mech.shapes import Windows


def drawing(result: IsolationMapResult, show: str = "loyalty") -> Windows:
    """Loyalty of every window: bars over its layers, one row of axes for each width.

    Args:
        result: The result to draw.
        show: `loyalty` (both), `label_loyalty` or `word_loyalty`.
    """
    names = [loyalty for loyalty in LOYALTIES if show in ("loyalty", loyalty)]
    rows, columns = (list(side) for side in zip(*result.cells, strict=True))
    by_loyalty = [result.sel(name) for name in names]
    value, low, high = (
        torch.stack([end[rows, columns].double() for end in ends])
        for ends in zip(
            *((samples.values, samples.low, samples.high) for samples in by_loyalty), strict=True
        )
    )
    first, last = zip(*map(result.layers, result.cells), strict=True)
    isolated = None if result.isolated is None else result.isolated[rows, columns, 0]
    levels = tuple(constants(result.predicted, isolated, result.labels, answer_kind(result)))
    return Windows(
        title=f"Loyalty with {SHOWN[result.tokens]} isolated in some layers",
        first=first,
        last=last,
        names=tuple(TITLES[name].lower() for name in names),
        values=value,
        low=low,
        high=high,
        n_layers=result.depth,
        x_title=f"layers in which the {SHOWN[result.tokens]} are isolated",
        note=basis(result),
        meanings=(ABOUT[result.tokens],) * len(names),
        levels=tuple(levels if name == "label_loyalty" else () for name in names),
        y_range=(-0.06, 1.1),
    )
