"""Induction heads: attention from a repeated token to the token after its earlier occurrence.

The model reads random tokens twice, `[BOS] a b c ... a b c ...`. No meaning helps there; a head that
attends from the second `b` to what followed the first one finds it by matching tokens. See
`icl_mech.measurements.causal.induction`.

Induction scores of heads, with what looking back without matching would give.

* `sound`: mean attention from each repeated token to the token after its last earlier occurrence, over
  the rows whose token occurred before; its control is the mean attention of the same rows to one of the
  other tokens that rows are matched with;
* `mul`, `abs`: detection by a pattern over whole maps, as in TransformerLens.

Source: Olsson et al. 2022, *In-context learning and induction heads*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.engine import Kept, Reading
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.causal.definitions import DETECTED, FAMILY, INDUCTION, LEVEL
from icl_mech.measurements.causal.head_maps import (
    FRAMED,
    clear_heads,
    head_map,
    intervals_of,
    ordered,
    table_of,
)
from icl_mech.measurements.causal.mediation import named
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.metrics import (
    Pattern,
    attention_elsewhere,
    attention_to_match,
    detection_score,
    matched_columns,
    pattern_map,
)
from icl_mech.models import LanguageModel, ModelInfo, Site, adapt
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import FEWEST_PROMPTS
from icl_mech.results.wording import counted, said
from icl_mech.segments import Segment
from icl_mech.shapes import Grid

if TYPE_CHECKING:
    import pandas as pd

InductionVariant = Literal["sound", "mul", "abs"]

ATTENDED = {
    "induction": "the token after its earlier occurrence",
    "duplicate": "its earlier occurrence",
    "previous": "the token before",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class InductionScores(Result):
    """Scores of every head on every sequence of random tokens repeated.

    Attributes:
        scores: Of each sequence.
        control: Attention per token to others that could be matched; None for `mul` and `abs`.
        variant: `sound`, `mul` or `abs`.
        pattern: `induction`, `duplicate` or `previous`.
    """

    title: ClassVar[str] = "Induction heads"
    definitions: ClassVar[tuple[Definition, ...]] = (INDUCTION, LEVEL, DETECTED, FAMILY)

    scores: Float[Tensor, "batch layer head"]
    control: Float[Tensor, "batch layer head"] | None
    variant: str
    pattern: Pattern

    def quantities(self) -> dict[str, Quantity]:
        """Scores and, of the sound ones, their control and what lies above it."""
        dims, unit = ("layer", "head"), "induction score"
        found = {"score": Quantity(dims, self.scores, unit=unit)}
        if self.control is not None:
            found["control"] = Quantity(dims, self.control, unit="attention to another token")
            above = self.scores - self.control
            found["above_control"] = Quantity(dims, above, unit="score above its control")
        return found

    @property
    def values(self) -> Float[Tensor, "layer head"]:
        """Mean over sequences."""
        return self.quantities()["score"].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED) -> tuple[tuple[int, int], ...]:
        """The k heads with the largest score, largest first."""
        return ordered(self.values, k)

    def clear(self) -> tuple[tuple[int, int], ...]:
        """Heads above their control, corrected for looking at all heads; none without a control."""
        return () if self.control is None else clear_heads(self.scores - self.control)

    def drawing(self) -> Grid:
        """Scores, layers across and heads down."""
        count = f"{len(self.scores)} sequences"
        note = f"{basis(self, count)}; framed: the {FRAMED} highest"
        found = self.quantities()["score"]
        name = f"Attention to {ATTENDED[self.pattern]}"
        title = name if self.variant == "sound" else f"{name}: {self.variant}"
        return head_map(title, found, self.top(), quantity="score", signed=False, note=note)

    def figures(self) -> list[Figure]:
        """Which heads match repeated tokens."""
        top, clear, count = self.top(), self.clear(), len(self.scores)
        found = intervals_of(self.quantities()["score"], top)
        best, score = next(iter(found.items()))
        heads, where = self.values.numel(), ATTENDED[self.pattern]
        if self.control is None:
            answer = (
                f"Highest score: {best} with {said(score)} (variant {self.variant}, no control)."
            )
        elif count < FEWEST_PROMPTS:
            answer = (
                f"Cannot be judged from {counted(count, 'sequence')}: the highest score is that of {best}, "
                f"{said(score)}."
            )
        elif clear:
            level = float(self.control.mean(0)[top[0]])
            answer = (
                f"Yes: {named(clear)} ({len(clear)} of {heads} heads) attend to it more than to other "
                f"tokens, corrected for looking at all heads; most of all {best}, with {said(score)} "
                f"against {level:.2g} for another token."
            )
        else:
            answer = f"Not shown: no head of {heads} does so clearly; the highest score is that of {best}, {said(score)}."
        return [
            Figure(
                "",
                f"Which heads attend from a token to {where}?",
                answer,
                f"**Attention of every head from tokens that occurred before to {where}**, in random tokens "
                f"that stand there twice; means over {counted(count, 'sequence')}. Framed: the highest "
                "(layer.head). Intervals (when pointing): 95 % over sequences, for each head alone.",
                "which heads match tokens, whatever they mean."
                if clear and count >= FEWEST_PROMPTS
                else "",
                "that these heads are used in prompts with demonstrations, or copy what they attend to: see "
                "the effects of heads and the ablation.",
                "Induction heads",
            )
        ]

    def summary(self) -> str:
        """The heads with the highest scores."""
        found = intervals_of(self.quantities()["score"], self.top(3))
        parts = [f"{name}: {value}" for name, value in found.items()]
        return f"highest induction scores ({self.variant}; layer.head): " + ", ".join(parts)

    def to_pandas(self) -> "pd.DataFrame":
        """One row per head, highest score first."""
        import pandas as pd

        return pd.DataFrame(table_of(self.quantities(), self.top(self.values.numel())))


@dataclass
class RepeatsReading(Reading[Tensor]):
    """How attention of every head meets the repeats of each sequence, `[prompt, layer, head, score]`."""

    variant: InductionVariant
    pattern: Pattern
    exclude_bos: bool
    exclude_current: bool

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Score, and its control where there is one."""
        attention, tokens = activation.float(), segment.tokens
        if self.variant == "sound":
            columns = matched_columns(tokens, self.pattern)
            scores = [
                attention_to_match(attention, columns), attention_elsewhere(attention, columns)
            ]  # fmt: skip
        else:
            scores = [
                detection_score(
                    attention,
                    pattern_map(tokens, self.pattern),
                    self.variant,
                    exclude_bos=self.exclude_bos,
                    exclude_current=self.exclude_current,
                )
            ]
        return torch.stack(scores, dim=-1)

    def collect(self, kept: Kept) -> Tensor:
        """`[prompt, layer, head, score]`."""
        return kept.stacked()


