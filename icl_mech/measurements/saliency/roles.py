"""Saliency by the roles of tokens: between segments of a prompt, and its distribution over the roles of a layer.

A segment is a run of tokens of one role, such as a text or a label word. Fractions are of sums, which means per
edge hide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.measurements.saliency.windows import Windows, edge_means
from icl_mech.metrics import Interval, flow_sums
from icl_mech.results import Definition, Quantity, function_of_means
from icl_mech.shapes import TokenSegment

LONGEST = 18
"""Characters of the name of a segment."""

NAMED = {"bos": "first token", "narrative": "narrative", "query_text": "query"}
"""Segments that are named by their role."""


@dataclass(frozen=True)
class SegmentMap:
    """Mean saliency per edge between the segments of one prompt.

    Attributes:
        segments: Segments in the order of the prompt, without gaps.
        values: By layer, receiving and sending segment; not-a-number where there is no edge: above
            the diagonal, and on it for segments of one token.
    """

    segments: tuple[TokenSegment, ...]
    values: Float[Tensor, "layer dest_segment src_segment"]


def segments_of(tokens: Sequence[str], roles: Sequence[str]) -> tuple[TokenSegment, ...]:
    """Runs of tokens of one role.

    Texts and rationales of demonstrations are counted from 1; label words, template and targets are named by
    their tokens, with line breaks shown as an arrow, tokens of unknown role by their positions.
    """
    segments: list[TokenSegment] = []
    start = texts = 0
    for role, run in groupby(roles):
        stop = start + len(list(run))
        texts += role == "demo_text"
        written = _written(tokens[start:stop])
        number = f"{start}" if stop - start == 1 else f"{start}–{stop - 1}"
        named = {
            "demo_text": f"text {texts}",
            "rationale": "rationale" if "query_text" in roles[:start] else f"rationale {texts}",
            "target": f"target {written}",
            "unknown": f"tokens {number}",
            **NAMED,
        }
        segments.append(TokenSegment(named.get(role, written), role, start, stop))
        start = stop
    return tuple(segments)


def segment_means(
    values: Float[Tensor, "layer pos pos"], segments: Sequence[TokenSegment], windows: Windows
) -> Float[Tensor, "layer dest_segment src_segment"]:
    """Mean over the edges between each pair of segments, the diagonal of `values` left out.

    `M[a, b] = sum of I[i, j] / n` over `i` in segment a and `j < i` in segment b, `n` the number
    of such pairs that exist in the layer; not-a-number where there is none.
    """
    member = torch.zeros(len(segments), values.shape[-1], dtype=torch.float64)
    for number, segment in enumerate(segments):
        member[number, segment.start : segment.stop] = 1
    below = values.double().tril(-1)
    sums = member @ below @ member.T
    every = torch.ones(values.shape[-2:], dtype=torch.float64).tril(-1)
    exist = torch.stack([every if w is None else every.triu(1 - w) for w in windows])
    edges = member @ exist @ member.T
    return torch.where(edges > 0, sums / edges.clamp(min=1), torch.nan)


def map_scores(
    values: Float[Tensor, "layer pos pos"], roles: Sequence[str], windows: Windows
) -> Float[Tensor, "score layer"] | None:
    """`S_wp`, `S_pq` and `S_ww` of one map; None without label words before a target."""
    starts = [i for i, role in enumerate(roles) if role == "label_word" and roles[i - 1] != role]
    target = roles.index("target") if "target" in roles else 0
    label = torch.zeros(1, len(roles), dtype=torch.bool)
    label[0, [place for place in starts if 0 < place < target]] = True
    if not label.any():
        return None
    at_target = torch.arange(len(roles))[None] == target
    every = label.expand(len(values), -1), at_target.expand(len(values), -1)
    sums = flow_sums(values, every[0], every[0], every[1])
    places = label.nonzero()[:, 1][None]
    return edge_means(sums[None], places, torch.tensor([target]), windows)[0].T


def _written(tokens: Sequence[str]) -> str:
    """Join tokens into the name of a segment."""
    text = "".join(tokens).replace("\n", "↵").strip(" ") or "␣"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


ALL = "fraction of all saliency of the layer"
ROW = "fraction of the saliency that the target receives"
"""Units of these fractions."""


GROUPS = {
    "demo_text": "texts",
    "rationale": "rationales",
    "label_word": "label words",
    "query_text": "query",
    "target": "target",
}
"""Roles that form a group each; all others are one group."""


BY_ROLE = Definition(
    "fraction of all saliency by role",
    r"\frac{\sum_{i \in a} \sum_{j \in b,\, j<i} I_l[i, j]}{\sum_{j<i} I_l[i, j]}",
    "Fraction of all saliency in the edges into tokens of role a from tokens of role b, computed "
    "from sums (not means per edge) averaged over prompts. The fractions of a layer sum to 1.",
)


def share_of_all(totals: Float[Tensor, "*r dest src layer"]) -> Float[Tensor, "*r dest src layer"]:
    """Each layer's sums divided by the sum over all roles (0 where all are 0)."""
    return _of_sum(totals, (-3, -2))


