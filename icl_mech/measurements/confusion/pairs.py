"""`ConfusionResult`: how confused each pair of classes is, predicted and measured, and whether they agree.

Source: Wang et al. 2023, *Label Words are Anchors*, §3.3.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.checking import checked
from icl_mech.errors import ResultError
from icl_mech.measurements.confusion.agreement import (
    DEFINITIONS,
    label_pairs,
    normalised,
    pair_aucs,
    rank_correlation,
)
from icl_mech.metrics import Interval
from icl_mech.metrics.intervals import holding
from icl_mech.metrics.permutations import Relabelling, relabelling
from icl_mech.results import Definition, Figure, Quantity, Result, basis
from icl_mech.results.judging import CHANCE, Controlled, Required, Status, opening, required
from icl_mech.results.prompts import given
from icl_mech.results.wording import counted, said, told
from icl_mech.shapes import LabelMatrices, LabelMatrix, LayerCurves


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfusionResult(Result):
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
    definitions: ClassVar[tuple[Definition, ...]] = DEFINITIONS
    axis_labels: ClassVar[Mapping[str, str | Sequence[Any]]] = {
        "layer": "layers",
        "pair": "pair_names",
    }

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
        """Both classes of each of them."""
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
            means = ((weights @ own.flatten(1)).unflatten(1, own.shape[1:]) for own in layers)
            return torch.stack([normalised(own)[:, first, second] for own in means], dim=1)

        ends, ranks = (self.low, self.high), "Spearman correlation over pairs"
        auc_ends = (self.auc_low[first, second], self.auc_high[first, second])
        found = {
            "auc": Quantity(("pair",), margins, aucs, "ROC-AUC of P(a)/P(b)", auc_ends),
            # No prompt has a correlation of its own.
            "correlation": Quantity(("layer",), self.answers, correlations, ranks, ends),
        }
        elsewhere = self.provenance.get("variants", {}).get("contexts") is not None
        if len(self.per_prompt) == len(self.answers) and not elsewhere:
            apart = self.per_prompt[:, :, first, second]
            unit = "distance, share of the largest"
            found["distance"] = Quantity(("layer", "pair"), apart, distances, unit)
        return found

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
        return required("distance", self.beside_relabelled, prompts=len(self.answers))

    @property
    def beside_relabelled(self) -> Controlled:
        """The rank correlation in `layer`, with the p-values of relabelled classes."""
        above, below, smallest = (float(p[self.index(self.layer)]) for p in self.relabelled)
        return Controlled.of(self.rank_correlation(), relabelled=(above, below, smallest))

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
        return self._curve() if show == "layers" else self._matrices(layer)

    def _matrices(self, layer: int | None) -> LabelMatrices:
        """A class with itself is framed and blank."""
        shown = self.layer if layer is None else layer
        parts = self.distances[self.index(shown)], self.confusion_auc, self.auc_low, self.auc_high
        alone = torch.eye(len(self.labels), dtype=torch.bool)
        distance, auc, low, high = (own.masked_fill(alone, math.nan) for own in parts)
        known, names = auc[auc.isfinite()], (self.labels, self.labels, "", "")
        lowest = float(known.min()) if known.numel() else 0.5
        predicted = LabelMatrix(
            f"Predicted: distance of keys, layer {shown}",
            distance,
            *names,
            "distance, share of the largest",
            diagonal=True,
            ends=(1.0, 0.0),
        )
        measured = LabelMatrix(
            "Measured: AUC of the two label words",
            auc,
            *names,
            "AUC",
            diagonal=True,
            low=low,
            high=high,
            ends=(1.0, min(0.5, lowest)),
        )
        note = f"dark: near, or hard to tell apart; {self.correlation_text(shown)}"
        return LabelMatrices("Which classes are confused", (predicted, measured), note)

    def _curve(self) -> LayerCurves:
        if bool(self.correlation.isnan().all()):
            raise ResultError(
                f"There is no rank correlation to draw with {len(self.labels)} classes. "
                + " ".join(self.notes)
            )
        return LayerCurves(
            title="Do distances between keys predict confusion?",
            names=("rank correlation",),
            values=self.correlation[None],
            low=self.low[None],
            high=self.high[None],
            y_title="Spearman correlation over pairs of classes",
            note=f"{len(self.pairs)} pairs; {basis(self)}; distances and classes fixed",
            x=tuple(map(float, self.layers)),
            levels=((0.0, "no relation"),),
            meanings=("label",),
            y_range=(-1.08, 1.08),
        )

    def figures(self) -> list[Figure]:
        """Both matrices, and the correlation by layer where there is one."""
        found = [matrices(self)]
        if len(self.layers) > 1 and not bool(self.correlation.isnan().all()):
            found.append(by_layer(self))
        return found

    def summary(self) -> str:
        """The rank correlation in `layer`, and what limits it."""
        return "; ".join([f"layer {self.layer}: {self.correlation_text(self.layer)}", *self.notes])


def matrices(result: ConfusionResult) -> Figure:
    """Both matrices; not drawn where nothing can be compared."""
    n = counted(len(result.answers), "prompt")
    why = _why_not(result)
    notes = () if why and result.told_apart else result.notes
    layer = result.layer
    return Figure(
        "matrices",
        "Do label words that lie close together get confused?",
        f"Cannot be judged: {why}." if why else _answer(result),
        f"**Predicted confusion (left): distance of the label words' keys in layer {layer}**, divided "
        "by the largest. **Measured confusion (right): AUC with which the ratio of two label words' "
        "probabilities tells prompts of the two classes apart** (1: always, 0.5: chance). Dark cells "
        f"are near, or hard to tell apart. Intervals (on pointing): 95 % over {n}"
        f"{given(result)}.",
        limits="that near keys cause confusion; intervals take distances and classes as fixed, the "
        "p-value takes the prompts so."
        + "".join(f" {note[:1].upper()}{note[1:]}." for note in notes),
        short="Confusable classes",
        drawn=bool(result.pairs) and not result.told_apart,
    )


def by_layer(result: ConfusionResult) -> Figure:
    """The correlation by layer."""
    best = result.layers[int(result.correlation.nan_to_num(-math.inf).argmax())]
    above, known = int((result.low > 0).sum()), int(result.correlation.isfinite().sum())
    where = f"in {above} of {counted(known, 'layer')}" if above else "in no layer"
    if above:
        both = int(((result.low > 0) & (result.relabelled.above <= CHANCE)).sum())
        where += f" ({both or 'none'} of these with a permutation p-value of at most {CHANCE:g})"
    return Figure(
        "layers",
        "In which layers do distances of keys predict confusion?",
        f"The interval of the correlation lies above 0 {where}; it is largest, "
        f"{said(result.rank_correlation(best), sign=True)}, in layer {best}, which was picked for that.",
        f"**Spearman correlation of predicted and measured confusion** over "
        f"{counted(len(result.pairs), 'pair')} of classes, by layer of the keys. Band: 95 % bootstrap "
        f"interval over {counted(len(result.answers), 'prompt')}{given(result)}; distances and classes "
        "are fixed.",
        limits="which layer matters: intervals are those of single layers, and there are many.",
        short="Confusion by layer",
    )


def _why_not(result: ConfusionResult) -> str:
    """Why distances cannot be compared with confusion; empty where they can."""
    n, pairs = counted(len(result.answers), "prompt"), counted(len(result.pairs), "pair")
    if not result.pairs:
        return f"no two classes occur among the true classes of {n}"
    if result.told_apart:
        which = "the two classes" if len(result.pairs) == 1 else f"all {pairs} of classes"
        return (
            f"the label words' probabilities tell {which} apart perfectly (AUC 1, {n}), so there is no "
            "order of confusion to compare distances with"
        )
    if math.isnan(result.rank_correlation().value):
        return f"there is no rank correlation over {pairs} of classes ({n})"
    smallest = float(result.relabelled.smallest[result.index(result.layer)])
    if smallest > CHANCE:
        found = said(result.rank_correlation(), sign=True)
        return (
            f"{pairs} of classes may agree in rank by chance, since no agreement has a permutation "
            f"p-value below {told(smallest)}, where {CHANCE:g} is needed (rank correlation {found} in "
            f"layer {result.layer}, p-value {told(result.p_value())}, {n})"
        )
    return ""


def _answer(result: ConfusionResult) -> str:
    own, n = result.status, counted(len(result.answers), "prompt")
    _, low, high = result.rank_correlation()
    than = "above 0" if low > 0 else "below 0" if high < 0 else "not clearly different from 0"
    if own == "cannot be judged":
        than = "and its interval shows nothing"
    elif own == "not shown" and (low > 0 or high < 0):
        than += ", but renamed classes agree as well too often"
    return (
        f"{opening(own, n)} the rank correlation of the distances in layer {result.layer} with measured "
        f"confusion over {counted(len(result.pairs), 'pair')} of classes is "
        f"{said(result.rank_correlation(), sign=True)} ({n}), {than}; permutation p-value over classes "
        f"{told(result.p_value())}."
    )
