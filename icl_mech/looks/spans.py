"""Spans of a text in figures: their names with numbers, and texts coloured by numbers of their spans."""

from collections.abc import Mapping
from typing import Any

import torch

from icl_mech._typing import Tensor
from icl_mech.measurements.anchors.between import OfSpans
from icl_mech.shapes import TokenStrips


def numbered(result: OfSpans, prompt: int) -> tuple[str, ...]:
    """Names of the spans of a text with their numbers."""
    return tuple(f"{number} {name}" for number, name in enumerate(result.names[prompt]))


def strips(result: OfSpans, prompt: int, rows: Mapping[str, Tensor], **more: Any) -> TokenStrips:
    """A text coloured by numbers of its spans, once for each row; 0 where they are undefined."""
    tokens = result.tokens[prompt]
    values = [result.spread(prompt, row.tolist(), 0.0) for row in rows.values()]
    return TokenStrips(
        names=tuple(rows),
        values=torch.stack(values),
        tokens=tokens,
        marks=("",) * len(tokens),
        **more,
    )
