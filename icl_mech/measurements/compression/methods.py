"""Compression of one set of prompts by several methods: full predictions, plans, choices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.engine import run
from icl_mech.errors import RunError, near_matches
from icl_mech.interventions.base import check_choice
from icl_mech.measurements.compression.behind import Plan, read_plans
from icl_mech.measurements.compression.kept import (
    Kept,
    Method,
    Parts,
    anchor_positions,
    given_positions,
    parts,
    random_positions,
)
from icl_mech.measurements.compression.speed import Speed, measure_speed
from icl_mech.measurements.compression.stand_in import Position, takes_positions
from icl_mech.measurements.predictions import PredictionReading
from icl_mech.metrics import same_label, word_overlap
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.segments import check_fits

METHODS: tuple[Method, ...] = get_args(Method)


@dataclass(frozen=True, eq=False)
class Compressed:
    """What came out of one method.

    Attributes:
        method: Its name.
        kept: Positions kept of each prompt.
        label_logits: At the target, behind the stand-in.
        label_kept: The predicted class is that of the full prompt.
        word_overlap: Jaccard overlap of the likeliest next tokens with those of the full prompt.
        draws: Label loyalty of every draw, where there were several.
        draw: The draw that was taken.
    """

    method: Method
    kept: tuple[Kept, ...]
    label_logits: Float[Tensor, "batch label"]
    label_kept: Bool[Tensor, " batch"]
    word_overlap: Float[Tensor, " batch"]
    draws: tuple[float, ...] = ()
    draw: int = 0

    @property
    def choice(self) -> dict[str, Any]:
        """What provenance records of the draws."""
        return {"draw": self.draw, "label_loyalty_of_draws": list(self.draws)}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several methods on the same prompts.

    Attributes:
        full_predicted: Class predicted from each full prompt.
        methods: What came out, in the order asked for.
        shares: Kept tokens / tokens of the demonstrations, and (kept + query) / whole prompt;
            equal for all methods, which keep equally many tokens.
        speed: Measured once: the cost depends on the number of kept tokens alone.
        cut: The cache was cut; False where columns could only be hidden.
    """

    full_predicted: Int[Tensor, " batch"]
    methods: tuple[Compressed, ...]
    shares: Float[Tensor, "share=2 batch"]
    speed: Speed | None
    cut: bool


def check_options(methods: Sequence[str], position: str, keep: Any, draws: int) -> None:
    """Refuse unknown methods and options that contradict each other.

    Raises:
        RunError: says which.
    """
    for method in methods:
        if method not in METHODS:
            raise RunError(f"Unknown method {method!r}. {near_matches(method, METHODS)}")
    check_choice(position, get_args(Position), "position")
    if draws < 1:
        raise RunError(f"draws={draws}; at least one is needed.")
    if keep is not None and "hidden_random_top" in methods:
        raise RunError(
            "hidden_random_top draws positions itself, so keep= has no meaning; give the positions "
            "with method='hidden_random'."
        )


def kept_sets(
    prompts: PromptBatch, method: Method, *, keep: Any, seed: int, draws: int
) -> list[tuple[Kept, ...]]:
    """The positions a method keeps of each prompt; several sets where it chooses among draws.

    Raises:
        PromptError: prompts without what the method needs.
    """
    if keep is not None:
        return [tuple(given_positions(keep, prompts))]
    if method in ("hidden_anchor", "text_anchor"):
        return [tuple(anchor_positions(prompt) for prompt in prompts)]
    wanted = draws if method == "hidden_random_top" else 1
    rows = [random_positions(prompt, seed=seed, draws=wanted) for prompt in prompts]
    # Demonstrations with shorter texts have fewer draws, which are then used again.
    return [tuple(row[n % len(row)] for row in rows) for n in range(max(map(len, rows)))]


def compress_by(
    model: LanguageModel,
    prompts: PromptBatch,
    methods: Sequence[Method],
    *,
    position: Position,
    keep: Any,
    seed: int,
    draws: int,
    top_k: int,
    batch_size: int | None,
    memory: str | int | None,
    measure: bool,
    progress: bool | None,
) -> Comparison:
    """Full predictions once, then every method; demonstrations are run once for all of them.

    Raises:
        RunError: a model that would misplace the query.
        PromptError: prompts without what a method needs, or wrong `keep`.
    """
    check_fits(model, prompts)
    sets = [kept_sets(prompts, method, keep=keep, seed=seed, draws=draws) for method in methods]
    plans = [
        Plan(method == "text_anchor", position, kept)
        for method, own in zip(methods, sets, strict=True)
        for kept in own
    ]
    layout = [parts(prompt, kept) for prompt, kept in zip(prompts, plans[0].kept, strict=True)]
    queries = [part.query for part in layout]
    numbered = takes_positions(model)
    ((logits, _, top_tokens),) = run(
        model, prompts, [PredictionReading(top_k)],
        batch_size=batch_size, memory=memory, progress=progress, title="full prompts",
    )  # fmt: skip
    read = iter(
        read_plans(
            model, prompts, queries, plans,
            top_k=top_k, batch_size=batch_size, memory=memory, progress=progress,
        )
    )  # fmt: skip
    predicted = logits.argmax(-1)
    done = []
    for method, own in zip(methods, sets, strict=True):
        candidates = []
        for kept in own:
            found, _, top = next(read)
            agrees = same_label(found.argmax(-1), predicted)
            overlap = word_overlap(top, top_tokens)
            candidates.append(Compressed(method, kept, found, agrees, overlap))
        done.append(_best(candidates))
    return Comparison(
        predicted,
        tuple(done),
        _shares(prompts, layout, plans[0].kept),
        measure_speed(model, prompts, queries, plans[0]) if measure and numbered else None,
        numbered,
    )


def _shares(
    prompts: PromptBatch, layout: Sequence[Parts], kept: Sequence[Kept]
) -> Float[Tensor, "share=2 batch"]:
    rows = [
        (
            sum(position >= part.demos for position in own) / (part.query - part.demos),
            (len(own) + len(prompt) - part.query) / len(prompt),
        )
        for prompt, part, own in zip(prompts, layout, kept, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.float64).T


def _best(candidates: list[Compressed]) -> Compressed:
    """The candidate with the highest label loyalty, the first of them on ties."""
    if len(candidates) == 1:
        return candidates[0]
    loyalties = [float(found.label_kept.double().mean()) for found in candidates]
    draw = loyalties.index(max(loyalties))
    return replace(candidates[draw], draws=tuple(loyalties), draw=draw)
