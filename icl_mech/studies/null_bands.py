"""What untrained networks show where the model's curves over layers are drawn: a grey band.

The same measurement runs on networks of the same architecture that learned nothing; their curves, as
drawn, lie behind those of the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float
from icl_mech.errors import ResultError
from icl_mech.results import Figure, Quantity, Result
from icl_mech.results.wording import counted
from icl_mech.shapes import Behind, LayerCurves

PREFIX = "untrained_"
"""Of the names of these results, before that of the result they stand behind."""


@dataclass(frozen=True, eq=False, kw_only=True)
class UntrainedCurves(Result):
    """Curves of networks that learned nothing, as drawn behind those of the model.

    Attributes:
        values: Of each network.
        names: Of the curves.
        x: Where their points stand.
        show: In which drawing.
        networks: What they are.
        count: Prompts each was measured on.
    """

    title: ClassVar[str] = "Untrained networks behind a figure"

    values: Float[torch.Tensor, "network curve x"]
    names: tuple[str, ...]
    x: tuple[float, ...]
    show: str
    networks: tuple[str, ...]
    count: int

    def quantities(self) -> dict[str, Quantity]:
        """None over prompts: each network is one curve."""
        return {}

    def figures(self) -> list[Figure]:
        """None of its own: it lies behind the curves of the model."""
        return []

    def drawing(self) -> LayerCurves:
        """Mean and range of the networks."""
        low, middle, high = self._range()
        return LayerCurves(
            title="Networks that learned nothing",
            names=self.names,
            values=middle,
            low=low,
            high=high,
            y_title="as in the figure of the model",
            note=self._note(),
            x=self.x,
        )

    def behind(self, shape: LayerCurves) -> LayerCurves:
        """The figure of the model with these networks behind its curves."""
        x = shape.x or tuple(map(float, range(shape.values.shape[1])))
        if shape.names != self.names or x != self.x:
            return shape
        low, _, high = self._range()
        areas = tuple(
            Behind("untrained", place, tuple(low[place].tolist()), tuple(high[place].tolist()))
            for place in range(len(self.names))
        )
        note = f"{shape.note}; {self._note()}" if shape.note else self._note()
        return replace(shape, behind=areas, note=note)

    def _note(self) -> str:
        prompts = counted(self.count, "prompt")
        return f"grey: range of {counted(len(self.networks), 'untrained network')} over {prompts}"

    def _range(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Lower ends, means and upper ends over the networks that have a value."""
        known = ~self.values.isnan()
        low = torch.where(known, self.values, torch.inf).amin(0)
        high = torch.where(known, self.values, -torch.inf).amax(0)
        nothing = ~known.any(0)
        ends = [torch.where(nothing, torch.nan, end) for end in (low, high)]
        return ends[0], self.values.nanmean(0), ends[1]

    def summary(self) -> str:
        """What it is of."""
        return f"{self._note()}, of {counted(len(self.names), 'curve')}"


def curves_of(
    own: Result, results: Sequence[Result], count: int, networks: Sequence[str]
) -> UntrainedCurves | None:
    """The curves that results of untrained networks are drawn as; None if they have none.

    Args:
        own: Of the model.
        results: The same of each network.
        count: Number of prompts.
        networks: What they are.
    """
    shapes, show = [], own.shows[0]
    for result in results:
        try:
            how: dict[str, Any] = {"show": show} if show else {}
            shape = result.drawing(**how)
        except ResultError:
            continue
        if isinstance(shape, LayerCurves):
            shapes.append(shape)
    if len(shapes) < len(results) or len({shape.names for shape in shapes}) != 1:
        return None
    first = shapes[0]
    return UntrainedCurves(
        values=torch.stack([shape.values.float() for shape in shapes]),
        names=first.names,
        x=first.x or tuple(map(float, range(first.values.shape[1]))),
        show=show,
        networks=tuple(networks),
        count=count,
        provenance={**own.provenance, "networks": list(networks)},
    )


def with_band(results: Mapping[str, Result], name: str, show: str, drawing: Any) -> Any:
    """The drawing of a result, with untrained networks behind it if they were measured."""
    nulls = results.get(f"{PREFIX}{name}")
    if (
        isinstance(drawing, LayerCurves)
        and isinstance(nulls, UntrainedCurves)
        and nulls.show == show
    ):
        return nulls.behind(drawing)
    return drawing
