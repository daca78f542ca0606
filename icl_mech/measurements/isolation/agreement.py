"""What the isolation measurements share: variants, checks, runs, and intervals of loyalty.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate
from icl_mech.interventions.isolate import Mode, Redraw, Tokens, random_positions
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.predictions import PredictionReading, check_top_k
from icl_mech.metrics import Interval, mean_ends, same_label, word_overlap
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.results import Result
from icl_mech.results.wording import listed, told

R = TypeVar("R", bound=Result)

Loyalty = Literal["label_loyalty", "word_loyalty"]
LOYALTIES: tuple[Loyalty, ...] = get_args(Loyalty)

Key = tuple[str, int, str]
"""Side, depth and tokens of a window in the first or last layers."""

Window = tuple[Sequence[int], Tokens]
"""Isolated layers, and what is isolated in them."""

USUAL = (1, 3, 5, 7)
"""Numbers of isolated layers in the paper."""

EXAMPLES = 3
"""Of so many prompts, the first ones, the likeliest next words are kept as text."""

Words = tuple[tuple[str, ...], ...]
"""The likeliest next words of some prompts, best first."""

NEARLY_ALWAYS = 0.8
"""A window that answers one class so often hardly differs from a constant answer."""

MOST_CONSTANTS = 4
"""So many constant answers are drawn where predictions under isolation are not known."""

CLOSE = 0.05
"""Lines of constant answers closer than this are drawn as one."""

SHOWN = {"label": "label words", "random": "random tokens"}
TITLES = {"label_loyalty": "Label loyalty", "word_loyalty": "Word loyalty"}
UNITS = {
    "label_loyalty": "share of unchanged predicted classes",
    "word_loyalty": "overlap of the top {k} next tokens",
}


@dataclass(frozen=True)
class Agreement:
    """How far isolated runs agree with the plain one, averaged over draws.

    Attributes:
        predicted: Class predicted without isolation.
        label_kept: Whether the predicted class is unchanged.
        word_overlap: Jaccard overlap of the top next tokens.
        draw_loyalty: Label loyalty of each draw (label words: the same number in each column).
        draw_overlap: Word loyalty of each draw, likewise.
        isolated: Class predicted under isolation, of each draw likewise.
        words: Likeliest next words of the first prompts, without isolation and then with that of
            each window (its first draw).
    """

    predicted: Int[Tensor, " batch"]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]
    draw_overlap: Float[Tensor, "window draw"]
    isolated: Int[Tensor, "window draw batch"]
    words: tuple[Words, ...] = ()


@dataclass(frozen=True)
class OfIsolation(Measurement[R]):
    """Variants of all measurements with isolated tokens.

    Attributes:
        mode: `mask` sets scores to -inf before softmax (the reference code), `zero` sets the
            pattern to 0 after it (the paper's text).
        redraw: Random tokens: one draw per demonstration `set`, per `prompt` or per `layer`.
        draws: Number of draws of random tokens.
        top_k: Number of next tokens compared for word loyalty.
        seed: Of the first draw.
    """

    mode: Mode = "mask"
    redraw: Redraw = "set"
    draws: Count = 5
    top_k: int = 5
    seed: Natural = 0

    @abstractmethod
    def windows(self, n_layers: int) -> list[Window]:
        """Where what is isolated, in the order of the result."""

    def cuts(self, window: Window) -> list[tuple[Isolate]]:
        """One set of interventions per draw; label words need one only."""
        layers, tokens = window
        seeds = range(self.seed, self.seed + (self.draws if tokens == "random" else 1))
        return [
            (Isolate(layers, tokens, mode=self.mode, redraw=self.redraw, seed=seed),)
            for seed in seeds
        ]

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse what cannot be isolated or compared.

        Raises:
            RunError: `top_k` outside the vocabulary.
            PromptError: prompts without demonstrations, or with too few other tokens.
        """
        check_top_k(self.top_k, model.info)
        check_demonstrations(data, "isolation")
        if any(tokens == "random" for _, tokens in self.windows(model.info.n_layers)):
            for prompt in data:
                random_positions(prompt, self.redraw, self.seed, 0)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Variants]:
        """The plain run and all isolated ones, on one path: ranks of close numbers are compared."""
        cuts = [cut for window in self.windows(model.info.n_layers) for cut in self.cuts(window)]
        reading = PredictionReading(self.top_k)
        return [Variants(data, [reading], variants=[(), *cuts], title="isolation")]

    def agreement(self, model: LanguageModel, read: list[Any]) -> Agreement:
        """Per-prompt agreement of every window, from what the passes read."""
        (plain,), *isolated = read[0]
        predicted, words = plain[0].argmax(-1), plain[2]
        found: Iterator[tuple[Tensor, Tensor, Tensor]] = (values for (values,) in isolated)
        kept, overlaps, classes = [], [], []
        said = [next_words(model, words)]
        for window in self.windows(model.info.n_layers):
            drawn = [next(found) for _ in self.cuts(window)]
            classes.append(torch.stack([r[0].argmax(-1) for r in drawn]))
            kept.append(torch.stack([same_label(own, predicted).double() for own in classes[-1]]))
            overlaps.append(torch.stack([word_overlap(r[2], words) for r in drawn]))
            said.append(next_words(model, drawn[0][2]))
        most = max(len(values) for values in kept)

        def by_draw(values: list[Tensor]) -> Tensor:
            # Label words have one draw, which stands in every column.
            return torch.stack([own.expand(most, *own.shape[1:]) for own in values])

        return Agreement(
            predicted=predicted,
            label_kept=torch.stack([values.mean(0) for values in kept]),
            word_overlap=torch.stack([values.mean(0) for values in overlaps]),
            draw_loyalty=by_draw([values.mean(1) for values in kept]),
            draw_overlap=by_draw([values.mean(1) for values in overlaps]),
            isolated=by_draw(classes),
            words=tuple(said) if all(said) else (),
        )


