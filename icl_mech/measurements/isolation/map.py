"""Isolation map: in which layers do label words collect the demonstrations?

Label loyalty (see `icl_mech.measurements.isolation.windows`) with tokens isolated in layers
`start ... start + width - 1`, for every start and several widths. A low cell says that what
label words read in those layers decides predictions. Beyond the paper, which isolates the
first and the last layers only (Wang et al. 2023, *Label Words are Anchors*, §2.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import RunError
from icl_mech.interventions.isolate import Mode, Redraw, Tokens
from icl_mech.measurements._old import provenance
from icl_mech.measurements.demonstrations import conditions
from icl_mech.measurements.isolation.agreement import (
    SHOWN,
    TITLES,
    Quantity,
    agreement,
    check_depths,
    check_quantity,
    chosen_draws,
    loyalty_ends,
    usual_depths,
)
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
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

    widths: tuple[int, ...]
    starts: tuple[int, ...]
    values: Float[Tensor, "width start"]
    low: Float[Tensor, "width start"]
    high: Float[Tensor, "width start"]
    label_kept: Float[Tensor, "width start batch"]
    word_overlap: Float[Tensor, "width start batch"]
    predicted: Int[Tensor, " batch"]
    tokens: str

    def drawing(self, quantity: Quantity = "label") -> Grid:
        """Loyalty by first isolated layer (columns) and width (rows).

        The lowest cell is marked. Intervals are shown for label loyalty.

        Args:
            quantity: `label` or `word` loyalty.

        Raises:
            ResultError: unknown quantity.
        """
        check_quantity(quantity)
        label = quantity == "label"
        values = self.values if label else self.word_overlap.mean(-1)
        return Grid(
            title=f"{TITLES[quantity].capitalize()} with {SHOWN[self.tokens]} isolated in some layers",
            values=values,
            row_title="isolated layers",
            column_title="first isolated layer",
            quantity=TITLES[quantity],
            note=conditions(len(self.predicted), self.provenance) + "; framed: lowest",
            rows=self.widths,
            columns=self.starts,
            dark_low=True,
            marked=(_lowest(values),),
            low=self.low if label else None,
            high=self.high if label else None,
        )

    def summary(self) -> str:
        """The window that costs most; its interval ignores that it was picked as the lowest."""
        row, column = _lowest(self.values)
        first, last = self.starts[column], self.starts[column] + self.widths[row] - 1
        ends = f"[{self.low[row, column]:.3g}, {self.high[row, column]:.3g}]"
        return (
            f"label loyalty is lowest, {self.values[row, column]:.3g} {ends}, with "
            f"{SHOWN[self.tokens]} isolated in layers {first} to {last} (of "
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
    batch_size: int | None = None,
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
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        RunError: unknown choice, a width the model does not have, a step below 1, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.
    """
    adapted = adapt(model)
    if step < 1:
        raise RunError(f"step={step}; windows must move on by at least one layer.")
    ways = chosen_draws(prompts, [tokens], mode=mode, redraw=redraw, count=draws, seed=seed)
    n_layers = adapted.info.n_layers
    sizes = check_depths(
        usual_depths(adapted.info) if widths is None else widths, adapted.info, "widths"
    )
    starts = tuple(range(0, n_layers - min(sizes) + 1, step))
    places = [
        (row, column)
        for row, width in enumerate(sizes)
        for column, start in enumerate(starts)
        if start + width <= n_layers
    ]
    found = agreement(
        adapted,
        prompts,
        [(range(starts[c], starts[c] + sizes[r]), tokens) for r, c in places],
        ways,
        top_k=top_k,
        batch_size=batch_size,
        progress=progress,
    )
    exact = torch.full((len(places),), tokens == "label" or draws == 1)
    low, high = loyalty_ends(found.label_kept, exact)

    def laid(values: Tensor) -> Tensor:
        table = torch.full((len(sizes), len(starts), *values.shape[1:]), torch.nan).double()
        rows, columns = torch.tensor(places).T
        table[rows, columns] = values
        return table

    return IsolationMap(
        widths=sizes,
        starts=starts,
        values=laid(found.label_kept.mean(1)),
        low=laid(low),
        high=laid(high),
        label_kept=laid(found.label_kept),
        word_overlap=laid(found.word_overlap),
        predicted=found.predicted,
        tokens=tokens,
        provenance=provenance(
            adapted, prompts, mode=mode, redraw=redraw, draws=draws, top_k=top_k, seed=seed,
            tokens=tokens,
        ),
    )  # fmt: skip


def _lowest(values: Float[Tensor, "width start"]) -> tuple[int, int]:
    row, column = divmod(int(values.nan_to_num(torch.inf).argmin()), values.shape[1])
    return row, column
