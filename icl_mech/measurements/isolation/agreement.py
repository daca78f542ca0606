"""What the isolation measurements share: variants, checks, runs, and intervals of loyalty.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate
from icl_mech.interventions.isolate import Mode, Redraw, Tokens, random_positions
from icl_mech.measurements.base import Measurement, Variants
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.predictions import PredictionReading, check_top_k
from icl_mech.metrics import bootstrap_interval, same_label, wilson_interval, word_overlap
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result

R = TypeVar("R", bound=Result)

Loyalty = Literal["label_loyalty", "word_loyalty"]
LOYALTIES: tuple[Loyalty, ...] = get_args(Loyalty)

Window = tuple[Sequence[int], Tokens]
"""Isolated layers, and what is isolated in them."""

USUAL = (1, 3, 5, 7)
"""Numbers of isolated layers in the paper."""

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
    """

    predicted: Int[Tensor, " batch"]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]


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
        kept, overlaps = [], []
        for window in self.windows(model.info.n_layers):
            drawn = [next(found) for _ in self.cuts(window)]
            kept.append(
                torch.stack([same_label(r[0].argmax(-1), predicted).double() for r in drawn])
            )
            overlaps.append(torch.stack([word_overlap(r[2], words) for r in drawn]))
        most = max(len(values) for values in kept)
        return Agreement(
            predicted=predicted,
            label_kept=torch.stack([values.mean(0) for values in kept]),
            word_overlap=torch.stack([values.mean(0) for values in overlaps]),
            draw_loyalty=torch.stack(
                [
                    values.mean(1).expand(most) if len(values) == 1 else values.mean(1)
                    for values in kept
                ]
            ),
        )


def loyalty_ends(
    values: Float[Tensor, "window batch"], outcomes: Bool[Tensor, " window"]
) -> tuple[Float[Tensor, " window"], Float[Tensor, " window"]]:
    """Ends of the 95 % intervals: Wilson for 0/1 `outcomes`, else bootstrap over prompts."""
    low, high = bootstrap_interval(values.T)
    for row in outcomes.nonzero()[:, 0].tolist():
        _, low[row], high[row] = wilson_interval(values[row] == 1)
    return low, high


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
