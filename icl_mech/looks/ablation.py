"""Figure of ablations: a dot for each condition and side, with the draws of random heads."""

import torch

from icl_mech.measurements.heads.ablation import AblationResult
from icl_mech.measurements.heads.conditions import NONE, RANDOM
from icl_mech.results import basis
from icl_mech.results.wording import told
from icl_mech.shapes import Bars


def drawing(result: AblationResult, show: str = "change") -> Bars:
    """Dots with the change under every condition on both sides, or the accuracy.

    Args:
        result: The result to draw.
        show: `change` or `accuracy`.
    """
    change, note, spread = show == "change", basis(result), []
    names = result.names[int(change) :]
    if RANDOM in names:
        plain = result.scores[0] if change else torch.zeros_like(result.scores[0])
        draws = (result.scores[result.places(RANDOM)] - plain).double().mean(-1)
        line = names.index(RANDOM)
        spread = [(line, side, tuple(draws[:, side].tolist())) for side in range(2)]
        note += f"; {RANDOM}: mean of {len(draws)} draws"
    levels = {"the gap": result.gap.value if result.has_gap else None} if change else _known(result)
    return result.sel(show, condition=list(names)).dots(
        "Ablations at the target",
        ["unablated" if name == NONE else name for name in names],
        ("true demonstrations", "false demonstrations"),
        note=note,
        meanings=("true", "false"),
        sides=("hurts", "helps") if change else (),
        spread=tuple(spread),
        levels=tuple((level, f"{name} {told(level)}") for name, level in levels.items() if level),
    )


def _known(result: AblationResult) -> dict[str, float | None]:
    """Accuracy of chance and the highest reachable accuracy, where they are defined."""
    if not result.n_labels:
        return {}
    most = None if result.own_choices else result.reachable
    return {"chance": 1 / result.n_labels, "highest reachable": most}
