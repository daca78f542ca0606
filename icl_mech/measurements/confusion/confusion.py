"""Which classes a model confuses, predicted from the keys of their label words.

*Predicted confusion*, per layer: the directions in which queries differ at the target (principal
components of the centred queries, all heads concatenated, raw projections with bias) are the
directions in which keys matter. Label words' keys, projected there and multiplied by the singular
values, have Euclidean distances between classes; divided by the largest, 0 is most confusable.

*Measured confusion* of classes a and b: ROC-AUC of `P(a)/P(b)` on prompts whose true class is a
or b. 1 tells them apart perfectly, 0.5 is chance.

If distances predict confusion, both order the pairs of classes alike: their Spearman rank
correlation over pairs is positive. Few classes agree in rank by chance, for any number of prompts, so
beside its interval over prompts stands a p-value over classes (`p_value`): how often classes that are
renamed at random agree as well. Queries and keys are read before QK-norm and rotary, unscaled;
in grouped-query models every query head has its group's key.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.engine import Kept, Reading
from icl_mech.engine.readings import Stacked
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.confusion.agreement import agreement, limits, normalised
from icl_mech.measurements.confusion.pairs import ConfusionResult
from icl_mech.measurements.demonstrations import displayed, seen_labels
from icl_mech.measurements.doors import door
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import LanguageModel, ModelInfo, Site, to_device
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.segments import Segment


@dataclass
class QueryReading(Reading[Tensor]):
    """The query projections at the target, heads concatenated."""

    layers: tuple[int, ...]

    target_only: ClassVar[bool] = True

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The query projection of each layer."""
        return [Site("q", layer) for layer in self.layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, d]`."""
        return segment.at_target(activation).flatten(1).float()

    def collect(self, kept: Kept) -> Tensor:
        """`[layer, prompt, d]`."""
        return kept.stacked().transpose(0, 1)


@dataclass
class KeyReading(Stacked, Reading[Tensor]):
    """The key projections at the label words before the target, averaged by class."""

    layers: tuple[int, ...]

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The key projection of each layer."""
        return [Site("k", layer) for layer in self.layers]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """`[batch, label, d]`, keys expanded to query heads."""
        info = segment.model.info
        classes = torch.arange(segment.prompts.n_labels, device=activation.device)
        before = segment.dest < to_device(segment.prompts.targets, activation.device)[:, None]
        shown = (segment.dest_classes[..., None] == classes) & before[..., None]
        weights = shown.float() / shown.sum(1, keepdim=True)
        means = torch.einsum("bpl,bphd->blhd", weights, activation.float())
        group = info.n_heads // info.n_kv_heads
        return means.repeat_interleave(group, dim=2).flatten(2)


def contexts_to_run(
    contexts: PromptBatch, chosen: Sequence[int], interventions: Sequence[Intervention] = ()
) -> tuple[PromptBatch, list[int]]:
    """What is run for the keys of the chosen contexts, and the row of it that each of them has.

    Equal demonstrations are run once. An intervention may depend on the prompt or its number, so
    under interventions that holds only if they treat all contexts alike; otherwise all contexts
    are run, with the numbers they have.
    """
    if not interventions:
        heads = [_what_keys_see(contexts[number]) for number in chosen]
        apart = list(dict.fromkeys(heads))
        first = [chosen[heads.index(head)] for head in apart]
        return contexts[first], [apart.index(head) for head in heads]
    tokens, *labels = _what_keys_see(contexts[0])
    alike = all(_what_keys_see(prompt) == (tokens, *labels) for prompt in contexts)
    if alike and all(change.shares(contexts, len(tokens)) for change in interventions):
        return contexts[[0]], [0] * len(chosen)
    return contexts, list(chosen)


def _what_keys_see(prompt: Prompt) -> tuple[tuple[int, ...], ...]:
    """Tokens up to the last label word before the target, and where which class stands."""
    shown = seen_labels(prompt)
    end = shown[-1][0] + 1 if shown else 0
    return (prompt.tokens[:end], *shown)


def principal_directions(
    queries: Float[Tensor, "layer batch d"], components: int
) -> list[Float[Tensor, "d _"]]:
    """Per layer the principal directions of the centred queries, times their singular values.

    No more than the rank: a direction whose singular value is float noise of the queries does
    not count, so a layer whose queries are all alike has none.
    """
    directions = []
    for own in queries.double():
        centred = own - own.mean(0)
        _, singular, rows = torch.linalg.svd(centred, full_matrices=False)
        noise = torch.finfo(torch.float32).eps * max(own.shape) * torch.linalg.matrix_norm(own, 2)
        kept = min(components, int((singular > noise).sum()))
        directions.append(rows[:kept].T * singular[:kept])
    return directions


def key_distances(
    keys: Float[Tensor, "context layer label d"], directions: list[Float[Tensor, "d _"]]
) -> Float[Tensor, "context layer label label"]:
    """Euclidean distances between the classes' projected keys; not-a-number without direction."""
    layers = []
    for layer, own in enumerate(directions):
        projected = keys[:, layer].double() @ own
        apart = projected[:, :, None] - projected[:, None]
        empty = own.shape[1] == 0
        layers.append(apart.new_full(apart.shape[:3], torch.nan) if empty else apart.norm(dim=-1))
    return torch.stack(layers, dim=1)


def diagnosis(
    label_logits: Float[Tensor, "batch label"],
    prompts: PromptBatch,
    per_prompt: Float[Tensor, "context layer label label"],
    layers: tuple[int, ...],
) -> ConfusionResult:
    """The result, from label logits and the distances of every context."""
    distances = normalised(per_prompt.mean(0))
    found = agreement(label_logits, prompts.answers, distances)
    auc, auc_low, auc_high = found.auc
    correlation, low, high = found.correlation
    return ConfusionResult(
        distances=distances,
        confusion_auc=auc,
        auc_low=auc_low,
        auc_high=auc_high,
        correlation=correlation,
        low=low,
        high=high,
        per_prompt=per_prompt,
        label_logits=label_logits,
        answers=prompts.answers,
        layers=layers,
        layer=layers[min(len(layers) - 1, len(layers) * 2 // 3)],
        labels=prompts.labels,
        notes=tuple(limits(prompts.labels, layers, distances, found)),
    )


@dataclass(frozen=True)
class Confusion(Measurement[ConfusionResult]):
    """Predicted and measured confusion of every pair of classes, and their rank correlation.

    Attributes:
        layer: Block whose keys and queries are compared; None: every block, showing the one at
            two thirds of the depth (the paper: 32 of 48).
        components: Principal directions of the queries at most.
        contexts: Prompts whose label words' keys are used (default: the measured ones);
            distances are averaged over them.
        context: Index of the one context to use (the paper's choice: the first).
        query_prompts: Prompts whose queries give the directions (default: the measured ones).

    Raises:
        RunError: a layer, context or number of components out of range, or a model without
            query and key projections.
        PromptError: prompts without answers, contexts that lack a class, or other label words.
        ResultError: a given layer whose queries are all alike.

    Source: Wang et al. 2023, §3.3; Spearman correlation added here.
    """

    layer: int | None = None
    components: Count = 10
    contexts: PromptBatch | None = None
    context: int | None = None
    query_prompts: PromptBatch | None = None

    why_not = "it compares the label words of classes, which all prompts share"

    def reads_first_tokens(self) -> bool:
        """No: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Refuse what cannot be compared.

        Raises:
            RunError: a layer, context or number of components out of range, or a model without
                query and key projections.
            PromptError: prompts without answers, contexts that lack a class, or other label
                words.
        """
        info = model.info
        if not (model.has_site("q") and model.has_site("k")):
            raise RunError(
                f"{info.name!r} ({info.architecture}) does not expose its query and key "
                "projections."
            )
        if self.layer is not None and not 0 <= self.layer < info.n_layers:
            raise RunError(
                f"layer={self.layer}; {info.name!r} has layers 0 to {info.n_layers - 1}."
            )
        if not data.has_answers:
            raise PromptError(
                "Measured confusion needs the true classes; give answers= when building the prompts."
            )
        contexts = self.contexts or data
        if self.context is not None and not 0 <= self.context < len(contexts):
            raise RunError(f"context={self.context}; there are {len(contexts)} contexts.")
        check_contexts(contexts, self._chosen(data))
        for other in (contexts, self.query_prompts or data):
            if other[0].label_words != data[0].label_words:
                raise PromptError(
                    f"Contexts and query_prompts must have the label words of the prompts "
                    f"({', '.join(data.labels)}), found {', '.join(other.labels)}."
                )

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[ConfusionResult]:
        """As usual, but the user's interventions decide which contexts must be run."""
        run, rows = self._keys_from(data, options.interventions)
        *read, (keys,) = yield self._passes(model, data, run)
        return self._result(model, data, read, keys[rows])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, those the queries are of, and the contexts."""
        run, _ = self._keys_from(data)
        return self._passes(model, data, run)

    def result(self, model: LanguageModel, data: PromptBatch, read: list[Any]) -> ConfusionResult:
        """Distances from queries and keys, measured confusion from label logits."""
        _, rows = self._keys_from(data)
        *others, (keys,) = read
        return self._result(model, data, others, keys[rows])

    def _chosen(self, data: PromptBatch) -> Sequence[int]:
        return range(len(self.contexts or data)) if self.context is None else [self.context]

    def _keys_from(
        self, data: PromptBatch, interventions: Sequence[Intervention] = ()
    ) -> tuple[PromptBatch, list[int]]:
        return contexts_to_run(self.contexts or data, self._chosen(data), interventions)

    def _layers(self, model: LanguageModel) -> tuple[int, ...]:
        return tuple(range(model.info.n_layers)) if self.layer is None else (self.layer,)

    def _passes(self, model: LanguageModel, data: PromptBatch, contexts: PromptBatch) -> list[Pass]:
        layers = self._layers(model)
        return [
            Pass(data, [PredictionReading()], title="predictions"),
            Pass(self.query_prompts or data, [QueryReading(layers)], title="queries"),
            Pass(contexts, [KeyReading(layers)], title="keys"),
        ]

    def _result(
        self,
        model: LanguageModel,
        data: PromptBatch,
        read: list[Any],
        keys: Float[Tensor, "context layer label d"],
    ) -> ConfusionResult:
        ((label_logits, *_),), (queries,) = read
        directions = principal_directions(queries, self.components)
        if self.layer is not None and directions[0].shape[1] == 0:
            raise ResultError(
                f"The queries of layer {self.layer} are all alike ({queries.shape[1]} prompts), so "
                "they have no principal direction; use more prompts or a later layer."
            )
        distances = key_distances(keys, directions)
        found = diagnosis(label_logits, data, distances, self._layers(model))
        given = {"contexts": self.contexts, "query_prompts": self.query_prompts}
        sources = {name: prompt_source(own) for name, own in given.items() if own is not None}
        return replace(found, provenance=sources)


def check_contexts(contexts: PromptBatch, chosen: Sequence[int]) -> None:
    """Refuse contexts that do not display every class before their targets.

    Raises:
        PromptError: names the first such context.
    """
    for number in chosen:
        prompt = contexts[number]
        known = displayed(prompt)
        missing = [name for c, name in enumerate(prompt.labels) if c not in known]
        if missing:
            raise PromptError(
                f"Context {number} has no demonstration of {', '.join(map(repr, missing))} before its "
                "target, so there is no key to compare; build the prompts with shots >= 1."
            )


diagnose_confusion = door(
    Confusion,
    "diagnose_confusion",
    prompts="Prompts with answers; the measured confusion is theirs.",
    interventions="Made in every pass: keys, queries and predictions are those under them.",
)
