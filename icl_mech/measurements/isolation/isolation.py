"""Isolation: do label words collect information from the demonstrations in early layers?

Label words are cut off from everything before them (`Isolate`) in the first or last k layers.

* *label loyalty*: fraction of prompts whose predicted class is the same as without isolation;
* *word loyalty*: mean Jaccard overlap of the top-k next tokens with and without isolation.

The control isolates the same number of random tokens of the demonstrations; its values are averaged over
several draws per prompt. One draw serves all windows. Isolation in the last layer alone has
no effect at all: the cut rows reach no later block.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.interventions.isolate import Tokens
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import (
    DEFINITIONS,
    LOYALTIES,
    UNITS,
    Answered,
    Key,
    Loyalty,
    NextWords,
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
    constant_answer,
    with_draws,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result, Samples
from icl_mech.results.judging import Required, Status, judged, required
from icl_mech.results.prompts import answer_kind

Side = Literal["first", "last"]

CONTROL = "random tokens"
"""The control of the test: isolated in the same layers."""


class Compared(NamedTuple):
    """The early window and the windows it is compared with.

    Attributes:
        early: Label words in the first layers.
        others: Windows it is compared with, by name.
    """

    early: Key
    others: dict[str, Key]

    @property
    def depth(self) -> int:
        """Number of isolated layers."""
        return self.early[1]


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationResult(Result):
    """Loyalty under isolation, by tokens, side and depth.

    Attributes:
        windows: (side, depth, tokens) of every window, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the `top_k` next tokens, averaged over draws.
        draw_loyalty, draw_overlap: Loyalties of each draw (label words: the same in each column).
        predicted: Predicted class without isolation.
        isolated: Predicted class under isolation, for each draw; this and overlaps None in old files.
        words: Top next words of the first prompts, without isolation and with that of each window.
        log_prob: Log-probability of the answer (for texts: of the next token) under isolation minus
            without, in nats, averaged over draws; None where answers are classes.
    """

    windows: tuple[Key, ...]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]
    draw_overlap: Float[Tensor, "window draw"] | None = None
    predicted: Int[Tensor, " batch"]
    isolated: Int[Tensor, "window draw batch"] | None = None
    words: tuple[NextWords, ...] = ()
    labels: tuple[str, ...] = ()
    n_layers: int
    top_k: int
    log_prob: Float[Tensor, "window batch"] | None = None

    shows: ClassVar[tuple[str, ...]] = (*LOYALTIES, "answers", "words")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar = {"tokens": "tokens", "side": "sides", "depth": "depths"}

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.predicted)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Types of isolated tokens."""
        return tuple(dict.fromkeys(tokens for *_, tokens in self.windows))

    @property
    def sides(self) -> tuple[str, ...]:
        """Sides on which layers are isolated: `first`, `last`."""
        return tuple(dict.fromkeys(side for side, *_ in self.windows))

    @property
    def depths(self) -> tuple[int, ...]:
        """Numbers of isolated layers, ascending."""
        return tuple(sorted({depth for _, depth, _ in self.windows}))

    @property
    def usual_depth(self) -> int:
        """The depth that summaries report: the paper's 5, or the largest."""
        return 5 if 5 in self.depths else self.depths[-1]

    @property
    def draws(self) -> int:
        """Number of draws of random tokens."""
        return self.draw_loyalty.shape[1]

    def quantities(self) -> dict[str, Quantity]:
        """Both loyalties, with Wilson's interval of an effective n (see `mean_ends`); `log_prob` if known.

        Axes are tokens, side and depth; not-a-number where no such window was run. The spread between draws
        is not part of these intervals, but is part of that of `difference`.
        """
        fields = (self.label_kept, self.word_overlap, self.log_prob)
        return {
            name: Quantity(
                tuple(self.axis_labels),
                self._laid(values).movedim(-1, 0),
                unit=unit.format(k=self.top_k),
                kind="outcome" if name in LOYALTIES else "value",
            )
            for (name, unit), values in zip(UNITS.items(), fields, strict=True)
            if values is not None
        }

    def _laid(self, values: Float[Tensor, "window _"]) -> Float[Tensor, "tokens side depth _"]:
        """Reshape to one axis for each part of the windows' names."""
        names = list(product(self.tokens, self.sides, self.depths))
        table = values.new_full((len(names), values.shape[1]), math.nan)
        table[[names.index((tokens, side, k)) for side, k, tokens in self.windows]] = values
        return table.reshape(len(self.tokens), len(self.sides), len(self.depths), -1)

    def more_columns(self) -> dict[str, list[float]]:
        """Ends of label loyalty as `low` and `high`, and label loyalties of the extreme draws."""
        samples = self.sel("label_loyalty")
        least, most = (self._laid(end[:, None]) for end in self.draw_loyalty.aminmax(dim=1))
        columns = {"low": samples.low, "high": samples.high, "draw_min": least, "draw_max": most}
        return {name: values.flatten().tolist() for name, values in columns.items()}

    def loyalty(self, key: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of one window with its interval.

        Raises:
            ResultError: a window that was not run.
        """
        return self._window(key, quantity).only()

    def _window(self, key: Key, quantity: str) -> Samples:
        samples = self.sel(quantity, **dict(zip(("side", "depth", "tokens"), key, strict=True)))
        if tuple(key) not in self.windows:
            raise ResultError(
                f"There is no window {tuple(key)}; available windows are {self.windows}."
            )
        return samples

    @checked(ResultError)
    def difference(self, first: Key, second: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of the first window minus that of the second, paired over prompts.

        The interval is a paired score interval over prompts and, where random tokens were drawn
        several times, widened by the spread of the draws.

        Raises:
            ResultError: a window that was not run, or an unknown quantity.
        """
        left, right = (self._window(key, quantity).per_prompt for key in (first, second))
        assert left is not None
        assert right is not None
        interval = mean_interval(left - right, "change")
        drawn = self.draw_loyalty if quantity == "label_loyalty" else self.draw_overlap
        if drawn is None:
            return interval
        gap = drawn[self.windows.index(tuple(first))] - drawn[self.windows.index(tuple(second))]
        value, low, high = with_draws(interval, gap)
        # A difference of two fractions; the widening by draws does not respect its bounds.
        return Interval(value, max(low, -1.0), min(high, 1.0))

    # --- the early window and its controls ---

    @cached_property
    def compared(self) -> Compared | None:
        """Label words in the first layers, and the last layers and random tokens that were run."""
        k = self.usual_depth
        early = ("first", k, "label")
        others = {CONTROL: ("first", k, "random"), "last layers": ("last", k, "label")}
        present = {name: key for name, key in others.items() if key in self.windows}
        return Compared(early, present) if early in self.windows and present else None

    @property
    def required(self) -> Required:
        """Status of the claim that label words collect information from the demonstrations in early layers.

        Both loyalties must fall below those of random tokens in the same layers. Label words in the last
        layers are shown as a curve and are not part of the test: few later blocks read the cut rows, so
        isolation has nearly no effect by construction, even in randomly initialised models.
        """
        differences = [self._early_difference(loyalty) for loyalty in LOYALTIES]
        return required("isolation", *differences, rising=False, prompts=self.count)

    @property
    def status(self) -> Status:
        """The status of that claim."""
        return self.required.status

    def status_of(self, loyalty: Loyalty) -> Status:
        """The status by one loyalty."""
        return judged(self._early_difference(loyalty), rising=False, prompts=self.count)

    def _early_difference(self, loyalty: Loyalty) -> Interval | None:
        if self.compared is None or CONTROL not in self.compared.others:
            return None
        return self.difference(self.compared.early, self.compared.others[CONTROL], loyalty)

    @property
    def clear(self) -> list[str]:
        """Loyalties of the early window that clearly fall below one of the others."""
        if self.compared is None:
            return []
        return [
            f"{loyalty.replace('_', ' ')} below {name}"
            for name, key in self.compared.others.items()
            for loyalty in LOYALTIES
            if self.difference(self.compared.early, key, loyalty).high < 0
        ]

    @property
    def became(self) -> Answered | None:
        """The answer that nearly all prompts get in the early window, unless there is none or all had it before."""
        if self.compared is None or self.isolated is None or answer_kind(self) != "classes":
            return None
        early = self.isolated[self.windows.index(self.compared.early), 0]
        return constant_answer(early, self.predicted, self.labels)

    # --- facts for the summary ---

    @property
    def first_usual(self) -> Key:
        """The early window, or the first of its depth."""
        key = ("first", self.usual_depth, "label")
        return key if key in self.windows else next(w for w in self.windows if w[1] == key[1])

    @property
    def told_of(self) -> Key:
        """The window whose answers and words are shown as text."""
        return self.compared.early if self.compared else self.windows[0]

    @property
    def commonest(self) -> tuple[Answered, ...]:
        """The most frequent answer in that window, and the one without isolation."""
        assert self.isolated is not None
        isolated = self.isolated[self.windows.index(self.told_of), 0]
        return tuple(
            Answered.commonest(classes, self.predicted, self.labels)
            for classes in (isolated, self.predicted)
        )

    @property
    def words_kept(self) -> int:
        """Number of prompts whose top next token stays the same in that window, among those kept as text."""
        isolated = self.words[self.windows.index(self.told_of) + 1]
        return sum(
            before[0] == after[0] for before, after in zip(self.words[0], isolated, strict=True)
        )

    @property
    def random_draws(self) -> tuple[float, float]:
        """Smallest and largest label loyalty of single draws of random tokens."""
        rows = [i for i, (*_, tokens) in enumerate(self.windows) if tokens == "random"]
        least, most = self.draw_loyalty[rows].aminmax()
        return float(least), float(most)

    def on_page(self) -> tuple[str, ...]:
        """Loyalties; answers and words where they are known."""
        known = {"answers": self.isolated is not None, "words": bool(self.words)}
        return (*LOYALTIES, *(show for show, there in known.items() if there))


@dataclass(frozen=True)
class Isolation(OfIsolation[IsolationResult]):
    """Label and word loyalty with tokens isolated in the first or last layers.

    Attributes:
        depths: Numbers of isolated layers (default: 1, 3, 5, 7 without those above L/2).
        sides: `first` layers, `last` layers or both.
        tokens: Isolate `label` words, `random` tokens or both.

    Raises:
        RunError: unknown choice, a depth the model does not have, no draws.
        PromptError: prompts without demonstrations, or with too few tokens to draw from.

    Source: Wang et al. 2023, §2.2.
    """

    depths: Sequence[int] | None = None
    sides: Side | Sequence[Side] = ("first", "last")
    tokens: Tokens | Sequence[Tokens] = ("label", "random")
    takes = ANSWER_KINDS

    def filled(self, model: LanguageModel, data: PromptBatch) -> "Isolation":
        """Fill in depths this model has, and every choice once."""
        depths = chosen_depths(self.depths, model.info)
        return replace(self, depths=depths, sides=self._sides, tokens=self._kinds)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject depths the model does not have, and prompts that cannot be isolated.

        Raises:
            RunError: such a depth, or `top_k` outside the vocabulary.
            PromptError: prompts without demonstrations, or with too few other tokens.
        """
        check_depths(self.depths or (), model.info, "depths")
        super().check(model, data)

    @property
    def _sides(self) -> tuple[Side, ...]:
        return (self.sides,) if isinstance(self.sides, str) else tuple(dict.fromkeys(self.sides))

    @property
    def _kinds(self) -> tuple[Tokens, ...]:
        return (self.tokens,) if isinstance(self.tokens, str) else tuple(dict.fromkeys(self.tokens))

    def keys(self) -> list[tuple[Side, int, Tokens]]:
        """Side, depth and tokens of every window."""
        return [(s, k, t) for t in self._kinds for s in self._sides for k in self.depths or ()]

    def windows(self, n_layers: int) -> list[Window]:
        """The first or last layers."""
        return [
            (range(depth) if side == "first" else range(n_layers - depth, n_layers), tokens)
            for side, depth, tokens in self.keys()
        ]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> IsolationResult:
        """Agreement of each window with the plain run."""
        return IsolationResult(
            **vars(self.agreement(model, data, read)),
            windows=tuple(self.keys()),
            n_layers=model.info.n_layers,
            top_k=self.top_k,
        )


isolation = door(
    Isolation,
    "isolation",
    prompts="Prompts with at least one demonstration each.",
    interventions="Applied with and without isolation: loyalty is relative to the modified model.",
)
