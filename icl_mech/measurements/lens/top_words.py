"""Top words by layer for the same queries without, with true and with false demonstrations.

The passes with demonstrations are shared with accuracy by layer; only the bare queries need an
additional run.

Source: Halawi et al. 2023, *Overthinking the Truth*, §4 (its figure of one prompt).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count
from icl_mech.measurements.base import Pair, PairMeasurement, Pass
from icl_mech.measurements.demonstrations import check_pairs, without_demonstrations
from icl_mech.measurements.lens.fitted import FittedLens, check_lens, lens_used
from icl_mech.measurements.lens.likeliest import Ending, decoded, ending, in_order
from icl_mech.measurements.lens.residuals import LENS, LayerLensReading, LensRows, LensVariant
from icl_mech.models import LanguageModel
from icl_mech.results import Definition, Result, quantity

BARE, TRUE, FALSE = "no demonstrations", "true demonstrations", "false demonstrations"


@dataclass(frozen=True, eq=False, kw_only=True)
class TopWordsResult(Result):
    """The top next words after each layer, by the demonstrations before the query.

    Attributes:
        sides: Context of the queries.
        top_tokens: Ids of the top tokens, best first.
        top_probs: Their probabilities over the vocabulary.
        words: Text of these tokens, by id.
        label_probs: Probabilities of the label words over the vocabulary.
        answers: True class of each query, or None.
        labels: Names of the classes.
        label_words: Text of the first token of each label word.
    """

    shows: ClassVar[tuple[str, ...]] = ("words",)
    definitions: ClassVar[tuple[Definition, ...]] = (LENS,)
    axis_labels: ClassVar[Mapping[str, str]] = {"side": "sides", "label": "labels"}

    sides: tuple[str, ...]
    top_tokens: Int[Tensor, "batch side layer k"]
    top_probs: Float[Tensor, "batch side layer k"]
    words: dict[str, str] = field(default_factory=dict)
    label_probs: Float[Tensor, "batch side layer label"] = quantity(
        "probability over the vocabulary", name="label_prob", kind="outcome"
    )
    answers: Int[Tensor, " batch"] | None = None
    labels: tuple[str, ...] = ()
    label_words: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.top_tokens)

    @property
    def lens(self) -> str:
        """The lens it was read with: `logit`, or the kind of a fitted one."""
        return lens_used(self)

    @property
    def endings(self) -> dict[str, Ending]:
        """Final prediction of the entries on the first prompt, by side."""
        columns = zip(self.sides, self.top_tokens[0], self.top_probs[0], strict=True)
        return {side: ending(tokens, probs, self.words) for side, tokens, probs in columns}


@dataclass(frozen=True)
class TopWords(PairMeasurement[TopWordsResult]):
    """The top next words after each layer, for the first prompts of a pair.

    Attributes:
        first: Number of prompts kept; None: all.
        variant: Variant of the lens, `sound` or `reference`.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.
    """

    first: Count | None = 8
    variant: LensVariant = "sound"
    lens: FittedLens | None = None

    def check(self, model: LanguageModel, data: Pair) -> None:
        """Reject sets that are not pairs.

        Raises:
            PromptError: says what differs.
            RunError: see `check_lens`.
        """
        check_pairs(*data)
        check_lens(self.lens, model, self.variant)

    def passes(self, model: LanguageModel, data: Pair) -> list[Pass]:
        """Both sides as accuracy by layer reads them, and the bare queries."""
        reading = LayerLensReading(self.variant, lens=self.lens)
        sides = zip(("true", "false"), data, strict=True)
        passes = [
            Pass(prompts, [reading], title=f"{side} demonstrations") for side, prompts in sides
        ]
        bare = without_demonstrations(data[0][: self.first])
        return passes if bare is None else [*passes, Pass(bare, [reading], title="bare queries")]

    def result(self, model: LanguageModel, data: Pair, read: list[Any]) -> TopWordsResult:
        """Decode the words of the first prompts."""
        true = data[0][: self.first]
        rows: list[LensRows] = [lens for (lens,) in read]
        sides: tuple[str, ...] = (TRUE, FALSE)
        if len(rows) > 2:
            rows, sides = [rows[2], *rows[:2]], (BARE, TRUE, FALSE)
        n = len(true)
        top_tokens = [lens.top_tokens[:n, 0] for lens in rows if lens.top_tokens is not None]
        tokens = torch.stack(top_tokens, 1)
        return TopWordsResult(
            sides=sides,
            top_tokens=tokens,
            top_probs=torch.stack([lens.top_probs()[:n, 0] for lens in rows], 1),
            words=decoded(tokens, model.tokenizer),
            label_probs=torch.stack([lens.probs()[:n, 0] for lens in rows], 1),
            answers=true.answers if true.has_answers else None,
            labels=true.labels,
            label_words=in_order(true.label_tokens, model.tokenizer)
            if true.has_classes
            else true.labels,
        )
