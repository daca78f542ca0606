"""Top words by layer for the same queries without, with true and with false demonstrations.

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
from icl_mech.measurements.lens.texts import LENS
from icl_mech.measurements.accuracy.pairs import check_pairs
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.lens.fitted import FittedLens, check_lens
from icl_mech.measurements.lens.fitted_texts import lens_name
from icl_mech.measurements.lens.residuals import LayerLensReading, LensRows, LensVariant
from icl_mech.measurements.lens.texts import first_words
from icl_mech.measurements.lens.words import decoded, in_order, settled, word_table
from icl_mech.models import LanguageModel
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.shapes import LensTable

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
