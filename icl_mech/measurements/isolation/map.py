"""Isolation map: in which layers do label words collect the demonstrations?

Label loyalty (see `icl_mech.measurements.isolation.windows`) with tokens isolated in layers
`start ... start + width - 1`, for every start and several widths. A low cell says that what
label words read in those layers decides predictions. Beyond the paper, which isolates the
first and the last layers only (Wang et al. 2023, *Label Words are Anchors*, §2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Tensor
from icl_mech.checking import Count
from icl_mech.interventions.isolate import Tokens
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import (
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
    label_ends,
)
from icl_mech.measurements.isolation.map_result import IsolationMap
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch


@dataclass(frozen=True)
class IsolationWindows(OfIsolation[IsolationMap]):
    """Label and word loyalty for every window of layers.

    Attributes:
        widths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        step: Layers between the starts of neighbouring windows.
        tokens: Isolate `label` words or `random` tokens.

    Raises:
        RunError: unknown choice, a width the model does not have, a step below 1, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.
    """

    name: ClassVar[str] = "isolation_map"

    widths: Sequence[int] | None = None
    step: Count = 1
    tokens: Tokens = "label"

    def filled(self, model: LanguageModel, data: PromptBatch) -> "IsolationWindows":
        """With widths this model has."""
        return replace(self, widths=chosen_depths(self.widths, model.info))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse windows the model does not have, and what cannot be isolated.

        Raises:
            RunError: such a width, or `top_k` outside the vocabulary.
            PromptError: prompts without demonstrations, or with too few other tokens.
        """
        check_depths(self.widths or (), model.info, "widths")
        super().check(model, data)

    def starts(self, n_layers: int) -> range:
        """First layers of the narrowest windows, which begin wherever a wider one does."""
        return range(0, n_layers - min(self.widths or ()) + 1, self.step)

    def cells(self, n_layers: int) -> list[tuple[int, int]]:
        """Width and start of every window that ends in the model."""
        starts = self.starts(n_layers)
        return [(k, start) for k in self.widths or () for start in starts if start + k <= n_layers]

    def windows(self, n_layers: int) -> list[Window]:
        """Neighbouring layers."""
        return [(range(start, start + width), self.tokens) for width, start in self.cells(n_layers)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> IsolationMap:
        """Agreement of each window with the plain run, by width and start."""
        found = self.agreement(model, read)
        cells = self.cells(model.info.n_layers)
        widths, starts = tuple(self.widths or ()), tuple(self.starts(model.info.n_layers))
        low, high = label_ends(found.label_kept)
        rows = [widths.index(width) for width, _ in cells]
        columns = [starts.index(start) for _, start in cells]

        def laid(values: Tensor, empty: float = torch.nan) -> Tensor:
            table = values.new_full((len(widths), len(starts), *values.shape[1:]), empty)
            table[rows, columns] = values
            return table

        return IsolationMap(
            widths=widths,
            starts=starts,
            values=laid(found.label_kept.mean(1)),
            low=laid(low),
            high=laid(high),
            label_kept=laid(found.label_kept),
            word_overlap=laid(found.word_overlap),
            predicted=found.predicted,
            isolated=laid(found.isolated, -1.0),
            labels=data.labels,
            n_layers=model.info.n_layers,
            tokens=self.tokens,
        )


isolation_map = door(
    IsolationWindows,
    "isolation_map",
    prompts="Prompts with at least one demonstration each.",
)
