"""Isolation map: in which layers do label words collect information from the demonstrations?

Label loyalty (see `icl_mech.measurements.isolation.isolation`) with tokens isolated in layers
`start ... start + width - 1`, for every start and several widths. Low loyalty means that predictions
depend on what label words read in those layers. This goes beyond the paper, which isolates the
first and the last layers only (Wang et al. 2023, *Label Words are Anchors*, §2.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count
from icl_mech.interventions.isolate import Tokens
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import (
    DEFINITIONS,
    LOYALTIES,
    UNITS,
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
)
from icl_mech.metrics import Interval, mean_ends, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import FEWEST_PROMPTS, judged

Cell = tuple[int, int]
"""Row and column of a window: indices of its width and of its first layer."""


class Low(NamedTuple):
    """A window of low loyalty.

    Attributes:
        cell: Its row and column.
        layers: First and last isolated layer.
        loyalty: Label loyalty.
        gap: Loyalty of the lowest window minus its loyalty.
    """

    cell: Cell
    layers: tuple[int, int]
    loyalty: Interval
    gap: Interval | None = None

    @property
    def clear(self) -> bool:
        """True if the lowest window has clearly lower loyalty."""
        return judged(self.gap, rising=False) == "supported"


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationMapResult(Result):
    """Loyalty by first isolated layer and number of isolated layers.

    Values are not-a-number where a window would reach beyond the last layer.

    Attributes:
        widths: Numbers of isolated layers.
        starts: First isolated layers.
        values: Label loyalty.
        low: Lower end of its 95 % interval (Wilson).
        high: Upper end.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        predicted: Predicted class without isolation.
        isolated: Predicted class under isolation, for each draw; -1 beyond the last layer, None in
            files of earlier versions.
        labels: Names of the classes.
        n_layers: Layers of the model; 0 in files of earlier versions.
        tokens: Type of the isolated tokens, `label` words or `random` tokens.
    """

    shows: ClassVar[tuple[str, ...]] = ("loyalty", *LOYALTIES)
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "width": "widths",
        "start": "starts",
    }

    widths: tuple[int, ...]
    starts: tuple[int, ...]
    values: Float[Tensor, "width start"]
    low: Float[Tensor, "width start"]
    high: Float[Tensor, "width start"]
    label_kept: Float[Tensor, "width start batch"]
    word_overlap: Float[Tensor, "width start batch"]
    predicted: Int[Tensor, " batch"]
    isolated: Int[Tensor, "width start draw batch"] | None = None
    labels: tuple[str, ...] = ()
    n_layers: int = 0
    tokens: str

    def quantities(self) -> dict[str, Quantity]:
        """Both loyalties."""
        dims, label, word = ("width", "start"), *LOYALTIES
        known = (self.low, self.high)
        kept, overlap = self.label_kept.movedim(-1, 0), self.word_overlap.movedim(-1, 0)
        return {
            label: Quantity(dims, kept, unit=UNITS[label], known=known, kind="outcome"),
            word: Quantity(dims, overlap, unit="overlap of the top next tokens", kind="outcome"),
        }

    @property
    def depth(self) -> int:
        """Number of layers of the model, as far as known."""
        reach = max(self.layers(cell)[1] for cell in self.cells) + 1
        return self.n_layers or int(self.provenance.get("model", {}).get("n_layers", reach))

    @property
    def cells(self) -> list[Cell]:
        """Rows and columns of the windows that were run."""
        return [(row, column) for row, column in self.values.isfinite().nonzero().tolist()]

    def layers(self, cell: Cell) -> tuple[int, int]:
        """First and last isolated layer."""
        start = self.starts[cell[1]]
        return start, start + self.widths[cell[0]] - 1

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.predicted)

    @property
    def too_few(self) -> bool:
        """True if there are too few prompts for a conclusion."""
        return self.count < FEWEST_PROMPTS

    def _low(self, cell: Cell) -> Low:
        ends = (float(table[cell]) for table in (self.values, self.low, self.high))
        return Low(cell, self.layers(cell), Interval(*ends))

    @property
    def lowest(self) -> Low:
        """The window with the lowest loyalty; its interval ignores that it was selected as the lowest."""
        place = int(self.values.nan_to_num(torch.inf).argmin())
        return self._low(divmod(place, self.values.shape[1]))

    @property
    def next_lowest(self) -> Low | None:
        """The lowest window of that width that shares no layer with it, with the paired difference of both."""
        row, column = cell = self.lowest.cell
        apart = [
            candidate
            for candidate in self.cells
            if candidate[0] == row
            and abs(self.starts[candidate[1]] - self.starts[column]) >= self.widths[row]
        ]
        if not apart:
            return None
        second = min(apart, key=lambda candidate: float(self.values[candidate]))
        change = self.label_kept[cell].double() - self.label_kept[second].double()
        return self._low(second)._replace(gap=mean_interval(change, "change"))

    def more_columns(self) -> dict[str, Any]:
        """The type of isolated tokens, and the ends of label loyalty as `low` and `high`."""
        ends = {"low": self.low.flatten().tolist(), "high": self.high.flatten().tolist()}
        return {"tokens": self.tokens, **ends}


@dataclass(frozen=True)
class IsolationMap(OfIsolation[IsolationMapResult]):
    """Label and word loyalty for every window of layers.

    Attributes:
        widths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        step: Layers between the starts of neighbouring windows.
        tokens: Isolate `label` words or `random` tokens.

    Raises:
        RunError: unknown choice, a width the model does not have, a step below 1, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.
    """

    widths: Sequence[int] | None = None
    step: Count = 1
    tokens: Tokens = "label"

    takes = ANSWER_KINDS

    def filled(self, model: LanguageModel, data: PromptBatch) -> "IsolationMap":
        """Fill in widths this model has."""
        return replace(self, widths=chosen_depths(self.widths, model.info))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject windows the model does not have, and prompts that cannot be isolated.

        Raises:
            RunError: such a width, or `top_k` outside the vocabulary.
            PromptError: prompts without demonstrations, or with too few other tokens.
        """
        check_depths(self.widths or (), model.info, "widths")
        super().check(model, data)

    def starts(self, n_layers: int) -> range:
        """First layers of the narrowest windows, which include those of all wider ones."""
        return range(0, n_layers - min(self.widths or ()) + 1, self.step)

    def cells(self, n_layers: int) -> list[tuple[int, int]]:
        """Width and start of every window that ends within the model."""
        starts = self.starts(n_layers)
        return [(k, start) for k in self.widths or () for start in starts if start + k <= n_layers]

    def windows(self, n_layers: int) -> list[Window]:
        """Windows of adjacent layers."""
        return [(range(start, start + width), self.tokens) for width, start in self.cells(n_layers)]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> IsolationMapResult:
        """Agreement of each window with the plain run, by width and start."""
        agreement = self.agreement(model, data, read)
        cells = self.cells(model.info.n_layers)
        widths, starts = tuple(self.widths or ()), tuple(self.starts(model.info.n_layers))
        low, high = mean_ends(agreement.label_kept.T, "outcome")
        rows = [widths.index(width) for width, _ in cells]
        columns = [starts.index(start) for _, start in cells]

        def laid(values: Tensor, empty: float = torch.nan) -> Tensor:
            table = values.new_full((len(widths), len(starts), *values.shape[1:]), empty)
            table[rows, columns] = values
            return table

        return IsolationMapResult(
            widths=widths,
            starts=starts,
            values=laid(agreement.label_kept.mean(1)),
            low=laid(low),
            high=laid(high),
            label_kept=laid(agreement.label_kept),
            word_overlap=laid(agreement.word_overlap),
            predicted=agreement.predicted,
            isolated=laid(agreement.isolated, -1.0),
            labels=agreement.labels,
            n_layers=model.info.n_layers,
            tokens=self.tokens,
        )


isolation_map = door(
    IsolationMap, "isolation_map", prompts="Prompts with at least one demonstration each."
)