def share_of_row(totals: Float[Tensor, "*r src layer"]) -> Float[Tensor, "*r src layer"]:
    """Each layer's sums for one type of row divided by the sum over sources."""
    return _of_sum(totals, (-2,))


def _of_sum(totals: Tensor, axes: tuple[int, ...]) -> Tensor:
    total = totals.sum(axes, keepdim=True)
    return torch.where(total > 0, totals / total.clamp(min=torch.finfo(total.dtype).tiny), 0.0)


def grouped(roles: Sequence[str]) -> tuple[tuple[str, ...], Float[Tensor, "group role"]]:
    """Names of groups of roles, and the membership of roles in them.

    Template, narrative and first token form one group, called template; together with tokens of unknown
    role they are called other tokens.
    """
    rest = "other tokens" if "unknown" in roles else "template"
    group_of = [GROUPS.get(role, rest) for role in roles]
    names = tuple(
        name
        for name in ("texts", "rationales", "label words", rest, "query", "target")
        if name in group_of
    )
    member = torch.tensor(
        [[float(group == name) for group in group_of] for name in names], dtype=torch.float64
    )
    return names, member


def shares(
    sums: Float[Tensor, "batch dest_role src_role layer"],
    row: Float[Tensor, "batch src_role layer"],
) -> dict[str, Quantity]:
    """Fractions of all saliency, and of the saliency into the target."""
    of_all, of_row = function_of_means(sums, share_of_all), function_of_means(row, share_of_row)
    return {
        "role_share": Quantity(("dest_role", "src_role", "layer"), sums, of_all, ALL),
        "target_share": Quantity(("src_role", "layer"), row, of_row, ROW),
    }


def by_group(
    totals: Float[Tensor, "batch role layer"], roles: Sequence[str], unit: str
) -> tuple[tuple[str, ...], Quantity]:
    """Names of the groups of these roles, and their fractions of each layer's sums."""
    names, member = grouped(roles)
    groups = torch.einsum("gr,brl->bgl", member, totals.double())
    statistic = function_of_means(groups, share_of_row)
    return names, Quantity(("role", "layer"), groups, statistic, unit)


class Sources(NamedTuple):
    """Roles from which the target receives the saliency of a layer.

    Attributes:
        label: Fraction from label words; None if no token is a label word.
        most: The other group of roles with the largest fraction.
        share: Its fraction.
    """

    label: Interval | None
    most: str
    share: Interval


def sources(names: Sequence[str], row: Quantity, layer: int) -> Sources | None:
    """Roles that contribute most to the target's saliency in a layer; None if it receives nothing."""
    ends = (row.value(), *row.ends())
    shares = {
        name: Interval(*(float(end[i, layer]) for end in ends)) for i, name in enumerate(names)
    }
    if not any(share.value > 0 for share in shares.values()):
        return None
    label = shares.pop("label words", None)
    most = max(shares, key=lambda name: shares[name].value)
    return Sources(label, most, shares[most])


def receivers(
    names: Sequence[str], received: Quantity, layer: int
) -> tuple[tuple[str, float], ...]:
    """Groups of roles that receive saliency in a layer, with their fractions, the largest first."""
    shares = zip(names, received.value()[:, layer].tolist(), strict=True)
    return tuple(sorted((group for group in shares if group[1] > 0), key=lambda group: -group[1]))
