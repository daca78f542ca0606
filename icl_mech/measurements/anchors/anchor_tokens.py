"""Anchor tokens: tokens that later ones read far more than their neighbours.

The column mass `m_l[j]` is the mean of the saliency (or of the attention, averaged over heads) that the
tokens after `j`, up to the target, put on `j`, averaged over the chosen layers. Masses of
unremarkable tokens differ by factors of hundreds, so an anchor is an outlier among the masses of the
text: its distance from the median of the tokens around it, on a logarithmic
scale and relative to that expected from position alone, exceeds the largest that a text without anchors would show
in 95 % of cases. With `ratio` it is a token whose mass exceeds that many times the median, whatever the others do.

A type of token is tested by comparison with position-matched tokens: the label
words of prompts with demonstrations, the last token of each span of a text. The compared tokens are
fixed beforehand, so that selection and test do not use the same prompts. They are a few
words, the same in all prompts, so the claim that they stand out needs a p-value over words (`words_test`) in
addition to the interval over prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions.base import check_layers
from icl_mech.measurements.anchors import columns
from icl_mech.measurements.anchors.between import pieces_of
from icl_mech.measurements.anchors.span_flow import Of
from icl_mech.measurements.base import Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.saliency.reduction import SALIENCY, OfSaliency
from icl_mech.metrics import kinds_test
from icl_mech.metrics.outliers import FEWEST_TOKENS, matched_means
from icl_mech.metrics.permutations import KindsTest
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import Status, judged_twice

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View

DEFINITIONS = (
    columns.COLUMN_MASS,
    Definition(
        "anchor tokens",
        r"\frac{1}{s}\left(\log\frac{\bar m[j]}{u[j]} - \mathrm{median}\left\{\log\frac{\bar m[k]}"
        r"{u[k]} : 0 < |k - j| \leq w\right\}\right) > c_n",
        "Tokens whose mass stands out from their neighbourhood. The mass is averaged over the "
        "chosen layers (the last third) and divided by the mass u that uniform attention would "
        "give that position. A token is found if its distance above the median of the tokens at "
        "most w = 16 positions away exceeds a limit that the largest distance in a text without "
        "anchors stays below in 95 % of cases. Distances are in units of the spread s, their 0.84 "
        "quantile; the limit c for n tokens is computed for normally distributed values. Tokens "
        "found are excluded from medians and spread, and the search is repeated until no more are "
        "found. The first token is always excluded, because it attracts attention whatever it is.",
    ),
    Definition(
        "anchors by a ratio",
        r"\bar m[j] > c \cdot \mathrm{median}\{\bar m[k] : 0 < |k - j| \leq w\}",
        "The variant `ratio`: tokens whose mass exceeds the local median by a given factor. It "
        "has no known error rate.",
    ),
    Definition(
        "p-value over words",
        r"p = P\left(\bar z_{\mathrm{chosen}} \geq \bar z_{\mathrm{compared}}\right)",
        "The score z of a word is the mean over its occurrences (at most as many as the rarest "
        "compared word has), in spreads. As many words as are compared are drawn from all "
        "words, in every possible way or in 9999 random draws (seed 0); p is the fraction of "
        "draws with a mean score at least as high. The interval treats these words as fixed and "
        "covers prompts; a claim needs both.",
    ),
    SALIENCY,
)

KINDS = ("marked", "matched")
"""The compared tokens, and position-matched ones."""

NAMED = 5
"""Maximum number of anchors of a prompt that are named."""


class Example(NamedTuple):
    """Anchors of one prompt.

    Attributes:
        prompt: Number of the prompt.
        anchors: Positions of the strongest anchors, the strongest first.
    """

    prompt: int
    anchors: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class AnchorTokensResult(Result):
    """Column masses of every prompt, the tokens that stand out, and a comparison of given tokens.

    Attributes:
        mass: Mean over later rows of what they put on each token, per prompt; up to the target.
        times: Mass over the chosen layers, divided by the median nearby, per prompt; not-a-number
            at the first token.
        scores: Distance from the tokens nearby, in units of the text's spread, per prompt.
        limits: Score that anchors exceed, per prompt, if the text's spread decides.
        anchors: Positions of the tokens that stand out, per prompt.
        marked: Positions of the compared tokens, per prompt.
        multiple: Mean of `times` over the compared tokens, and over position-matched ones.
        found: Fraction of them that are anchors.
        tokens: Text of the tokens, per prompt.
        compared: Type of the compared tokens: `label words`, or `last tokens of spans`.
        of: Quantity that was read, `saliency` or `attention`.
        layers: Layers over which masses are averaged.
        ratio: Factor by which an anchor's mass exceeds the median nearby; None: the spread decides.
        window: Size of the neighbourhood.
    """

    shows: ClassVar[tuple[str, ...]] = ("", "text")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"kind": KINDS}

    mass: tuple[Float[Tensor, "layer _"], ...]
    times: tuple[Float[Tensor, " _"], ...]
    anchors: tuple[tuple[int, ...], ...]
    marked: tuple[tuple[int, ...], ...]
    multiple: Float[Tensor, "batch kind"] = quantity("times the median nearby", kind="amount")
    found: Float[Tensor, "batch kind"] = quantity("fraction that are anchors", kind="outcome")
    tokens: tuple[tuple[str, ...], ...]
    compared: str = "label words"
    of: str = "saliency"
    layers: tuple[int, ...] = ()
    ratio: float | None = 3.0
    window: int = 16
    scores: tuple[Float[Tensor, " _"], ...] = ()
    limits: tuple[float, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Values of the compared and of matched tokens: multiples of the local median, and fractions that are
        anchors; their paired differences; and the fraction of all tokens that are anchors.

        Results with scores also have these, their paired difference, and `strongest`: the fractions among the k
        tokens with the largest scores, k being the number of compared tokens in the prompt.
        """
        pairs = zip(self.anchors, self.times, strict=True)
        shares = [len(places) / int(times.isfinite().sum()) for places, times in pairs]
        counts = torch.tensor(shares, dtype=torch.float64)
        quantities = super().quantities()
        quantities |= {
            "multiple_difference": columns.difference(quantities["multiple"]),
            "found_difference": columns.difference(quantities["found"]),
            "anchors": Quantity((), counts, unit="fraction of all tokens", kind="outcome"),
        }
        if self.scores:
            first = columns.matched(
                columns.among_strongest(self.scores, self.marked), self.marked, self.window
            )
            unit = "fraction among the strongest"
            quantities["strongest"] = Quantity(("kind",), first, unit=unit, kind="outcome")
            scores = columns.matched(self.scores, self.marked, self.window)
            quantities["score"] = Quantity(
                ("kind",), scores, unit="spreads above the median nearby"
            )
            quantities["score_difference"] = columns.difference(quantities["score"])
        return quantities

    @cached_property
    def words_test(self) -> KindsTest:
        """Test of scores over words: how often random words score as high as the compared ones.

        The interval of `score_difference` takes the words as fixed; this test takes the prompts as fixed.

        Raises:
            ResultError: a result saved before scores existed.
        """
        if not self.scores:
            raise ResultError(
                "This result was saved by an earlier version and has no scores. Measure it again "
                "to compare words."
            )
        pairs = zip(self.tokens, self.scores, strict=True)
        words = [token for text, scores in pairs for token in text[: len(scores)]]
        flags = columns.flags_of(self.scores, self.marked)
        return kinds_test(torch.cat(self.scores), words, torch.cat(flags))

    @property
    def status(self) -> Status:
        """Status of the claim that the compared tokens stand out from those near them.

        It needs an interval of `score_difference` above 0 and a p-value over words of at most 0.025.
        """
        if not self.scores:
            return "cannot be judged"
        test, effect = self.words_test, self.interval("score_difference")
        return judged_twice(
            effect, test.p_value, test.smallest, opposite=test.below, prompts=len(self.found)
        )

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.anchors)

    @property
    def example(self) -> Example:
        """The first prompt with anchors."""
        prompt = next((number for number, places in enumerate(self.anchors) if places), 0)
        times = self.times[prompt]
        strongest = sorted(self.anchors[prompt], key=lambda place: -float(times[place]))
        return Example(prompt, tuple(strongest[:NAMED]))

    def stands(self, prompt: int) -> list[bool]:
        """True for each token of a prompt that is an anchor."""
        return [place in self.anchors[prompt] for place in range(len(self.times[prompt]))]

    def check_prompt(self, prompt: int) -> None:
        """Reject a prompt that does not exist.

        Raises:
            ResultError: gives the number of prompts.
        """
        if not 0 <= prompt < len(self.times):
            raise ResultError(
                f"prompt={prompt}, but there are masses for {len(self.times)} prompts, counted "
                "from 0."
            )

    def on_page(self) -> tuple[str, ...]:
        """The comparison, and one prompt as text."""
        return self.shows

    def view(self, prompt: int = 0) -> "View":
        """A prompt coloured by column mass, anchors framed; hatched where it is undefined.

        Raises:
            ResultError: no such prompt.
        """
        from icl_mech.plots.prompt_view import Text, prompt_view

        self.check_prompt(prompt)
        times, stands = self.times[prompt].tolist(), self.stands(prompt)
        roles = tuple("label_word" if anchor else "unknown" for anchor in stands)
        about = tuple("anchor" * anchor for anchor in stands)
        text = Text(self.tokens[prompt][: len(times)], roles, about=about)
        return prompt_view(text, times, name=f"{self.of}, times the median nearby", low=0.0)


