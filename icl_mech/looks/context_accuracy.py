"""Figure of accuracy by number of demonstrations: curves of both sides, with the permuted score on separate axes."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Tensor
from icl_mech.looks.layer_accuracy import ENDS
from icl_mech.measurements.accuracy.context_accuracy import ContextAccuracyResult
from icl_mech.measurements.accuracy.scores import METRIC_NAMES
from icl_mech.results import basis
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, Meaning, Panel


def drawing(result: ContextAccuracyResult, entry: int = -1) -> LayerCurves:
    """Both accuracies, and the permuted score on separate axes where it is defined.

    Args:
        result: The result to draw.
        entry: Entry of the lens; counted from the end if negative.
    """
    layer = entry + result.scores.shape[-1] if entry < 0 else entry
    chance, best = 1 / result.n_labels, result.reachable
    level = (chance, f"chance {told(chance)}")
    accuracy = result.sel("calibrated", layer=layer)
    ends = accuracy.values, accuracy.low, accuracy.high
    zero = float(accuracy.values[0, 0])
    levels = [level, (zero, f"without demonstrations {told(zero)}")]
    drawn: list[tuple[str, Meaning, Sequence[Tensor]]] = [
        ("true demonstrations", "true", [end[0] for end in ends]),
        ("false demonstrations", "false", [end[1] for end in ends]),
    ]
    if float(best.max() - best.min()) < 1e-9:
        levels.append((float(best[0]), f"highest reachable {told(float(best[0]))}"))
    else:
        nothing = torch.full_like(best, torch.nan)
        drawn.append(("highest reachable", "reference", (best, nothing, nothing)))
    unit = METRIC_NAMES["calibrated"]
    places = tuple(range(len(drawn)))
    panels = [Panel("Calibrated accuracy", places, unit, tuple(levels), y_range=ENDS)]
    if result.tells_followed:
        score = result.sel("permuted", side="false", layer=layer)
        about = (len(drawn),), score.unit, (level,)
        panels.append(Panel("False label answered", *about, y_range=ENDS))
        drawn.append(("false label", "false", (score.values, score.low, score.high)))
    names, meanings, rows = zip(*drawn, strict=True)
    values, low, high = map(torch.stack, zip(*rows, strict=True))
    return LayerCurves(
        "Accuracy by number of demonstrations",
        names,
        *(values, low, high),
        y_title=unit,
        x_title="demonstrations seen",
        note=basis(result, f"{counted(result.pairs, 'pair')} of prompts"),
        meanings=meanings,
        panels=tuple(panels),
        columns=1,
    )
