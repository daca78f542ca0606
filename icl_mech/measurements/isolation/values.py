"""Loyalty under isolation in the first or last layers as numbers with intervals.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.isolation.agreement import (
    LOYALTIES,
    SHOWN,
    UNITS,
    Key,
    Loyalty,
    Words,
    label_ends,
    with_draws,
    word_ends,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Quantity, Result

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class LoyaltyByWindow(Result):
    """Loyalty under isolation as numbers, by tokens, side and depth.

    Attributes:
        windows: (side, depth, tokens) of every window, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        draw_overlap: Word loyalty of each draw, likewise; None in files of before.
        predicted: Predicted class without isolation.
        isolated: Predicted class under isolation, of each draw likewise; None in files of before.
        words: Likeliest next words of the first prompts, without isolation and then with that of
            each window (its first draw).
        labels: Names of the classes.
        n_layers: Layers of the model.
        top_k: Number of next tokens compared.
    """

    windows: tuple[Key, ...]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]
    draw_overlap: Float[Tensor, "window draw"] | None = None
    predicted: Int[Tensor, " batch"]
    isolated: Int[Tensor, "window draw batch"] | None = None
    words: tuple[Words, ...] = ()
    labels: tuple[str, ...] = ()
    n_layers: int
    top_k: int

    @property
    def depths(self) -> tuple[int, ...]:
        """Numbers of isolated layers, ascending."""
        return tuple(sorted({depth for _, depth, _ in self.windows}))

    @property
    def usual_depth(self) -> int:
        """The depth that texts speak of: the paper's 5, or the largest."""
        return 5 if 5 in self.depths else self.depths[-1]

    @property
    def draws(self) -> int:
        """Number of draws of random tokens."""
        return self.draw_loyalty.shape[1]

    def quantities(self) -> dict[str, Quantity]:
        """Both loyalties, with Wilson's interval of an effective n (see `mean_ends`).

        The spread between draws is not part of these intervals, but of `difference`.
        """
        axes = self.coordinates()
        sizes = [len(labels) for labels in axes.values()]
        fields = {"label_loyalty": self.label_kept, "word_loyalty": self.word_overlap}
        return {
            name: Quantity(
                tuple(axes),
                values.T.reshape(-1, *sizes),
                unit=UNITS[name].format(k=self.top_k),
                known=(low.reshape(sizes), high.reshape(sizes)),
                kind="outcome",
            )
            for name, values in fields.items()
            for low, high in [self._ends[name]]
        }

    def coordinates(self) -> dict[str, tuple[Any, ...]]:
        """Tokens, side and depth; for windows that do not fill such a table, one name each."""
        sides, _, tokens = (tuple(dict.fromkeys(own)) for own in zip(*self.windows, strict=True))
        full = tuple((side, k, kind) for kind in tokens for side in sides for k in self.depths)
        if full == self.windows:
            return {"tokens": tokens, "side": sides, "depth": self.depths}
        names = (f"{side} {depth}, {SHOWN[kind]}" for side, depth, kind in self.windows)
        return {"window": tuple(names)}

    @checked(ResultError)
    def difference(self, first: Key, second: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of the first window minus that of the second, paired over prompts.

        The interval is a paired score interval over prompts and, where random tokens were drawn
        several times, as much wider as draws differ.

        Raises:
            ResultError: a window that was not run, or an unknown quantity.
        """
        values = self.quantities()[self._main(quantity)].per_prompt.flatten(1)
        one, other = self.place(first), self.place(second)
        found = mean_interval(values[:, one] - values[:, other], "change")
        drawn = self.draw_loyalty if quantity == "label_loyalty" else self.draw_overlap
        if drawn is None:
            return found
        value, low, high = with_draws(found, drawn[one] - drawn[other])
        # A difference of two shares; the part that draws add knows nothing of their ends.
        return Interval(value, max(low, -1.0), min(high, 1.0))

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window; `low` and `high` are the ends of label loyalty.

        `draw_min` and `draw_max` are the label loyalties of the extreme draws.
        """
        import pandas as pd

        table = pd.DataFrame(self.windows, columns=["side", "depth", "tokens"])
        for name in LOYALTIES:
            kind = name.removesuffix("_loyalty")
            for column, end in zip(
                (name, f"{kind}_low", f"{kind}_high"), self.by_window(name), strict=True
            ):
                table[column] = end.tolist()
        return table.assign(
            low=table.label_low,
            high=table.label_high,
            draw_min=self.draw_loyalty.amin(1).tolist(),
            draw_max=self.draw_loyalty.amax(1).tolist(),
        )

    @cached_property
    def _ends(self) -> dict[str, tuple[Tensor, Tensor]]:
        return {
            "label_loyalty": label_ends(self.label_kept),
            "word_loyalty": word_ends(self.word_overlap),
        }

    def by_window(self, name: Loyalty) -> Float[Tensor, "3 window"]:
        """Value, low and high of every window."""
        values = self.label_kept if name == "label_loyalty" else self.word_overlap
        return torch.stack([values.double().mean(1), *self._ends[name]])

    def loyalty(self, key: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of one window with its interval.

        Raises:
            ResultError: a window that was not run.
        """
        return Interval(*self.by_window(quantity)[:, self.place(key)].tolist())

    def place(self, key: Key) -> int:
        """Where a window stands in the tensors.

        Raises:
            ResultError: a window that was not run.
        """
        if tuple(key) not in self.windows:
            raise ResultError(
                f"No window {tuple(key)}; there are sides "
                f"{', '.join(dict.fromkeys(side for side, *_ in self.windows))}, depths "
                f"{', '.join(map(str, self.depths))} and tokens "
                f"{', '.join(dict.fromkeys(tokens for *_, tokens in self.windows))}."
            )
        return self.windows.index(tuple(key))
