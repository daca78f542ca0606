"""Which classes a model confuses, predicted from the keys of their label words.

*Predicted confusion*, per layer: the directions in which queries differ at the target (principal
components of the centred queries, all heads concatenated, raw projections with bias) are the
directions in which keys matter. Label words' keys, projected there and multiplied by the singular
values, have Euclidean distances between classes; divided by the largest, 0 is most confusable.

*Measured confusion* of classes a and b: ROC-AUC of `P(a)/P(b)` on prompts whose true class is a
or b. 1 tells them apart perfectly, 0.5 is chance.

If distances predict confusion, both order the pairs of classes alike: their Spearman rank
correlation over pairs is positive. Queries and keys are read before QK-norm and rotary, unscaled;
in grouped-query models every query head has its group's key.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.engine import Reading, run
from icl_mech.errors import PromptError, ResultError, RunError, near_matches
from icl_mech.measurements._old import provenance
from icl_mech.measurements.confusion.distances import (
    key_distances,
    label_pairs,
    normalised,
    pair_auc,
    principal_directions,
    rank_correlation,
)
from icl_mech.measurements.confusion.projections import QueryReading, read_keys
from icl_mech.measurements.drawings import confusion_matrices, correlation_curve
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.measurements.reweighting.learnable import displayed
from icl_mech.metrics import LEVEL, Interval, class_resamples
from icl_mech.models import LanguageModel, adapt
from icl_mech.prompts import PromptBatch
from icl_mech.results import Result
from icl_mech.shapes import LabelMatrices, LayerCurves

if TYPE_CHECKING:
    import pandas as pd

Drawing = Literal["matrices", "layers"]


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionDiagnosis(Result):
    """Predicted and measured confusion of every pair of classes.

    Attributes:
        distances: Predicted confusion of each layer in `layers`: 0 most, 1 least confusable.
        confusion_auc: Measured confusion: 0.5 chance, 1 told apart; not-a-number for classes
            without prompts.
        auc_low: Lower end of its 95 % bootstrap interval over prompts.
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
        return self.distances[self._index(self.layer)]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of classes whose confusion was measured."""
        return [
            (a, b)
            for a, b in label_pairs(len(self.labels))
            if not bool(self.confusion_auc[a, b].isnan())
        ]

    def rank_correlation(self, layer: int | None = None) -> Interval:
        """Spearman correlation of predicted and measured confusion in one layer.

        Raises:
            ResultError: a layer that was not read.
        """
        place = self._index(self.layer if layer is None else layer)
        return Interval(*(float(ends[place]) for ends in (self.correlation, self.low, self.high)))

    def _index(self, layer: int) -> int:
        if layer not in self.layers:
            raise ResultError(f"Layer {layer} was not read; there are {list(self.layers)}.")
        return self.layers.index(layer)

    def drawing(
        self, what: Drawing = "matrices", *, layer: int | None = None
    ) -> LabelMatrices | LayerCurves:
        """Both matrices side by side, or the correlation by layer.

        Args:
            what: `matrices` or `layers`.
            layer: Block whose distances are shown (default `layer`).

        Raises:
            ResultError: unknown choice, a layer that was not read, or an undefined correlation.
        """
        if what not in get_args(Drawing):
            raise ResultError(f"what={what!r}. {near_matches(what, get_args(Drawing))}")
        if what == "layers":
            return self._correlation_curve()
        shown = self.layer if layer is None else layer
        return confusion_matrices(
            f"predicted: key distance, layer {shown}",
            self.distances[self._index(shown)],
            self.confusion_auc,
            self.labels,
            self._correlation_text(shown),
        )

    def _correlation_curve(self) -> LayerCurves:
        if bool(self.correlation.isnan().all()):
            raise ResultError(
                f"There is no rank correlation to draw with {len(self.labels)} classes. "
                + " ".join(self.notes)
            )
        note = (
            f"{len(self.pairs)} pairs; band: 95 % bootstrap interval over "
            f"{len(self.answers)} prompts, distances and classes fixed"
        )
        return correlation_curve(self.layers, self.correlation, self.low, self.high, note)

    def _correlation_text(self, layer: int) -> str:
        pairs = len(self.pairs)
        found = self.rank_correlation(layer)
        if np.isnan(found.value):
            return f"no rank correlation over {pairs} pair{'s' * (pairs != 1)} of classes"
        return f"Spearman correlation over {pairs} pairs of classes: {found}"

    def summary(self) -> str:
        """The rank correlation in `layer`, and what limits it."""
        return "; ".join([f"layer {self.layer}: {self._correlation_text(self.layer)}", *self.notes])

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


def diagnose_confusion(
    model: Any,
    prompts: PromptBatch,
    *,
    layer: int | None = None,
    components: int = 10,
    contexts: PromptBatch | None = None,
    context: int | None = None,
    query_prompts: PromptBatch | None = None,
    batch_size: int | None = None,
    progress: bool | None = None,
) -> ConfusionDiagnosis:
    """Predicted and measured confusion of every pair of classes, and their rank correlation.

    Args:
        model: TransformerBridge, HookedTransformer or adapted model.
        prompts: Prompts with answers; the measured confusion is theirs.
        layer: Block whose keys and queries are compared; None: every block, showing the one at
            two thirds of the depth (the paper: 32 of 48).
        components: Principal directions of the queries at most.
        contexts: Prompts whose label words' keys are used (default: `prompts`); distances are
            averaged over them.
        context: Index of the one context to use (the paper's choice: the first).
        query_prompts: Prompts whose queries give the directions (default: `prompts`).
        batch_size: Prompts per batch at most.
        progress: Show a progress bar.

    Raises:
        RunError: a layer, context or number of components out of range, or a model without
            query and key projections.
        PromptError: prompts without answers, contexts that lack a class, or other label words.
        ResultError: a given layer whose queries are all alike.

    Source: Wang et al. 2023, §3.3; Spearman correlation added here.
    """
    adapted = adapt(model)
    layers = chosen_layers(adapted, layer)
    if components < 1:
        raise RunError(f"components={components}; at least one direction is needed.")
    if not prompts.has_answers:
        raise PromptError(
            "Measured confusion needs the true classes; give answers= when building the prompts."
        )
    shown = chosen_contexts(prompts, contexts, context)
    for other in (shown, query_prompts or prompts):
        if other[0].label_words != prompts[0].label_words:
            raise PromptError(
                f"Contexts and query_prompts must have the label words of the prompts "
                f"({', '.join(prompts.labels)}), found {', '.join(other.labels)}."
            )
    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
    reading = QueryReading(layers)
    readings: list[Reading[Any]] = [PredictionReading()]
    if query_prompts is None:
        (label_logits, *_), queries = run(
            adapted, prompts, [*readings, reading], title="queries", **options
        )
    else:
        ((label_logits, *_),) = run(adapted, prompts, readings, title="predictions", **options)
        (queries,) = run(adapted, query_prompts, [reading], title="queries", **options)
    keys = read_keys(adapted, shown, layers, **options)
    directions = principal_directions(queries, components)
    if layer is not None and directions[0].shape[1] == 0:
        raise ResultError(
            f"The queries of layer {layer} are all alike ({queries.shape[1]} prompts), so they have "
            "no principal direction; use more prompts or a later layer."
        )
    origin = provenance(
        adapted, prompts, layer=layer, components=components, context=context,
        contexts=None if contexts is None else contexts.source,
        query_prompts=None if query_prompts is None else query_prompts.source,
    )  # fmt: skip
    return diagnosis(label_logits, prompts, key_distances(keys, directions), layers, origin)


def chosen_layers(model: LanguageModel, layer: int | None) -> tuple[int, ...]:
    """The layers to read.

    Raises:
        RunError: a layer the model does not have, or projections it does not expose.
    """
    info = model.info
    if not (model.has_site("q") and model.has_site("k")):
        raise RunError(
            f"{info.name!r} ({info.architecture}) does not expose its query and key projections."
        )
    if layer is None:
        return tuple(range(info.n_layers))
    if not 0 <= layer < info.n_layers:
        raise RunError(f"layer={layer}; {info.name!r} has layers 0 to {info.n_layers - 1}.")
    return (layer,)


def chosen_contexts(
    prompts: PromptBatch, contexts: PromptBatch | None, context: int | None
) -> PromptBatch:
    """The prompts whose keys are used.

    Raises:
        RunError: an index out of range.
        PromptError: a context that does not display every class before its target.
    """
    all_contexts = prompts if contexts is None else contexts
    if context is not None:
        if not 0 <= context < len(all_contexts):
            raise RunError(f"context={context}; there are {len(all_contexts)} contexts.")
        all_contexts = all_contexts[[context]]
    for number, prompt in enumerate(all_contexts):
        known = displayed(prompt)
        missing = [name for c, name in enumerate(prompt.labels) if c not in known]
        if missing:
            raise PromptError(
                f"Context {number} has no demonstration of {', '.join(map(repr, missing))} before its "
                "target, so there is no key to compare; build the prompts with shots >= 1."
            )
    return all_contexts


def diagnosis(
    label_logits: Float[Tensor, "batch label"],
    prompts: PromptBatch,
    per_prompt: Float[Tensor, "context layer label label"],
    layers: tuple[int, ...],
    origin: dict[str, Any],
) -> ConfusionDiagnosis:
    """The result, from label logits and the distances of every context."""
    answers, labels = prompts.answers, prompts.labels
    distances = normalised(per_prompt.mean(0))
    present = answers.unique().tolist()
    pairs = [(a, b) for a, b in label_pairs(len(labels)) if {a, b} <= set(present)]
    auc = torch.full((3, len(labels), len(labels)), torch.nan, dtype=torch.float64)
    auc[:, present, present] = 1.0
    correlation, low, high = torch.full((3, len(layers)), torch.nan, dtype=torch.float64)
    weights, redrawn = class_resamples(answers) if pairs else (None, 0)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    if pairs:
        first, second = (list(side) for side in zip(*pairs, strict=True))
        found = torch.stack([pair_auc(label_logits, answers, pair) for pair in pairs], dim=1)
        predicted = distances[:, first, second]
        correlation = rank_correlation(predicted, found)[0]
        auc[0, first, second] = auc[0, second, first] = found[0]
    if pairs and weights is not None:
        drawn = torch.stack([pair_auc(label_logits, answers, p, weights) for p in pairs], dim=1)
        ends = torch.from_numpy(np.quantile(drawn.numpy(), tails, axis=0))
        auc[1:, first, second] = auc[1:, second, first] = ends
        low, high = _ends(rank_correlation(predicted, drawn), tails)
    return ConfusionDiagnosis(
        distances=distances,
        confusion_auc=auc[0],
        auc_low=auc[1],
        auc_high=auc[2],
        correlation=correlation,
        low=low,
        high=high,
        per_prompt=per_prompt,
        label_logits=label_logits,
        answers=answers,
        layers=layers,
        layer=layers[min(len(layers) - 1, len(layers) * 2 // 3)],
        labels=labels,
        notes=tuple(
            _notes(
                prompts,
                present,
                distances,
                layers,
                auc[0],
                None if pairs and weights is None else redrawn,
            )
        ),
        provenance=origin,
    )


def _ends(drawn: Float[Tensor, "r layer"], tails: list[float]) -> Float[Tensor, "2 layer"]:
    """Quantiles over the resamples in which a layer's correlation is defined."""
    ends = torch.full((2, drawn.shape[1]), torch.nan, dtype=torch.float64)
    defined = ~drawn.isnan().all(0)
    ends[:, defined] = torch.from_numpy(np.nanquantile(drawn[:, defined].numpy(), tails, axis=0))
    return ends


def _notes(
    prompts: PromptBatch,
    present: list[int],
    distances: Float[Tensor, "layer label label"],
    layers: tuple[int, ...],
    auc: Float[Tensor, "label label"],
    redrawn: int | None,
) -> Iterator[str]:
    if len(prompts.labels) == 2:
        yield "two classes are one pair, whose distance is 1 by construction: nothing to rank"
    if len(prompts.labels) == 3:
        yield "three classes are three pairs: without ties the correlation can only be ±0.5 or ±1"
    absent = [name for c, name in enumerate(prompts.labels) if c not in present]
    if absent:
        yield f"no prompt has the true class {', '.join(absent)}: its pairs are not measured"
    perfect = int((auc.triu(1) == 1).sum())
    if perfect > 1:
        yield f"{perfect} pairs are told apart perfectly (AUC 1), so their order is not known"
    alike = [layer for layer, own in zip(layers, distances, strict=True) if bool(own.isnan().any())]
    if alike:
        yield f"no distances in layer {', '.join(map(str, alike))}: queries or keys are all alike there"
    if redrawn is None:
        yield "no intervals: some class is so rare that resamples lose it"
    elif redrawn:
        yield f"{redrawn} resamples lost a class and were drawn again"
