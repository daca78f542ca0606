"""`Generation`: written texts, how likely their tokens were, and what each step read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ResultError
from icl_mech.measurements.generation.choosing import decoded, pieces
from icl_mech.measurements.generation.loop import (
    OF_DEMONSTRATIONS,
    WRITTEN,
    Loop,
    Text,
    late,
    span_of,
)
from icl_mech.metrics import Interval, mean_interval
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.results.judging import OPENINGS, judged
from icl_mech.results.wording import counted, said
from icl_mech.shapes import LabelMatrix, TokenStrips

if TYPE_CHECKING:
    import pandas as pd

DEFINITIONS = (
    Definition(
        "attention of a step to a span",
        r"m_l(t, S) = \frac{1}{H} \sum_h \sum_{j \in S} A_{l,h}[t, j]",
        "Attention in layer l of the row t that writes a token (the row of the token before it) to the "
        "columns of span S, mean over the H heads. Over all spans it adds up to 1.",
    ),
    Definition(
        "lift",
        r"\frac{m_l(t, S)}{|S| / (t + 1)}",
        "The same over the share of columns that the span has: 1 is what even attention gives.",
    ),
)


def figures(count: int, lift: Interval | None, first: str) -> list[Figure]:
    """What steps read, by span and by token.

    Args:
        count: Number of texts.
        lift: Of label words; None in prompts without any.
        first: The first text.
    """
    given = f"{counted(count, 'text')}"
    if lift is not None:
        opening = OPENINGS[judged(lift, null=1.0, prompts=count)]
        answer = (
            f"{opening}: while {given} {'was' if count == 1 else 'were'} written, label words got "
            f"{said(lift)} times an even share of attention in the last third of the layers."
        )
    else:
        answer = (
            f"These prompts have no label words; {given} {'was' if count == 1 else 'were'} written."
        )
    by_span = Figure(
        "spans",
        "Does writing go on reading the label words?" if lift else "What does writing read?",
        answer,
        "**Attention of each step to the spans of the prompt**, mean over heads and the last third of "
        "the layers, of the first prompt. A column is the row that writes this token; it adds up to 1. "
        "Intervals are over prompts.",
        "which earlier parts the rows that write attend to.",
        "that these parts decide what is written: attention is not effect. Long spans get more of it by "
        "their length alone, the first token in most models whatever it is.",
        "Attention while writing",
    )
    by_step = Figure(
        "steps",
        "Which tokens does each step read?",
        f"The first text: {first[:120]!r}.",
        "**The first prompt and its text, coloured by the attention of one step**, with a slider over "
        "steps; mean over heads and the last third of the layers.",
        "where one text's steps look.",
        "anything about other prompts.",
        "Step by step",
    )
    return [by_span, by_step]


NONE = -1
"""Stands for a token behind the end of a text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation(Result):
    """Texts written behind prompts, and which earlier spans each step read.

    The row that writes a token is that of the token before it; the first is the prompt's last.

    Attributes:
        tokens: Ids of each text, -1 behind its end.
        log_probs: Log-probability of each token under the model itself (temperature 1, nothing left
            out), in nats; not-a-number behind the end.
        texts: What was written, without end tokens and up to a text given as stop.
        pieces: What each token adds to the text.
        endings: Why each text ended: `end` token, `stop`, or `length`.
        attention: Attention of the row that wrote each token, summed over each span, mean over
            heads; not-a-number behind the end; None if it was not read.
        spans: Names of the spans: texts and label words of the demonstrations, template, query, and
            what was written before.
        sizes: Columns of each span that each step saw.
        reads: The same attention by column, mean over the last third of the layers, of each prompt;
            0 at columns that were not there yet.
        columns: Text of these columns, of each prompt.
        column_spans: The span each of them belongs to.
    """

    title: ClassVar[str] = "What writing reads"
    shows: ClassVar[tuple[str, ...]] = ("spans", "steps")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS

    tokens: Int[Tensor, "batch step"]
    log_probs: Float[Tensor, "batch step"]
    texts: tuple[str, ...]
    pieces: tuple[tuple[str, ...], ...]
    endings: tuple[str, ...]
    attention: Float[Tensor, "batch step layer span"] | None = None
    spans: tuple[str, ...] = ()
    sizes: Float[Tensor, "batch step span"] | None = None
    reads: tuple[Float[Tensor, "_ _"], ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()
    column_spans: tuple[tuple[str, ...], ...] = ()

    def quantities(self) -> dict[str, Quantity]:
        """Mean log-probability and length of texts; attention to spans, and its lift.

        The lift of a span is its attention over the share of columns it has: 1 is what even
        attention gives. Both are means over the steps of a text.
        """
        found = {
            "log_prob": Quantity((), self.log_probs.nanmean(1), unit="log-probability (nats)"),
            "length": Quantity((), (self.tokens != NONE).sum(1).double(), unit="tokens"),
        }
        if self.attention is not None:
            mass = self.attention.nanmean(1)
            found["attention"] = Quantity(("layer", "span"), mass, unit="attention")
            found["lift"] = Quantity(("layer", "span"), self._lift(), unit="times an even share")
        return found

    def coordinates(self) -> dict[str, tuple[str, ...]]:
        """Names of the spans."""
        return {"span": self.spans}

    def _lift(self) -> Float[Tensor, "batch layer span"]:
        attention, sizes = self._read()
        shares = sizes / sizes.sum(-1, keepdim=True)
        shares = torch.where(shares > 0, shares, torch.nan)
        return (attention.double() / shares[:, :, None]).nanmean(1)

    def _read(self) -> tuple[Tensor, Tensor]:
        if self.attention is None or self.sizes is None:
            raise ResultError(
                "No attention was read while these texts were written; generate with attention=True."
            )
        return self.attention, self.sizes

    def lift(self, kind: str = "label word") -> Interval:
        """Attention to spans of one kind together, over an even share, in the last third of the layers.

        Args:
            kind: `label word`, `text`, `template`, ...: how the names of its spans begin.

        Raises:
            ResultError: no such span, or no attention was read.
        """
        attention, sizes = self._read()
        own = [place for place, name in enumerate(self.spans) if name.startswith(kind)]
        if not own:
            raise ResultError(f"No span is called {kind!r}; there are {', '.join(self.spans)}.")
        mass = attention[..., late(attention.shape[2]), :].double().mean(2)[..., own].sum(-1)
        share = sizes[..., own].sum(-1) / sizes.sum(-1)
        share = torch.where(share > 0, share, torch.nan)
        return mean_interval((mass / share).nanmean(1))

    def drawing(self, show: str = "spans", *, prompt: int = 0) -> LabelMatrix | TokenStrips:
        """Attention of each step to the spans, or to every token, of one prompt.

        Args:
            show: `spans`, or `steps`: the text coloured, with a slider over steps.
            prompt: Which prompt.

        Raises:
            ResultError: unknown `show`, no such prompt, or no attention was read.
        """
        self.check_show(show)
        attention, _ = self._read()
        if not 0 <= prompt < len(self.texts):
            raise ResultError(f"prompt={prompt}; there are {len(self.texts)}, counted from 0.")
        steps = [f"{number} {piece!r}" for number, piece in enumerate(self.pieces[prompt], 1)]
        if show == "steps":
            marks = self.column_spans[prompt]
            return TokenStrips(
                title="What each step of the writing reads",
                names=tuple(f"token {step}" for step in steps),
                values=self.reads[prompt],
                tokens=self.columns[prompt],
                marks=tuple(_marked(mark) for mark in marks),
                quantity="attention",
                note="mean over heads and the last third of the layers; label words are framed",
            )
        mass = attention[prompt, : len(steps)][:, late(attention.shape[2])].mean(1)
        return LabelMatrix(
            title="Attention while writing",
            values=mass.T,
            rows=self.spans,
            columns=tuple(steps),
            row_title="what is read",
            column_title="token that is written",
            quantity="attention",
            note=f"prompt {prompt}; mean over heads and the last third of the layers",
        )

    def figures(self) -> list[Figure]:
        """What steps read, by span and by token."""
        if self.attention is None:
            return []
        labelled = any(name.startswith("label word") for name in self.spans)
        return figures(len(self.texts), self.lift() if labelled else None, self.texts[0])

    def summary(self) -> str:
        """How long the texts are, why they ended, and the beginning of the first."""
        kinds = {kind: self.endings.count(kind) for kind in dict.fromkeys(self.endings)}
        ended = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        count = int((self.tokens != NONE).sum())
        return (
            f"{counted(len(self.texts), 'text')}, {counted(count, 'token')} "
            f"(ended by: {ended}); the first: {self.texts[0][:60]!r}"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """One row per token: prompt, step, token, piece, log_prob."""
        import pandas as pd

        return pd.DataFrame(
            {
                "prompt": prompt,
                "step": step,
                "token": int(self.tokens[prompt, step]),
                "piece": piece,
                "log_prob": float(self.log_probs[prompt, step]),
            }
            for prompt, own in enumerate(self.pieces)
            for step, piece in enumerate(own)
        )


def generation(written: Sequence[Text], prompts: PromptBatch, loop: Loop) -> Generation:
    """The result of texts written behind prompts."""
    longest = max(len(text.tokens) for text in written)
    tokens = torch.full((len(written), longest), NONE)
    log_probs = torch.full((len(written), longest), torch.nan)
    for row, text in enumerate(written):
        tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
        log_probs[row, : len(text.tokens)] = torch.tensor(text.log_probs)
    stops = loop.stops
    fields = {
        "tokens": tokens,
        "log_probs": log_probs,
        "texts": tuple(stops.shown(text.tokens) for text in written),
        "pieces": tuple(pieces(stops.tokenizer, text.tokens) for text in written),
        "endings": tuple(text.ending for text in written),
    }
    if loop.spans:
        fields |= _attention(written, prompts, loop, longest)
    return Generation(**fields)  # type: ignore[arg-type]


def _attention(
    written: Sequence[Text], prompts: PromptBatch, loop: Loop, longest: int
) -> dict[str, object]:
    """The fields of `Generation` that hold what was read."""
    spans = loop.spans
    mass = torch.full((len(written), longest, *written[0].masses[0].shape), torch.nan)
    sizes = torch.zeros(len(written), longest, len(spans))
    reads, columns, names = [], [], []
    for row, (text, prompt) in enumerate(zip(written, prompts, strict=True)):
        count = len(text.tokens)
        mass[row, :count] = torch.stack(text.masses)
        of_prompt = span_of(prompt)
        seen = [of_prompt[place] for place in text.places]
        for name in seen:
            sizes[row, :count, spans.index(name)] += 1
        sizes[row, :count, spans.index(WRITTEN)] = torch.arange(count).float()
        read = torch.zeros(count, len(seen) + count - 1)
        for step, own in enumerate(text.rows):
            read[step, : len(own)] = own
        reads.append(read)
        tokens = [prompt.tokens[place] for place in text.places]
        known = [prompt.pieces[place] for place in text.places] if prompt.pieces else None
        shown = known or [decoded(loop.stops.tokenizer, [token]) for token in tokens]
        columns.append((*shown, *pieces(loop.stops.tokenizer, text.tokens)[:-1]))
        names.append((*seen, *[WRITTEN] * (count - 1)))
    return {
        "attention": mass,
        "spans": spans,
        "sizes": sizes,
        "reads": tuple(reads),
        "columns": tuple(columns),
        "column_spans": tuple(names),
    }


def _marked(span: str) -> str:
    """What a token is framed as: label words only."""
    return "label word" if span.startswith(OF_DEMONSTRATIONS["label_word"][:-3]) else ""
