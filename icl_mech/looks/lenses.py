"""Shared parts of figures of lenses: names, the axis of entries, curves of each class, the table of top words."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.lens.by_class import WEAK, ByClass
from icl_mech.measurements.lens.top_words import BARE, TopWordsResult
from icl_mech.metrics import normalised_probs
from icl_mech.results.wording import counted, percent, told
from icl_mech.shapes import LayerCurves, LensTable, Meaning, Panel

AFTER = "read after layer … (0: the embedding)"
"""Title of the axis of lens entries: one convention for all figures of a page."""

NAMES = {"logit": "logit lens", "tuned": "tuned lens", "jacobian": "Jacobian lens"}
"""Names of the lenses."""


def noted(lens: str) -> str:
    """Prefix of a figure's note that names a fitted lens; empty for the logit lens."""
    return "" if lens == "logit" else f"{NAMES[lens]}; "


MOST = 6
"""Maximum number of classes that have a panel."""


def class_curves(found: ByClass, note: str) -> LayerCurves:
    """Probability of each class by layer, over its own queries and over all; one panel per class.

    Of many classes, those that the lens prefers most at any layer. Layers where label words hold little of the next
    word's probability are pale.

    Args:
        found: Both means.
        note: Prompts and intervals.
    """
    favoured = found.every.values.amax(0).argsort(descending=True, stable=True)[:MOST]
    chosen = sorted(favoured.tolist())
    means = [own for label in chosen for own in ((found.own, label), (found.every, label))]
    values, low, high = (
        torch.stack([getattr(own, end)[:, label] for own, label in means])
        for end in ("values", "low", "high")
    )
    chance = 1 / len(found.labels)
    if any(found.weak):
        note += f"; pale: label words hold < {percent(WEAK)} of the next word"
    if len(chosen) < len(found.labels):
        note += f"; {len(chosen)} of {len(found.labels)} classes"
    return LayerCurves(
        title="Each class by layer",
        names=("its own queries", "all queries") * len(chosen),
        values=values,
        low=low,
        high=high,
        y_title="probability among label words",
        x_title=AFTER,
        note=note,
        meanings=tuple("true" for _ in means),
        panels=tuple(
            Panel(found.labels[label], (2 * i, 2 * i + 1)) for i, label in enumerate(chosen)
        ),
        levels=((chance, f"chance {told(chance)}"),),
        y_range=(-0.03, 1.05),
        nulls=tuple(range(1, len(means), 2)),
        weak=found.weak,
    )


def with_zero_shot(shape: LayerCurves, found: TopWordsResult) -> LayerCurves:
    """Curves of classes, and in grey what the same lens gives each of them without demonstrations.

    The shape itself where bare queries or these classes were not read.
    """
    titles = [panel.title for panel in shape.panels]
    if BARE not in found.sides or not {*titles} <= {*found.labels}:
        return shape
    bare = normalised_probs(found.label_probs[:, found.sides.index(BARE)]).mean(0)
    values = bare[:, [found.labels.index(title) for title in titles]].T.to(shape.values)
    first, count = len(shape.names), len(titles)
    name = f"zero-shot, {counted(found.count, 'query', 'queries')}"
    none = torch.full_like(values, torch.nan)
    grey: tuple[Meaning, ...] = tuple("other" for _ in titles)
    return replace(
        shape,
        names=(*shape.names, *[name] * count),
        values=torch.cat([shape.values, values]),
        low=torch.cat([shape.low, none]),
        high=torch.cat([shape.high, none]),
        meanings=(*shape.meanings, *grey),
        panels=tuple(
            replace(panel, curves=(*panel.curves, first + i))
            for i, panel in enumerate(shape.panels)
        ),
        nulls=(*shape.nulls, *range(first, first + count)),
    )


def word_table(
    columns: Sequence[str],
    tokens: Int[Tensor, "column layer k"],
    probs: Float[Tensor, "column layer k"],
    words: Mapping[str, str],
    *,
    title: str,
    labels: Sequence[str] = (),
    **more: Any,
) -> LensTable:
    """A table of the top words after each layer, one column per readout."""
    return LensTable(
        title=title,
        columns=tuple(columns),
        words=tuple(
            tuple(tuple(words.get(str(token), f"token {token}") for token in row) for row in column)
            for column in tokens.tolist()
        ),
        probs=probs.double(),
        bold=tuple(labels),
        **more,
    )
