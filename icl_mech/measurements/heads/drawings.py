"""Scores of all heads against each other, and what is left without some of them."""

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.heads.definitions import NONE, RANDOM
from icl_mech.measurements.heads.texts import head_name
from icl_mech.results import Quantity
from icl_mech.results.wording import counted, spelled
from icl_mech.shapes import Bars, Scatter


def against_promoting(
    matching: Float[Tensor, "layer head"],
    promoting: Float[Tensor, "layer head"],
    chosen: tuple[tuple[int, int], ...],
    prompts: int,
) -> Scatter:
    """Prefix matching against label promoting; chosen heads and the extremes carry their names.

    Args:
        matching: Means over prompts.
        promoting: Means over prompts.
        chosen: (layer, head) pairs.
        prompts: Number of prompts.
    """
    n_layers, n_heads = matching.shape
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    pushed = promoting.flatten()
    named = [heads.index(head) for head in chosen]
    group, others = f"{spelled(len(chosen))} heads that match prefixes most", "other heads"
    return Scatter(
        title="Do heads that match prefixes promote the false label?",
        x=matching.flatten(),
        y=pushed,
        names=tuple(map(head_name, heads)),
        groups=tuple(group if head in chosen else others for head in heads),
        x_title="prefix-matching score",
        y_title="logit of false label above true label",
        note=f"means over {counted(prompts, 'prompt')}",
        order=(group, others) if len(chosen) < len(heads) else (group,),
        meanings=("false", "other"),
        named=tuple(dict.fromkeys((*named, int(pushed.argmax()), int(pushed.argmin())))),
        corner="false induction heads would stand here",
    )


def under_conditions(
    found: Quantity,
    names: tuple[str, ...],
    draws: Float[Tensor, "draw side"] | None,
    levels: tuple[tuple[float, str], ...],
    note: str,
    *,
    change: bool,
) -> Bars:
    """A number on both sides under every condition, as dots; single draws of heads behind theirs.

    Args:
        found: By condition and side, the unablated model first.
        names: Of the conditions.
        draws: Of random heads, the same number under each; None if none were drawn.
        levels: Lines of reference.
        note: Below the figure.
        change: It is a difference to the unablated model, which is then left out.
    """
    first = int(change)
    value, (low, high) = found.value(), found.ends()
    spread = []
    if draws is not None:
        line = names.index(RANDOM) - first
        spread = [(line, side, tuple(draws[:, side].tolist())) for side in range(2)]
        note += f"; {RANDOM}: mean of {len(draws)} draws"
    return Bars(
        title="Ablations at the target",
        groups=tuple("unablated" if name == NONE else name for name in names[first:]),
        names=("true demonstrations", "false demonstrations"),
        values=value[first:],
        low=low[first:],
        high=high[first:],
        y_title=found.unit,
        note=note,
        meanings=("true", "false"),
        sides=("hurts", "helps") if change else (),
        spread=tuple(spread),
        levels=levels,
    )