@dataclass(frozen=True)
class Induction(Measurement[InductionScores]):
    """Induction score of every head, on random tokens repeated; prompts given to it are not read.

    Attributes:
        n: Number of sequences.
        length: Random tokens of each, which stand there twice.
        variant: `sound` (mean over repeated tokens), or `mul` and `abs` of TransformerLens.
        pattern: `induction`: the token after the earlier occurrence; `duplicate`: the occurrence
            itself; `previous`: the token before.
        exclude_bos: Attention to the first token does not count (`mul`, `abs`).
        exclude_current: Attention of a token to itself does not count (`mul`, `abs`).
        seed: Of the random tokens.
        tokens: Sequences of one's own instead, all of one length.
    """

    name: ClassVar[str] = "induction_scores"
    side: ClassVar[Literal["true", "false"] | None] = "false"

    n: Count = 16
    length: Count = 50
    variant: InductionVariant = "sound"
    pattern: Pattern = "induction"
    exclude_bos: bool = False
    exclude_current: bool = False
    seed: Natural = 0
    tokens: Int[Tensor, "batch pos"] | None = None

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse sequences without repeats or too long, and options without effect.

        Raises:
            RunError: says what does not fit.
        """
        if self.variant == "sound" and (self.exclude_bos or self.exclude_current):
            raise RunError(
                "exclude_bos and exclude_current go with variant='mul' or 'abs'; the sound score looks at "
                "single cells of the map."
            )
        tokens = sequences(model, self)
        if tokens.shape[1] > model.info.n_ctx:
            raise RunError(
                f"Sequences of {tokens.shape[1]} tokens do not fit into the context of {model.info.name!r} "
                f"({model.info.n_ctx}); take a smaller length."
            )
        repeated = (matched_columns(tokens, "duplicate") >= 0).any(1)
        if not bool(repeated.all()):
            raise RunError(
                f"Sequence {int((~repeated).nonzero()[0])} repeats no token, so there is nothing to match."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass over the sequences."""
        reading = RepeatsReading(self.variant, self.pattern, self.exclude_bos, self.exclude_current)
        return [Pass(as_prompts(sequences(model, self)), [reading], title="random tokens")]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> InductionScores:
        """Scores, and their control."""
        scores = read[0][0]
        return InductionScores(
            scores=scores[..., 0],
            control=scores[..., 1] if self.variant == "sound" else None,
            variant=self.variant,
            pattern=self.pattern,
        )


