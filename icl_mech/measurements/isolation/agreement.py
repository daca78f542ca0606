"""What the isolation analyses share: checks, the runs, and intervals of loyalty.

Source: Wang et al. 2023, *Label Words are Anchors*, §2.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import run_variants
from icl_mech.errors import ResultError, RunError, near_matches
from icl_mech.interventions import Isolate
from icl_mech.interventions.isolate import Mode, Redraw, Tokens, random_positions
from icl_mech.measurements.demonstrations import check_demonstrations
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.metrics import bootstrap_interval, same_label, wilson_interval, word_overlap
from icl_mech.models import LanguageModel, ModelInfo
from icl_mech.prompts import PromptBatch

Quantity = Literal["label", "word"]
Window = tuple[Sequence[int], Tokens]

USUAL = (1, 3, 5, 7)
"""Numbers of isolated layers in the paper."""

SHOWN = {"label": "label words", "random": "random tokens"}
TITLES = {"label": "label loyalty", "word": "word loyalty"}
UNITS = {
    "label": "share of unchanged predicted classes",
    "word": "overlap of the top {k} next tokens",
}


@dataclass(frozen=True)
class Draws:
    """How tokens are isolated, and which random ones.

    Attributes:
        mode: `mask` (before softmax) or `zero` (after).
        redraw: One draw per demonstration `set`, per `prompt` or per `layer`.
        count: Number of draws of random tokens.
        seed: Of the first draw.
    """

    mode: Mode
    redraw: Redraw
    count: int
    seed: int

    def variants(self, window: Window) -> list[tuple[Isolate]]:
        """One set of interventions per draw; label words need one only."""
        layers, tokens = window
        seeds = range(self.seed, self.seed + (self.count if tokens == "random" else 1))
        return [
            (Isolate(layers, tokens, mode=self.mode, redraw=self.redraw, seed=seed),)
            for seed in seeds
        ]


def chosen_draws(
    prompts: PromptBatch,
    tokens: Sequence[str],
    *,
    mode: str,
    redraw: str,
    count: int,
    seed: int,
) -> Draws:
    """The way to isolate, refused before anything runs if it cannot be.

    Raises:
        RunError: unknown choice or no draws.
        PromptError: prompts without demonstrations, or with too few other tokens.
    """
    check_each(tokens, get_args(Tokens), "tokens")
    check_each([mode], get_args(Mode), "mode")
    check_each([redraw], get_args(Redraw), "redraw")
    if count < 1:
        raise RunError(f"draws={count}; random tokens need at least one draw.")
    check_demonstrations(prompts, "isolation")
    draws = Draws(cast(Mode, mode), cast(Redraw, redraw), count, seed)
    if "random" in tokens:
        for prompt in prompts:
            random_positions(prompt, draws.redraw, seed, 0)
    return draws


@dataclass(frozen=True)
class Agreement:
    """How far isolated runs agree with the plain one."""

    predicted: Int[Tensor, " batch"]
    label_kept: Float[Tensor, "window batch"]
    word_overlap: Float[Tensor, "window batch"]
    draw_loyalty: Float[Tensor, "window draw"]


def agreement(
    model: LanguageModel,
    prompts: PromptBatch,
    windows: Sequence[Window],
    draws: Draws,
    *,
    top_k: int,
    batch_size: int | None,
    progress: bool | None,
) -> Agreement:
    """Per-prompt agreement for every window, averaged over its draws; one set of runs.

    Raises:
        RunError: `top_k` outside the vocabulary.
    """
    if not 1 <= top_k <= model.info.d_vocab:
        raise RunError(
            f"top_k={top_k}; the vocabulary has {model.info.d_vocab} tokens, at least 1 is compared."
        )
    groups = [draws.variants(window) for window in windows]
    plain, *isolated = run_variants(
        model,
        prompts,
        [PredictionReading(top_k)],
        [(), *(variant for group in groups for variant in group)],
        batch_size=batch_size,
        progress=progress,
        title="isolation",
    )
    logits, _, words = plain[0]
    predicted = logits.argmax(-1)
    found = iter(isolated)
    kept, overlaps = [], []
    for group in groups:
        reads = [next(found)[0] for _ in group]
        kept.append(torch.stack([same_label(r[0].argmax(-1), predicted).double() for r in reads]))
        overlaps.append(torch.stack([word_overlap(r[2], words) for r in reads]))
    most = max(len(group) for group in groups)
    return Agreement(
        predicted=predicted,
        label_kept=torch.stack([values.mean(0) for values in kept]),
        word_overlap=torch.stack([values.mean(0) for values in overlaps]),
        draw_loyalty=torch.stack(
            [values.mean(1).expand(most) if len(values) == 1 else values.mean(1) for values in kept]
        ),
    )


def loyalty_ends(
    values: Float[Tensor, "window batch"], outcomes: Bool[Tensor, " window"]
) -> tuple[Float[Tensor, " window"], Float[Tensor, " window"]]:
    """Ends of the 95 % intervals: Wilson for 0/1 `outcomes`, else bootstrap over prompts."""
    low, high = bootstrap_interval(values.T)
    for row in outcomes.nonzero()[:, 0].tolist():
        _, low[row], high[row] = wilson_interval(values[row] == 1)
    return low, high


def usual_depths(info: ModelInfo) -> tuple[int, ...]:
    """Those of the paper's depths that are at most half of the layers; at least 1."""
    return tuple(k for k in USUAL if k <= info.n_layers / 2) or (1,)


def check_depths(depths: Sequence[int], info: ModelInfo, what: str) -> tuple[int, ...]:
    """Numbers of layers, ascending, each once.

    Raises:
        RunError: none, or one outside 1...L.
    """
    wrong = [depth for depth in depths if not 1 <= depth <= info.n_layers]
    if wrong or not depths:
        raise RunError(
            f"{what}={tuple(depths)}; {info.name!r} has {info.n_layers} layers, so each must lie "
            f"between 1 and {info.n_layers}."
        )
    return tuple(sorted(set(depths)))


def check_each(values: Sequence[str], choices: Sequence[str], what: str) -> None:
    """Refuse unknown names, and an empty choice.

    Raises:
        RunError: lists near matches.
    """
    if not values:
        raise RunError(f"No {what} chosen. {near_matches('', choices)}")
    for value in values:
        if value not in choices:
            raise RunError(f"{what}={value!r}. {near_matches(value, choices)}")


def check_quantity(quantity: str) -> None:
    """Refuse an unknown quantity.

    Raises:
        ResultError: lists the known ones.
    """
    if quantity not in TITLES:
        raise ResultError(f"quantity={quantity!r}. {near_matches(quantity, TITLES)}")


def commonest(predicted: Int[Tensor, " batch"]) -> float:
    """Share of the class predicted most often without isolation."""
    return int(predicted.bincount().max()) / len(predicted)
