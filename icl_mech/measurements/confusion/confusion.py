"""Confusion of classes by a model, predicted from the keys of their label words.

*Predicted confusion*, per layer: the directions in which queries differ at the target (principal
components of the centred queries, all heads concatenated, raw projections with bias) are the
directions in which keys matter. Label words' keys, projected there and multiplied by the singular
values, have Euclidean distances between classes; divided by the largest, 0 is most confusable.

*Measured confusion* of classes a and b: ROC-AUC of `P(a)/P(b)` on prompts whose true class is a
or b. 1 is perfect separation, 0.5 is chance.

If distances predict confusion, both order the pairs of classes alike: their Spearman rank
correlation over pairs is positive. Few classes agree in rank by chance, for any number of prompts, so
its interval over prompts is complemented by a p-value over classes (`p_value`): how often randomly permuted
classes agree as well. Queries and keys are read before QK-norm and rotary, unscaled;
in grouped-query models every query head has its group's key.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.3.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import Count, checked
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.confusion.agreement import (
    agreement,
    label_pairs,
    limits,
    normalised,
    pair_aucs,
    rank_correlation,
)
from icl_mech.measurements.confusion.key_distances import (
    KeyReading,
    QueryReading,
    check_contexts,
    contexts_to_run,
    key_distances,
    principal_directions,
)
from icl_mech.measurements.doors import door
from icl_mech.measurements.provenance import prompt_source
from icl_mech.measurements.reading import PredictionReading
from icl_mech.metrics import Interval
from icl_mech.metrics.intervals import holding
from icl_mech.metrics.permutations import Relabelling, relabelling
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Quantity, Result
from icl_mech.results.judging import CHANCE, Controlled, Required, Status, required

SOURCE = "Wang et al. 2023, Label Words are Anchors, §3.3"

DEFINITIONS = (
    Definition(
        "predicted confusion",
        r"d_{a,b} = \frac{\lVert \tilde{k}_a - \tilde{k}_b \rVert}{\max_{a', b'} "
        r"\lVert \tilde{k}_{a'} - \tilde{k}_{b'} \rVert}",
        "Distance between the keys k of two classes' label words in one layer, over all heads, "
        "projected on the principal directions of the target's queries and scaled by their "
        "singular values; averaged over prompts and divided by the largest distance. 0 is most "
        "confusable.",
        SOURCE,
    ),
    Definition(
        "measured confusion",
        r"\text{ROC-AUC}\left(\frac{P(a)}{P(b)}\right)",
        "How well the ratio of the two label words' probabilities separates prompts whose true "
        "class is a from those whose true class is b: 1 is perfect, 0.5 chance.",
        SOURCE,
    ),
    Definition(
        "rank correlation",
        r"\rho = \text{corr}\left(\text{rank}(d_{a,b}), \text{rank}(\text{AUC}_{a,b})\right)",
        "Spearman correlation between the two over all measured pairs of classes.",
        SOURCE,
    ),
    Definition(
        "permutation p-value",
        r"p = \frac{1}{C!} \sum_{\pi} \left[\rho(d_{a,b}, \text{AUC}_{\pi(a),\pi(b)}) \geq "
        r"\rho(d_{a,b}, \text{AUC}_{a,b})\right]",
        "Fraction of all orders of the C classes (if there are more than 10 000: of 10 000 drawn "
        "with seed 0 and the actual one) in which one table with renamed classes agrees with the "
        "other at least as well. One-sided. The interval is over prompts with the classes fixed, "
        "the p-value over classes with the prompts fixed. A claim needs both.",
        "Mantel 1967",
    ),
)

Obstacle = Literal["no pairs", "told apart", "no correlation", "few classes"]
"""Nothing to compare: no two classes among the true ones; AUC 1 for every pair; no rank correlation; any agreement of so
few classes may be chance."""


class ByLayer(NamedTuple):
    """Layers in which distances agree with confusion.

    Attributes:
        best: Layer with the largest correlation.
        known: Number of layers that have one.
        above: Number of layers in which its interval lies above 0.
        beyond_chance: Number of these in which permuted classes rarely agree as well.
    """

    best: int
    known: int
    above: int
    beyond_chance: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionResult(Result):
    """Predicted and measured confusion of every pair of classes.

    Attributes:
        distances: Predicted confusion of each layer in `layers`: 0 most, 1 least confusable.
        confusion_auc: Measured confusion: 0.5 chance, 1 perfect separation; not-a-number for classes
            without prompts.
        auc_low: Lower end of its 95 % interval over prompts.
        auc_high: Upper end.
        correlation: Spearman correlation of both over pairs, per layer; not-a-number if undefined.
        low: Lower end of its 95 % bootstrap interval over prompts, distances fixed.
        high: Upper end.
        per_prompt: Distances of each context, not divided.
        label_logits: Logits of the label words the measured confusion comes from.
        answers: True classes of those prompts.
        layers: Blocks that distances were computed in.
        layer: Block shown by default.
        labels: Names of the classes.
        notes: Limitations of these numbers.
    """

    shows: ClassVar[tuple[str, ...]] = ("matrices", "layers")
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "layer": "layers",
        "pair": "pair_names",
    }

    largest_p_value: ClassVar[float] = CHANCE
    """Largest p-value of a positive result."""

    distances: Float[Tensor, "layer label label"]
    confusion_auc: Float[Tensor, "label label"]
    auc_low: Float[Tensor, "label label"]
    auc_high: Float[Tensor, "label label"]
    correlation: Float[Tensor, " layer"]
    low: Float[Tensor, " layer"]
    high: Float[Tensor, " layer"]
    per_prompt: Float[Tensor, "context layer label label"]
    label_logits: Float[Tensor, "batch label"]
    answers: Int[Tensor, " batch"]
    layers: tuple[int, ...]
    layer: int
    labels: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def distance(self) -> Float[Tensor, "label label"]:
        """Predicted confusion in `layer`."""
        return self.distances[self.index(self.layer)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes whose confusion was measured."""
        return [
            (a, b)
            for a, b in label_pairs(len(self.labels))
            if not bool(self.confusion_auc[a, b].isnan())
        ]

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Names of both classes of each pair."""
        return tuple(f"{self.labels[a]} / {self.labels[b]}" for a, b in self.pairs)

    def quantities(self) -> dict[str, Quantity]:
        """Measured confusion of each pair, its `correlation` with distances, and these `distances`.

        Distances are estimated over prompts only if their contexts are the prompts themselves.
        """
        pairs = self.pairs
        if not pairs:
            return {}
        first, second = (list(side) for side in zip(*pairs, strict=True))
        margins = self.label_logits[:, first] - self.label_logits[:, second]

        def aucs(weights: Tensor) -> Tensor:
            counts = (weights * len(self.answers)).round().float()
            return pair_aucs(self.label_logits, self.answers, pairs, counts)

        def correlations(weights: Tensor) -> Tensor:
            return rank_correlation(self.distances[:, first, second], aucs(weights))

        def distances(weights: Tensor) -> Tensor:
            layers = self.per_prompt.double().unbind(1)
            # One layer at a time: resamples of all pairs of all layers are large.
            means = ((weights @ layer.flatten(1)).unflatten(1, layer.shape[1:]) for layer in layers)
            return torch.stack([normalised(mean)[:, first, second] for mean in means], dim=1)

        ends, ranks = (self.low, self.high), "Spearman correlation over pairs"
        auc_ends = (self.auc_low[first, second], self.auc_high[first, second])
        quantities = {
            "auc": Quantity(("pair",), margins, aucs, "ROC-AUC of P(a)/P(b)", auc_ends),
            # No prompt has a correlation of its own.
            "correlation": Quantity(("layer",), self.answers, correlations, ranks, ends),
        }
        elsewhere = self.provenance.get("variants", {}).get("contexts") is not None
        if len(self.per_prompt) == len(self.answers) and not elsewhere:
            apart = self.per_prompt[:, :, first, second]
            unit = "distance, fraction of the largest"
            quantities["distance"] = Quantity(("layer", "pair"), apart, distances, unit)
        return quantities

    def more_columns(self) -> dict[str, int | list[float]]:
        """Predicted confusion of each pair in `layer`."""
        return {
            "layer": self.layer,
            "distance": [float(self.distance[pair]) for pair in self.pairs],
        }

    @checked(ResultError)
    def rank_correlation(self, layer: int | None = None) -> Interval:
        """Spearman correlation of predicted and measured confusion in one layer.

        Raises:
            ResultError: a layer that was not read.
        """
        place = self.index(self.layer if layer is None else layer)
        return holding(*(float(ends[place]) for ends in (self.correlation, self.low, self.high)))

    def index(self, layer: int) -> int:
        """Index of a layer.

        Raises:
            ResultError: it was not read.
        """
        if layer not in self.layers:
            raise ResultError(
                f"Layer {layer} was not read; available layers are {list(self.layers)}."
            )
        return self.layers.index(layer)

    @property
    def told_apart(self) -> bool:
        """True if label words separate every measured pair of classes without an error."""
        return bool(self.pairs) and all(float(self.confusion_auc[pair]) == 1 for pair in self.pairs)

    @cached_property
    def relabelled(self) -> Relabelling:
        """The Mantel test of each layer: how often permuted classes agree as well.

        Uses the measured classes; not-a-number where there is no correlation.
        """
        present = sorted({label for pair in self.pairs for label in pair})
        rows = torch.tensor(present, dtype=torch.long)
        distances = self.distances[:, rows][:, :, rows].double()
        p_values = relabelling(distances, self.confusion_auc[rows][:, rows].double())
        undefined = self.correlation.isnan()
        return Relabelling(*(p.masked_fill(undefined, torch.nan) for p in p_values))

    @checked(ResultError)
    def p_value(self, layer: int | None = None) -> float:
        """One-sided p-value of a positive rank correlation in one layer, over permuted classes.

        The interval of the correlation takes the classes as fixed; this p-value takes the prompts as fixed.

        Raises:
            ResultError: a layer that was not read.
        """
        return float(self.relabelled.above[self.index(self.layer if layer is None else layer)])

    @property
    def status(self) -> Status:
        """Status of the claim that classes with similar keys are confused, in `layer`.

        It needs an interval over prompts that lies above 0, and a p-value over classes of at most
        0.025. Where no permutation test of the classes can reach it, as with four classes or fewer, the claim
        cannot be tested.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same status as a measure that a claim requires, with its p-value."""
        return required("distance", self.beside_relabelled, prompts=self.count)

    @property
    def beside_relabelled(self) -> Controlled:
        """The rank correlation in `layer`, with the p-values of permuted classes."""
        above, below, smallest = (float(p[self.index(self.layer)]) for p in self.relabelled)
        return Controlled.of(self.rank_correlation(), relabelled=(above, below, smallest))

    # --- facts for the summary ---

    @property
    def count(self) -> int:
        """Number of prompts."""
        return len(self.answers)

    def has_correlation(self, layer: int) -> bool:
        """True unless there are fewer than two pairs, or all values are equal."""
        return not math.isnan(self.rank_correlation(layer).value)

    @property
    def obstacle(self) -> Obstacle | None:
        """Why distances cannot be compared with confusion; None where they can."""
        if not self.pairs:
            return "no pairs"
        if self.told_apart:
            return "told apart"
        if not self.has_correlation(self.layer):
            return "no correlation"
        return "few classes" if self.smallest_p_value > self.largest_p_value else None

    @property
    def smallest_p_value(self) -> float:
        """The smallest p-value that so few classes can have in `layer`."""
        return float(self.relabelled.smallest[self.index(self.layer)])

    @property
    def by_layer(self) -> ByLayer:
        """Layers in which distances agree with confusion, each tested separately."""
        best = self.layers[int(self.correlation.nan_to_num(-math.inf).argmax())]
        above = self.low > 0
        twice = above & (self.relabelled.above <= self.largest_p_value)
        known = int(self.correlation.isfinite().sum())
        return ByLayer(best, known, int(above.sum()), int(twice.sum()))

    def on_page(self) -> tuple[str, ...]:
        """Both matrices, and the correlation by layer where it is defined."""
        several = len(self.layers) > 1 and not bool(self.correlation.isnan().all())
        return self.shows if several else self.shows[:1]

    def is_drawn(self, show: str) -> bool:
        """True, except for matrices without measured pairs, or with all pairs separated perfectly."""
        return show != "matrices" or (bool(self.pairs) and not self.told_apart)


def diagnosis(
    label_logits: Float[Tensor, "batch label"],
    prompts: PromptBatch,
    per_prompt: Float[Tensor, "context layer label label"],
    layers: tuple[int, ...],
) -> ConfusionResult:
    """The result, from label logits and the distances of every context."""
    distances = normalised(per_prompt.mean(0))
    measured = agreement(label_logits, prompts.answers, distances)
    auc, auc_low, auc_high = measured.auc
    correlation, low, high = measured.correlation
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
        notes=tuple(limits(prompts.labels, layers, distances, measured)),
    )


@dataclass(frozen=True)
class Confusion(Measurement[ConfusionResult]):
    """Predicted and measured confusion of every pair of classes, and their rank correlation.

    Attributes:
        layer: Block whose keys and queries are compared; None: every block, showing the one at
            two thirds of the depth (the paper: 32 of 48).
        components: Maximum number of principal directions of the queries.
        contexts: Prompts whose label words' keys are used (default: the measured ones);
            distances are averaged over them.
        context: Index of the single context to use (the paper's choice: the first).
        query_prompts: Prompts whose queries give the directions (default: the measured ones).

    Raises:
        RunError: a layer, context or number of components out of range, or a model without
            query and key projections.
        PromptError: prompts without answers, contexts that lack a class, or other label words.
        ResultError: a given layer whose queries are all equal.

    Source: Wang et al. 2023, §3.3; Spearman correlation added here.
    """

    layer: int | None = None
    components: Count = 10
    contexts: PromptBatch | None = None
    context: int | None = None
    query_prompts: PromptBatch | None = None

    why_not = "it compares the label words of classes, which all prompts share"

    def reads_first_tokens(self) -> bool:
        """False: whole words are scored where the prompts say so."""
        return False

    def check(self, model: LanguageModel, data: PromptBatch) -> None:
        """Reject prompts, contexts and options that cannot be compared.

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
                f"layer={self.layer}, but {info.name!r} has layers 0 to {info.n_layers - 1}."
            )
        if not data.has_answers:
            raise PromptError(
                "Measured confusion needs the true classes; give answers= when building the "
                "prompts."
            )
        contexts = self.contexts or data
        if self.context is not None and not 0 <= self.context < len(contexts):
            raise RunError(
                f"context={self.context}, but there are {len(contexts)} contexts, counted from 0."
            )
        check_contexts(contexts, self._chosen(data))
        for prompts in (contexts, self.query_prompts or data):
            if prompts[0].label_words != data[0].label_words:
                raise PromptError(
                    "Contexts and query_prompts must have the same label words as the prompts "
                    f"({', '.join(data.labels)}); found {', '.join(prompts.labels)}."
                )

    def steps(
        self, model: LanguageModel, data: PromptBatch, options: Options
    ) -> Steps[ConfusionResult]:
        """Run the usual steps, but the user's interventions decide which contexts must be run."""
        run, rows = self._keys_from(data, options.interventions)
        *read, (keys,) = yield self._passes(model, data, run)
        return self._result(model, data, read, keys[rows])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The passes over the prompts, the prompts of the queries, and the contexts."""
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
                f"All queries of layer {self.layer} are identical ({queries.shape[1]} prompts), so "
                "they have no principal direction; use more prompts or a later layer."
            )
        distances = key_distances(keys, directions)
        result = diagnosis(label_logits, data, distances, self._layers(model))
        given = {"contexts": self.contexts, "query_prompts": self.query_prompts}
        sources = {name: prompt_source(batch) for name, batch in given.items() if batch is not None}
        return replace(result, provenance=sources)


diagnose_confusion = door(
    Confusion,
    "diagnose_confusion",
    prompts="Prompts with answers, on which confusion is measured.",
    interventions="Applied in every pass, so to keys, queries and predictions alike.",
)
