"""Isolation map: in which layers do label words collect the demonstrations?

Label loyalty (see `icl_mech.measurements.isolation.windows`) with tokens isolated in layers
`start ... start + width - 1`, for every start and several widths. A low cell says that what
label words read in those layers decides predictions. Beyond the paper, which isolates the
first and the last layers only (Wang et al. 2023, *Label Words are Anchors*, §2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count
from icl_mech.engine import Path
from icl_mech.interventions import Intervention
from icl_mech.interventions.isolate import Mode, Redraw, Tokens
from icl_mech.measurements.isolation.agreement import (
    LOYALTIES,
    SHOWN,
    TITLES,
    UNITS,
    Loyalty,
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
    loyalty_ends,
)
from icl_mech.measurements.running import measured
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Quantity, Result, basis
from icl_mech.shapes import Grid

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationMap(Result):
    """Loyalty by first isolated layer and number of isolated layers.

    Not-a-number stands where a window would reach beyond the last layer.

    Attributes:
        widths: Numbers of isolated layers.
        starts: First isolated layers.
        values: Label loyalty.
        low: Lower end of its 95 % interval (Wilson for a single draw, else bootstrap).
        high: Upper end.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        predicted: Predicted class without isolation.
        tokens: What is isolated, `label` words or `random` tokens.
    """

    title: ClassVar[str] = "Where label words collect"
    shows: ClassVar[tuple[str, ...]] = LOYALTIES

    widths: tuple[int, ...]
    starts: tuple[int, ...]
    values: Float[Tensor, "width start"]
    low: Float[Tensor, "width start"]
    high: Float[Tensor, "width start"]
    label_kept: Float[Tensor, "width start batch"]
    word_overlap: Float[Tensor, "width start batch"]
    predicted: Int[Tensor, " batch"]
    tokens: str

    def quantities(self) -> dict[str, Quantity]:
        """Both loyalties."""
        dims, label, word = ("width", "start"), *LOYALTIES
        known = (self.low, self.high)
        kept, overlap = self.label_kept.movedim(-1, 0), self.word_overlap.movedim(-1, 0)
        return {
            label: Quantity(dims, kept, unit=UNITS[label], known=known),
            word: Quantity(dims, overlap, unit="overlap of the top next tokens"),
        }

    def coordinates(self) -> dict[str, tuple[int, ...]]:
        """Widths and first layers."""
        return {"width": self.widths, "start": self.starts}

    def drawing(self, show: Loyalty = "label_loyalty") -> Grid:
        """Loyalty by first isolated layer (columns) and width (rows).

        The lowest cell is marked.

        Args:
            show: `label_loyalty` or `word_loyalty`.

        Raises:
            ResultError: unknown `show`.
        """
        self.check_show(show)
        quantity = self.quantities()[show]
        values = quantity.value()
        low, high = quantity.ends()
        return Grid(
            title=f"{TITLES[show]} with {SHOWN[self.tokens]} isolated in some layers",
            values=values,
            row_title="isolated layers",
            column_title="first isolated layer",
            quantity=show.replace("_", " "),
            note=f"{basis(self)}; framed: lowest",
            rows=self.widths,
            columns=self.starts,
            dark_low=True,
            marked=(_lowest(values),),
            low=low,
            high=high,
        )

    def summary(self) -> str:
        """The window that costs most; its interval ignores that it was picked as the lowest."""
        row, column = _lowest(self.values)
        start, width = self.starts[column], self.widths[row]
        return (
            f"label loyalty is lowest, {self.interval(start=start, width=width)}, with "
            f"{SHOWN[self.tokens]} isolated in layers {start} to {start + width - 1} (of "
            f"{int(self.values.isfinite().sum())} windows; the interval ignores this choice)"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window."""
        import pandas as pd

        words = self.word_overlap.mean(-1)
        return pd.DataFrame(
            {
                "width": self.widths[row],
                "start": self.starts[column],
                "tokens": self.tokens,
                "label_loyalty": float(self.values[row, column]),
                "low": float(self.low[row, column]),
                "high": float(self.high[row, column]),
                "word_loyalty": float(words[row, column]),
            }
            for row, column in self.values.isfinite().nonzero().tolist()
        )


def _lowest(values: Float[Tensor, "width start"]) -> tuple[int, int]:
    row, column = divmod(int(values.nan_to_num(torch.inf).argmin()), values.shape[1])
    return row, column


@dataclass(frozen=True)
class IsolationWindows(OfIsolation[IsolationMap]):
    """Label and word loyalty for every window of layers.

    Attributes:
        widths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        step: Layers between the starts of neighbouring windows.
        tokens: Isolate `label` words or `random` tokens.
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
        single = torch.full((len(cells),), self.tokens == "label" or self.draws == 1)
        low, high = loyalty_ends(found.label_kept, single)
        rows = [widths.index(width) for width, _ in cells]
        columns = [starts.index(start) for _, start in cells]

        def laid(values: Tensor) -> Tensor:
            table = torch.full((len(widths), len(starts), *values.shape[1:]), torch.nan).double()
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
            tokens=self.tokens,
        )


def isolation_map(
    model: Any,
    prompts: PromptBatch,
    *,
    widths: Sequence[int] | None = None,
    step: int = 1,
    tokens: Tokens = "label",
    mode: Mode = "mask",
    redraw: Redraw = "set",
    draws: int = 5,
    top_k: int = 5,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    batch_size: int | None = None,
    memory: str | int | None = None,
    path: Path = "auto",
    progress: bool | None = None,
) -> IsolationMap:
    """Label loyalty for every window of layers.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        widths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        step: Layers between the starts of neighbouring windows.
        tokens: Isolate `label` words or `random` tokens.
        mode: As in `isolation`.
        redraw: As in `isolation`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Of the first draw.
        interventions: As in `isolation`.
        batch_size: Prompts per batch at most.
        memory: Budget such as `"8GB"`.
        path: `auto` or `whole`, see `engine.run`.
        progress: Show a progress bar.

    Raises:
        RunError: unknown choice, a width the model does not have, a step below 1, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.
    """
    return measured(
        IsolationWindows(mode, redraw, draws, top_k, seed, widths, step, tokens), model, prompts,
        interventions=interventions, batch_size=batch_size, memory=memory, path=path,
        progress=progress,
    )  # fmt: skip