@dataclass(frozen=True)
class AnchorTokens(OfSaliency[AnchorTokensResult]):
    """Tokens whose column mass stands out, and how label words or ends of spans compare.

    Attributes:
        of: `saliency`, or `attention` averaged over heads.
        layers: Layers over which masses are averaged; None: the last third.
        ratio: Factor by which an anchor's mass exceeds the median nearby; None: the factor that the other
            tokens of the text exceed by chance in 5 % of texts.
        window: Size of the neighbourhood, in positions to either side.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts with neither label words nor spans, with too few tokens for a spread, or
            without what the loss needs.
    """

    of: Of = "saliency"
    layers: Sequence[Natural] | None = None
    ratio: float | None = None
    window: Count = 16
    reads_texts = True

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and the values it may have.
        """
        super().__post_init__()
        if self.ratio is not None and not 0 < self.ratio < float("inf"):
            raise RunError(f"ratio={self.ratio}; expected a finite number above 0, or None.")
        if self.layers is not None and not self.layers:
            raise RunError(
                "layers=() leaves no layer to average over. Name at least one layer, or use None "
                "for the last third."
            )

    def filled(self, model: LanguageModel, data: PromptBatch) -> "AnchorTokens":
        """Fill in the loss these prompts can have, and the last third of the layers."""
        count = model.info.n_layers
        layers = self.layers or tuple(range(count - max(1, count // 3), count))
        averaged = replace(self, layers=tuple(sorted(set(layers))))
        if self.of == "attention":
            return replace(averaged, loss=None)
        filled = super(AnchorTokens, averaged).filled(model, data)
        assert isinstance(filled, AnchorTokens)
        return filled

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without tokens to compare, and losses and layers that do not exist.

        Raises:
            PromptError: neither label words nor spans, or too few tokens.
            RunError: a layer the model does not have.
        """
        check_layers(self.layers or (), model.info, "AnchorTokens")
        if self.of == "saliency":
            super().check(model, data)
        for number, prompt in enumerate(data):
            if not bool(columns.marked(prompt).any()):
                raise PromptError(
                    "AnchorTokens compares label words or the ends of spans with nearby tokens, "
                    f"but prompt {number} has neither before its target. Build prompts with shots "
                    ">= 1, or with texts(list_of_texts, model)."
                )
            count = self._ends(data)[number] - columns.first_token(prompt)
            if self.ratio is None and count < FEWEST_TOKENS:
                raise PromptError(
                    f"Prompt {number} has {count} tokens that could be anchors, but at least "
                    f"{FEWEST_TOKENS} are needed to estimate their spread by chance. Leave the "
                    "prompt out, or set the factor by which an anchor exceeds the local median "
                    "(ratio=3)."
                )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One forward pass, or one backward pass."""
        width = int(data.lengths.max())
        reading: Any = columns.AttentionMass(width, self._ends(data))
        if self.of == "saliency":
            assert self.loss is not None
            reading = columns.SaliencyMass(width, self._ends(data), self.loss, self.reduction)
        return [Pass(data, [reading], title="columns")]

    def _ends(self, data: PromptBatch) -> columns.Ends:
        """The target, or the last token at which something is predicted."""
        rest = self.loss == "rest" and self.of == "saliency"
        return tuple(len(prompt) - 2 if rest else prompt.target for prompt in data)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> AnchorTokensResult:
        """Means from sums, tokens that stand out, and the comparison."""
        (sums,), ends = read[0], self._ends(data)
        assert self.layers is not None
        texts, compared, means = [], [], []
        for masses, prompt, end in zip(sums, data, ends, strict=True):
            # Attention reads from every row, saliency from those at which something is predicted.
            first_row = prompt.target if self.of == "saliency" else 0
            layers = list(self.layers)
            column = columns.column_of(
                masses, prompt, end, layers, self.window, self.ratio, first_row, model.windows
            )
            places = columns.marked(prompt)[:end]
            stands = torch.where(column.times.isfinite(), column.stands.double(), torch.nan)
            pairs = (column.times, stands)
            means.append([matched_means(values, places, self.window) for values in pairs])
            texts.append(column)
            compared.append(columns.places_of(places))
        multiple, share = torch.tensor(means, dtype=torch.float64).unbind(1)
        return AnchorTokensResult(
            mass=tuple(column.mass.float() for column in texts),
            times=tuple(column.times for column in texts),
            scores=tuple(column.scores for column in texts),
            limits=tuple(column.limit for column in texts),
            anchors=tuple(columns.places_of(column.stands) for column in texts),
            marked=tuple(compared),
            multiple=multiple.contiguous(),
            found=share.contiguous(),
            tokens=tuple(map(pieces_of, data)),
            compared="last tokens of spans" if data.answer_kind == "vocabulary" else "label words",
            of=self.of,
            layers=tuple(self.layers),
            ratio=self.ratio,
            window=self.window,
        )


anchor_tokens = door(
    AnchorTokens, "anchor_tokens", prompts="Prompts with demonstrations, or texts with spans."
)
