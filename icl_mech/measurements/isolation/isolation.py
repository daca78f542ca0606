"""Isolation: do label words collect the demonstrations in early layers?

Label words are cut off from everything before them (`Isolate`) in the first or last k layers.

* *label loyalty*: share of prompts whose predicted class is the same as without isolation;
* *word loyalty*: mean Jaccard overlap of the top-k next tokens with and without isolation.

The control isolates as many random tokens of the demonstrations; its values are averaged over
several draws per prompt. One draw serves all windows. Isolation in the last layer alone changes
nothing at all: the cut rows reach no later block.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, Literal

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.interventions.isolate import Tokens
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation import early
from icl_mech.measurements.isolation.agreement import (
    DEFINITIONS,
    LOYALTIES,
    SHOWN,
    UNITS,
    Key,
    Loyalty,
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
    with_draws,
)
from icl_mech.measurements.isolation.answers import (
    Words,
    class_counts,
    commonest,
    constants,
    dashed,
    word_figure,
    word_table,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, Samples
from icl_mech.results.prompts import answer_kind, basis, given
from icl_mech.results.wording import counted, listed, told
from icl_mech.shapes import LabelMatrix, LayerCurves, Table

Side = Literal["first", "last"]


@dataclass(frozen=True, eq=False, kw_only=True)
class IsolationResult(Result):
    """Loyalty under isolation, by tokens, side and depth.

    Attributes:
        windows: (side, depth, tokens) of every window, e.g. `("first", 5, "label")`.
        label_kept: Whether the predicted class is unchanged, averaged over draws.
        word_overlap: Jaccard overlap of the `top_k` next tokens, averaged over draws.
        draw_loyalty, draw_overlap: Loyalties of each draw (label words: the same in each column).
        predicted: Predicted class without isolation.
        isolated: Predicted class under isolation, of each draw; this and overlaps None in old files.
        words: Likeliest next words of the first prompts, without isolation and with that of each window.
        log_prob: Log-probability of the answer (of texts the followed token) under isolation minus
            without, in nats, averaged over draws; None where answers are classes.
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
    log_prob: Float[Tensor, "window batch"] | None = None

    title: ClassVar[str] = "Isolating label words"
    shows: ClassVar[tuple[str, ...]] = ("loyalty", *LOYALTIES, "answers", "words")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar = {"tokens": "tokens", "side": "sides", "depth": "depths"}

    @property
    def tokens(self) -> tuple[str, ...]:
        """What is isolated."""
        return tuple(dict.fromkeys(tokens for *_, tokens in self.windows))

    @property
    def sides(self) -> tuple[str, ...]:
        """In the first or the last layers."""
        return tuple(dict.fromkeys(side for side, *_ in self.windows))

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
        """Both loyalties, with Wilson's interval of an effective n (see `mean_ends`); `log_prob` if known.

        By tokens, side and depth; not-a-number where no such window was run. The spread between draws
        is not part of these intervals, but of `difference`.
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
        """With an axis for each part of the windows' names."""
        names = list(product(self.tokens, self.sides, self.depths))
        table = values.new_full((len(names), values.shape[1]), math.nan)
        table[[names.index((kind, side, k)) for side, k, kind in self.windows]] = values
        return table.reshape(len(self.tokens), len(self.sides), len(self.depths), -1)

    def more_columns(self) -> dict[str, list[float]]:
        """Ends of label loyalty as `low` and `high`, and label loyalties of the extreme draws."""
        found = self.sel("label_loyalty")
        least, most = (self._laid(end[:, None]) for end in self.draw_loyalty.aminmax(dim=1))
        columns = {"low": found.low, "high": found.high, "draw_min": least, "draw_max": most}
        return {name: values.flatten().tolist() for name, values in columns.items()}

    def loyalty(self, key: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of one window with its interval.

        Raises:
            ResultError: a window that was not run.
        """
        return self._window(key, quantity).only()

    def _window(self, key: Key, quantity: str) -> Samples:
        found = self.sel(quantity, **dict(zip(("side", "depth", "tokens"), key, strict=True)))
        if tuple(key) not in self.windows:
            raise ResultError(f"No window {tuple(key)}; there are {self.windows}.")
        return found

    @checked(ResultError)
    def difference(self, first: Key, second: Key, quantity: Loyalty = "label_loyalty") -> Interval:
        """Loyalty of the first window minus that of the second, paired over prompts.

        The interval is a paired score interval over prompts and, where random tokens were drawn
        several times, as much wider as draws differ.

        Raises:
            ResultError: a window that was not run, or an unknown quantity.
        """
        one, other = (self._window(key, quantity).per_prompt for key in (first, second))
        assert one is not None
        assert other is not None
        found = mean_interval(one - other, "change")
        drawn = self.draw_loyalty if quantity == "label_loyalty" else self.draw_overlap
        if drawn is None:
            return found
        gap = drawn[self.windows.index(tuple(first))] - drawn[self.windows.index(tuple(second))]
        value, low, high = with_draws(found, gap)
        # A difference of two shares; the part that draws add knows nothing of their ends.
        return Interval(value, max(low, -1.0), min(high, 1.0))

    def drawing(self, show: str = "loyalty") -> LayerCurves | LabelMatrix | Table:
        """Loyalty by number of isolated layers, in panels by side; or what is answered instead.

        Args:
            show: `loyalty` (both), `label_loyalty` or `word_loyalty`; `answers`, how often each
                class is predicted with and without isolation; `words`, the likeliest next words of
                the first prompts.

        Raises:
            ResultError: unknown `show`, or predictions and words that earlier files do not hold.
        """
        self.check_show(show)
        if show == "answers":
            return self._answers()
        if show == "words":
            return self._next_words()
        shown = [self.sel(own) for own in LOYALTIES if show in ("loyalty", own)]
        drawn = f"; random tokens: mean of {counted(self.draws, 'draw')}" * (
            "random" in self.tokens
        )
        return early.curves(shown, self.levels, basis(self) + drawn)

    def _answers(self) -> LabelMatrix:
        if self.isolated is None:
            raise ResultError(
                "This result does not hold what the isolated model predicts, which earlier versions did "
                "not keep; measure again."
            )
        conditions = list(map(condition, self.windows))
        return class_counts(self.predicted, self.isolated, self.labels, conditions)

    def _next_words(self) -> Table:
        if not self.words:
            raise ResultError(
                "This result holds no next words: earlier versions did not keep them, or the model has no "
                "tokenizer. Measure again with its tokenizer."
            )
        plain, *isolated = self.words
        pairs = zip(self.windows, isolated, strict=True)
        rows = [(condition(key), own) for key, own in pairs if key[1] == self.usual_depth]
        return word_table([("no isolation", plain), *rows], self.top_k)

    @property
    def levels(self) -> list[tuple[float, str]]:
        """Label loyalty that constant answers keep, with words."""
        own = [i for i, (*_, tokens) in enumerate(self.windows) if tokens == "label"]
        isolated = None if self.isolated is None else self.isolated[own, 0]
        return constants(self.predicted, isolated, self.labels, answer_kind(self))

    def figures(self) -> list[Figure]:
        """Both loyalties, what is answered under isolation, and which words become likely."""
        loyalty = Figure(
            "loyalty",
            "Do label words collect the demonstrations early?",
            early.answer(self),
            _caption(self),
            early.establishes(self),
            _limits(self),
            "Isolating label words",
        )
        return [loyalty, *_examples(self)]

    def summary(self) -> str:
        """Both loyalties with the first layers isolated, against last layers and random tokens."""
        return early.summary(self)


def condition(key: Key) -> str:
    """A window in words."""
    side, depth, tokens = key
    return f"{SHOWN[tokens]}, {side} {'layer' if depth == 1 else f'{depth} layers'}"


def _caption(result: IsolationResult) -> str:
    kinds, sides = result.tokens, listed(result.sides, "or")
    isolated = listed((SHOWN[kind] for kind in kinds), "or as many")
    apart = " Points are set a little apart so that equal ones stay visible." * (len(kinds) > 1)
    drawn = ""
    if "random" in kinds and result.draws > 1:
        own = [i for i, (*_, tokens) in enumerate(result.windows) if tokens == "random"]
        least, most = (float(end) for end in result.draw_loyalty[own].aminmax())
        drawn = (
            f" Random tokens: mean of {result.draws} draws (label loyalty of single draws "
            f"{told(least)} to {told(most)}), which differences to them take into account."
        )
    return (
        f"**Share of answers (label loyalty, top) and of the {result.top_k} likeliest next tokens (word "
        f"loyalty, bottom) that stay** when {isolated} no longer read what comes before them in the "
        f"{sides} k of {result.n_layers} layers.{dashed(answer_kind(result))}{apart} Bars: 95 % intervals over "
        f"{counted(len(result.predicted), 'prompt')}{given(result)} (Wilson; values between 0 "
        f"and 1 with an effective number of prompts).{drawn}"
    )


def _limits(result: IsolationResult) -> str:
    parts = []
    if result.isolated is None:
        parts.append("what the isolated model answers instead; this run does not hold it.")
    else:
        constant = ": a constant answer keeps some, too" * (answer_kind(result) == "classes")
        parts.append(f"that the answers which stay are still known{constant}.")
    if "last" in result.sides:
        parts.append(
            "Isolation in the last layers changes little by construction, also in untrained networks."
        )
    if result.provenance.get("conditional_on_demonstrations"):
        parts.append("One set of demonstrations was used.")
    return " ".join(parts)


def _examples(result: IsolationResult) -> Iterator[Figure]:
    """What is answered in the early window, and which words become likely, where that is known."""
    windows = early.compared(result)
    key = windows.early if windows else result.windows[0]
    place, (side, k, tokens) = result.windows.index(key), key
    where = f"{SHOWN[tokens]} isolated in the {side} {counted(k, 'layer')}"
    if result.isolated is not None:
        drawn = f" Random tokens: mean of {result.draws} draws."
        yield Figure(
            "answers",
            "What does the isolated model answer instead?",
            commonest(result.isolated[place, 0], result.predicted, result.labels, where),
            "**How often each class is predicted** without isolation (first row) and with it; rows add up "
            f"to {counted(len(result.predicted), 'prompt')}."
            + drawn
            * (result.draws > 1 and "random" in result.tokens),
            limits="which prompts moved: two rows with equal counts may hold other prompts.",
            short="Answers under isolation",
        )
    if result.words:
        plain, isolated = result.words[0], result.words[place + 1]
        yield word_figure(plain, isolated, where, result.top_k, result.usual_depth)


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
        """With depths this model has, and every choice once."""
        depths = chosen_depths(self.depths, model.info)
        return replace(self, depths=depths, sides=self._sides, tokens=self._kinds)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse depths the model does not have, and what cannot be isolated.

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
    interventions="Made with and without isolation: loyalty is to the model so changed.",
)
