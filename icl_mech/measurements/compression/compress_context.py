"""Demonstrations compressed once and kept as a small key/value cache that answers new queries.

`CompressContext` makes the cache, `CompressContextResult` holds it, `PredictBehind` runs queries after it.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from typing_extensions import Unpack

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count, Natural, checked
from icl_mech.engine import Path, Work, fill_means
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Intervention, load_intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps, Variants
from icl_mech.measurements.compression.behind_demonstrations import behind_demonstrations
from icl_mech.measurements.compression.kept import Method, plain_positions
from icl_mech.measurements.compression.methods import (
    Comparison,
    refuse_positions,
    same_demonstrations,
)
from icl_mech.measurements.compression.stand_in import (
    BehindContext,
    Position,
    StandIn,
    misplaced,
    treated_alike,
)
from icl_mech.measurements.passes import How, Prompts
from icl_mech.measurements.predictions import Predictions, check_top_k, predictions
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.running import measured
from icl_mech.measurements.same_model import check_same_model, probe
from icl_mech.models import KeyValues, LanguageModel, to_host
from icl_mech.prompts import ANSWER_KINDS, Prompt, PromptBatch, Role, Span, WordScore
from icl_mech.results import Result, jsonable
from icl_mech.segments import check_fits


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressContextResult(Result):
    """A stand-in for one set of demonstrations, ready for new queries.

    It holds keys and values of the kept tokens only. Queries use the positions
    and the interventions it was made with.

    Attributes:
        method: Compression method.
        kept: Positions of the cached tokens in the full prompt.
        query: Position of a query's first token in the full prompt.
        first: Position id of a query's first token.
        tokens: Ids of everything before the query, to recognise matching prompts.
        spans: Roles of these tokens: role, demonstration, start, stop.
        label_classes: Class each demonstration displays.
        label_words: Token ids of the label words, in class order.
        labels: Names of the classes.
        task: Task record of the prompts.
        keys: Cached keys, layer by layer.
        values: Cached values.
        probe: Residual at the first tokens, which detects another model.
        score: How label words are scored, see `build_prompts`.
    """

    method: Method
    kept: tuple[int, ...]
    query: int
    first: int
    tokens: tuple[int, ...]
    spans: tuple[tuple[Role, int | None, int, int], ...]
    label_classes: tuple[int, ...]
    label_words: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    task: dict[str, Any] = field(default_factory=dict)
    keys: tuple[Float[Tensor, "1 _ _ _"], ...]
    values: tuple[Float[Tensor, "1 _ _ _"], ...]
    probe: Float[Tensor, "pos d_model"]
    score: WordScore = "first"

    def __len__(self) -> int:
        """Number of cached tokens."""
        return len(self.kept)

    @property
    def megabytes(self) -> float:
        """Size of the keys and values."""
        return (
            sum(tensor.numel() * tensor.element_size() for tensor in (*self.keys, *self.values))
            / 1e6
        )

    @property
    def interventions(self) -> list[Intervention]:
        """Interventions under which its keys and values were computed."""
        return [load_intervention(record) for record in self.made_under]

    @property
    def made_under(self) -> list[Any]:
        """Records of these interventions as plain values."""
        return [jsonable(record) for record in self.provenance.get("made_under", [])]

    @property
    def digest(self) -> str:
        """Digest that identifies the context among those of one model: tokens, kept positions, interventions."""
        place = (self.method, self.kept, self.query, self.first)
        content = (*place, self.tokens, self.made_under)
        return hashlib.sha256(repr(content).encode()).hexdigest()[:32]

    def queries(self, model: Any, texts: Sequence[str | tuple[str, str]]) -> PromptBatch:
        """Prompts with these demonstrations and new query texts (pairs of texts in pair tasks).

        Args:
            model: Model or tokenizer.
            texts: One text, or pair of texts, per query; written in the task's template.

        Raises:
            PromptError: the context was not made from prompts of `build_prompts`, whose template
                is needed, or `texts` is not a list of texts.
            ModelError: neither a model nor a tokenizer.
        """
        if isinstance(texts, str):
            raise PromptError(
                "texts is a single string; give a list of texts, or [text] for a single query."
            )
        if "template" not in self.task:
            raise PromptError(
                "The template of these demonstrations is unknown, because the context was not "
                "made from prompts of build_prompts. Give whole prompts to predict() instead."
            )
        spans = tuple(Span(*span) for span in self.spans)
        names = self.task.get("labels") or self.labels
        last = names[self.label_classes[-1]] if self.label_classes else None
        made = behind_demonstrations(
            self.tokens, spans, texts, self.task, getattr(model, "tokenizer", model), last
        )
        prompts = (
            Prompt(
                *(*parts, self.label_classes, self.label_words),
                labels=self.labels,
                score=self.score,
            )
            for parts in made
        )
        return PromptBatch(tuple(prompts), {"task": self.task, "demonstrations": "shared"})

    def predict(
        self,
        model: Any,
        prompts: PromptBatch,
        *,
        interventions: Sequence[Intervention] | None = None,
        top_k: int = 5,
        batch_size: int | None = None,
        memory: str | int | None = None,
        path: Path = "auto",
        progress: bool | None = None,
    ) -> Predictions:
        """Predictions of the model for prompts that begin with these demonstrations.

        Only the part of each prompt that follows the demonstrations is computed.

        Args:
            model: The model the context was made with.
            prompts: Whole prompts, for example those of `queries`.
            interventions: Interventions while queries are run; None: those the context was made under.
                Others can only act on queries.
            top_k: Number of top next tokens kept.
            batch_size: Prompts per batch at most.
            memory: Budget, see `icl_mech.engine.run`.
            path: See `icl_mech.engine.run`; only the context itself is shared.
            progress: Show a progress bar.

        Raises:
            ModelError: another model.
            PromptError: prompts with other demonstrations or label words.
            RunError: an intervention that would change the demonstrations.
        """
        chosen = self.interventions if interventions is None else interventions
        how = How(
            interventions=chosen, batch_size=batch_size, memory=memory, path=path, progress=progress
        )
        return measured(PredictBehind(self, top_k), model, prompts, **how)

    def answer(self, model: Any, texts: Sequence[str | tuple[str, str]]) -> list[str]:
        """The predicted label of each query text, see `queries`.

        Raises:
            ModelError: as `predict`.
            PromptError: as `queries` and `predict`.
        """
        predicted = self.predict(model, self.queries(model, texts)).predicted
        return [self.labels[label] for label in predicted.tolist()]

    @checked(ResultError)
    def check_prompts(self, prompts: PromptBatch) -> None:
        """Reject prompts that do not begin with these demonstrations.

        Raises:
            PromptError: names the first such prompt.
        """
        if prompts[0].label_words != self.label_words:
            raise PromptError(
                f"These prompts have the labels {', '.join(prompts.labels)}, but the context has "
                f"{', '.join(self.labels)} (or other tokens for them). Use prompts with the labels "
                "of the context."
            )
        for number, prompt in enumerate(prompts):
            if prompt.tokens[: self.query] != self.tokens or prompt.target < self.query:
                raise PromptError(
                    f"Prompt {number} does not begin with the {self.query} tokens of this "
                    "context's demonstrations, so the context cannot answer it. Compress the "
                    "prompt's demonstrations, or write its query with queries()."
                )

    @checked(ResultError)
    def stand_in(self, model: LanguageModel, prompts: PromptBatch) -> StandIn:
        """The stand-in that the queries of these prompts see."""
        queries, kept = [self.query] * len(prompts), [self.kept] * len(prompts)
        position: Position = "overlap" if self.first == 0 else "true"
        return StandIn.made(model, prompts, queries, kept, self.method, position)

    @checked(ResultError)
    def cache(self, model: LanguageModel) -> KeyValues:
        """Its keys and values on the model's device."""
        to = model.device
        return KeyValues(tuple(k.to(to) for k in self.keys), tuple(v.to(to) for v in self.values))


