"""Suppression: the change of later text when a span is hidden from attention.

In all layers and heads the columns of one span are masked before the softmax. The effect on a later
span is the mean over its positions of `KL(plain || suppressed)` of the next-token distribution, over
the whole vocabulary and in float64, and the change of the log-probability of its own tokens.

The tokens before the changed rows are run once for each text: with `rows="after"` each
suppression runs only the tokens after its span.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6. The reference
code truncates both distributions and gives absent tokens the logit -1e9, which adds up to 1e9 to a
divergence; here nothing is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.errors import ResultError, RunError
from icl_mech.interventions import Suppress
from icl_mech.interventions.suppress import Rows
from icl_mech.measurements.anchors.between import (
    THOUGHT_ANCHORS,
    OfSpans,
    check_spans,
    names_of,
    pieces_of,
)
from icl_mech.measurements.anchors.moved import FromHereOn, MovedReading, ResidualReading
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.doors import door
from icl_mech.metrics import vertical_scores
from icl_mech.models import LanguageModel
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch
from icl_mech.results import Definition, Quantity

if TYPE_CHECKING:
    from icl_mech.plots.prompt_view import View


DEFINITIONS = (
    Definition(
        "effect on a later span",
        r"E[r, s] = \frac{1}{|r|} \sum_{i \in r} \mathrm{KL}\left(P_i \,\|\, P_i^{\setminus s}\right)",
        "Mean over the positions i of span r of the KL divergence between the next-token "
        "distribution and the one with span s hidden from attention in all layers and heads, "
        "before the softmax; over the whole vocabulary, in float64, in nats.",
        f"{THOUGHT_ANCHORS}, §6",
    ),
    Definition(
        "change of log-probability",
        r"\Delta[r, s] = \frac{1}{|r|} \sum_{i \in r} \log P_{i-1}^{\setminus s}(x_i) - \log P_{i-1}(x_i)",
        "Change of the log-probability of the tokens x of span r, per token, in nats; negative "
        "where hiding span s makes them less probable. The first token of a text is not predicted "
        "and is excluded.",
        f"{THOUGHT_ANCHORS}, §6",
    ),
)


FLOOR = 1e-9
"""Added to divergences before their logarithm, as in the reference code."""


class Strongest(NamedTuple):
    """A span and the effect of hiding it.

    Attributes:
        span: Number of the span.
        effect: Mean divergence of later spans, in nats.
    """

    span: int
    effect: float


@dataclass(frozen=True, eq=False, kw_only=True)
class SuppressionResult(OfSpans):
    """Effect of hiding each span on the spans after it.

    Attributes:
        divergence: Mean `KL(plain || suppressed)` in nats, per text: reading span, then the hidden
            one; not-a-number where the reading span precedes the hidden one.
        change: Change of the log-probability of the reading span's own tokens, in nats per token.
        by_token: Divergence at every token, per text: hidden span, token.
    """

    shows: ClassVar[tuple[str, ...]] = ("", "distance", "text")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"distance": "distances"}

    divergence: tuple[Float[Tensor, "_ _"], ...]
    change: tuple[Float[Tensor, "_ _"], ...]
    by_token: tuple[Float[Tensor, "_ _"], ...]

    def quantities(self) -> dict[str, Quantity]:
        """Mean divergence by distance in spans, and over all pairs; mean change likewise.

        Distances are those that occur in every text. Texts that are all identical are one observation.
        """
        distances = self._by_distance(self.divergence), self._by_distance(self.change)
        pairs = self._over_pairs(self.divergence)
        unit = "KL divergence (nats)", "change of log-probability (nats per token)"
        return {
            "divergence": Quantity(("distance",), distances[0], unit=unit[0], kind="amount"),
            "change": Quantity(("distance",), distances[1], unit=unit[1]),
            "mean_divergence": Quantity((), pairs, unit=unit[0], kind="amount"),
            "mean_change": Quantity((), self._over_pairs(self.change), unit=unit[1]),
        }

    @property
    def distances(self) -> range:
        """Distances that occur in every text, from 1: the next span."""
        return range(1, min(len(spans) for spans in self.spans))

    @property
    def proximity(self) -> int:
        """Distance from which on figures count later spans: 2, or 1 if a text has fewer than 4 spans.

        The next span changes most whatever is hidden, and for the last spans it is the only one.
        """
        return 2 if len(self.distances) > 2 else 1

    def _by_distance(self, values: tuple[Tensor, ...]) -> Float[Tensor, "batch distance"]:
        rows = [[matrix.diagonal(-d).mean() for d in self.distances] for matrix in values]
        return self.observed(torch.stack([torch.stack(row) for row in rows]))

    def _over_pairs(self, values: tuple[Tensor, ...]) -> Float[Tensor, " batch"]:
        pairs = [matrix[torch.ones_like(matrix).tril(-1).bool()].mean() for matrix in values]
        return self.observed(torch.stack(pairs))

    @checked(ResultError)
    def scores(self, prompt: Natural = 0, proximity: Count = 1) -> Float[Tensor, " span"]:
        """Effect of each span of a text: mean divergence of the spans at this distance or farther.

        Raises:
            ResultError: no such text.
        """
        self.check_prompt(prompt)
        return vertical_scores(self.divergence[prompt], proximity)

    @checked(ResultError)
    def log_divergence(
        self, prompt: Natural = 0, *, centred: bool = False
    ) -> Float[Tensor, "reader hidden"]:
        """Mean of `log(KL + 1e-9)` over the positions of the reading spans of a text.

        Args:
            prompt: Number of the text.
            centred: Subtract from each row its mean over earlier spans, since later spans change less;
                then only effects on later spans are defined.

        Raises:
            ResultError: no such text.
        """
        self.check_prompt(prompt)
        logs = (self.by_token[prompt] + FLOOR).log()
        means = torch.stack([logs[:, a:b].mean(1) for a, b in self.spans[prompt]])
        means = means.masked_fill(self.divergence[prompt].isnan(), torch.nan)
        if not centred:
            return means
        means = means.masked_fill(torch.ones_like(means).triu().bool(), torch.nan)
        return means - means.nanmean(1, keepdim=True)

    @property
    def strongest(self) -> Strongest:
        """The span of the first text whose hiding changes later spans most, at the usual distance."""
        scores = self.scores(0, self.proximity)
        place = int(scores.nan_to_num(nan=-1.0).argmax())
        return Strongest(place, float(scores[place]))

    def on_page(self) -> tuple[str, ...]:
        """One text, effects by distance, and the text coloured by them."""
        return self.shows

    def view(self, prompt: int = 0) -> "View":
        """A text coloured by the effect of hiding its spans; hatched where it is undefined.

        Raises:
            ResultError: no such text.
        """
        scores = self.scores(prompt, self.proximity)
        return self.coloured(prompt, scores, "mean KL divergence of later spans (nats)")

    def arcs(self, prompt: int = 0, *, top: int = 20) -> "View":
        """The strongest effects between spans of a text as arcs; each span is shown as one word.

        Raises:
            ResultError: no such text.
        """
        self.check_prompt(prompt)
        values = self.divergence[prompt].nan_to_num()
        return self.edges(prompt, values, "KL divergence (nats)", top)


@dataclass(frozen=True)
class Suppression(Measurement[SuppressionResult]):
    """Effect of hiding each span of a text on the spans that follow it.

    Costs about half a forward pass per span: each run covers only the tokens after the span.

    Attributes:
        rows: Rows from which a span is hidden: those `after` it, or `all`, its own included (the
            reference code). Effects on later spans are the same: their rows see none of its rows.
        temperature: Temperature the logits are divided by (the reference code: 0.6).
        layers: Blocks in which spans are hidden; None: all.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts without spans.

    Source: Bogdan et al. 2025, §6.
    """

    rows: Rows = "after"
    temperature: float = 1.0
    layers: Sequence[Natural] | None = None

    takes = ANSWER_KINDS
    reads_texts = reads_spans = True

    def reads_first_tokens(self) -> bool:
        """False: it reads no answers."""
        return False

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and the values it may have.
        """
        super().__post_init__()
        if not 0 < self.temperature < float("inf"):
            raise RunError(f"temperature={self.temperature}; expected a finite number above 0.")
        if self.layers is not None and not self.layers:
            raise RunError(
                "layers=() leaves no layer to hide spans in. Name at least one layer, or use None "
                "for all."
            )

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without spans, and layers that do not exist.

        Raises:
            PromptError: a text with fewer than two spans.
            RunError: a layer the model does not have.
        """
        check_spans(data, "Suppression")
        Suppress([0], self.rows, self.layers).check(model.info)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The pass over the plain texts; the suppressions depend on it."""
        return [Pass(data, [ResidualReading()], title="texts")]

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[SuppressionResult]:
        """The plain texts, then the suppressions of each text."""
        ((plain,),) = yield self.passes(model, data)
        moved = []
        for prompt, residual in zip(data, plain, strict=True):
            ((values,),) = (yield [self._suppressions(model, data, prompt, residual)])[0]
            moved.append(values)
        return self.result(model, data, moved)

    def _suppressions(
        self, model: LanguageModel, data: PromptBatch, prompt: Prompt, residual: Tensor
    ) -> Variants:
        """One copy of a text for each span that has tokens after it."""
        spans = self._hidden(prompt)
        copies = PromptBatch((prompt,) * len(spans), data.source)
        hide = Suppress(rows=self.rows, layers=self.layers, positions=[[span] for span in spans])
        starts = tuple(start if self.rows == "all" else stop for start, stop in spans)
        reading = MovedReading(
            residual[: len(prompt)], torch.tensor(prompt.tokens), self.temperature
        )
        layout = FromHereOn(model, copies, starts)
        return Variants(copies, [reading], [hide], title="suppressions", layout=layout)

    def _hidden(self, prompt: Prompt) -> list[tuple[int, int]]:
        """Spans that some row can be kept from attending to."""
        behind = [span for span in prompt.text_spans if span[1] < len(prompt)]
        return list(prompt.text_spans) if self.rows == "all" else behind

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> SuppressionResult:
        """Means over the positions of every span."""
        divergences, changes, tokens = [], [], []
        for prompt, moved in zip(data, read, strict=True):
            spans = prompt.text_spans
            whole = torch.zeros(len(spans), 2, len(prompt), dtype=torch.float64)
            whole[: len(moved)] = moved
            divergences.append(self._means(whole[:, 0], spans))
            # The change at a position is that of the token after it.
            behind = torch.cat([torch.zeros(len(spans), 1), whole[:, 1, :-1]], dim=1)
            changes.append(self._means(behind, spans, first=1))
            tokens.append(whole[:, 0].contiguous())
        return SuppressionResult(
            divergence=tuple(divergences),
            change=tuple(changes),
            by_token=tuple(tokens),
            spans=data.text_spans,
            names=tuple(map(names_of, data)),
            tokens=tuple(map(pieces_of, data)),
        )

    def _means(
        self, values: Float[Tensor, "hidden pos"], spans: Sequence[tuple[int, int]], first: int = 0
    ) -> Float[Tensor, "reader hidden"]:
        """Means over the reading spans; not-a-number where a span precedes the hidden one."""
        rows = []
        for start, stop in spans:
            part = values[:, max(start, first) : stop]
            rows.append(part.mean(1) if part.shape[1] else torch.full((len(values),), torch.nan))
        means = torch.stack([row.double() for row in rows])
        later = torch.ones_like(means).tril(0 if self.rows == "all" else -1).bool()
        return means.masked_fill(~later, torch.nan)


suppression = door(
    Suppression,
    "suppression",
    prompts="Texts with spans, see `texts`.",
    interventions="Applied to both the plain and the suppressed runs.",
)
