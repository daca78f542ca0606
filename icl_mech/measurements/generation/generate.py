"""`generate`: texts written after prompts, with interventions in place, and the attention of each step.

Rows of the prompt are computed once, those of new tokens one by one on kept keys and values.
Interventions by positions or roles of the prompt (`Isolate`, `Reweight`, everything
`at="target"`) act in the rows of the prompt; new rows are left unchanged, and see their effect
in the keys and values. Interventions `at="all"` act in new rows too. So every step gives the values of a run of
the whole text so far under the same interventions (`path="whole"` computes it so).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from typing_extensions import Unpack

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, Natural
from icl_mech.engine import Progress, fill_means
from icl_mech.engine.memory import plan
from icl_mech.engine.writing import Writer
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.compression.compress_context import CompressContextResult, PredictBehind
from icl_mech.measurements.doors import door
from icl_mech.measurements.generation.loop import Choice, Loop, Stop, Stops, Text, decoded, pieces
from icl_mech.measurements.generation.over_trust import OverTrust, trusting
from icl_mech.measurements.generation.reads import (
    LABEL_WORD,
    WRITTEN,
    AttentionRow,
    late,
    span_names,
    span_of,
)
from icl_mech.measurements.passes import How, Prompts
from icl_mech.metrics import Interval, mean_interval
from icl_mech.models import LanguageModel, ServerModel
from icl_mech.prompts import ANSWER_KINDS, PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import Status, judged
from icl_mech.segments import Segment, by_length, check_fits

if TYPE_CHECKING:
    import pandas as pd


DEFINITIONS = (
    Definition(
        "attention of a step to a span",
        r"m_l(t, S) = \frac{1}{H} \sum_h \sum_{j \in S} A_{l,h}[t, j]",
        "Attention in layer l from row t, that of the token before the one being generated, "
        "to the columns of span S, averaged over the H heads. Over all spans it sums to 1.",
    ),
    Definition(
        "lift",
        r"\frac{m_l(t, S)}{|S| / (t + 1)}",
        "The same divided by the span's fraction of the columns: 1 corresponds to uniform "
        "attention.",
    ),
)

NONE = -1
"""Marks positions after the end of a text."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerateResult(Result):
    """Texts written after prompts, and the attention of each step to earlier spans.

    The row that writes a token is that of the token before it; the first is the prompt's last.

    Attributes:
        tokens: Ids of each text, -1 after its end.
        log_probs: Log-probability of each token under the model itself (temperature 1, nothing left
            out), in nats; not-a-number after the end.
        texts: The written text, without end tokens and up to a text given as stop.
        pieces: Text that each token adds.
        endings: Why each text ended: `end` token, `stop`, or `length`.
        attention: Attention of the row that wrote each token, summed over each span, mean over
            heads; not-a-number after the end; None if it was not read.
        spans: Names of the spans: texts and label words of the demonstrations, template, query, and
            the previously written tokens.
        sizes: Number of columns of each span that each step saw.
        reads: The same attention by column, mean over the last third of the layers, for each prompt;
            0 at columns that did not exist yet.
        columns: Text of these columns, for each prompt.
        column_spans: Span that each column belongs to.
    """

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

        The lift of a span is its attention divided by its fraction of the columns: 1 corresponds to uniform
        attention. Both are means over the steps of a text.
        """
        length = (self.tokens != NONE).sum(1).double()
        quantities = {
            "log_prob": Quantity((), self.log_probs.nanmean(1), unit="log-probability (nats)"),
            "length": Quantity((), length, unit="tokens", kind="amount"),
        }
        if self.attention is not None:
            dims, mass = ("layer", "span"), self.attention.nanmean(1)
            quantities["attention"] = Quantity(dims, mass, unit="attention", kind="amount")
            quantities["lift"] = Quantity(
                dims, self._lift(), unit="relative to uniform attention", kind="amount"
            )
        return quantities

    def _lift(self) -> Float[Tensor, "batch layer span"]:
        attention, sizes = self.attention_and_sizes()
        shares = sizes / sizes.sum(-1, keepdim=True)
        shares = torch.where(shares > 0, shares, torch.nan)
        return (attention.double() / shares[:, :, None]).nanmean(1)

    def attention_and_sizes(self) -> tuple[Tensor, Tensor]:
        """Attention, and sizes of spans.

        Raises:
            ResultError: no attention was read.
        """
        if self.attention is None or self.sizes is None:
            raise ResultError(
                "No attention was recorded while these texts were generated; generate with "
                "attention=True."
            )
        return self.attention, self.sizes

    def lift(self, kind: str = LABEL_WORD) -> Interval:
        """Attention to all spans of one type, relative to uniform attention, in the last third of the layers.

        Args:
            kind: `label word`, `text`, `template`, ...: the beginning of the names of its spans.

        Raises:
            ResultError: no such span, or no attention was read.
        """
        attention, sizes = self.attention_and_sizes()
        places = [place for place, name in enumerate(self.spans) if name.startswith(kind)]
        if not places:
            raise ResultError(
                f"No span is called {kind!r}; available spans are {', '.join(self.spans)}."
            )
        mass = attention[..., late(attention.shape[2]), :].double().mean(2)[..., places].sum(-1)
        share = sizes[..., places].sum(-1) / sizes.sum(-1)
        share = torch.where(share > 0, share, torch.nan)
        return mean_interval((mass / share).nanmean(1), "amount")

    @property
    def count(self) -> int:
        """Number of texts."""
        return len(self.texts)

    @property
    def written(self) -> int:
        """Number of tokens of all texts."""
        return int((self.tokens != NONE).sum())

    @property
    def ended(self) -> dict[str, int]:
        """Number of texts by the reason they ended."""
        return {ending: self.endings.count(ending) for ending in dict.fromkeys(self.endings)}

    @cached_property
    def label_lift(self) -> Interval | None:
        """The lift of label words; None in prompts without any."""
        labelled = any(name.startswith(LABEL_WORD) for name in self.spans)
        return self.lift() if labelled else None

    @property
    def status(self) -> Status:
        """Status of the claim that writing attends to label words more than to the same number of other tokens."""
        return judged(self.label_lift, null=1.0, prompts=self.count)

    def on_page(self) -> tuple[str, ...]:
        """Attention of the steps, by span and by token, if it was read."""
        return () if self.attention is None else self.shows

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
            for prompt, text in enumerate(self.pieces)
            for step, piece in enumerate(text)
        )


@dataclass(frozen=True)
class Generate(Measurement[GenerateResult]):
    """Texts written after prompts, and the attention of each step to earlier spans.

    Attributes:
        max_new_tokens: Maximum number of tokens of a text.
        do_sample: Sample tokens; else the top token is written (greedy).
        temperature: Temperature the logits are divided by for sampling.
        top_k: Sample only from this many top tokens.
        top_p: Sample from the top tokens that together have this probability.
        seed: Seed of the draws; a prompt's draws depend on its number, not on its batch.
        stop: Texts and token ids at which a text ends, besides the model's end token.
        attention: Read the attention of every step.
        context: Demonstrations kept as keys and values (`CompressContext`): only the queries are run,
            after it.
        over_trust: Penalise candidates by over-trust, in beams, with roll-back (`OverTrust()`), instead
            of greedy writing.

    Raises:
        RunError: no new tokens, a temperature, `top_k` or `top_p` out of range or without effect, a
            stop the model does not know, or an intervention that did nothing or that the context was
            not made under.
        PromptError: a prompt without enough room after it, or with other demonstrations than the
            context.
        ModelError: another model than the context's.
    """

    max_new_tokens: Natural = 32
    do_sample: bool = False
    temperature: float = 1.0
    top_k: Count | None = None
    top_p: float | None = None
    seed: Natural = 0
    stop: Stop = ()
    attention: bool = True
    context: CompressContextResult | None = None
    over_trust: OverTrust | None = None

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: it reads no answers."""
        return False

    def __call__(self, model: Any, prompts: Prompts, **how: Unpack[How]) -> GenerateResult:
        """Run as any measurement; by default under the interventions the context was made under."""
        if self.context is not None:
            how.setdefault("interventions", self.context.interventions)
        return super().__call__(model, prompts, **how)

    def variants(self) -> dict[str, Any]:
        """The fields, and the identity of the context."""
        fields = super(Generate, replace(self, context=None, over_trust=None)).variants()
        judged = {} if self.over_trust is None else {"over_trust": asdict(self.over_trust)}
        known = {} if self.context is None else PredictBehind(self.context, 1).variants()
        return fields | judged | known

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: no new tokens, or numbers that are out of range.
        """
        super().__post_init__()
        check_count(self.max_new_tokens)
        _ = self.choice
        if self.over_trust is not None and (self.do_sample or self.context is not None):
            raise RunError(
                "over_trust ranks the top candidates after whole prompts, so it cannot be "
                "combined with do_sample or context. Leave them out."
            )

    @property
    def choice(self) -> Choice:
        """Settings of the choice of tokens."""
        return Choice(self.do_sample, self.temperature, self.top_k, self.top_p, self.seed)

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts without room for the text after them.

        Raises:
            PromptError: a prompt and its text are longer than the context.
            RunError: a model on a server, or a stop the model does not know.
        """
        check_room(model, data, self.max_new_tokens)
        Stops.of(model, self.stop)
        if self.context is not None:
            PredictBehind(self.context, 1).check(model, data)
            if any(prompt.target != len(prompt) - 1 for prompt in data):
                raise PromptError("Prompts that follow a context must end with their targets.")

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Reject interventions a context was not made under, and recomputing the context.

        Raises:
            RunError: names the intervention or the option.
        """
        if self.context is None:
            return
        PredictBehind(self.context, 1).check_options(model, data, options)
        if options.path == "whole":
            raise RunError(
                "path='whole' recomputes every position, but a context holds the keys and values "
                "of only some. Leave path='whole' out."
            )

    def passes(self, model: LanguageModel, data: PromptBatch) -> Sequence[Pass]:
        """No passes are known beforehand."""
        return []

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> GenerateResult:
        """The result of the plain model."""
        return self._written(model, data, Options())

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[GenerateResult]:
        """Write step by step; each run depends on the tokens written before."""
        yield []
        return self._written(model, data, options)

    def _written(self, model: LanguageModel, data: PromptBatch, options: Options) -> GenerateResult:
        (ready,) = fill_means(model, data, [options.interventions])
        again = options.path == "whole" or not (model.takes_cache and model.splits)
        loop = self.loop(model, data, ready, again=again)
        texts: dict[int, Text] = {}
        if self.over_trust is not None:
            chosen = trusting(model, data, ready, loop, self.over_trust)
            loop = replace(loop, choice=chosen)
        with Progress("tokens", len(data) * self.max_new_tokens, options.progress) as bar:
            for segment in self._segments(model, data, options, loop):
                texts |= dict(zip(segment.indices, loop.write(segment, bar), strict=True))
        loop.writer.check_acted()
        ordered = [texts[index] for index in range(len(data))]
        return generation(ordered, self._short(model, data), loop)

    def _segments(
        self, model: LanguageModel, data: PromptBatch, options: Options, loop: Loop
    ) -> Iterator[Segment]:
        """Prompts in batches of similar length, or queries one by one after the context."""
        if self.context is not None:
            stand_in, cache = self.context.stand_in(model, data), self.context.cache(model)
            loop.writer.acting(stand_in.demonstrations(0))
            for rows in stand_in.alike(range(len(data))):
                # One by one: padding would come between the query and the generated text.
                yield from stand_in.behind(cache, rows, tokens=1, size=1)
            return
        lengths = [len(prompt) + self.max_new_tokens for prompt in data]
        tokens, _ = plan(model, lengths, gradient=False, memory=options.memory)
        for indices in by_length(
            lengths, tokens=tokens, size=1 if loop.again else options.batch_size
        ):
            yield Segment.build(model, data[indices], indices)

    def _short(self, model: LanguageModel, data: PromptBatch) -> PromptBatch:
        """The prompts as the context requires them: with text anchors, their shortened forms."""
        return data if self.context is None else self.context.stand_in(model, data).prompts

    def loop(
        self,
        model: LanguageModel,
        data: PromptBatch,
        interventions: Sequence[Intervention],
        *,
        again: bool = False,
    ) -> Loop:
        """The loop that writes the texts of these prompts."""
        readings = [AttentionRow()] if self.attention else []
        return Loop(
            Writer(readings, interventions),
            self.choice,
            Stops.of(model, self.stop),
            self.max_new_tokens,
            span_names(data) if self.attention else (),
            again,
        )


def generation(written: Sequence[Text], prompts: PromptBatch, loop: Loop) -> GenerateResult:
    """The result from the texts written after prompts."""
    longest = max(len(text.tokens) for text in written)
    tokens = torch.full((len(written), longest), NONE)
    log_probs = torch.full((len(written), longest), torch.nan)
    for row, text in enumerate(written):
        tokens[row, : len(text.tokens)] = torch.tensor(text.tokens)
        log_probs[row, : len(text.tokens)] = torch.tensor(text.log_probs)
    stops = loop.stops
    return GenerateResult(
        tokens=tokens,
        log_probs=log_probs,
        texts=tuple(stops.shown(text.tokens) for text in written),
        pieces=tuple(pieces(stops.tokenizer, text.tokens) for text in written),
        endings=tuple(text.ending for text in written),
        **(_attention(written, prompts, loop, longest) if loop.spans else {}),
    )


def _attention(
    written: Sequence[Text], prompts: PromptBatch, loop: Loop, longest: int
) -> dict[str, Any]:
    """The fields of `GenerateResult` that hold attention."""
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
        for step, attended in enumerate(text.rows):
            read[step, : len(attended)] = attended
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


def check_count(count: int) -> None:
    """Reject texts without tokens.

    Raises:
        RunError: gives the allowed values.
    """
    if count < 1:
        raise RunError(
            f"max_new_tokens={count}, but at least one token must be generated. For the next-token "
            "prediction alone, use predict."
        )


def check_room(model: LanguageModel, prompts: PromptBatch, count: int) -> None:
    """Reject prompts whose texts would not fit into the context.

    Raises:
        PromptError: names the prompt and the available room.
        RunError: a model on a server.
    """
    if isinstance(model, ServerModel):
        raise RunError(
            f"{model.info.name!r} runs on a server, which cannot generate text step by step. Load "
            "it locally with icl_mech.load_model."
        )
    check_fits(model, prompts)
    for number, prompt in enumerate(prompts):
        room = model.info.n_ctx - len(prompt)
        if count > room:
            raise PromptError(
                f"Prompt {number} has {len(prompt)} tokens, which leaves room for {room} new ones "
                f"in the context of {model.info.name!r} ({model.info.n_ctx}), but max_new_tokens "
                f"is {count}. Use fewer new tokens or a shorter prompt."
            )


generate = door(
    Generate,
    "generate",
    prompts="Prompts to continue, each after its last token.",
    interventions=(
        "Applied in every pass. Interventions that act by positions or roles of the prompt change "
        "its rows, not new ones; those that act at all positions change new rows too. By default, "
        "the interventions the context was made with."
    ),
    path=(
        "`auto`: each step computes one row using the cached keys and values; `whole`: it "
        "recomputes the whole text. Both give the same numbers."
    ),
)
