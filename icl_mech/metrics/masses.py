"""Tokens that stand out from those around them."""

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import ResultError


@checked(ResultError)
def nearby_medians(mass: Float[Tensor, " pos"], window: Count = 16) -> Float[Tensor, " pos"]:
    """Median over the tokens at most `window` positions away, the token itself left out.

    Tokens whose mass is not-a-number are left out of the medians of others.
    """
    places = torch.arange(len(mass))
    near = (places[:, None] - places).abs() <= window
    near &= places[:, None] != places
    values = mass.double().expand(len(mass), -1).masked_fill(~near, torch.nan)
    return values.nanquantile(0.5, dim=1) if len(mass) else mass.double()


@checked(ResultError)
def matched_means(
    values: Float[Tensor, " pos"],
    marked: Bool[Tensor, " pos"],
    window: Count = 16,
) -> tuple[float, float]:
    """Mean over marked tokens, and over position-matched ones.

    Matched to a marked token are all unmarked ones at most `window` positions away; their mean
    counts as one number for each marked token. Tokens whose value is not-a-number are left out on
    both sides, and so are marked tokens with none near them.

    Returns:
        Not-a-number twice if no marked token has others near it.
    """
    known = values.isfinite()
    others = known & ~marked
    own, matched = [], []
    for place in (marked & known).nonzero()[:, 0].tolist():
        near = slice(max(0, place - window), place + window + 1)
        if bool(others[near].any()):
            own.append(float(values[place]))
            matched.append(float(values[near][others[near]].double().mean()))
    if not own:
        return float("nan"), float("nan")
    return sum(own) / len(own), sum(matched) / len(matched)