def sequences(model: LanguageModel, own: Induction) -> Int[Tensor, "batch pos"]:
    """The sequences that are read: a first token where the tokenizer has one, random tokens twice.

    Raises:
        RunError: more tokens than the vocabulary has.
    """
    if own.tokens is not None:
        return own.tokens
    special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
    known = min(len(model.tokenizer), model.info.d_vocab) if model.tokenizer else model.info.d_vocab
    usable = torch.tensor([token for token in range(known) if token not in special])
    if own.length > len(usable):
        raise RunError(
            f"length={own.length}, but {model.info.name!r} has {len(usable)} tokens that can be drawn."
        )
    generator = torch.Generator().manual_seed(own.seed)
    drawn = [
        usable[torch.randperm(len(usable), generator=generator)[: own.length]] for _ in range(own.n)
    ]
    twice = torch.stack([torch.cat([half, half]) for half in drawn])
    first = getattr(model.tokenizer, "bos_token_id", None)
    if first is None:
        return twice
    return torch.cat([torch.full((own.n, 1), first), twice], dim=1)


def as_prompts(tokens: Int[Tensor, "batch pos"]) -> PromptBatch:
    """Sequences as prompts without label words, read at their last token."""
    return PromptBatch(
        tuple(
            Prompt.from_positions(row, label_positions=[], label_classes=[], label_tokens=[0, 1])
            for row in tokens.tolist()
        )
    )


@with_options
def induction_scores(
    model: Any,
    *,
    n: int = 16,
    length: int = 50,
    variant: InductionVariant = "sound",
    pattern: Pattern = "induction",
    exclude_bos: bool = False,
    exclude_current: bool = False,
    seed: int = 0,
    tokens: Int[Tensor, "batch pos"] | None = None,
    **how: Unpack[How],
) -> InductionScores:
    """Induction score of every head, on random tokens repeated.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        n: Number of sequences.
        length: Random tokens of each, which stand there twice.
        variant: `sound`: mean over repeated tokens of the attention to the token after the last earlier
            occurrence; `mul`, `abs`: as `detect_head` of TransformerLens.
        pattern: `induction`, `duplicate` (the earlier occurrence itself) or `previous`.
        exclude_bos: Attention to the first token does not count (`mul`, `abs`).
        exclude_current: Attention of a token to itself does not count (`mul`, `abs`).
        seed: Of the random tokens.
        tokens: Sequences of your own instead, all of one length.

    Raises:
        RunError: sequences without repeats or longer than the context, options without effect.
        PromptError: token ids outside the vocabulary.

    Source: Olsson et al. 2022.
    """
    own = Induction(n, length, variant, pattern, exclude_bos, exclude_current, seed, tokens)
    return measured(own, model, as_prompts(sequences(adapt(model), own)), **how)
