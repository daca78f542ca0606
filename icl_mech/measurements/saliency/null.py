"""Random-token baseline of the flow scores: random tokens in place of the label words.

The tokens are position-matched: saliency per edge depends on the number of tokens before a row
and on the distance of a column from the target, so a token is drawn near each label word.

Source: ours; the paper compares with random tokens in the isolation of label words only.
"""

import zlib
from typing import NamedTuple

import numpy as np
import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.measurements.saliency.windows import Windows, edge_means
from icl_mech.metrics import Interval, normalised_flow
from icl_mech.metrics.intervals import means_over, resample_weights
from icl_mech.prompts import Prompt, PromptBatch
from icl_mech.results import Definition
from icl_mech.results.quantities import Statistic

NEAR = 16
"""Maximum distance of a drawn token from its label word, if there is one within it."""

DRAW_SEED = 1
"""Seed of resampled draws; not that of prompts, on which they must not depend."""


class Beside(NamedTuple):
    """Label words compared with random tokens over a third of the layers.

    Attributes:
        null: Fraction of random tokens in place of the label words.
        above: Fraction of the label words minus `null`.
    """

    null: Interval
    above: Interval


RANDOM = Definition(
    "random tokens",
    r"S_{wp}(R),\; S_{pq}(R),\quad |R| = |P|",
    "The same scores with random tokens R in place of the label words: for each label word, one "
    "token at most 16 positions away, before the target, that is neither part of a label word nor "
    "the first token. Averaged over the draws.",
)


def matched_positions(
    prompts: PromptBatch, draws: int, seed: int
) -> Int[Tensor, "batch draw demo"] | None:
    """Random tokens near the label words of every prompt, one for each; -1 fills up.

    None of them belongs to a label word, is the first token, or lies at or after the target. No token is
    repeated within a draw. Draws depend only on the tokens of a prompt, not on its batch.

    Returns:
        None if a prompt has fewer such tokens than label words.
    """
    count = prompts.label_positions.shape[1]
    positions = torch.full((len(prompts), draws, count), -1)
    for row, prompt in enumerate(prompts):
        drawn = _drawn(prompt, draws, seed)
        if drawn is None:
            return None
        positions[row, :, : drawn.shape[1]] = drawn
    return positions


def _drawn(prompt: Prompt, draws: int, seed: int) -> Int[Tensor, "draw demo"] | None:
    labels = {i for span in prompt.label_spans for i in range(span.start, span.stop)}
    candidates = np.array([i for i in range(1, prompt.target) if i not in labels], dtype=np.int64)
    places = [place for place in prompt.label_positions if place < prompt.target]
    if len(candidates) < len(places):
        return None
    fingerprint = zlib.crc32(np.asarray(prompt.tokens, dtype=np.int64).tobytes())
    generator = np.random.default_rng([seed, fingerprint])
    table = torch.empty(draws, len(places), dtype=torch.long)
    for draw in range(draws):
        left = candidates
        for number, place in enumerate(places):
            near = left[np.abs(left - place) <= NEAR]
            if not len(near):
                near = left[[np.abs(left - place).argmin()]]
            chosen = int(generator.choice(near))
            table[draw, number] = chosen
            left = left[left != chosen]
    return table


def null_scores(
    positions: Int[Tensor, "batch draw demo"],
    kinds: Float[Tensor, "batch layer 3"],
    into: Float[Tensor, "batch layer pos"],
    out_of: Float[Tensor, "batch layer pos"],
    targets: Int[Tensor, " batch"],
    windows: Windows,
) -> Float[Tensor, "batch draw score layer"]:
    """Scores `S_wp`, `S_pq`, `S_ww` with drawn tokens instead of label words.

    Args:
        positions: Positions of the drawn tokens.
        kinds: Sums of saliency by type of edge, which add up to all below the diagonal.
        into: Saliency into each token from those before it.
        out_of: Saliency into the target from each token.
        targets: Targets of the prompts.
        windows: Attention windows of the model's layers.
    """
    total = kinds.double().sum(2)
    draws = []
    for drawn in positions.unbind(1):
        real = (drawn >= 0).double()[:, None]
        index = drawn.clamp(min=0)[:, None].expand(-1, into.shape[1], -1)
        to_drawn, from_drawn = (
            (sums.double().gather(2, index) * real).sum(2) for sums in (into, out_of)
        )
        sums = torch.stack([to_drawn, from_drawn, total - to_drawn - from_drawn], dim=1)
        means = edge_means(sums.transpose(1, 2), drawn, targets, windows).transpose(1, 2)
        # Differences of sums can fall below 0 by rounding.
        draws.append(means.clamp(min=0))
    return torch.stack(draws, dim=1)


def share_of_null(null: Float[Tensor, "batch draw score layer"]) -> Statistic:
    """The normalised curve of the mean over draws; the bootstrap resamples draws, too."""
    draws = null.shape[1]

    def statistic(weights: Float[Tensor, "r batch"]) -> Tensor:
        count = len(weights)
        # The estimate itself is over all draws.
        drawn = (
            torch.full((1, draws), 1 / draws, dtype=torch.float64)
            if count == 1
            else resample_weights(draws, resamples=count, seed=DRAW_SEED)
        )
        means, known = torch.zeros(()), torch.zeros(())
        for i in range(draws):
            of_draw = means_over(weights, null[:, i]).flatten(1)
            missing = of_draw.isnan()
            means = means + drawn[:, [i]] * of_draw.masked_fill(missing, 0.0)
            known = known + drawn[:, [i]] * (~missing)
        # Draws whose tokens have no edges in the window of a layer are left out there.
        some = (
            torch.where(known > 0, means / known, torch.nan) if bool(null.isnan().any()) else means
        )
        return normalised_flow(some.reshape(count, *null.shape[2:]))

    return statistic
