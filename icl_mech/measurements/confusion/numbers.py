"""The numbers of a diagnosis of confusion: both matrices, their agreement, and intervals."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.confusion.distances import (
    label_pairs,
    normalised,
    pair_aucs,
    rank_correlation,
)
from icl_mech.metrics import (
    Interval,
    Relabelling,
    auc_ends,
    class_resamples,
    quantile_ends,
    relabelling,
)
from icl_mech.results import Quantity, Result
from icl_mech.results.judging import Required, Status, judged_twice, largest, p_value
from icl_mech.results.wording import said, told
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves


@dataclass(frozen=True, eq=False)
class Agreement:
    """Measured confusion and its correlation with predicted confusion.

    Attributes:
        auc: Value and ends of the interval of each pair; not-a-number where it is not known.
        correlation: The same by layer.
        present: Classes that occur among the true ones.
        redrawn: Resamples that lost a class and were drawn again; None: there are no intervals.
    """

    auc: Float[Tensor, "end label label"]
    correlation: Float[Tensor, "end layer"]
    present: tuple[int, ...]
    redrawn: int | None


def agreement(
    label_logits: Float[Tensor, "batch label"],
    answers: Int[Tensor, " batch"],
    distances: Float[Tensor, "layer label label"],
) -> Agreement:
    """Both, with bootstrap intervals over prompts; distances and the classes present are fixed."""
    n_labels = label_logits.shape[1]
    present = answers.unique().tolist()
    pairs = [(a, b) for a, b in label_pairs(n_labels) if {a, b} <= set(present)]
    auc = torch.full((3, n_labels, n_labels), torch.nan, dtype=torch.float64)
    auc[:, present, present] = 1.0
    correlation = torch.full((3, len(distances)), torch.nan, dtype=torch.float64)
    if not pairs:
        return Agreement(auc, correlation, tuple(present), 0)
    weights, redrawn = class_resamples(answers)
    first, second = (list(side) for side in zip(*pairs, strict=True))
    predicted = distances[:, first, second]
    found = pair_aucs(label_logits, answers, pairs)
    auc[0, first, second] = auc[0, second, first] = found[0]
    correlation[0] = rank_correlation(predicted, found)[0]
    if weights is None:
        return Agreement(auc, correlation, tuple(present), None)
    drawn = pair_aucs(label_logits, answers, pairs, weights)
    sizes = answers.bincount(minlength=n_labels)
    of_pair = [int(sizes[a] + sizes[b]) for a, b in pairs]
    columns = [auc_ends(found[0, [i]], drawn[:, [i]], n) for i, n in enumerate(of_pair)]
    ends = torch.stack([torch.cat(side) for side in zip(*columns, strict=True)])
    auc[1:, first, second] = auc[1:, second, first] = ends
    correlation[1:] = torch.stack(quantile_ends(rank_correlation(predicted, drawn), len(answers)))
    return Agreement(auc, correlation, tuple(present), redrawn)


def limits(
    labels: Sequence[str],
    layers: Sequence[int],
    distances: Float[Tensor, "layer label label"],
    found: Agreement,
) -> Iterator[str]:
    """What limits the numbers, one sentence each."""
    if len(labels) == 2:
        yield "two classes are one pair, whose distance is 1 by construction: nothing to rank"
    if len(labels) == 3:
        yield "three classes are three pairs: without ties the correlation can only be ±0.5 or ±1"
    absent = [name for c, name in enumerate(labels) if c not in found.present]
    if absent:
        yield f"no prompt has the true class {', '.join(absent)}: its pairs are not measured"
    perfect = int((found.auc[0].triu(1) == 1).sum())
    if perfect > 1:
        yield f"{perfect} pairs are told apart perfectly (AUC 1), so their order is not known"
    alike = [layer for layer, own in zip(layers, distances, strict=True) if bool(own.isnan().any())]
    if alike:
        yield f"no distances in layer {', '.join(map(str, alike))}: queries or keys are all alike there"
    if found.redrawn is None:
        yield "no intervals: some class is so rare that resamples lose it"
    elif found.redrawn:
        yield f"{found.redrawn} resamples lost a class and were drawn again"


def confusion_matrices(
    layer: int,
    distance: Float[Tensor, "label label"],
    auc: Float[Tensor, "end label label"],
    labels: tuple[str, ...],
    note: str,
) -> LabelMatrices:
    """Predicted and measured confusion side by side; a class with itself is framed and blank."""
    alone = torch.eye(len(labels), dtype=torch.bool)
    value, low, high = (own.masked_fill(alone, math.nan) for own in auc)
    return LabelMatrices(
        title="Which classes are confused",
        matrices=(
            LabelMatrix(
                f"Predicted: distance of keys, layer {layer}",
                distance.masked_fill(alone, math.nan), labels, labels, "", "",
                "distance, share of the largest", diagonal=True, ends=(1.0, 0.0),
            ),
            LabelMatrix(
                "Measured: AUC of the two label words", value, labels, labels, "", "", "AUC",
                diagonal=True, low=low, high=high, ends=(1.0, min(0.5, _lowest(value))),
            ),
        ),
        note=f"dark: near, or hard to tell apart; {note}",
    )  # fmt: skip


def correlation_curve(
    layers: tuple[int, ...],
    values: Float[Tensor, " layer"],
    low: Float[Tensor, " layer"],
    high: Float[Tensor, " layer"],
    note: str,
) -> LayerCurves:
    """Rank correlation of predicted and measured confusion by layer."""
    return LayerCurves(
        title="Do distances between keys predict confusion?",
        names=("rank correlation",),
        values=values[None],
        low=low[None],
        high=high[None],
        y_title="Spearman correlation over pairs of classes",
        note=note,
        x=tuple(float(layer) for layer in layers),
        levels=((0.0, "no relation"),),
        meanings=("label",),
        y_range=(-1.08, 1.08),
    )


def _lowest(values: Float[Tensor, "label label"]) -> float:
    known = values[values.isfinite()]
    return float(known.min()) if known.numel() else 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionNumbers(Result):
    """Predicted and measured confusion of every pair of classes, as numbers.

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
            means = ((weights @ own.flatten(1)).unflatten(1, own.shape[1:]) for own in layers)
            return torch.stack([normalised(own)[:, first, second] for own in means], dim=1)

        auc_ends = (self.auc_low[first, second], self.auc_high[first, second])
        found = {
            "auc": Quantity(("pair",), margins, aucs, "ROC-AUC of P(a)/P(b)", auc_ends),
            # No prompt has a correlation of its own.
            "correlation": Quantity(
                ("layer",), self.answers, correlations, "Spearman correlation over pairs",
                (self.low, self.high),
            ),
        }  # fmt: skip
        elsewhere = self.provenance.get("variants", {}).get("contexts") is not None
        if len(self.per_prompt) == len(self.answers) and not elsewhere:
            apart = self.per_prompt[:, :, first, second]
            unit = "distance, share of the largest"
            found["distance"] = Quantity(("layer", "pair"), apart, distances, unit)
        return found

    def coordinates(self) -> dict[str, tuple[Any, ...]]:
        """Layers, and the names of both classes of each pair."""
        names = tuple(f"{self.labels[a]} / {self.labels[b]}" for a, b in self.pairs)
        return {"layer": self.layers, "pair": names}

    @checked(ResultError)
    def rank_correlation(self, layer: int | None = None) -> Interval:
        """Spearman correlation of predicted and measured confusion in one layer.

        Raises:
            ResultError: a layer that was not read.
        """
        place = self.index(self.layer if layer is None else layer)
        return Interval(*(float(ends[place]) for ends in (self.correlation, self.low, self.high)))

    def index(self, layer: int) -> int:
        """Place of a layer.

        Raises:
            ResultError: it was not read.
        """
        if layer not in self.layers:
            raise ResultError(f"Layer {layer} was not read; there are {list(self.layers)}.")
        return self.layers.index(layer)

    def correlation_text(self, layer: int) -> str:
        """The rank correlation in one layer, or that there is none."""
        pairs = len(self.pairs)
        found = self.rank_correlation(layer)
        if math.isnan(found.value):
            return f"no rank correlation over {pairs} pair{'s' * (pairs != 1)} of classes"
        return (
            f"Spearman correlation over {pairs} pairs of classes: {said(found)}, permutation p-value "
            f"over classes {told(self.p_value(layer))}"
        )

    @property
    def told_apart(self) -> bool:
        """True if label words tell every measured pair of classes apart without an error."""
        return bool(self.pairs) and all(float(self.confusion_auc[pair]) == 1 for pair in self.pairs)

    @cached_property
    def relabelled(self) -> Relabelling:
        """The Mantel test of each layer: how often renamed classes agree as well.

        Of the classes that were measured; not-a-number where there is no correlation.
        """
        present = sorted({own for pair in self.pairs for own in pair})
        rows = torch.tensor(present, dtype=torch.long)
        distances = self.distances[:, rows][:, :, rows].double()
        found = relabelling(distances, self.confusion_auc[rows][:, rows].double())
        undefined = self.correlation.isnan()
        return Relabelling(*(own.masked_fill(undefined, torch.nan) for own in found))

    @checked(ResultError)
    def p_value(self, layer: int | None = None) -> float:
        """One-sided p-value of a positive rank correlation in one layer, over renamed classes.

        The interval of the correlation takes the classes as given; this takes the prompts so.

        Raises:
            ResultError: a layer that was not read.
        """
        return float(self.relabelled.above[self.index(self.layer if layer is None else layer)])

    @property
    def status(self) -> Status:
        """Of the claim that classes whose keys are near are confused, in `layer`.

        It needs an interval over prompts that lies above 0, and a p-value over classes of at most
        0.025. Where no order of the classes can have one, as with four classes or fewer, the claim
        cannot be judged.
        """
        return self.required.status

    @property
    def required(self) -> Required:
        """The same as a measure that a claim requires, with its p-value."""
        above, below, smallest = (float(p[self.index(self.layer)]) for p in self.relabelled)
        effect, n = self.rank_correlation(), len(self.answers)
        status = judged_twice(effect, above, smallest, opposite=below, prompts=n)
        by_classes = below if status == "opposite" else above
        return Required("distance", status, largest((p_value(effect, prompts=n), by_classes)))
