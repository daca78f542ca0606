"""Figures of information flow: fractions by kind of edge and layer, a random-token baseline, and fractions by role."""

from dataclasses import replace

import torch

from icl_mech.errors import ResultError
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.reduction import SCORES, ends_of_third
from icl_mech.results import basis
from icl_mech.shapes import LayerCurves, Meaning, Panel

NAMES = {
    "wp": "S_wp: texts → label words",
    "pq": "S_pq: label words → target",
    "ww": "S_ww: everything else",
}

RANDOM = ("texts → random tokens", "random tokens → target")
"""Baselines of the first two."""

PARTS = "the three are fractions of one total: one rises when another falls"

MEANINGS: tuple[Meaning, ...] = ("text", "label", "other")

OF_GROUPS: dict[str, Meaning] = {
    "texts": "text",
    "label words": "label",
    "query": "query",
    "target": "target",
}
"""Meanings of groups of roles, which set their colours."""

SHARES = (-0.04, 1.04)
"""Range of the axis of fractions."""


def drawing(result: FlowScores, show: str = "") -> LayerCurves:
    """Fractions by kind of edge and layer; compared with random tokens; or fractions by role.

    Args:
        result: The result to draw.
        show: "", `null` or `roles`.

    Raises:
        ResultError: the random-token baseline was not measured.
    """
    if show == "null":
        return _beside_random(result)
    if show == "roles":
        return _by_role(result)
    shares = result.sel("share")
    plain = shares.curves(
        "Information flow by layer",
        [NAMES[score] for score in SCORES],
        meanings=MEANINGS,
        note="; ".join(filter(None, (shares.note, PARTS))),
        stretches=_thirds(result.n_layers),
        y_range=SHARES,
    )
    if result.null is None:
        return plain
    null = result.quantities()["null_share"]
    rows = zip((plain.values, plain.low, plain.high), (null.value(), *null.ends()), strict=True)
    values, low, high = (torch.cat([own, random[: len(RANDOM)]]) for own, random in rows)
    return replace(
        plain,
        names=plain.names + RANDOM,
        values=values,
        low=low,
        high=high,
        meanings=plain.meanings + plain.meanings[: len(RANDOM)],
        nulls=tuple(range(len(SCORES), len(SCORES) + len(RANDOM))),
    )


def _thirds(n_layers: int) -> tuple[tuple[float, float, str], ...]:
    """The first and last third of the layers; omitted if they are single layers."""
    thirds = {third: ends_of_third(n_layers, third) for third in ("first", "last")}
    return tuple(
        (float(first), float(last), f"{third} third")
        for third, (first, last) in thirds.items()
        if first < last
    )


def _beside_random(result: FlowScores) -> LayerCurves:
    """Fractions of label words compared with the random-token baseline."""
    if result.null is None:
        raise ResultError(
            "These flow scores have no random-token baseline: an earlier version or a server measured "
            "them, or a prompt has too few tokens besides its label words. Measure longer prompts locally."
        )
    null = result.quantities()["null_share"]
    pairs = zip((result.values, result.low, result.high), (null.value(), *null.ends()), strict=True)
    values, low, high = (
        torch.stack([words[0], random[0], words[1], random[1]]) for words, random in pairs
    )
    return LayerCurves(
        title="Label words and random tokens near them",
        names=("label words", "random tokens") * 2,
        values=values,
        low=low,
        high=high,
        y_title="fraction of the layer's saliency per edge",
        note=basis(result),
        meanings=("text", "text", "label", "label"),
        panels=(
            Panel("Preceding tokens → these tokens", (0, 1)),
            Panel("These tokens → target", (2, 3)),
        ),
        y_range=SHARES,
        nulls=(1, 3),
    )


def _by_role(result: FlowScores) -> LayerCurves:
    """Fractions that groups of roles receive, and fractions that the target receives from them."""
    (names, received), (_, row) = (result.by_role(of) for of in ("receiving", "target"))
    # The target receives nothing from itself: its edges to itself are left out.
    sources = [i for i, name in enumerate(names) if name != "target"]
    ends = ((shares.value(), *shares.ends()) for shares in (received, row))
    values, low, high = (torch.cat([a, b[sources]]) for a, b in zip(*ends, strict=True))
    curves = (*names, *(names[i] for i in sources))
    return LayerCurves(
        title="Fractions of all saliency by role",
        names=curves,
        values=values,
        low=low,
        high=high,
        y_title="fraction of saliency",
        note=basis(result),
        meanings=tuple(OF_GROUPS.get(name, "other") for name in curves),
        panels=(
            Panel("Whole layer: which tokens receive", tuple(range(len(names)))),
            Panel("Target's row: from which tokens", tuple(range(len(names), len(curves)))),
        ),
        y_range=SHARES,
    )
