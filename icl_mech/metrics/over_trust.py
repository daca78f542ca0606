r"""Over-trust: a knowledge-aggregation score of columns during generation.

In a window of the last `w` tokens of a response, `a[i, j]` is the attention of row i to column j in
the last layer, the largest over heads, each row divided by its sum, times 50. The score of a column is
`s[j] = 1e-7 \prod_{i >= j} a[i, j]`, its own row included; a step points to the column with the
largest score. Products of many factors overflow or underflow any number format, so the logarithm is computed,
in float64; the reference uses float16, which underflows to 0 and overflows to infinity.

Source: Huang et al. 2024, *OPERA*, §3.
"""

import math

import torch

from icl_mech._typing import Float, Int, Tensor

SCALE = 50.0
"""Factor on attention, so that products neither vanish nor explode too soon."""

FLOOR = 1e-7
"""Factor of every score."""

SHORT = 10
"""Windows up to this length are scored by attention to given tokens instead."""


def head_maximum(
    pattern: Float[Tensor, "*batch head dest src"],
) -> Float[Tensor, "*batch dest src"]:
    """The largest attention over heads, each row divided by its sum, in float64."""
    largest = pattern.double().amax(-3)
    return largest / largest.sum(-1, keepdim=True)


def log_over_trust(
    rows: Float[Tensor, "*batch window window"], scale: float = SCALE
) -> Float[Tensor, "*batch window"]:
    """Logarithm of each column's score.

    Args:
        rows: `head_maximum`, restricted to rows and columns of the response (rows are normalised
            before the restriction).
        scale: Factor on attention.

    Returns:
        Minus infinity at a column that a later row pays no attention to.
    """
    logs = rows.double().log() + math.log(scale)
    below = torch.ones(rows.shape[-2:], dtype=torch.bool, device=rows.device).tril()
    return logs.masked_fill(~below, 0.0).sum(-2) + math.log(FLOOR)


def points_to(log_scores: Float[Tensor, "*batch window"]) -> Int[Tensor, "*batch"]:
    """The column with the largest score, the first one on ties."""
    return log_scores.argmax(-1)


def over_trust_penalty(
    log_scores: Float[Tensor, "*batch window"], given_mass: Float[Tensor, "*batch"]
) -> Float[Tensor, "*batch"]:
    """Penalty subtracted from a candidate's logit.

    Args:
        log_scores: Scores of the window that ends with the candidate.
        given_mass: Attention of the candidate's row (`head_maximum`) to the given tokens, such as
            those of an image or of the demonstrations.

    Returns:
        The largest score; in windows of up to `SHORT` tokens minus the mass on given tokens, so that
        candidates that look at them are preferred. It may be infinite where a score overflows float64.
    """
    if log_scores.shape[-1] <= SHORT:
        return -given_mass.double()
    return log_scores.amax(-1).exp()
