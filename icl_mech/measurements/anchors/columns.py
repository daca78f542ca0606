"""Column masses of texts: their readings, the tokens that stand out, and the comparison of given tokens with others."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.engine import GradientReading, Loss, Reading
from icl_mech.engine.readings import OfPatterns
from icl_mech.measurements.saliency.reduction import Reduction, head_sum
from icl_mech.measurements.saliency.windows import Windows
from icl_mech.metrics import standing_out
from icl_mech.metrics.outliers import matched_means, nearby_medians, uniform_mass
from icl_mech.models import Site, to_device
from icl_mech.prompts import Prompt
from icl_mech.results import Definition, Quantity
from icl_mech.segments import Segment

COLUMN_MASS = Definition(
    "column mass",
    r"m_l[j] = \frac{1}{q - j} \sum_{i = j+1}^{q} I_l[i, j]",
    "Mean saliency (or attention, averaged over heads) that the tokens from j to the target q "
    "place on token j, excluding the diagonal.",
)

Ends = tuple[int, ...]
"""Last row that counts of each prompt."""


@dataclass
class AttentionMass(OfPatterns, Reading[Tensor]):
    """Attention that later rows put on every token, averaged over heads: `[prompt, layer, pos]` sums.

    Attributes:
        width: Largest number of tokens of a prompt.
        ends: Last row that counts, by prompt of the run.
    """

    width: int
    ends: Ends

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Sums `[batch, pos]`."""
        return column_sums(activation.float().mean(1), segment, self.width, self.ends)


@dataclass
class SaliencyMass(OfPatterns, GradientReading[Tensor]):
    """The same sums of saliency."""

    width: int
    ends: Ends
    loss: Loss = "label"
    reduction: Reduction = "sum_then_abs"

    def shape(self, segment: Segment) -> tuple[int, ...]:
        """One number per position."""
        return (len(segment.prompts), self.width)

    def reduce(self, site: Site, activation: Tensor, gradient: Tensor, segment: Segment) -> Tensor:
        """The sums of one layer."""
        saliency = head_sum(activation, gradient, self.reduction)
        return column_sums(saliency, segment, self.width, self.ends)


def column_sums(
    values: Float[Tensor, "batch dest src"], segment: Segment, width: int, ends: Ends
) -> Float[Tensor, "batch pos"]:
    """Sums over the rows after each column, up to a prompt's end, at the position of the column."""
    last = to_device(torch.tensor([ends[index] for index in segment.indices]), values.device)
    dest, src = segment.dest[:, :, None], segment.src[:, None]
    counts = (src >= 0) & (dest > src) & (dest <= last[:, None, None])
    sums = (values * counts).sum(1)
    place = segment.src.clamp(min=0)
    return sums.new_zeros(len(sums), width).scatter_add(1, place, sums)


class Column(NamedTuple):
    """Column masses of one text, up to the target.

    Attributes:
        mass: Mean over later rows of what they put on each token, by layer.
        times: Mass over the chosen layers, divided by the median nearby.
        scores: Distance from the tokens nearby, in units of the text's spread.
        limit: Score that anchors exceed.
        stands: True for tokens that are anchors.
    """

    mass: Float[Tensor, "layer pos"]
    times: Float[Tensor, " pos"]
    scores: Float[Tensor, " pos"]
    limit: float
    stands: Bool[Tensor, " pos"]


def column_of(
    sums: Float[Tensor, "layer width"],
    prompt: Prompt,
    end: int,
    layers: Sequence[int],
    window: int,
    ratio: float | None,
    first_row: int,
    reaches: Windows,
) -> Column:
    """Means from sums, and the tokens that stand out, by a ratio or by the spread of the text.

    A row of attention sees `reaches` tokens (by layer): others have no edge to it.
    """
    rows = (end - torch.arange(end)).double()
    edges = [rows if reach is None else rows.clamp(max=reach - 1) for reach in reaches]
    mass = sums[:, :end].double() / torch.stack(edges)
    average = mass[list(layers)].mean(0)
    expected = [
        uniform_mass(end, first_row, reach) for reach in {reaches[layer] for layer in layers}
    ]
    average[: first_token(prompt)] = torch.nan
    medians = nearby_medians(average, window)
    times = torch.where(medians > 0, average / medians, torch.nan)
    apart = standing_out(average, torch.stack(expected).mean(0), window)
    return Column(
        mass, times, apart.scores, apart.limit, apart.stands if ratio is None else times > ratio
    )


def first_token(prompt: Prompt) -> int:
    """The first token that counts: BOS, or the first of all, attracts attention whatever it is."""
    return max(1, prompt.spans[0].stop if prompt.spans[0].role == "bos" else 1)


def marked(prompt: Prompt) -> Bool[Tensor, " pos"]:
    """The compared tokens: first tokens of label words; for texts, the last token of each span."""
    flags = torch.zeros(len(prompt), dtype=torch.bool)
    places = prompt.label_positions or tuple(stop - 1 for _, stop in prompt.text_spans)
    flags[[place for place in places if first_token(prompt) <= place < prompt.target]] = True
    return flags


def places_of(flags: Bool[Tensor, " pos"]) -> tuple[int, ...]:
    """Positions of the true flags."""
    return tuple(flags.nonzero()[:, 0].tolist())


def flags_of(values: Sequence[Tensor], marked: Sequence[Sequence[int]]) -> list[Bool[Tensor, " _"]]:
    """Flags of the compared tokens, per prompt."""
    flags = [torch.zeros(len(row), dtype=torch.bool) for row in values]
    for row, places in zip(flags, marked, strict=True):
        row[list(places)] = True
    return flags


def among_strongest(scores: Sequence[Tensor], marked: Sequence[Sequence[int]]) -> list[Tensor]:
    """Flags of the k tokens with the largest scores, k being the number of compared tokens, per prompt."""
    among = []
    for row, places in zip(scores, marked, strict=True):
        flags = torch.zeros(len(row), dtype=torch.float64)
        flags[row.nan_to_num(-torch.inf).topk(len(places)).indices] = 1.0
        among.append(flags.masked_fill(row.isnan(), torch.nan))
    return among


def matched(
    values: Sequence[Tensor], marked: Sequence[Sequence[int]], window: int
) -> Float[Tensor, "batch kind"]:
    """Means over the compared tokens and over those near them."""
    pairs = zip(values, flags_of(values, marked), strict=True)
    means = [matched_means(row, places, window) for row, places in pairs]
    return torch.tensor(means, dtype=torch.float64)


def difference(pair: Quantity) -> Quantity:
    """Paired difference: the compared tokens minus those near them."""
    values = pair.per_prompt[:, 0] - pair.per_prompt[:, 1]
    return Quantity((), values, unit=pair.unit, kind=pair.kind_minus(pair))
