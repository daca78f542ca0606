"""Loyalty under isolation in the first or last layers, by tokens, side and depth.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.isolation.agreement import (
    LOYALTIES,
    SHOWN,
    TITLES,
    UNITS,
    Loyalty,
    loyalty_ends,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.results import Figure, Quantity, Result, basis
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd

Key = tuple[str, int, str]
"""Side, depth and tokens of a window."""


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationResult(Result):
    """Loyalty under isolation, by tokens, side and depth.

    Attributes:
        windows: (side, depth, tokens) of every window, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        predicted: Predicted class without isolation.
        n_layers: Layers of the model.
        top_k: Number of next tokens compared.
    """

    title: ClassVar[str] = "Isolating label words"
    shows: ClassVar[tuple[str, ...]] = LOYALTIES

    windows: tuple[Key, ...]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]
    predicted: Int[Tensor, " batch"]
    n_layers: int
    top_k: int

    @property
    def depths(self) -> tuple[int, ...]:
        """Numbers of isolated layers, ascending."""
        return tuple(sorted({depth for _, depth, _ in self.windows}))

    def quantities(self) -> dict[str, Quantity]:
        """Both loyalties: of a single draw with Wilson's interval, else percentile bootstrap.

        The spread between draws is not part of the interval.
        """
        axes = self.coordinates()
        sizes = [len(labels) for labels in axes.values()]
        fields = {"label_loyalty": self.label_kept, "word_loyalty": self.word_overlap}
        low, high = (end.reshape(sizes) for end in self._label_ends)
        return {
            name: Quantity(
                tuple(axes),
                values.T.reshape(-1, *sizes),
                unit=UNITS[name].format(k=self.top_k),
                known=(low, high) if name == "label_loyalty" else None,
            )
            for name, values in fields.items()
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

        Raises:
            ResultError: a window that was not run, or an unknown quantity.
        """
        values = self.quantities()[self._main(quantity)].per_prompt.flatten(1)
        return mean_interval(values[:, self._place(first)] - values[:, self._place(second)])

    def drawing(self, show: Loyalty = "label_loyalty") -> LayerCurves:
        """Loyalty by number of isolated layers, one curve per side and kind of token.

        Args:
            show: `label_loyalty` or `word_loyalty`.

        Raises:
            ResultError: unknown `show`, or a curve without one of the depths.
        """
        self.check_show(show)
        curves = list(dict.fromkeys((tokens, side) for side, _, tokens in self.windows))
        places = [[self._place((side, k, tokens)) for k in self.depths] for tokens, side in curves]
        values, low, high = self._by_window(show)[:, places]
        draws = self.draw_loyalty.shape[1]
        control = any(tokens == "random" for tokens, _ in curves)
        commonest = int(self.predicted.bincount().max()) / len(self.predicted)
        return LayerCurves(
            title=f"{TITLES[show]} with tokens isolated in some layers",
            names=tuple(f"{side} k layers, {SHOWN[tokens]}" for tokens, side in curves),
            values=values,
            low=low,
            high=high,
            y_title=UNITS[show].format(k=self.top_k),
            note=basis(self) + (f"; random tokens: mean of {draws} draws" if control else ""),
            x=tuple(float(depth) for depth in self.depths),
            x_title="isolated layers (k)",
            levels=((commonest, "share of the commonest prediction"),)
            if show == "label_loyalty"
            else (),
        )

    def figures(self) -> list[Figure]:
        """Both loyalties."""
        sentence = f"Share of the {self.top_k} likeliest next tokens that isolation leaves."
        return [*super().figures(), Figure("word_loyalty", "next words", sentence)]

    def summary(self) -> str:
        """Both loyalties with the first layers isolated, against last layers and random tokens."""
        k = 5 if 5 in self.depths else self.depths[-1]
        early = ("first", k, "label")
        if early not in self.windows:
            early = next(window for window in self.windows if window[1] == k)
        side, _, tokens = early
        label, word = (
            Interval(*self._by_window(name)[:, self._place(early)].tolist()) for name in LOYALTIES
        )
        text = (
            f"{SHOWN[tokens]} isolated in the {side} {k} of {self.n_layers} layers "
            f"({len(self.predicted)} prompts): label loyalty {label}, word loyalty {word}"
        )
        others = {"last layers": ("last", k, "label"), "random tokens": ("first", k, "random")}
        compared = {name: key for name, key in others.items() if key in self.windows}
        if early != ("first", k, "label") or not compared:
            return text
        clear = []
        for name, key in compared.items():
            found = {loyalty: self.difference(early, key, loyalty) for loyalty in LOYALTIES}
            text += f"; minus {name}: {', '.join(map(str, found.values()))}"
            draws = self.draw_loyalty[self._place(key)]
            least, most = float(draws.min()), float(draws.max())
            if least < most:
                text += f" (label loyalty of single draws {least:.3g} to {most:.3g})"
            clear += [
                f"{loyalty.replace('_', ' ')} below {name}"
                for loyalty, interval in found.items()
                if interval.high < 0
            ]
        return f"{text}; clear: {', '.join(clear) or 'no difference'}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window; `low` and `high` are the ends of label loyalty.

        `draw_min` and `draw_max` are the label loyalties of the extreme draws.
        """
        import pandas as pd

        table = pd.DataFrame(self.windows, columns=["side", "depth", "tokens"])
        for name in LOYALTIES:
            kind = name.removesuffix("_loyalty")
            for column, end in zip(
                (name, f"{kind}_low", f"{kind}_high"), self._by_window(name), strict=True
            ):
                table[column] = end.tolist()
        return table.assign(
            low=table.label_low,
            high=table.label_high,
            draw_min=self.draw_loyalty.amin(1).tolist(),
            draw_max=self.draw_loyalty.amax(1).tolist(),
        )

    @cached_property
    def _label_ends(self) -> tuple[Tensor, Tensor]:
        single = self.draw_loyalty.shape[1] == 1
        outcomes = torch.tensor([tokens == "label" or single for *_, tokens in self.windows])
        return loyalty_ends(self.label_kept, outcomes)

    def _by_window(self, name: str) -> Float[Tensor, "3 window"]:
        """Value, low and high of every window."""
        return torch.from_numpy(self.estimates()[name].values).reshape(3, -1)

    def _place(self, key: Key) -> int:
        if tuple(key) not in self.windows:
            raise ResultError(
                f"No window {tuple(key)}; there are sides "
                f"{', '.join(dict.fromkeys(side for side, *_ in self.windows))}, depths "
                f"{', '.join(map(str, self.depths))} and tokens "
                f"{', '.join(dict.fromkeys(tokens for *_, tokens in self.windows))}."
            )
        return self.windows.index(tuple(key))
