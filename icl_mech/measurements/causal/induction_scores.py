"""Induction heads: attention from a repeated token to the token after its earlier occurrence.

The model reads a random token sequence twice, `[BOS] a b c ... a b c ...`. Meaning does not help here; a head
that attends from the second `b` to the token after the first one finds it by matching tokens.

* `sound`: mean attention from each repeated token to the token after its last earlier occurrence, over
  the rows whose token occurred before; its control is the mean attention of the same rows to one of the
  other tokens that rows are matched with;
* `mul`, `abs`: detection by a pattern over whole maps, as in TransformerLens.

Source: Olsson et al. 2022, *In-context learning and induction heads*.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.engine import Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.errors import ResultError, RunError
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.causal.head_maps import (
    FAMILY,
    FRAMED,
    Head,
    any_clear,
    clear_heads,
    intervals_of,
    ordered,
)
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.passes import How
from icl_mech.measurements.running import measured
from icl_mech.metrics import Interval
from icl_mech.metrics.heads import (
    Pattern,
    attention_elsewhere,
    attention_to_match,
    detection_score,
    matched_columns,
    pattern_map,
)
from icl_mech.models import LanguageModel, Site, adapt
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch
from icl_mech.results import Definition, Quantity, Result, quantity
from icl_mech.results.judging import Status
from icl_mech.results.quantities import kept
from icl_mech.segments import Segment

InductionVariant = Literal["sound", "mul", "abs"]

INDUCTION = Definition(
    "induction score",
    r"\frac{1}{|R|} \sum_{i \in R} A_h\!\left[i, j(i) + 1\right], \quad "
    r"j(i) = \max \{ j < i : x_j = x_i \}",
    "Mean attention from each repeated token to the token after its most recent earlier "
    "occurrence; R are the positions whose token occurred before. The sequence consists of random "
    "tokens repeated once.",
    "Olsson et al. 2022, In-context learning and induction heads",
)

LEVEL = Definition(
    "control",
    r"\frac{1}{|R|} \sum_{i \in R} \frac{1}{|E_i|} \sum_{j \in E_i} A_h[i, j]",
    "Mean attention from the same positions to one of the other tokens of the first copy, E: what "
    "a head that attends back without matching gives to a token.",
)

DETECTED = Definition(
    "detection by a pattern",
    r"\mathrm{mul} = \frac{\sum_{ij} A_{ij} P_{ij}}{\sum_{ij} A_{ij}}, \quad "
    r"\mathrm{abs} = 1 - \frac{1}{T} \sum_{ij} \left|A_{ij} - P_{ij}\right|",
    "The head detector of TransformerLens; P is 1 at every token that follows an earlier "
    "occurrence. `mul` divides by all rows, including those without an earlier occurrence; `abs` "
    "is a distance between whole maps.",
    "TransformerLens 4.3, detect_head",
)


@dataclass(frozen=True, eq=False, kw_only=True)
class InductionScoresResult(Result):
    """Scores of every head on every sequence of random tokens repeated.

    Attributes:
        scores: Score of each head on each sequence.
        control: Attention per token to others that could be matched; None for `mul` and `abs`.
        variant: `sound`, `mul` or `abs`.
        pattern: `induction`, `duplicate` or `previous`.
    """

    definitions: ClassVar[tuple[Definition, ...]] = (INDUCTION, LEVEL, DETECTED, FAMILY)
    ranked: ClassVar[bool] = True

    scores: Float[Tensor, "batch layer head"] = quantity("induction score", name="score")
    control: Float[Tensor, "batch layer head"] | None = quantity("attention to another token")
    variant: str
    pattern: Pattern

    def quantities(self) -> dict[str, Quantity]:
        """Scores and, for `sound`, their control and the excess over it."""
        quantities = super().quantities()
        if self.control is not None:
            above, unit = self.scores - self.control, "score minus its control"
            quantities["above_control"] = Quantity(("layer", "head"), above, unit=unit)
        return quantities

    @property
    def values(self) -> Float[Tensor, "layer head"]:
        """Mean over sequences."""
        return self.quantities()["score"].value()

    @checked(ResultError)
    def top(self, k: Count = FRAMED) -> tuple[Head, ...]:
        """The k heads with the largest score, largest first."""
        return ordered(self.values, k)

    @checked(ResultError)
    def leading(self, k: Count = FRAMED) -> dict[str, Interval]:
        """Scores of the k heads with the largest, by name, largest first."""
        return intervals_of(self.sel("score"), self.top(k))

    @kept
    def clear(self) -> tuple[Head, ...]:
        """Heads above their control, corrected for multiple testing over all heads; none without a control."""
        return () if self.control is None else clear_heads(self.scores - self.control)

    @property
    def count(self) -> int:
        """Number of sequences."""
        return len(self.scores)

    @property
    def status(self) -> Status:
        """Status of the claim that a head attends to the match more than to other tokens."""
        return any_clear(self.clear(), self.count)


@dataclass
class RepeatsReading(OfPatterns, Reading[Tensor]):
    """Attention of every head to the repeats of each sequence, `[prompt, layer, head, score]`."""

    variant: InductionVariant
    pattern: Pattern
    exclude_bos: bool
    exclude_current: bool

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Score, and its control where there is one."""
        attention, tokens = activation.float(), segment.tokens
        if self.variant == "sound":
            columns = matched_columns(tokens, self.pattern)
            scores = [
                attention_to_match(attention, columns),
                attention_elsewhere(attention, columns),
            ]
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


