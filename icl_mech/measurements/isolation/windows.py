"""Isolation: do label words collect the demonstrations in early layers?

Label words are cut off from everything before them (`Isolate`) in the first or last k layers.

* *label loyalty*: share of prompts whose predicted class is the same as without isolation;
* *word loyalty*: mean Jaccard overlap of the top-k next tokens with and without isolation.

The control isolates as many random tokens of the demonstrations; its values are averaged over
several draws per prompt. One draw serves all windows. Isolation in the last layer alone changes
nothing at all: the cut rows reach no later block.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.interventions.isolate import Mode, Redraw, Tokens
from icl_mech.measurements._old import provenance
from icl_mech.measurements.demonstrations import conditions
from icl_mech.measurements.isolation.agreement import (
    SHOWN,
    TITLES,
    UNITS,
    Quantity,
    agreement,
    check_depths,
    check_each,
    check_quantity,
    chosen_draws,
    commonest,
    loyalty_ends,
    usual_depths,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import LayerCurves

if TYPE_CHECKING:
    import pandas as pd

Side = Literal["first", "last"]
Key = tuple[str, int, str]


class IsolationRow(NamedTuple):
    """Loyalty for one window; `draws` are the smallest and largest label loyalty of a draw."""

    side: str
    depth: int
    tokens: str
    label_loyalty: Interval
    word_loyalty: Interval
    draws: tuple[float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationResult(Result):
    """Loyalty under isolation.

    Attributes:
        windows: (side, depth, tokens) of every row, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the top next tokens, averaged over draws.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        predicted: Predicted class without isolation.
        n_layers: Layers of the model.
        top_k: Number of next tokens compared.
    """

    title: ClassVar[str] = "Isolating label words"

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

    @cached_property
    def rows(self) -> tuple[IsolationRow, ...]:
        """All windows with their loyalties and 95 % intervals.

        Wilson for label loyalty of a single draw, else percentile bootstrap over prompts; the
        spread between draws is not part of the interval.
        """
        single = self.draw_loyalty.shape[1] == 1
        outcomes = torch.tensor([tokens == "label" or single for *_, tokens in self.windows])
        label = self._intervals(self.label_kept, outcomes)
        word = self._intervals(self.word_overlap, torch.zeros_like(outcomes))
        least, most = self.draw_loyalty.amin(1).tolist(), self.draw_loyalty.amax(1).tolist()
        return tuple(
            IsolationRow(side, depth, tokens, label[i], word[i], (least[i], most[i]))
            for i, (side, depth, tokens) in enumerate(self.windows)
        )

    def row(self, side: str, depth: int, tokens: str = "label") -> IsolationRow:
        """Loyalty for one window.

        Raises:
            ResultError: a window that was not run.
        """
        return self.rows[self._place((side, depth, tokens))]

    def difference(self, first: Key, second: Key, *, quantity: Quantity = "label") -> Interval:
        """Loyalty of the first window minus that of the second, paired over prompts.

        Raises:
            ResultError: a window that was not run, or an unknown quantity.
        """
        values = self._values(quantity)
        return mean_interval(values[self._place(first)] - values[self._place(second)])

    def drawing(self, quantity: Quantity = "label") -> LayerCurves:
        """Loyalty by number of isolated layers, one curve per side and kind of token.

        Args:
            quantity: `label` or `word` loyalty.

        Raises:
            ResultError: unknown quantity.
        """
        check_quantity(quantity)
        kinds = list(dict.fromkeys((tokens, side) for side, _, tokens in self.windows))
        found = [
            [getattr(self.row(side, k, tokens), f"{quantity}_loyalty") for k in self.depths]
            for tokens, side in kinds
        ]
        numbers = torch.tensor(found, dtype=torch.float64)
        draws = self.draw_loyalty.shape[1]
        control = any(tokens == "random" for tokens, _ in kinds)
        return LayerCurves(
            title=f"{TITLES[quantity].capitalize()} with tokens isolated in some layers",
            names=tuple(f"{side} k layers, {SHOWN[tokens]}" for tokens, side in kinds),
            values=numbers[..., 0],
            low=numbers[..., 1],
            high=numbers[..., 2],
            y_title=UNITS[quantity].format(k=self.top_k),
            note=conditions(len(self.predicted), self.provenance)
            + (f"; random tokens: mean of {draws} draws" if control else ""),
            x=tuple(float(depth) for depth in self.depths),
            x_title="isolated layers (k)",
            levels=((commonest(self.predicted), "share of the commonest prediction"),)
            if quantity == "label"
            else (),
        )

    def summary(self) -> str:
        """Both loyalties with the first layers isolated, against last layers and random tokens."""
        k = 5 if 5 in self.depths else self.depths[-1]
        early = ("first", k, "label")
        if early not in self.windows:
            early = next(window for window in self.windows if window[1] == k)
        row = self.row(*early)
        text = (
            f"{SHOWN[row.tokens]} isolated in the {row.side} {k} of {self.n_layers} layers "
            f"({len(self.predicted)} prompts): label loyalty {row.label_loyalty}, "
            f"word loyalty {row.word_loyalty}"
        )
        others = {"last layers": ("last", k, "label"), "random tokens": ("first", k, "random")}
        compared = {name: key for name, key in others.items() if key in self.windows}
        if early != ("first", k, "label") or not compared:
            return text
        clear = []
        for name, key in compared.items():
            label = self.difference(early, key)
            word = self.difference(early, key, quantity="word")
            text += f"; minus {name}: {label}, {word}"
            least, most = self.row(*key).draws
            if least < most:
                text += f" (label loyalty of single draws {least:.3g} to {most:.3g})"
            ends = {"label": label.high, "word": word.high}
            clear += [f"{kind} loyalty below {name}" for kind, high in ends.items() if high < 0]
        return f"{text}; clear: {', '.join(clear) or 'no difference'}"

    def to_pandas(self) -> "pd.DataFrame":
        """One row per window; `low` and `high` are the ends of label loyalty.

        `draw_min` and `draw_max` are the label loyalties of the extreme draws.
        """
        import pandas as pd

        return pd.DataFrame(
            {
                "side": row.side,
                "depth": row.depth,
                "tokens": row.tokens,
                "label_loyalty": row.label_loyalty.value,
                "label_low": row.label_loyalty.low,
                "label_high": row.label_loyalty.high,
                "word_loyalty": row.word_loyalty.value,
                "word_low": row.word_loyalty.low,
                "word_high": row.word_loyalty.high,
                "low": row.label_loyalty.low,
                "high": row.label_loyalty.high,
                "draw_min": row.draws[0],
                "draw_max": row.draws[1],
            }
            for row in self.rows
        )

    def _place(self, key: Key) -> int:
        if tuple(key) not in self.windows:
            raise ResultError(
                f"No window {tuple(key)}; there are sides "
                f"{', '.join(dict.fromkeys(side for side, *_ in self.windows))}, depths "
                f"{', '.join(map(str, self.depths))} and tokens "
                f"{', '.join(dict.fromkeys(tokens for *_, tokens in self.windows))}."
            )
        return self.windows.index(tuple(key))

    @staticmethod
    def _intervals(values: Tensor, outcomes: Tensor) -> list[Interval]:
        low, high = loyalty_ends(values, outcomes)
        ends = zip(values.mean(1).tolist(), low.tolist(), high.tolist(), strict=True)
        return [Interval(*numbers) for numbers in ends]

    def _values(self, quantity: str) -> Tensor:
        check_quantity(quantity)
        return self.label_kept if quantity == "label" else self.word_overlap


def isolation(
    model: Any,
    prompts: PromptBatch,
    *,
    depths: Sequence[int] | None = None,
    sides: Side | Sequence[Side] = ("first", "last"),
    tokens: Tokens | Sequence[Tokens] = ("label", "random"),
    mode: Mode = "mask",
    redraw: Redraw = "set",
    draws: int = 5,
    top_k: int = 5,
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> IsolationResult:
    """Label and word loyalty with tokens isolated in the first or last layers.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with at least one demonstration each.
        depths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        sides: `first` layers, `last` layers or both.
        tokens: Isolate `label` words, `random` tokens or both.
        mode: `mask` sets scores to -inf before softmax (the reference code), `zero` sets the
            pattern to 0 after it (the paper's text).
        redraw: Random tokens: one draw per demonstration `set`, per `prompt` or per `layer`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Of the first draw.
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        RunError: unknown choice, a depth the model does not have, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.

    Source: Wang et al. 2023, §2.2.
    """
    adapted = adapt(model)
    kinds = (tokens,) if isinstance(tokens, str) else tuple(dict.fromkeys(tokens))
    ends = (sides,) if isinstance(sides, str) else tuple(dict.fromkeys(sides))
    check_each(ends, get_args(Side), "sides")
    ways = chosen_draws(prompts, kinds, mode=mode, redraw=redraw, count=draws, seed=seed)
    n_layers = adapted.info.n_layers
    chosen = usual_depths(adapted.info) if depths is None else depths
    windows: list[tuple[Side, int, Tokens]] = [
        (side, depth, kind)
        for kind in kinds
        for side in ends
        for depth in check_depths(chosen, adapted.info, "depths")
    ]
    found = agreement(
        adapted,
        prompts,
        [
            (range(depth) if side == "first" else range(n_layers - depth, n_layers), kind)
            for side, depth, kind in windows
        ],
        ways,
        top_k=top_k,
        batch_size=batch_size,
        progress=progress,
    )
    return IsolationResult(
        windows=tuple(windows),
        label_kept=found.label_kept,
        word_overlap=found.word_overlap,
        draw_loyalty=found.draw_loyalty,
        predicted=found.predicted,
        n_layers=n_layers,
        top_k=top_k,
        provenance=provenance(
            adapted, prompts, mode=mode, redraw=redraw, draws=draws, top_k=top_k, seed=seed
        ),
    )
