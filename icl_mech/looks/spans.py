"""Spans of a text in figures: their numbered names, and texts coloured by values of their spans."""

from collections.abc import Mapping
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.measurements.anchors.between import OfSpans
from icl_mech.shapes import TokenStrips


def numbered(result: OfSpans, prompt: int) -> tuple[str, ...]:
    """Numbered names of the spans of a text."""
    return tuple(f"{number} {name}" for number, name in enumerate(result.names[prompt]))


def strips(result: OfSpans, prompt: int, rows: Mapping[str, Tensor], **more: Any) -> TokenStrips:
    """A text coloured by values of its spans, once for each row; 0 where they are undefined."""
    tokens = result.tokens[prompt]
    values = [result.spread(prompt, row.tolist(), 0.0) for row in rows.values()]
    return TokenStrips(
        names=tuple(rows),
        values=torch.stack(values),
        tokens=tokens,
        marks=("",) * len(tokens),
        **more,
    )