@dataclass(frozen=True)
class InductionScores(Measurement[InductionScoresResult]):
    """Induction score of every head on repeated random tokens; prompts passed to it are ignored.

    Attributes:
        n: Number of sequences.
        length: Number of random tokens of each, which are repeated once.
        variant: `sound` (mean over repeated tokens), or `mul` and `abs` of TransformerLens.
        pattern: `induction`: the token after the earlier occurrence; `duplicate`: the occurrence
            itself; `previous`: the token before.
        exclude_bos: Attention to the first token does not count (`mul`, `abs`).
        exclude_current: Attention of a token to itself does not count (`mul`, `abs`).
        seed: Seed of the random tokens.
        tokens: Custom sequences instead, all of one length.
    """

    side: ClassVar[Literal["true", "false"] | None] = "false"

    n: Count = 16
    length: Count = 50
    variant: InductionVariant = "sound"
    pattern: Pattern = "induction"
    exclude_bos: bool = False
    exclude_current: bool = False
    seed: Natural = 0
    tokens: Int[Tensor, "batch pos"] | None = None

    takes = ANSWER_KINDS

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject sequences without repeats or too long, and options without effect.

        Raises:
            RunError: says what does not fit.
        """
        if self.variant == "sound" and (self.exclude_bos or self.exclude_current):
            raise RunError(
                "exclude_bos and exclude_current apply only to variant='mul' or 'abs'; the sound "
                "score reads single cells of the map."
            )
        tokens = sequences(model, self)
        if tokens.shape[1] > model.info.n_ctx:
            raise RunError(
                f"Sequences of {tokens.shape[1]} tokens do not fit into the context of "
                f"{model.info.name!r} ({model.info.n_ctx}); use a smaller length."
            )
        repeated = (matched_columns(tokens, "duplicate") >= 0).any(1)
        if not bool(repeated.all()):
            raise RunError(
                f"Sequence {int((~repeated).nonzero()[0])} repeats no token, so there is nothing "
                "to match; give sequences with repeated tokens."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass over the sequences."""
        reading = RepeatsReading(self.variant, self.pattern, self.exclude_bos, self.exclude_current)
        return [Pass(as_prompts(sequences(model, self)), [reading], title="random tokens")]

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> InductionScoresResult:
        """The scores and their control."""
        scores = read[0][0]
        return InductionScoresResult(
            scores=scores[..., 0],
            control=scores[..., 1] if self.variant == "sound" else None,
            variant=self.variant,
            pattern=self.pattern,
        )


def sequences(model: LanguageModel, chosen: InductionScores) -> Int[Tensor, "batch pos"]:
    """The sequences that are read: a BOS token where the tokenizer has one, then random tokens twice.

    Raises:
        RunError: more tokens than the vocabulary has.
    """
    if chosen.tokens is not None:
        return chosen.tokens
    special = set(getattr(model.tokenizer, "all_special_ids", None) or ())
    known = min(len(model.tokenizer), model.info.d_vocab) if model.tokenizer else model.info.d_vocab
    usable = torch.tensor([token for token in range(known) if token not in special])
    if chosen.length > len(usable):
        raise RunError(
            f"length={chosen.length}, but {model.info.name!r} has only {len(usable)} tokens to "
            "draw from; use a smaller length."
        )
    generator = torch.Generator().manual_seed(chosen.seed)
    drawn = [
        usable[torch.randperm(len(usable), generator=generator)[: chosen.length]]
        for _ in range(chosen.n)
    ]
    twice = torch.stack([torch.cat([half, half]) for half in drawn])
    first = getattr(model.tokenizer, "bos_token_id", None)
    if first is None:
        return twice
    return torch.cat([torch.full((chosen.n, 1), first), twice], dim=1)


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
) -> InductionScoresResult:
    """Induction score of every head on repeated random tokens.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        n: Number of sequences.
        length: Number of random tokens of each, which are repeated once.
        variant: `sound`: mean over repeated tokens of the attention to the token after the last earlier
            occurrence; `mul`, `abs`: as `detect_head` of TransformerLens.
        pattern: `induction`, `duplicate` (the earlier occurrence itself) or `previous`.
        exclude_bos: Attention to the first token does not count (`mul`, `abs`).
        exclude_current: Attention of a token to itself does not count (`mul`, `abs`).
        seed: Seed of the random tokens.
        tokens: Custom sequences instead, all of one length.

    Raises:
        RunError: sequences without repeats or longer than the context, options without effect.
        PromptError: token ids outside the vocabulary.

    Source: Olsson et al. 2022.
    """
    chosen = InductionScores(
        n, length, variant, pattern, exclude_bos, exclude_current, seed, tokens
    )
    return measured(chosen, model, as_prompts(sequences(adapt(model), chosen)), **how)
