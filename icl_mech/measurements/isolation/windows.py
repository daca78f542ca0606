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
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from icl_mech.interventions.isolate import Tokens
from icl_mech.measurements.doors import door
from icl_mech.measurements.isolation.agreement import (
    OfIsolation,
    Window,
    check_depths,
    chosen_depths,
)
from icl_mech.measurements.isolation.loyalty import IsolationResult
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch

Side = Literal["first", "last"]


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

    name: ClassVar[str] = "isolation"

    depths: Sequence[int] | None = None
    sides: Side | Sequence[Side] = ("first", "last")
    tokens: Tokens | Sequence[Tokens] = ("label", "random")

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
        found = self.agreement(model, read)
        return IsolationResult(
            windows=tuple(self.keys()),
            label_kept=found.label_kept,
            word_overlap=found.word_overlap,
            draw_loyalty=found.draw_loyalty,
            draw_overlap=found.draw_overlap,
            predicted=found.predicted,
            isolated=found.isolated,
            words=found.words,
            labels=data.labels,
            n_layers=model.info.n_layers,
            top_k=self.top_k,
        )


isolation = door(
    Isolation,
    "isolation",
    prompts="Prompts with at least one demonstration each.",
    interventions="Made with and without isolation: loyalty is to the model so changed.",
)
