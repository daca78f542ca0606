"""How much later text changes when a span is hidden from attention.

In all layers and heads the columns of one span are masked before the softmax. The effect on a later
span is the mean over its positions of `KL(plain || suppressed)` of the next-token distribution, over
the whole vocabulary and in float64, and the change of the log-probability of its own tokens.

What stands before the rows that change is run once for each text: with `rows="after"` each
suppression runs only the tokens behind its span.

Source: Bogdan et al. 2025, *Thought Anchors: Which LLM Reasoning Steps Matter?*, §6. The reference
code truncates both distributions and gives absent tokens the logit -1e9, which adds up to 1e9 to a
divergence; here nothing is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Natural
from icl_mech.errors import RunError
from icl_mech.interventions import Suppress
from icl_mech.interventions.suppress import Rows
from icl_mech.measurements.anchors.layout import FromHereOn
from icl_mech.measurements.anchors.readings import MovedReading, ResidualReading
from icl_mech.measurements.anchors.span_result import names_of, pieces_of
from icl_mech.measurements.anchors.spans import check_spans
from icl_mech.measurements.anchors.suppression_result import SuppressionEffects
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.doors import door
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch


@dataclass(frozen=True)
class Suppression(Measurement[SuppressionEffects]):
    """Effect of hiding each span of a text on the spans that follow it.

    Costs about half a forward pass per span: each runs the tokens behind the span only.

    Attributes:
        rows: From whom a span is hidden: the rows `after` it, or `all`, its own included (the
            reference code). Effects on later spans are the same: their rows see no row of it.
        temperature: Logits are divided by it (the reference code: 0.6).
        layers: Blocks in which spans are hidden; None: all.

    Raises:
        RunError: unknown variant, or a layer the model does not have.
        PromptError: prompts without spans.

    Source: Bogdan et al. 2025, §6.
    """

    rows: Rows = "after"
    temperature: float = 1.0
    layers: Sequence[Natural] | None = None

    name: ClassVar[str] = "suppression"
    needs_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: names the field and what it may be.
        """
        super().__post_init__()
        if not 0 < self.temperature < float("inf"):
            raise RunError(f"temperature={self.temperature}; expected a finite number above 0.")
        if self.layers is not None and not self.layers:
            raise RunError("layers=() hides nothing; name one layer, or None for all.")

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without spans, and layers that are not there.

        Raises:
            PromptError: a text with fewer than two spans.
            RunError: a layer the model does not have.
        """
        check_spans(data, "Suppression")
        Suppress([0], self.rows, self.layers).check(model.info)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The plain texts; what follows rests on them."""
        return [Pass(data, [ResidualReading()], title="texts")]

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[SuppressionEffects]:
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
        """One copy of a text for each span that has something behind it."""
        spans = self._hidden(prompt)
        copies = PromptBatch((prompt,) * len(spans), data.source)
        hide = Suppress(rows=self.rows, layers=self.layers, positions=[[span] for span in spans])
        starts = tuple(start if self.rows == "all" else stop for start, stop in spans)
        reading = MovedReading(
            residual[: len(prompt)], torch.tensor(prompt.tokens), self.temperature
        )
        return Variants(
            copies,
            [reading],
            [hide],
            title="suppressions",
            layout=FromHereOn(model, copies, starts),
        )

    def _hidden(self, prompt: Prompt) -> list[tuple[int, int]]:
        """Spans that some row can lack."""
        behind = [span for span in prompt.text_spans if span[1] < len(prompt)]
        return list(prompt.text_spans) if self.rows == "all" else behind

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> SuppressionEffects:
        """Means over the positions of every span."""
        divergences, changes, tokens = [], [], []
        for prompt, moved in zip(data, read, strict=True):
            spans = prompt.text_spans
            whole = torch.zeros(len(spans), 2, len(prompt), dtype=torch.float64)
            whole[: len(moved)] = moved
            divergences.append(self._means(whole[:, 0], spans))
            # The change at a position is that of the token behind it.
            behind = torch.cat([torch.zeros(len(spans), 1), whole[:, 1, :-1]], dim=1)
            changes.append(self._means(behind, spans, first=1))
            tokens.append(whole[:, 0].contiguous())
        return SuppressionEffects(
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
        """Means over the spans that read; not-a-number where a span stands before the hidden one."""
        rows = []
        for start, stop in spans:
            part = values[:, max(start, first) : stop]
            rows.append(part.mean(1) if part.shape[1] else torch.full((len(values),), torch.nan))
        found = torch.stack([row.double() for row in rows])
        later = torch.ones_like(found).tril(0 if self.rows == "all" else -1).bool()
        return found.masked_fill(~later, torch.nan)


suppression = door(
    Suppression,
    "suppression",
    prompts="Texts with spans, see `texts`.",
    interventions="Made in the plain and in the suppressed runs.",
)
