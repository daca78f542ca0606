"""Two lenses side by side: the same residuals through the logit lens and through a fitted one.

One pass. Both readings are of the same prompts, so their difference is paired; at the last entry both
are the model's own answer.

Top words by layer for the same queries without, with true and with false demonstrations.

The passes with demonstrations are those of accuracy by layer; only the bare queries are run
besides.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 (its figure of one prompt).
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count
from icl_mech.errors import ResultError
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.base import Measurement, Pair, PairMeasurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.fitted_texts import (
    JACOBIAN,
    NAMES,
    TUNED,
    compared_figure,
    lens_name,
)
from icl_mech.measurements.lens.layer_lens import LENS, first_words
from icl_mech.measurements.lens.residuals import LayerLensReading, LensRows, LensVariant
from icl_mech.measurements.lens.words import AFTER, decoded, in_order, settled, word_table
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, told
from icl_mech.shapes import LayerCurves, LensTable, Panel

BARE, TRUE, FALSE = "no demonstrations", "true demonstrations", "false demonstrations"


@dataclass(frozen=True, eq=False, kw_only=True)
class TopWords(Result):
    """The likeliest next words after each layer, side by side.

    Attributes:
        sides: What stands before the queries.
        top_tokens: Ids of the likeliest tokens, best first.
        top_probs: Their probabilities over the vocabulary.
        words: Text of these tokens, by id.
        label_probs: Probabilities of the label words over the vocabulary.
        answers: True class of each query, or None.
        labels: Names of the classes.
        label_words: Text of the first token of each label word.
    """

    title: ClassVar[str] = "Top words by layer"
    shows: ClassVar[tuple[str, ...]] = ("words",)
    definitions: ClassVar[tuple[Definition, ...]] = (LENS,)

    sides: tuple[str, ...]
    top_tokens: Int[Tensor, "batch side layer k"]
    top_probs: Float[Tensor, "batch side layer k"]
    words: dict[str, str] = field(default_factory=dict)
    label_probs: Float[Tensor, "batch side layer label"]
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    label_words: tuple[str, ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Probabilities of the label words over the vocabulary."""
        unit = "probability over the vocabulary"
        return {"label_prob": Quantity(("side", "layer", "label"), self.label_probs, unit=unit)}

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of sides and classes; layers are entries, 0 the embedding."""
        return {"side": self.sides, "label": self.labels}

    def drawing(self, show: str = "words", prompt: int = 0) -> LensTable:
        """Layers down, sides across, of one prompt.

        Args:
            show: `words`.
            prompt: Which prompt.

        Raises:
            ResultError: no such prompt, or unknown `show`.
        """
        self.check_show(show)
        if not 0 <= prompt < len(self.top_tokens):
            raise ResultError(f"prompt={prompt}; there are {len(self.top_tokens)}, counted from 0.")
        note = f"prompt {prompt + 1} of {len(self.top_tokens)}"
        if self.answers is not None and self.labels:
            note += f", true class {self.labels[int(self.answers[prompt])]}"
        return word_table(
            self.sides, self.top_tokens[prompt], self.top_probs[prompt], self.words,
            title="Likeliest next word after each layer", labels=self.label_words, note=note,
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """The table of the first prompt."""
        found = {
            side: (
                self.words.get(str(int(tokens[-1, 0])), f"token {int(tokens[-1, 0])}"),
                float(probs[-1, 0]),
                settled(tokens[:, 0]),
            )
            for side, tokens, probs in zip(
                self.sides, self.top_tokens[0], self.top_probs[0], strict=True
            )
        }
        count = len(self.top_tokens)
        return [
            first_words(
                found, prompt=0, prompts=count, labels=bool(self.label_words), lens=lens_name(self)
            )
        ]

    def summary(self) -> str:
        """The last layer's word on the first prompt, by side."""
        parts = [
            f"{side}: {self.words.get(str(int(token)), str(int(token)))!r}"
            for side, token in zip(self.sides, self.top_tokens[0, :, -1, 0], strict=True)
        ]
        return "next word on the first prompt, " + ", ".join(parts)


