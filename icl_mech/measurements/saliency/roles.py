"""Shares of a layer's saliency by the role of its tokens."""

from collections.abc import Sequence

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.shapes import Meaning

NAMES = {
    "bos": "first token", "narrative": "narrative", "format": "template", "demo_text": "texts",
    "label_word": "label words", "query_text": "query", "target": "target",
    "unknown": "other tokens", "span": "spans",
}  # fmt: skip
"""Roles in words."""

GROUPS: dict[str, Meaning] = {
    "demo_text": "text", "label_word": "label", "query_text": "query", "target": "target",
}  # fmt: skip
"""Roles with a colour of their own; all others are drawn and told as one."""


def share_of_all(totals: Float[Tensor, "*r dest src layer"]) -> Float[Tensor, "*r dest src layer"]:
    """Each layer's sums divided by the sum over all roles (0 where all are 0)."""
    return _shares(totals, (-3, -2))


def share_of_row(totals: Float[Tensor, "*r src layer"]) -> Float[Tensor, "*r src layer"]:
    """Each layer's sums of one kind of rows divided by the sum over sources."""
    return _shares(totals, (-2,))


def _shares(totals: Tensor, axes: tuple[int, ...]) -> Tensor:
    total = totals.sum(axes, keepdim=True)
    return torch.where(total > 0, totals / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def grouped(roles: Sequence[str]) -> tuple[tuple[str, ...], tuple[Meaning, ...], Tensor]:
    """Names and meanings of groups of roles, and which role is in which (`[group, role]`).

    Template, narrative and first token are one group, called template; with tokens of no known
    role they are other tokens.
    """
    meanings = list(dict.fromkeys(GROUPS.get(role, "other") for role in roles))
    order: list[Meaning] = ["text", "label", "other", "query", "target"]
    kinds = tuple(meaning for meaning in order if meaning in meanings)
    rest = "other tokens" if "unknown" in roles else "template"
    names = {GROUPS[role]: NAMES[role] for role in GROUPS} | {"other": rest}
    member = torch.tensor(
        [[float(GROUPS.get(role, "other") == kind) for role in roles] for kind in kinds],
        dtype=torch.float64,
    )
    return tuple(names[kind] for kind in kinds), kinds, member