def next_words(model: LanguageModel, top: Int[Tensor, "batch k"]) -> Words:
    """The texts of the likeliest next tokens of the first prompts; none without a tokenizer."""
    if not callable(model.tokenizer):
        return ()
    pieces = PieceTokenizer(model.tokenizer)
    return tuple(pieces.words(tuple(row)) for row in top[:EXAMPLES].tolist())


def label_ends(
    kept: Float[Tensor, "window batch"],
) -> tuple[Float[Tensor, " window"], Float[Tensor, " window"]]:
    """Ends of the 95 % intervals of label loyalty: Wilson's, for label words and random tokens.

    Means over several draws vary less than yes or no and have an effective n; none is of zero
    width where all prompts agree.
    """
    return mean_ends(kept.T, "outcome")


def word_ends(
    overlap: Float[Tensor, "window batch"],
) -> tuple[Float[Tensor, " window"], Float[Tensor, " window"]]:
    """Ends of the 95 % intervals of word loyalty: as of label loyalty."""
    return mean_ends(overlap.T, "outcome")


def with_draws(found: Interval, drawn: Float[Tensor, " draw"]) -> Interval:
    """An interval over prompts, as much wider as the mean over draws is uncertain.

    `drawn` are the values of single draws; t times their standard error and the distance of each
    end are added as the sides of a right angle.
    """
    from scipy.stats import t

    count = len(drawn)
    spread = float(drawn.double().std()) if count > 1 else 0.0
    if spread == 0:
        return found
    half = float(t.ppf(0.975, count - 1)) * spread / math.sqrt(count)
    value, low, high = found
    return Interval(
        value, value - math.hypot(value - low, half), value + math.hypot(high - value, half)
    )


def constants(
    predicted: Int[Tensor, " batch"],
    isolated: Int[Tensor, "window batch"] | None,
    labels: Sequence[str],
) -> list[tuple[float, str]]:
    """Label loyalty that constant answers and chance keep, for those that matter, with words.

    They are the commonest answer without isolation, and every answer that a window (nearly)
    always gives; where that is not known, all answers if they are few.

    Args:
        predicted: Classes predicted without isolation.
        isolated: Those under isolation, one row per window.
        labels: Names of the classes.
    """
    n = len(predicted)
    shares = predicted.bincount(minlength=len(labels)).double() / n
    matter = {int(shares.argmax())}
    if isolated is not None:
        matter |= {
            int(own.mode().values)
            for own in isolated
            if float((own == own.mode().values).double().mean()) >= NEARLY_ALWAYS
        }
    elif int((shares > 0).sum()) <= MOST_CONSTANTS:
        matter |= set(shares.nonzero()[:, 0].tolist())
    found = [(float(shares[c]), f"always “{class_name(labels, c)}”") for c in sorted(matter)]
    if len(labels) > 1:
        found.append((1 / len(labels), "chance"))
    return _merged(found)


def class_name(labels: Sequence[str], place: int) -> str:
    """Name of a class, also where a file does not hold it."""
    return labels[place] if place < len(labels) else f"class {place}"


def _merged(levels: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Levels closer than their words are high get one line."""
    found: list[tuple[float, list[str]]] = []
    for height, words in sorted(levels):
        if found and height - found[-1][0] < CLOSE:
            found[-1][1].append(words)
        else:
            found.append((height, [words]))
    return [(height, f"{listed(words)} {told(height)}") for height, words in found]


def chosen_depths(given: Sequence[int] | None, info: ModelInfo) -> tuple[int, ...]:
    """Numbers of layers, ascending, each once; by default those of the paper up to L/2."""
    usual = tuple(k for k in USUAL if k <= info.n_layers / 2) or (1,)
    return usual if given is None else tuple(sorted(set(given)))


def check_depths(depths: Sequence[int], info: ModelInfo, what: str) -> None:
    """Refuse numbers of layers the model does not have, and none at all.

    Raises:
        RunError: none, or one outside 1...L.
    """
    if not depths or not all(1 <= depth <= info.n_layers for depth in depths):
        raise RunError(
            f"{what}={tuple(depths)}; {info.name!r} has {info.n_layers} layers, so each must lie "
            f"between 1 and {info.n_layers}."
        )
