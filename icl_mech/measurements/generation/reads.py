"""`GenerateResult`: written texts, how likely their tokens were, and what each step read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Kept, Reading
from icl_mech.errors import ResultError
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import ModelInfo, Site
from icl_mech.prompts import Prompt, Role
from icl_mech.results import Definition, Figure, Quantity, Result
from icl_mech.results.judging import judged, opening
from icl_mech.results.wording import counted, said
from icl_mech.segments import Segment
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

NONE = -1
"""Stands for a token after the end of a text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerateResult(Result):
    """Texts written after prompts, and which earlier spans each step read.

    The row that writes a token is that of the token before it; the first is the prompt's last.

    Attributes:
        tokens: Ids of each text, -1 after its end.
        log_probs: Log-probability of each token under the model itself (temperature 1, nothing left
            out), in nats; not-a-number after the end.
        texts: What was written, without end tokens and up to a text given as stop.
        pieces: What each token adds to the text.
        endings: Why each text ended: `end` token, `stop`, or `length`.
        attention: Attention of the row that wrote each token, summed over each span, mean over
            heads; not-a-number after the end; None if it was not read.
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
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {"span": "spans"}

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
        length = (self.tokens != NONE).sum(1).double()
        found = {
            "log_prob": Quantity((), self.log_probs.nanmean(1), unit="log-probability (nats)"),
            "length": Quantity((), length, unit="tokens", kind="amount"),
        }
        if self.attention is not None:
            dims, mass = ("layer", "span"), self.attention.nanmean(1)
            found["attention"] = Quantity(dims, mass, unit="attention", kind="amount")
            found["lift"] = Quantity(dims, self._lift(), unit="times an even share", kind="amount")
        return found

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
        return mean_interval((mass / share).nanmean(1), "amount")

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
        self.check_number("prompt", prompt, len(self.texts))
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

    def by_prompt(self, quantity: str | None = None) -> "pd.DataFrame":
        """One row per token: prompt, step, token, piece, log_prob; or one quantity of each prompt."""
        import pandas as pd

        if quantity is not None:
            return super().by_prompt(quantity)
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


def _marked(span: str) -> str:
    """What a token is framed as: label words only."""
    return "label word" if span.startswith(OF_DEMONSTRATIONS["label_word"][:-3]) else ""


def figures(count: int, lift: Interval | None, first: str) -> list[Figure]:
    """What steps read, by span and by token.

    Args:
        count: Number of texts.
        lift: Of label words; None in prompts without any.
        first: The first text.
    """
    were = f"{counted(count, 'text')} {'was' if count == 1 else 'were'} written"
    if lift is not None:
        answer = (
            f"{opening(judged(lift, null=1.0, prompts=count))} while {were}, label words got "
            f"{said(lift)} times an even share of attention in the last third of the layers."
        )
    else:
        answer = f"These prompts have no label words; {were}."
    by_span = Figure(
        "spans",
        "Does generation keep attending to the label words?"
        if lift
        else "What does generation attend to?",
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


OF_DEMONSTRATIONS: dict[Role, str] = {"demo_text": "text {}", "label_word": "label word {}"}
"""Spans of their own for each demonstration."""

FIRST = "first token"
"""Kept apart whatever its role: in most models attention rests there."""

NAMES: dict[Role, str] = {
    "bos": FIRST,
    "narrative": "narrative",
    "format": "template",
    "query_text": "query",
    "target": "query",
    "unknown": "other tokens",
}

WRITTEN = "written"
"""The span of what was written so far."""


@dataclass
class AttentionRow(Reading[Tensor]):
    """Attention of the target's row to every column, mean over heads."""

    target_only: ClassVar[bool] = True
    ragged: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The pattern of every layer."""
        return [Site("pattern", layer) for layer in range(info.n_layers)]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, src]`."""
        return activation[segment.rows, :, segment.target_row].float().mean(1)

    def collect(self, kept: Kept) -> Tensor:
        """`[row, layer, src]`."""
        return torch.stack(kept.per_prompt())


def span_names(prompts: Sequence[Prompt]) -> tuple[str, ...]:
    """All spans of some prompts, those of demonstrations in their order, then `WRITTEN`."""
    found: dict[str, None] = {}
    for prompt in prompts:
        found |= dict.fromkeys(span_of(prompt))
    order = list(found)
    numbered = sorted(
        (name for name in order if name[-1:].isdigit()),
        key=lambda name: (int(name.rpartition(" ")[2]), order.index(name)),
    )
    first = [name for name in (FIRST, "narrative") if name in found]
    rest = [name for name in order if name not in numbered and name not in first]
    return (*first, *numbered, *rest, WRITTEN)


def span_of(prompt: Prompt) -> list[str]:
    """The span each token of a prompt belongs to; its first token is one of its own."""
    names: list[str] = []
    for span in prompt.spans:
        own = OF_DEMONSTRATIONS.get(span.role)
        name = NAMES.get(span.role, span.role)
        if own is not None and span.demo is not None:
            name = own.format(span.demo + 1)
        names += [name] * (span.stop - span.start)
    return [FIRST, *names[1:]]


def late(n_layers: int) -> slice:
    """The last third of the layers."""
    return slice(n_layers - max(1, n_layers // 3), n_layers)