@dataclass(frozen=True)
class WordsByLayer(PairMeasurement[TopWords]):
    """The likeliest next words after each layer, of the first prompts of a pair.

    Attributes:
        first: Number of prompts kept; None: all.
        variant: Of the lens, `sound` or `reference`.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    name: ClassVar[str] = "top_words"

    first: Count | None = 8
    variant: LensVariant = "sound"
    lens: FittedLens | None = None

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Refuse sets that are not pairs.

        Raises:
            PromptError: says what differs.
            RunError: as `check_lens`.
        """
        check_pairs(*data)
        check_lens(self.lens, model, self.variant)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Both sides as accuracy by layer reads them, and the bare queries."""
        reading = LayerLensReading(self.variant, lens=self.lens)
        sides = zip(("true", "false"), data, strict=True)
        found = [Pass(own, [reading], title=f"{side} demonstrations") for side, own in sides]
        bare = without_demonstrations(data[0][: self.first])
        return found if bare is None else [*found, Pass(bare, [reading], title="bare queries")]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> TopWords:
        """Words of the first prompts, decoded."""
        true = data[0][: self.first]
        rows: list[LensRows] = [lens for (lens,) in read]
        sides: tuple[str, ...] = (TRUE, FALSE)
        if len(rows) > 2:
            rows, sides = [rows[2], *rows[:2]], (BARE, TRUE, FALSE)
        n = len(true)
        tokens = torch.stack([lens.top_tokens[:n, 0] for lens in rows if lens.top_tokens is not None], 1)  # fmt: skip
        return TopWords(
            sides=sides,
            top_tokens=tokens,
            top_probs=torch.stack([lens.top_probs()[:n, 0] for lens in rows], 1),
            words=decoded(tokens, model.tokenizer),
            label_probs=torch.stack([lens.probs()[:n, 0] for lens in rows], 1),
            answers=true.answers if true.has_answers else None,
            labels=true.labels,
            label_words=in_order(true.label_tokens, model.tokenizer),
        )


def without_demonstrations(prompts: PromptBatch) -> PromptBatch | None:
    """The bare queries, with whatever precedes the first demonstration.

    None where they cannot be cut out: the query is the last demonstration, roles are not known,
    or there are no demonstrations.
    """
    found = [_bare(prompt) for prompt in prompts]
    bare = tuple(prompt for prompt in found if prompt is not None)
    source = {**prompts.source, "shots": 0, "labels": "correct"}
    return PromptBatch(bare, source) if len(bare) == len(prompts) else None


def _bare(prompt: Prompt) -> Prompt | None:
    inside = [span.demo is not None for span in prompt.spans]
    if not prompt.has_text_roles or not any(inside):
        return None
    first, last = inside.index(True), len(inside) - 1 - inside[::-1].index(True)
    if prompt.target < prompt.spans[last].stop or not all(inside[first : last + 1]):
        return None
    cut, start = prompt.spans[last].stop, prompt.spans[first].start
    shift = cut - start
    behind = tuple(
        Span(span.role, None, span.start - shift, span.stop - shift)
        for span in prompt.spans[last + 1 :]
    )
    return replace(
        prompt,
        tokens=prompt.tokens[:start] + prompt.tokens[cut:],
        spans=prompt.spans[:first] + behind,
        label_classes=(),
        pieces=prompt.pieces[:start] + prompt.pieces[cut:] if prompt.pieces else (),
        false_answer=None,
        # Its first piece was tokenised behind the demonstrations.
        exact=False,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class ComparedLenses(Result):
    """What each entry would answer, read by a fitted lens and by the logit lens.

    Attributes:
        label_logits: Logits of the label words' first tokens; entry 0 is the embedding.
        answers: True class of each query.
        labels: Names of the classes.
        kind: Of the fitted lens: `tuned`, `jacobian`.
    """

    title: ClassVar[str] = "Two lenses side by side"
    definitions: ClassVar[tuple[Definition, ...]] = (LENS, TUNED, JACOBIAN)

    label_logits: Float[Tensor, "batch lens layer label"]
    answers: Int[Tensor, " batch"]
    labels: tuple[str, ...]
    kind: str

    def quantities(self) -> dict[str, Quantity]:
        """Right answers and the true label's probability by lens and layer; the paired gain."""
        right = self.label_logits.argmax(-1) == self.answers[:, None, None]
        probs = self.label_logits.double().softmax(-1)
        index = self.answers[:, None, None, None].expand(*probs.shape[:-1], 1)
        dims = ("lens", "layer")
        gain = right[:, 0].double() - right[:, 1].double()
        return {
            "accuracy": Quantity(dims, right, unit="accuracy over label words"),
            "true_label": Quantity(
                dims, probs.gather(-1, index)[..., 0], unit="probability among the label words"
            ),
            "gain": Quantity(("layer",), gain, unit="accuracy above the logit lens", kind="change"),
        }

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the lenses; layers are entries, 0 the embedding."""
        return {"lens": (self.kind, "logit")}

    def drawing(self) -> LayerCurves:
        """Accuracy by layer under both lenses, and the paired difference."""
        own, gain = self.sel("accuracy"), self.sel("gain")
        ends = [
            torch.cat([one, other[None]])
            for one, other in zip(
                (own.values, own.low, own.high), (gain.values, gain.low, gain.high), strict=True
            )
        ]
        chance = 1 / len(self.labels)
        return LayerCurves(
            title="What each layer would answer, by lens",
            names=(NAMES[self.kind], NAMES["logit"], "difference"),
            values=ends[0],
            low=ends[1],
            high=ends[2],
            y_title=own.unit,
            x_title=AFTER,
            note=basis(self),
            meanings=("label", "reference", "other"),
            panels=(
                Panel(
                    "Accuracy", (0, 1), own.unit, ((chance, f"chance {told(chance)}"),),
                    y_range=(-0.03, 1.05),
                ),
                Panel(
                    f"{NAMES[self.kind]} minus logit lens", (2,), gain.unit, ((0.0, "no difference"),)
                ),
            ),
        )  # fmt: skip

    def figures(self) -> list[Figure]:
        """Where the fitted lens finds right answers that the logit lens does not."""
        low, high = self.quantities()["gain"].ends()
        gain = self.quantities()["gain"].value()
        best = int(gain[:-1].argmax())
        return [
            compared_figure(
                self.kind,
                above=int((low[:-1] > 0).sum()),
                below=int((high[:-1] < 0).sum()),
                best=best,
                gain=self.interval("gain", layer=best),
                layers=len(gain) - 1,
                prompts=len(self.answers),
                given=given(self),
            )
        ]

    def summary(self) -> str:
        """Mean accuracy over the entries before the last."""
        means = self.quantities()["accuracy"].value()[:, :-1].mean(1)
        return (
            f"accuracy before the last layer {told(float(means[0]))} under the {NAMES[self.kind]}, "
            f"{told(float(means[1]))} under the logit lens (means over layers, "
            f"{counted(len(self.answers), 'prompt')})"
        )


@dataclass(frozen=True)
class CompareLenses(Measurement[ComparedLenses]):
    """Accuracy at every layer under a fitted lens and under the logit lens.

    Attributes:
        lens: The fitted lens.

    Raises:
        PromptError: prompts without answers.
        RunError: a lens of another model.
    """

    name: ClassVar[str] = "compared_lenses"

    lens: FittedLens

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse prompts without answers and a lens of another model.

        Raises:
            PromptError: prompts without answers.
            RunError: a lens of another model.
        """
        _ = data.answers
        check_lens(self.lens, model)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass with both readings."""
        readings = [LayerLensReading(vocabulary=False, lens=lens) for lens in (self.lens, None)]
        return [Pass(data, readings, title="lenses")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ComparedLenses:
        """Both readings on an axis of their own."""
        found: list[LensRows] = read[0]
        return ComparedLenses(
            label_logits=torch.stack([rows.label_logits[:, 0] for rows in found], dim=1),
            answers=data.answers,
            labels=data.labels,
            kind=self.lens.kind,
        )


compare_lenses = door(
    CompareLenses,
    "compare_lenses",
    then=("lens",),
    prompts="The prompts, with answers; not those the lens was fitted on.",
)
