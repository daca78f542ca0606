"""Saliency between segments of a prompt: runs of tokens of one role, such as a text or a label word."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.metrics import flow_counts, flow_sums
from icl_mech.shapes import TokenSegment

LONGEST = 18
"""Characters of the name of a segment."""

NAMED = {"bos": "first token", "narrative": "narrative", "query_text": "query"}
"""Segments that are named by what they are."""


@dataclass(frozen=True)
class SegmentMap:
    """Mean saliency per edge between the segments of one prompt.

    Attributes:
        segments: In the order of the prompt, without gaps.
        values: By layer, receiving and sending segment; not-a-number where there is no edge: above
            the diagonal, and on it for segments of one token.
    """

    segments: tuple[TokenSegment, ...]
    values: Float[Tensor, "layer dest_segment src_segment"]


def segments_of(tokens: Sequence[str], roles: Sequence[str]) -> tuple[TokenSegment, ...]:
    """Runs of tokens of one role.

    Texts of demonstrations are counted from 1; label words, template and targets are named by
    their tokens, with line breaks shown as an arrow, tokens of no known role by their numbers.
    """
    found: list[TokenSegment] = []
    start = texts = 0
    for role, run in groupby(roles):
        stop = start + len(list(run))
        texts += role == "demo_text"
        written = _written(tokens[start:stop])
        number = f"{start}" if stop - start == 1 else f"{start}–{stop - 1}"
        named = {
            "demo_text": f"text {texts}", "target": f"target {written}", "unknown": f"tokens {number}",
            **NAMED,
        }  # fmt: skip
        found.append(TokenSegment(named.get(role, written), role, start, stop))
        start = stop
    return tuple(found)


def segment_means(
    values: Float[Tensor, "layer pos pos"], segments: Sequence[TokenSegment]
) -> Float[Tensor, "layer dest_segment src_segment"]:
    """Mean over the edges between each two segments, the diagonal of `values` left out.

    `M[a, b] = sum of I[i, j] / n` over `i` in segment a and `j < i` in segment b, `n` the number
    of such pairs; not-a-number where there is none.
    """
    member = torch.zeros(len(segments), values.shape[-1], dtype=torch.float64)
    for number, segment in enumerate(segments):
        member[number, segment.start : segment.stop] = 1
    below = values.double().tril(-1)
    sums = member @ below @ member.T
    edges = member @ torch.ones(values.shape[-2:], dtype=torch.float64).tril(-1) @ member.T
    return torch.where(edges > 0, sums / edges.clamp(min=1), torch.nan)


def map_scores(
    values: Float[Tensor, "layer pos pos"], roles: Sequence[str]
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
    counts = flow_counts(label.nonzero()[:, 1][None], torch.tensor([target]))
    return (sums / counts.clamp(min=1)).T


def _written(tokens: Sequence[str]) -> str:
    """Tokens as the name of a segment."""
    text = "".join(tokens).replace("\n", "↵").strip(" ") or "␣"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