@dataclass(frozen=True)
class CompressContext(Measurement[CompressContextResult]):
    """A small cache of the demonstrations of these prompts, for new queries.

    Takes one prompt, or several that share their demonstrations; their queries are not used, except that
    `hidden_random_top` chooses the draw by their label loyalty:

        context = CompressContext()(model, prompts)

    Attributes:
        method: See `compress_demonstrations`.
        position: See there.
        keep: Positions to keep instead of those the roles give.
        seed: See there.
        draws: See there.

    Raises:
        RunError: as `compress_demonstrations`, a model that counts positions itself, or
            interventions that differ between the prompts.
        PromptError: as there, and for prompts with different demonstrations.

    Source: Wang et al. 2023, §3.2.
    """

    method: Method = "hidden_anchor"
    position: Position = "true"
    keep: Any = None
    seed: Natural = 0
    draws: Count = 20

    takes = ANSWER_KINDS

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def __call__(
        self, model: Any, prompts: Prompts | Prompt, **how: Unpack[How]
    ) -> CompressContextResult:
        """Measure one or several prompts; options as in `icl_mech.measure`."""
        batch = PromptBatch((prompts,)) if isinstance(prompts, Prompt) else prompts
        return super().__call__(model, batch, **how)

    @property
    def comparison(self) -> Comparison:
        """Comparison of the draws by label loyalty."""
        return Comparison([self.method], self.position, self.keep, self.seed, self.draws, 1, False)

    def filled(self, model: LanguageModel, data: PromptBatch) -> "CompressContext":
        """Replace `keep` by checked positions."""
        return replace(self, keep=plain_positions(self.keep, data))

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts with different demonstrations, and as `Comparison.check`.

        Raises:
            RunError: as there, or a model whose cache cannot be cut.
            PromptError: as there, or different demonstrations.
        """
        self.comparison.check(model, data)
        stand_in = self._stand_in(model, data)
        if len(same_demonstrations(data, self.comparison.chosen(data).queries)) > 1:
            raise PromptError(
                "These prompts have different demonstrations, but a context holds a single set. "
                "Build them with demonstrations='shared', or give one prompt."
            )
        if stand_in.hidden:
            raise misplaced(model, stand_in.queries[0], len(stand_in.kept[0]))

    def passes(self, model: LanguageModel, data: PromptBatch) -> Sequence[Pass]:
        """The passes of the draws, where there are several."""
        several = len(self.comparison.chosen(data).kept[0]) > 1
        return self.comparison.passes(model, data) if several else []

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> CompressContextResult:
        """The result for the plain model."""
        return self._made(model, data, read, ())

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[CompressContextResult]:
        """Compare the draws and compute the keys and values, all under the same interventions.

        Raises:
            RunError: interventions that differ between prompts.
        """
        refuse_positions([self.method], options.interventions, data)
        for intervention in options.interventions:
            rows = range(len(data))
            if not treated_alike([intervention], self._stand_in(model, data), rows):
                raise RunError(
                    f"{intervention!r} differs between these prompts, but a context holds the keys "
                    "and values of a single run. Give one prompt, or use compress_demonstrations."
                )
        read = yield self.passes(model, data)
        return self._made(model, data, read, options.interventions)

    def _stand_in(self, model: LanguageModel, data: PromptBatch) -> StandIn:
        return self.comparison.stand_ins(model, data, self.comparison.chosen(data))[0]

    def _made(
        self,
        model: LanguageModel,
        data: PromptBatch,
        read: list[Any],
        interventions: Sequence[Intervention],
    ) -> CompressContextResult:
        chosen, facts = self.comparison.chosen(data), {}
        kept, query, prompt = chosen.first, chosen.queries[0], data[0]
        if read:
            outcome = self.comparison.outcome(model, data, read)
            kept, facts = outcome.methods[0].kept, outcome.facts
        stand_in = StandIn.made(model, data, chosen.queries, kept, self.method, self.position)
        (ready,) = fill_means(model, data, [interventions])
        demonstrations = stand_in.demonstrations(0)
        made = Work([], ready, checkpoint=False).begin(demonstrations)
        cache = stand_in.cut(made, 0)
        tokens = prompt.tokens[:query]
        *held, probed = to_host([*cache.keys, *cache.values, probe(model, tokens)])
        spans = [replace(s, stop=min(s.stop, query)) for s in prompt.spans if s.start < query]
        return CompressContextResult(
            method=self.method,
            kept=kept[0],
            query=query,
            first=0 if stand_in.overlap else stand_in.queries[0],
            tokens=tokens,
            spans=tuple((span.role, span.demo, span.start, span.stop) for span in spans),
            label_classes=prompt.label_classes,
            label_words=prompt.label_words,
            labels=data.labels,
            score=data.score,
            # Queries of a chat cannot be written by the template alone.
            task={} if "chat" in data.source else data.source.get("task", {}),
            keys=tuple(key.contiguous() for key in held[: len(cache.keys)]),
            values=tuple(value.contiguous() for value in held[len(cache.keys) :]),
            probe=probed,
            # With their means: queries are read under the very same.
            provenance={**facts, "made_under": [intervention.to_dict() for intervention in ready]},
        )


@dataclass(frozen=True)
class PredictBehind(Measurement[Predictions]):
    """Predictions for prompts that begin with the demonstrations of a context.

    Attributes:
        context: The context.
        top_k: Number of top next tokens kept.
    """

    context: CompressContextResult
    top_k: int = 5

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def variants(self) -> dict[str, Any]:
        """The identity of the context; its tensors are in a separate file."""
        context = self.context
        known = {"method": context.method, "tokens": len(context), "first_position": context.first}
        return {"compressed_context": {**known, "digest": context.digest}, "top_k": self.top_k}

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject another model, and prompts with other demonstrations.

        Raises:
            ModelError: another model.
            PromptError: other prompts.
            RunError: a model that would misplace queries.
        """
        context = self.context
        check_same_model(model, context.provenance["model"], context.tokens, context.probe)
        context.check_prompts(data)
        check_fits(model, data)
        check_top_k(self.top_k, model)
        if context.first != len(context) and not model.takes_positions:
            raise misplaced(model, context.first, len(context))

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The pass over the queries after the context."""
        layout = BehindContext(self.context.stand_in(model, data), self.context.cache(model))
        reading = PredictionReading(self.top_k)
        return [Variants(data, [reading], title="compressed prompts", layout=layout)]

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> Predictions:
        """Predictions as for whole prompts."""
        (((readout,),),) = read
        return predictions(readout, data)

    def check_options(self, model: LanguageModel, data: PromptBatch, options: Options) -> None:
        """Reject interventions the keys and values were not computed under.

        Raises:
            RunError: names the intervention.
        """
        refuse_positions([self.context.method], options.interventions, data)
        stand_in = self.context.stand_in(model, data)
        for intervention in options.interventions:
            self._check_intervention(intervention, stand_in)

    def _check_intervention(self, intervention: Intervention, stand_in: StandIn) -> None:
        """Reject interventions that would have changed the given keys and values.

        Raises:
            RunError: names the intervention.
        """
        if intervention.target_only:
            return
        known = jsonable(intervention.to_dict()) in self.context.made_under
        rows = range(len(stand_in.prompts))
        if not known and (
            intervention.missing()
            or any(intervention.hooks(stand_in.demonstrations(row)) for row in rows)
        ):
            raise RunError(
                f"{intervention!r} changes the demonstrations, but the keys and values of this "
                "context were computed without it. Compress the demonstrations again with "
                "interventions=."
            )
        if known and not treated_alike([intervention], stand_in, rows):
            raise RunError(
                f"{intervention!r} differs between these prompts, but a context holds the keys and "
                "values of a single run. Use compress_demonstrations."
            )
