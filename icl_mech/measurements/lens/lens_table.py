"""The table of the logit lens: the top next word after each layer, token by token of a prompt.

Sources: nostalgebraist 2020, *interpreting GPT: the logit lens*; Belrose et al. 2023, *Eliciting latent
predictions with the tuned lens*.
"""

from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Literal

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.interventions.places import Place, Where
from icl_mech.measurements.base import Measurement, Pass
from icl_mech.measurements.doors import door
from icl_mech.measurements.lens.fitted import FittedLens, check_lens, kl, lens_used
from icl_mech.measurements.lens.likeliest import Ending, decoded, ending, in_order
from icl_mech.measurements.lens.residuals import (
    LENS,
    LayerLensReading,
    LensVariant,
    ResidualReading,
)
from icl_mech.models import LanguageModel, at_least_float32, to_host
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result

USUAL = 12
"""Default number of tokens that are read: the last ones up to the target."""

_ROWS = 64
"""Number of tokens whose logits are held at once, for the last entry and one other."""

SHADES = {"entropy": "entropy (nats)", "kl": "KL to the last layer (nats)"}
"""Quantities that cells can be coloured by, other than the probability of their word."""


@dataclass(frozen=True, eq=False, kw_only=True)
class LensTableResult(Result):
    """The top next words after each layer, at several tokens of each prompt.

    Attributes:
        positions: The tokens that were read, per prompt; entry 0 of a layer axis is the embedding.
        tokens: Their text: the words the model had just read.
        top_tokens: Ids of the top next tokens, best first.
        top_probs: Their probabilities over the vocabulary.
        entropy: Entropy of each next-token distribution, in nats.
        kl: KL(last entry || each entry), in nats.
        words: Text of the top tokens, by id.
        label_words: Text of the first token of each label word or choice, per prompt.
    """

    shows: ClassVar[tuple[str, ...]] = ("words", "entropy", "kl")
    definitions: ClassVar[tuple[Definition, ...]] = (LENS,)

    positions: tuple[tuple[int, ...], ...]
    tokens: tuple[tuple[str, ...], ...]
    top_tokens: tuple[Int[Tensor, "_ _ _"], ...]
    top_probs: tuple[Float[Tensor, "_ _ _"], ...]
    entropy: tuple[Float[Tensor, "_ _"], ...]
    kl: tuple[Float[Tensor, "_ _"], ...]
    words: dict[str, str] = field(default_factory=dict)
    label_words: tuple[tuple[str, ...], ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Means over the tokens of a prompt, by layer: agreement with the last layer, entropy, KL."""
        same = [(ids[..., 0] == ids[:, -1:, 0]).double() for ids in self.top_tokens]
        units = {"agreement": "fraction of tokens whose top word is the last layer's", **SHADES}
        return {
            name: Quantity(("layer",), torch.stack([rows.mean(0) for rows in values]), unit=unit)
            for (name, unit), values in zip(
                units.items(), (same, self.entropy, self.kl), strict=True
            )
        }

    @property
    def count(self) -> int:
        """Number of prompts that were given."""
        return int(self.provenance.get("prompts", {}).get("count", len(self.tokens)))

    @property
    def lens(self) -> str:
        """The lens it was read with: `logit`, or the kind of a fitted one."""
        return lens_used(self)

    @property
    def size(self) -> tuple[int, int]:
        """Tokens and entries of the first prompt."""
        tokens, entries, _ = self.top_tokens[0].shape
        return tokens, entries

    @property
    def ending(self) -> Ending:
        """The top token at the last token that was read of the first prompt."""
        return ending(self.top_tokens[0][-1], self.top_probs[0][-1], self.words)


@dataclass(frozen=True)
class LensTable(Measurement[LensTableResult]):
    """The top next words after each layer, at several tokens of a prompt.

    Attributes:
        positions: Which tokens: numbers (the same in every prompt), or all of a role; None: the last
            twelve up to the target.
        demo: Only the tokens of this demonstration (of texts: span), counted from 0.
        first: Number of prompts that are read; None: all.
        k: Number of words kept for each cell.
        variant: Variant of the lens, `sound` or `reference`.
        lens: A fitted lens that maps every entry but the last; None: the logit lens.

    Raises:
        PromptError: a prompt without such tokens.
        RunError: a lens of another model.
    """

    side: ClassVar[Literal["true", "false"] | None] = "true"

    positions: Where | None = None
    demo: Natural | None = None
    first: Count | None = 1
    k: Count = 5
    variant: LensVariant = "sound"
    lens: FittedLens | None = None

    takes = ANSWER_KINDS
    reads_texts = True

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject tokens that do not exist, and a lens of another model.

        Raises:
            PromptError: a prompt without such tokens.
            RunError: a demonstration in texts that have none, or a lens of another model.
        """
        self._places(data)
        check_lens(self.lens, model, self.variant)

    def _places(self, data: PromptBatch) -> Int[Tensor, "batch place"]:
        """The tokens that are read, -1 where a prompt has fewer."""
        prompts = data[: self.first]
        if self.positions is not None or self.demo is not None:
            at = "all" if self.positions is None else self.positions
            return Place(at, self.demo).rows(prompts)
        return (prompts.targets[:, None] + torch.arange(1 - USUAL, 1)).clamp(min=-1)

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """One pass, which keeps residuals of these tokens only."""
        places = self._places(data).clamp(min=0)
        return [Pass(data[: self.first], [ResidualReading(places)], title="lens")]

    @torch.no_grad()
    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> LensTableResult:
        """Read out the residuals, prompt by prompt."""
        prompts, places, ((residuals,),) = data[: self.first], self._places(data), read
        there = [row[row >= 0].tolist() for row in places]
        pairs = zip(residuals, places, strict=True)
        readouts = [self._read(model, rows[:, row >= 0]) for rows, row in pairs]
        tokens, probs, entropy, to_last = zip(*readouts, strict=True)
        words = decoded(torch.cat([ids.flatten() for ids in tokens]), model.tokenizer)
        return LensTableResult(
            positions=tuple(map(tuple, there)),
            tokens=tuple(
                tuple((prompt.pieces or tuple(map(str, prompt.tokens)))[i] for i in indices)
                for prompt, indices in zip(prompts, there, strict=True)
            ),
            top_tokens=tokens,
            top_probs=probs,
            entropy=entropy,
            kl=to_last,
            words=words,
            label_words=tuple(
                in_order(torch.tensor(prompt.label_tokens).long(), model.tokenizer)
                for prompt in prompts
            ),
        )

    def _read(
        self, model: LanguageModel, residuals: Float[Tensor, "entry place d_model"]
    ) -> tuple[Tensor, ...]:
        """Top ids, their probabilities, entropy and KL to the last entry, by place and entry."""
        parts, reading = [], LayerLensReading(self.variant, lens=self.lens)
        for rows in residuals.split(_ROWS, dim=1):

            def logits(entry: int, rows: Tensor = rows) -> Tensor:
                residual = rows[entry].to(model.device)
                normed = reading.as_read(model, entry, residual)
                return at_least_float32(model.unembed(normed, bias=self.variant == "sound"))

            end, by_entry = logits(len(rows) - 1), []
            last = end.log_softmax(-1)
            for entry_logits in chain(map(logits, range(len(rows) - 1)), [end]):
                probs, kept = entry_logits.softmax(-1), min(self.k, entry_logits.shape[-1])
                best, ids = probs.topk(kept, dim=-1)
                by_entry.append(
                    (ids, best, torch.special.entr(probs).sum(-1), kl(last, entry_logits))
                )
            parts.append(
                to_host([torch.stack(entries, dim=1) for entries in zip(*by_entry, strict=True)])
            )
        return tuple(torch.cat(chunks) for chunks in zip(*parts, strict=True))


lens_table = door(
    LensTable,
    "lens_table",
    prompts="The prompts, of any kind; by default only the first one is read.",
)
