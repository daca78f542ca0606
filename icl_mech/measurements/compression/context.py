"""`CompressedContext`: demonstrations kept as a small key/value cache that answers queries.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.2.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ModelError, PromptError
from icl_mech.measurements._old import prediction_result, provenance
from icl_mech.measurements.compression.behind import read_behind, same_demonstrations
from icl_mech.measurements.compression.kept import Kept, Method, parts
from icl_mech.measurements.compression.methods import check_options, compress_by, kept_sets
from icl_mech.measurements.compression.queries import behind_demonstrations
from icl_mech.measurements.compression.stand_in import (
    Demonstrations,
    Position,
    StandIn,
    misplaced,
    takes_positions,
)
from icl_mech.measurements.predictions import Predictions
from icl_mech.models import KeyValues, LanguageModel, adapt
from icl_mech.prompts import Prompt, PromptBatch, Span
from icl_mech.results import Result
from icl_mech.segments import check_fits

_SAME_MODEL = (
    "name", "architecture", "revision", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head",
    "d_vocab", "dtype", "processed_weights",
)  # fmt: skip

_PROBE = 4
"""Tokens whose residual tells models of the same name apart."""


@dataclass(frozen=True, eq=False, kw_only=True)
class CompressedContext(Result):
    """A stand-in for one set of demonstrations, ready for new queries.

    It holds keys and values of the kept tokens only. Queries are read at the positions given
    when it was made.

    Attributes:
        method: How it was made.
        kept: Positions of the cached tokens in the full prompt.
        query: Where a query begins in the full prompt.
        first: Position id of a query's first token.
        tokens: Ids of everything before the query, to recognise prompts that fit.
        spans: Roles of these tokens: role, demonstration, start, stop.
        label_classes: Class each demonstration displays.
        label_words: Token ids of the label words, in class order.
        labels: Names of the classes.
        task: What the prompts recorded of their task.
        keys: Cached keys, layer by layer.
        values: Cached values.
        probe: Residual at the first tokens, by which another model is noticed.
    """

    method: str
    kept: tuple[int, ...]
    query: int
    first: int
    tokens: tuple[int, ...]
    spans: tuple[tuple[str, int | None, int, int], ...]
    label_classes: tuple[int, ...]
    label_words: tuple[tuple[int, ...], ...]
    labels: tuple[str, ...]
    task: dict[str, Any] = field(default_factory=dict)
    keys: tuple[Float[Tensor, "1 kv_head _ d_head"], ...]
    values: tuple[Float[Tensor, "1 kv_head _ d_head"], ...]
    probe: Float[Tensor, "pos d_model"]

    def __len__(self) -> int:
        """Number of cached tokens."""
        return len(self.kept)

    def summary(self) -> str:
        """Method, sizes and model."""
        size = sum(t.numel() * t.element_size() for t in (*self.keys, *self.values))
        return (
            f"{self.method}: {len(self.kept)} of {self.query} tokens before the query, "
            f"{size / 1e6:.2g} MB of keys and values for {self.provenance['model']['name']}"
        )

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.summary())}</p>"

    def queries(self, model: Any, texts: Sequence[str | tuple[str, str]]) -> PromptBatch:
        """Prompts with these demonstrations and new query texts (pairs of texts in pair tasks).

        Args:
            model: Model or tokenizer.
            texts: One text, or pair of texts, per query; written in the task's template.

        Raises:
            PromptError: the context was not made from prompts of `build_prompts`, whose template
                it would need.
        """
        if isinstance(texts, str):
            raise PromptError("texts is one string; give a list of texts, for one query [text].")
        if "template" not in self.task:
            raise PromptError(
                "The template of these demonstrations is not known: the context was not made from "
                "prompts of build_prompts. Give whole prompts to predict() instead."
            )
        spans = tuple(Span(*span) for span in self.spans)  # type: ignore[arg-type]
        made = behind_demonstrations(
            self.tokens, spans, texts, self.task, getattr(model, "tokenizer", model)
        )
        prompts = (
            Prompt(tokens, laid, self.label_classes, self.label_words, labels=self.labels)
            for tokens, laid in made
        )
        return PromptBatch(tuple(prompts), {"task": self.task, "demonstrations": "shared"})

    def predict(
        self,
        model: Any,
        prompts: PromptBatch,
        *,
        top_k: int = 5,
        batch_size: int | None = None,
    ) -> Predictions:
        """What the model predicts for prompts that begin with these demonstrations.

        Only the part of each prompt that follows the demonstrations is computed.

        Args:
            model: The model the context was made with.
            prompts: Whole prompts, for example those of `queries`.
            top_k: Number of likeliest next tokens kept.
            batch_size: Prompts per batch at most.

        Raises:
            ModelError: another model.
            PromptError: prompts with other demonstrations or label words.
        """
        adapted = adapt(model)
        self._check_model(adapted)
        self._check_prompts(prompts)
        check_fits(adapted, prompts)
        to = adapted.device
        cache = KeyValues(tuple(k.to(to) for k in self.keys), tuple(v.to(to) for v in self.values))
        stand_in = StandIn(self.query, self.first, self.kept, cache)
        read = read_behind(stand_in, adapted, prompts, top_k=top_k, batch_size=batch_size)
        compressed = {"method": self.method, "tokens": len(self.kept), "first_position": self.first}
        origin = provenance(adapted, prompts, compressed_context=compressed)
        return prediction_result(read, prompts, origin)

    def answer(self, model: Any, texts: Sequence[str | tuple[str, str]]) -> list[str]:
        """The predicted label of each query text, see `queries`.

        Raises:
            ModelError: as `predict`.
            PromptError: as `queries` and `predict`.
        """
        predicted = self.predict(model, self.queries(model, texts)).predicted
        return [self.labels[label] for label in predicted.tolist()]

    def _check_model(self, model: LanguageModel) -> None:
        own, given = self.provenance["model"], asdict(model.info)
        for name in _SAME_MODEL:
            if own[name] != given[name]:
                raise ModelError(
                    f"This context was made with {own['name']!r} ({name} {own[name]}), the model given "
                    f"is {given['name']!r} ({name} {given[name]}); keys and values of one model mean "
                    "nothing to another. Compress the demonstrations again with this one."
                )
        found = _probe(model, self.tokens)
        # Half precision differs between devices by about 1 %, other weights by far more.
        tolerance = 1e-3 if own["dtype"] in ("float32", "float64") else 0.05
        if float((found - self.probe).norm()) > tolerance * float(self.probe.norm()):
            raise ModelError(
                f"The model given is called {own['name']!r} like the one this context was made with, but "
                "has other weights. Compress the demonstrations again with this one."
            )

    def _check_prompts(self, prompts: PromptBatch) -> None:
        if prompts[0].label_words != self.label_words:
            raise PromptError(
                f"These prompts have the labels {', '.join(prompts.labels)}, the context "
                f"{', '.join(self.labels)} (or other tokens for them)."
            )
        for number, prompt in enumerate(prompts):
            if prompt.tokens[: self.query] != self.tokens or prompt.target < self.query:
                raise PromptError(
                    f"Prompt {number} does not begin with the {self.query} tokens of this context's "
                    "demonstrations, so it cannot be answered from it. Compress its own demonstrations, "
                    "or write its query with queries()."
                )


def compress_context(
    model: Any,
    prompts: PromptBatch | Prompt,
    *,
    method: Method = "hidden_anchor",
    position: Position = "true",
    keep: Any = None,
    seed: int = 0,
    draws: int = 20,
) -> CompressedContext:
    """The demonstrations of these prompts as a small cache for new queries.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: One prompt, or several that share their demonstrations; their queries do not
            enter, except that `hidden_random_top` chooses the draw by their label loyalty.
        method: As in `compress_demonstrations`.
        position: As there.
        keep: Positions to keep instead of those the roles give.
        seed: As there.
        draws: As there.

    Raises:
        RunError: as `compress_demonstrations`, or a model that counts positions itself.
        PromptError: as there, and for prompts with different demonstrations.

    Source: Wang et al. 2023, §3.2.
    """
    batch = prompts if isinstance(prompts, PromptBatch) else PromptBatch((prompts,))
    adapted = adapt(model)
    check_options([method], position, keep, draws)
    check_fits(adapted, batch)
    sets = kept_sets(batch, method, keep=keep, seed=seed, draws=draws)
    kept = sets[0][0]
    layout = [parts(prompt, kept) for prompt in batch]
    if len(same_demonstrations(batch, [part.query for part in layout])) > 1:
        raise PromptError(
            "These prompts have different demonstrations, and a context holds one set. Build them with "
            "demonstrations='shared', or give one prompt."
        )
    choice: dict[str, Any] = {}
    if len(sets) > 1:
        compared = compress_by(
            adapted, batch, [method], position=position, keep=None, seed=seed, draws=draws, top_k=1,
            batch_size=None, memory=None, measure=False, progress=False,
        )  # fmt: skip
        (best,) = compared.methods
        kept, choice = best.kept[0], best.choice
    origin = provenance(
        adapted, batch, method=method, position=position, seed=seed,
        positions="roles" if keep is None else "given", **choice,
    )  # fmt: skip
    return _context(adapted, batch, layout[0].query, kept, method, position, origin)


def _context(
    model: LanguageModel,
    prompts: PromptBatch,
    query: int,
    kept: Kept,
    method: Method,
    position: Position,
    origin: dict[str, Any],
) -> CompressedContext:
    prompt = prompts[0]
    tokens = prompt.tokens[:query]
    shared = Demonstrations(model, tokens, takes_positions(model))
    stand_in = shared.stand_in(kept, as_text=method == "text_anchor", position=position)
    if stand_in.whole:
        raise misplaced(model, query, len(kept))
    spans = [replace(s, stop=min(s.stop, query)) for s in prompt.spans if s.start < query]
    return CompressedContext(
        method=method,
        kept=kept,
        query=query,
        first=stand_in.first,
        tokens=tokens,
        spans=tuple((span.role, span.demo, span.start, span.stop) for span in spans),
        label_classes=prompt.label_classes,
        label_words=prompt.label_words,
        labels=prompts.labels,
        task=prompts.source.get("task", {}),
        keys=tuple(key.contiguous().cpu() for key in stand_in.cache.keys),
        values=tuple(value.contiguous().cpu() for value in stand_in.cache.values),
        probe=_probe(model, tokens),
        provenance=origin,
    )


def _probe(model: LanguageModel, tokens: Sequence[int]) -> Float[Tensor, "pos d_model"]:
    ids = torch.tensor([list(tokens[:_PROBE])], device=model.device)
    places = torch.arange(ids.shape[1], device=model.device)[None]
    with torch.no_grad():
        return model.forward(ids, torch.ones_like(ids).bool(), places).residual[0].float().cpu()


def load_compressed_context(folder: str | Path) -> CompressedContext:
    """What `CompressedContext.save` wrote; its answers are those of the original.

    Raises:
        ResultError: missing or damaged files, another kind of result, or a newer layout.
    """
    return CompressedContext.load(folder)
