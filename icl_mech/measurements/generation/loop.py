"""Texts written step by step: choose a token, compute its row, check whether the text ends.

The chosen token is the top one, or is sampled: logits are divided by the temperature; only the `top_k`
largest stay, then the fewest whose probabilities add up to at least `top_p`; one of them is drawn in
proportion. All in float64. Draws of a prompt depend on the seed and on its number, not on its batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural, check_fields
from icl_mech.engine import Progress
from icl_mech.engine.writing import Writer, Written, following, whole
from icl_mech.errors import RunError
from icl_mech.measurements.generation.reads import WRITTEN, late, span_of
from icl_mech.models import LanguageModel, to_host
from icl_mech.segments import Segment


@dataclass(frozen=True)
class Choice:
    """Settings of the choice of tokens.

    Attributes:
        do_sample: Sample; else take the top token, the first on ties.
        temperature: Below 1 sharpens, above 1 flattens the sampling distribution.
        top_k: Only this many top tokens.
        top_p: Only the top tokens that together have this probability.
        seed: Seed of the draws.
    """

    do_sample: bool = False
    temperature: float = 1.0
    top_k: Count | None = None
    top_p: float | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            RunError: names the number that is out of range, or would have no effect.
        """
        check_fields(self)
        if not 0 < self.temperature < float("inf"):
            raise RunError(
                f"temperature={self.temperature}, but it must be a finite number above 0. For "
                "greedy decoding use do_sample=False."
            )
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise RunError(f"top_p={self.top_p}, but it is a probability: above 0 and at most 1.")
        if not self.do_sample and (self.temperature, self.top_k, self.top_p) != (1.0, None, None):
            raise RunError(
                "temperature, top_k and top_p apply only to sampling, but do_sample=False decodes "
                "greedily. Set do_sample=True, or leave them out."
            )

    def draws(self, number: int) -> np.random.Generator:
        """Random number generator of one prompt, by its number in the run."""
        return np.random.default_rng([self.seed, number])

    def next_tokens(
        self, logits: Float[Tensor, "batch vocab"], draws: Sequence[Any]
    ) -> Int[Tensor, " batch"]:
        """One token for each prompt.

        Args:
            logits: Logits of the next token.
            draws: The random numbers of each prompt.
        """
        if not self.do_sample:
            return logits.argmax(-1)
        kept = self.narrowed(logits)
        shares = kept.softmax(-1).cumsum(-1)
        drawn = torch.tensor([generator.random() for generator in draws], dtype=shares.dtype)
        at = torch.searchsorted(shares, drawn.to(shares.device)[:, None] * shares[:, -1:])[:, 0]
        # A draw of exactly 0 would take the first token, whether it was kept or not.
        first = kept.isfinite().int().argmax(-1)
        return torch.maximum(at, first).clamp(max=logits.shape[-1] - 1)

    def narrowed(self, logits: Float[Tensor, "batch vocab"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the sampling distribution, in float64; minus infinity at all other tokens."""
        kept = logits.double() / self.temperature
        if self.top_k is not None:
            least = kept.topk(min(self.top_k, kept.shape[-1])).values[:, -1:]
            kept = kept.masked_fill(kept < least, -torch.inf)
        if self.top_p is not None:
            ranked, order = kept.sort(descending=True, stable=True)
            before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)
            out = torch.zeros_like(before, dtype=torch.bool).scatter(1, order, before >= self.top_p)
            kept = kept.masked_fill(out, -torch.inf)
        return kept


@dataclass(frozen=True)
class Known:
    """Texts that are already known, for each prompt of the run."""

    texts: tuple[tuple[int, ...], ...]

    def draws(self, number: int) -> Iterator[int]:
        """The tokens of one prompt, by its number in the run."""
        return iter(self.texts[number])

    def next_tokens(self, logits: Float[Tensor, "batch vocab"], draws: Sequence[Any]) -> Tensor:
        """The next token of each prompt."""
        return torch.tensor([next(text) for text in draws], device=logits.device)


Stop = str | int | Sequence[str | int]

Ending = Literal["end", "stop", "length"]
"""The model's end token, one of the stops given, or the number of tokens allowed."""


@dataclass(frozen=True, eq=False)
class Stops:
    """Conditions that end a text.

    Attributes:
        tokenizer: Tokenizer of the model.
        ends: End tokens of the model.
        ids: Given tokens.
        words: Given texts.
    """

    tokenizer: Any
    ends: frozenset[int]
    ids: frozenset[int]
    words: tuple[str, ...]

    @classmethod
    def of(cls, model: LanguageModel, stop: Stop) -> "Stops":
        """Conditions from a model and the given stops.

        Raises:
            RunError: a model without a tokenizer, an empty text, or a token the model does not have.
        """
        if model.tokenizer is None:
            raise RunError(
                f"{model.info.name!r} has no tokenizer, which is needed to generate text. Load the "
                "model with its tokenizer."
            )
        given = [stop] if isinstance(stop, str | int) else list(stop)
        words = tuple(end for end in given if isinstance(end, str))
        ids = frozenset(end for end in given if isinstance(end, int))
        if "" in words:
            raise RunError(
                "stop contains an empty text, which would stop generation at once. Leave it out."
            )
        outside = [token for token in ids if not 0 <= token < model.info.d_vocab]
        if outside:
            raise RunError(
                f"stop contains token {outside[0]}, but the vocabulary of {model.info.name!r} has "
                f"{model.info.d_vocab} tokens, counted from 0."
            )
        return cls(model.tokenizer, end_tokens(model), ids, words)

    def ending(self, tokens: Sequence[int]) -> Ending | None:
        """The reason why the text ends here; None if it goes on."""
        if tokens[-1] in self.ends:
            return "end"
        if tokens[-1] in self.ids:
            return "stop"
        if self.words and any(word in self.text(tokens) for word in self.words):
            return "stop"
        return None

    def text(self, tokens: Sequence[int]) -> str:
        """The written text, end tokens left out."""
        kept = [token for token in tokens if token not in self.ends]
        return decoded(self.tokenizer, kept)

    def shown(self, tokens: Sequence[int]) -> str:
        """The written text up to a given stop text."""
        text = self.text(tokens)
        places = [text.find(word) for word in self.words if word in text]
        return text[: min(places)] if places else text


def end_tokens(model: LanguageModel) -> frozenset[int]:
    """End tokens from the model's settings for generation, and from its tokenizer."""
    source = getattr(model.wrapped, "original_model", model.wrapped)
    settings = getattr(source, "generation_config", None)
    tokens: set[int] = set()
    for ids in (getattr(settings, "eos_token_id", None), model.tokenizer.eos_token_id):
        tokens.update(ids if isinstance(ids, list | tuple) else () if ids is None else (ids,))
    return frozenset(int(token) for token in tokens)


def decoded(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Tokens as text, without clean-up."""
    text: str = tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
    return text


def pieces(tokenizer: Any, tokens: Sequence[int]) -> tuple[str, ...]:
    """The text each token adds; together they are the whole text.

    A token that is only a part of a character adds nothing until the character is complete.
    """
    texts, before = [], ""
    for count in range(1, len(tokens) + 1):
        text = decoded(tokenizer, tokens[:count])
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}") if count < len(tokens) else text
        texts.append(whole[len(before) :] if whole.startswith(before) else "")
        before = whole if whole.startswith(before) else before
    return tuple(texts)


@dataclass(eq=False)
class Text:
    """Text written after one prompt, with its attention.

    Attributes:
        tokens: Ids.
        log_probs: Log-probability of each token, under the model itself (temperature 1, nothing left out).
        masses: Attention of the row that wrote each token, by layer and span.
        rows: The same by column, mean over the last third of the layers.
        places: Position in the prompt of each column the first row saw.
        ending: Why it ended.
    """

    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    masses: list[Float[Tensor, "layer span"]] = field(default_factory=list)
    rows: list[Float[Tensor, " src"]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    ending: Ending = "length"


@dataclass(frozen=True, eq=False)
class Loop:
    """The loop that writes texts.

    Attributes:
        writer: Computes rows, and reads attention if it has the reading.
        choice: Settings of the choice of tokens.
        stops: Conditions that end a text.
        longest: Maximum number of tokens of a text.
        spans: Names of the spans, if attention is read.
        again: Every step recomputes the whole text, without keys and values.
    """

    writer: Writer
    choice: Choice | Known
    stops: Stops
    longest: int
    spans: tuple[str, ...] = ()
    again: bool = False

    def write(self, segment: Segment, bar: Progress) -> list[Text]:
        """The texts after the prompts of a segment, which ends with their last tokens."""
        texts = [Text() for _ in segment.prompts]
        draws = [self.choice.draws(index) for index in segment.indices]
        live = list(range(len(texts)))
        written = self.writer.begin_writing(segment)
        places = _places(segment, self.spans)
        while True:
            logits = segment.model.logits(written.residual).float()
            chosen = self.choice.next_tokens(logits, [draws[number] for number in live])
            log_probs = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]
            said = (tensor.tolist() for tensor in to_host([chosen, log_probs]))
            for number, token, log_prob in zip(live, *said, strict=True):
                texts[number].tokens.append(token)
                texts[number].log_probs.append(log_prob)
            if self.spans:
                self._read(written, places, [texts[number] for number in live])
            bar.advance(len(live))
            going = [row for row, number in enumerate(live) if not self._ended(texts[number])]
            if not going:
                return texts
            live = [live[row] for row in going]
            new = [texts[number].tokens for number in live]
            if self.again:
                written = self.writer.go_on(whole(segment, new), new)
                places = _places(written.segment, self.spans)
            else:
                behind = following(written.kept(going), [tokens[-1] for tokens in new])
                places = _longer(places[going], self.spans)
                written = self.writer.go_on(behind, new)

    def _ended(self, text: Text) -> bool:
        ending = self.stops.ending(text.tokens)
        if ending is not None:
            text.ending = ending
        return ending is not None or len(text.tokens) == self.longest

    def _read(self, written: Written, places: Int[Tensor, "batch src"], texts: list[Text]) -> None:
        """Record the attention of a step, summed over spans and by column."""
        (values,) = written.values
        rows = torch.stack(list(values.values()), dim=1).cpu()
        real = written.segment.on_host[1] >= 0
        rows = rows * real[:, None]
        mass = rows.new_zeros(*rows.shape[:2], len(self.spans))
        mass.scatter_add_(2, places[:, None].expand(-1, rows.shape[1], -1), rows)
        src = written.segment.on_host[1]
        for number, text in enumerate(texts):
            seen = real[number]
            text.masses.append(mass[number])
            text.rows.append(rows[number, late(rows.shape[1])].mean(0)[seen])
            if not text.places:
                text.places = src[number][seen].tolist()


def _places(segment: Segment, spans: Sequence[str]) -> Int[Tensor, "batch src"]:
    """Index of the span each column belongs to; 0 at padding, where no attention falls."""
    if not spans:
        return torch.zeros_like(segment.on_host[1])
    src = segment.on_host[1]
    places = torch.full_like(src, spans.index(WRITTEN))
    for row, prompt in enumerate(segment.prompts):
        of_prompt = torch.tensor([spans.index(name) for name in span_of(prompt)])
        inside = (src[row] >= 0) & (src[row] < len(prompt))
        places[row, inside] = of_prompt[src[row, inside]]
    return places


def _longer(places: Int[Tensor, "batch src"], spans: Sequence[str]) -> Int[Tensor, "batch _"]:
    """Add one column, for a written token."""
    new = places.new_full((len(places), 1), spans.index(WRITTEN) if spans else 0)
    return torch.cat([places, new], dim=1)
