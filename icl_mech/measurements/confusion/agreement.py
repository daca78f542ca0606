"""How measured confusion agrees with predicted: both with intervals, and what limits them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.confusion.distances import label_pairs, pair_aucs, rank_correlation
from icl_mech.metrics import auc_ends, class_resamples, quantile_ends


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
