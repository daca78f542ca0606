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
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.checking import Count
from icl_mech.errors import PromptError, ResultError, RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.base import Measurement, Options, Pass, Steps
from icl_mech.measurements.confusion import texts
from icl_mech.measurements.confusion.distances import (
    KeyReading,
    QueryReading,
    contexts_to_run,
    key_distances,
    label_pairs,
    normalised,
    principal_directions,
)
from icl_mech.measurements.confusion.numbers import (
    ConfusionNumbers,
    agreement,
    confusion_matrices,
    correlation_curve,
    limits,
)
from icl_mech.measurements.demonstrations import displayed
from icl_mech.measurements.doors import door
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.measurements.provenance import prompt_source
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.results import Definition, Figure, basis
from icl_mech.shapes import LabelMatrices, LayerCurves

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionDiagnosis(ConfusionNumbers):
    """Predicted and measured confusion of every pair of classes.

    Attributes:
        distances: Predicted confusion of each layer in `layers`: 0 most, 1 least confusable.
        confusion_auc: Measured confusion: 0.5 chance, 1 told apart; not-a-number for classes
            without prompts.
        auc_low: Lower end of its 95 % interval over prompts.
        auc_high: Upper end.
        correlation: Spearman correlation of both over pairs, per layer; not-a-number if undefined.
        low: Lower end of its 95 % bootstrap interval over prompts, distances fixed.
        high: Upper end.
        per_prompt: Distances of each context, not divided.
        label_logits: Logits of the label words the measured confusion comes from.
        answers: True classes of those prompts.
        layers: Blocks the distances are of.
        layer: Block shown by default.
        labels: Names of the classes.
        notes: What limits these numbers.
    """

    title: ClassVar[str] = "Which classes are confused"
    shows: ClassVar[tuple[str, ...]] = ("matrices", "layers")
    definitions: ClassVar[tuple[Definition, ...]] = texts.DEFINITIONS

    def drawing(
        self, show: str = "matrices", *, layer: int | None = None
    ) -> LabelMatrices | LayerCurves:
        """Both matrices side by side, or the correlation by layer.

        Args:
            show: `matrices` or `layers`.
            layer: Block whose distances are shown (default `layer`).

        Raises:
            ResultError: unknown choice, a layer that was not read, or an undefined correlation.
        """
        self.check_show(show)
        if show == "layers":
            return self._correlation_curve()
        shown = self.layer if layer is None else layer
        return confusion_matrices(
            shown,
            self.distances[self.index(shown)],
            torch.stack([self.confusion_auc, self.auc_low, self.auc_high]),
            self.labels,
            self.correlation_text(shown),
        )

    def _correlation_curve(self) -> LayerCurves:
        if bool(self.correlation.isnan().all()):
            raise ResultError(
                f"There is no rank correlation to draw with {len(self.labels)} classes. "
                + " ".join(self.notes)
            )
        note = f"{len(self.pairs)} pairs; {basis(self)}; distances and classes fixed"
        return correlation_curve(self.layers, self.correlation, self.low, self.high, note)

    def figures(self) -> list[Figure]:
        """Both matrices, and the correlation by layer where there is one."""
        found = [texts.matrices(self)]
        if len(self.layers) > 1 and not bool(self.correlation.isnan().all()):
            found.append(texts.layers(self))
        return found

    def summary(self) -> str:
        """The rank correlation in `layer`, and what limits it."""
        return "; ".join([f"layer {self.layer}: {self.correlation_text(self.layer)}", *self.notes])

    def to_pandas(self) -> "pd.DataFrame":
        """One row per layer and pair of classes."""
        import pandas as pd

        return pd.DataFrame(
            {
                "layer": layer,
                "first": self.labels[a],
                "second": self.labels[b],
                "distance": float(self.distances[place, a, b]),
                "auc": float(self.confusion_auc[a, b]),
                "auc_low": float(self.auc_low[a, b]),
                "auc_high": float(self.auc_high[a, b]),
            }
            for place, layer in enumerate(self.layers)
            for a, b in label_pairs(len(self.labels))
        )


def diagnosis(
    label_logits: Float[Tensor, "batch label"],
    prompts: PromptBatch,
    per_prompt: Float[Tensor, "context layer label label"],
    layers: tuple[int, ...],
) -> ConfusionDiagnosis:
    """The result, from label logits and the distances of every context."""
    distances = normalised(per_prompt.mean(0))
    found = agreement(label_logits, prompts.answers, distances)
    auc, auc_low, auc_high = found.auc
    correlation, low, high = found.correlation
    return ConfusionDiagnosis(
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
class Confusion(Measurement[ConfusionDiagnosis]):
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
    ) -> Steps[ConfusionDiagnosis]:
        """As usual, but the user's interventions decide which contexts must be run."""
        run, rows = self._keys_from(data, options.interventions)
        *read, (keys,) = yield self._passes(model, data, run)
        return self._result(model, data, read, keys[rows])

    def passes(self, model: LanguageModel, data: PromptBatch) -> list[Pass]:
        """The prompts, those the queries are of, and the contexts."""
        run, _ = self._keys_from(data)
        return self._passes(model, data, run)

    def result(
        self, model: LanguageModel, data: PromptBatch, read: list[Any]
    ) -> ConfusionDiagnosis:
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
    ) -> ConfusionDiagnosis:
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
