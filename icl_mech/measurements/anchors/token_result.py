"""`TokenAnchors`: the result of `icl_mech.measurements.anchors.tokens`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.anchors.definitions import TOKENS
from icl_mech.metrics import KindsTest, kinds_test, matched_means, mean_ends
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import Status, judged_twice
from icl_mech.shapes import Bars, TokenStrips

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

KINDS = ("marked", "matched")
"""The tokens compared, and position-matched ones."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TokenAnchors(Result):
    """Column masses of every prompt, the tokens that stand out, and how named tokens compare.

    Attributes:
        mass: Mean over later rows of what they put on each token, per prompt; up to the target.
        times: Mass over the chosen layers, divided by the median nearby, per prompt; not-a-number
            at the first token.
        scores: How far it lies from those nearby, in units of the text's own spread, per prompt.
        limits: Score that anchors exceed, per prompt, if the text's spread decides.
        anchors: Positions of the tokens that stand out, per prompt.
        marked: Positions of the tokens compared, per prompt.
        multiple: Mean of `times` over the tokens compared, and over position-matched ones.
        found: Share of them that are anchors.
        tokens: Text of the tokens, per prompt.
        compared: What the tokens compared are: `label words`, or `last tokens of spans`.
        of: What was read, `saliency` or `attention`.
        layers: Layers over which masses are averaged.
        ratio: How many times the median nearby an anchor's mass exceeds; None: the spread decides.
        window: What nearby is.
    """

    title: ClassVar[str] = "Anchor tokens"
    shows: ClassVar[tuple[str, ...]] = ("", "text")
    definitions: ClassVar[tuple[Definition, ...]] = TOKENS

    mass: tuple[Float[Tensor, "layer _"], ...]
    times: tuple[Float[Tensor, " _"], ...]
    anchors: tuple[tuple[int, ...], ...]
    marked: tuple[tuple[int, ...], ...]
    multiple: Float[Tensor, "batch kind"]
    found: Float[Tensor, "batch kind"]
    tokens: tuple[tuple[str, ...], ...]
    compared: str = "label words"
    of: str = "saliency"
    layers: tuple[int, ...] = ()
    ratio: float | None = 3.0
    window: int = 16
    scores: tuple[Float[Tensor, " _"], ...] = ()
    limits: tuple[float, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Of the tokens compared and of matched ones: multiples of the median nearby, and shares
        that are anchors; their paired differences; and the share of all tokens that are anchors.

        With scores also these, their paired difference, and `strongest`: shares that are among the k
        tokens of the largest scores, k being the number of tokens compared in the prompt.
        """
        unit = "times the median nearby", "share that are anchors"
        counts = [len(own) / int(times.isfinite().sum()) for own, times in self._counted()]
        found = {
            "multiple": Quantity(("kind",), self.multiple, unit=unit[0]),
            "found": Quantity(("kind",), self.found, unit=unit[1], kind="outcome"),
            "multiple_difference": Quantity((), self._difference(self.multiple), unit=unit[0]),
            "found_difference": Quantity(
                (), self._difference(self.found), unit=unit[1], kind="change"
            ),
            "anchors": Quantity(
                (),
                torch.tensor(counts, dtype=torch.float64),
                unit="share of all tokens",
                kind="outcome",
            ),
        }
        if self.scores:
            strongest, scores = self._matched(self._strongest()), self._matched(self.scores)
            unit = "share among the strongest", "spreads above the median nearby"
            found["strongest"] = Quantity(("kind",), strongest, unit=unit[0], kind="outcome")
            found["score"] = Quantity(("kind",), scores, unit=unit[1])
            found["score_difference"] = Quantity((), self._difference(scores), unit=unit[1])
        return found

    def _places(self) -> list[Bool[Tensor, " _"]]:
        """Which tokens are compared, per prompt."""
        flags = [torch.zeros(len(own), dtype=torch.bool) for own in self.times]
        for own, marked in zip(flags, self.marked, strict=True):
            own[list(marked)] = True
        return flags

    def _strongest(self) -> list[Tensor]:
        """Which tokens are among the k of the largest scores, per prompt."""
        found = []
        for scores, marked in zip(self.scores, self.marked, strict=True):
            flags = torch.zeros(len(scores), dtype=torch.float64)
            flags[scores.nan_to_num(-torch.inf).topk(len(marked)).indices] = 1.0
            found.append(flags.masked_fill(scores.isnan(), torch.nan))
        return found

    def _matched(self, values: Sequence[Tensor]) -> Float[Tensor, "batch kind"]:
        """Means over the tokens compared and over those near them."""
        pairs = zip(values, self._places(), strict=True)
        means = [matched_means(own, places, self.window) for own, places in pairs]
        return torch.tensor(means, dtype=torch.float64)

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """The tokens compared, and position-matched ones."""
        return {"kind": KINDS}

    def _counted(self) -> list[tuple[tuple[int, ...], Tensor]]:
        return list(zip(self.anchors, self.times, strict=True))

    @staticmethod
    def _difference(values: Float[Tensor, "batch kind"]) -> Float[Tensor, " batch"]:
        return values[:, 0] - values[:, 1]

    @cached_property
    def words_test(self) -> KindsTest:
        """Of scores, over words: how often words chosen at random lie as high as those compared.

        The interval of `score_difference` takes the words as given; this takes the prompts so.

        Raises:
            ResultError: a result saved before there were scores.
        """
        if not self.scores:
            raise ResultError("This result has no scores; measure again to compare words.")
        words = [
            own for text, s in zip(self.tokens, self.scores, strict=True) for own in text[: len(s)]
        ]
        return kinds_test(torch.cat(self.scores), words, torch.cat(self._places()))

    @property
    def status(self) -> Status:
        """Of the claim that the tokens compared stand out from those near them.

        It needs an interval of `score_difference` above 0 and a p-value over words of at most 0.025.
        """
        if not self.scores:
            return "cannot be judged"
        test, effect = self.words_test, self.interval("score_difference")
        return judged_twice(
            effect, test.p_value, test.smallest, opposite=test.below, prompts=len(self.found)
        )

    # --- showing ---

    def drawing(self, show: str = "", prompt: int = 0) -> Bars | TokenStrips:
        """The tokens compared beside position-matched ones, or one prompt as text.

        Args:
            show: "" or `text`.
            prompt: Which prompt.

        Raises:
            ResultError: unknown `show`, or no such prompt.
        """
        self.check_show(show)
        if show == "text":
            return self._text(prompt)
        ends = mean_ends(self.multiple)
        values, low, high = (own[None] for own in (self.multiple.mean(0), *ends))
        return Bars(
            f"Do {self.compared} stand out?",
            (f"column mass of {self.of}",),
            (self.compared, "tokens near them"),
            values, low, high,
            "times the median of the tokens nearby",
            note=basis(self),
            meanings=("label", "other"),
            levels=((1.0, "median nearby"), *([(self.ratio, "anchors")] if self.ratio else [])),
        )  # fmt: skip

    def _text(self, prompt: int) -> TokenStrips:
        self._check_prompt(prompt)
        count = len(self.times[prompt])
        marks = ["" for _ in range(count)]
        for place in self.anchors[prompt]:
            marks[place] = "anchor"
        return TokenStrips(
            title="Text by column mass",
            names=(f"layers {self.layers[0]} to {self.layers[-1]}",),
            values=self.times[prompt].nan_to_num()[None],
            tokens=self.tokens[prompt][:count],
            marks=tuple(marks),
            quantity=f"{self.of}, times the median nearby",
            note=f"prompt {prompt}; anchors are framed",
        )

    def view(self, prompt: int = 0) -> "View":
        """A prompt coloured by column mass, anchors framed; hatched where it is undefined.

        Raises:
            ResultError: no such prompt.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        self._check_prompt(prompt)
        times = self.times[prompt].tolist()
        own = set(self.anchors[prompt])
        roles = tuple("label_word" if i in own else "unknown" for i in range(len(times)))
        about = tuple("anchor" if i in own else "" for i in range(len(times)))
        text = Text(self.tokens[prompt][: len(times)], roles, about=about)
        return prompt_view(text, times, name=f"{self.of}, times the median nearby", low=0.0)

    def _check_prompt(self, prompt: int) -> None:
        if not 0 <= prompt < len(self.times):
            raise ResultError(f"prompt={prompt}; there are masses of {len(self.times)} prompts.")

    def figures(self) -> list[Figure]:
        """The comparison, and one prompt as text."""
        from icl_mech.measurements.anchors.texts import token_figures

        return token_figures(self)

    def summary(self) -> str:
        """How many tokens stand out, and how the tokens compared do."""
        share = self.interval("anchors")
        return (
            f"{share} of the tokens are anchors, of the {self.compared} "
            f"{self.interval('found', kind='marked')}; {self.compared} have "
            f"{self.interval('multiple', kind='marked')} times the median nearby, tokens near them "
            f"{self.interval('multiple', kind='matched')}"
        )
