"""Queries read behind a short stand-in for their demonstrations.

The stand-in is a small key/value cache: the kept columns of the demonstrations' own cache,
or that of the kept tokens alone. Queries that share demonstrations share it.

Where a model has layers with a sliding window, the window counts columns: behind a shorter
cache kept tokens stand nearer to the query than in the full prompt, and those layers may see
some that were outside their window. The model so behaves as with a shorter context.

A model that numbers positions by counting (a HookedTransformer, or ALiBi) would misplace a
query behind a cut cache. It gets the whole cache, and queries are kept from attending to the
columns that are left out: the same numbers, without the gain in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.measurements.compression.kept import Kept
from icl_mech.models import Hook, KeyValues, LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

Position = Literal["true", "overlap"]


@dataclass(frozen=True, eq=False)
class Unseen(Intervention):
    """Queries do not attend to what is left out of their demonstrations.

    Attributes:
        kept: Positions before the query that are seen.
        query: Where the query begins.
    """

    kept: Kept
    query: int

    def hooks(self, segment: Segment) -> Sequence[Hook]:
        """Scores of these columns become minus infinity, in every block."""
        places = torch.tensor(self.kept, device=segment.src.device)
        columns = (segment.src < self.query) & ~torch.isin(segment.src, places)
        hidden = columns[:, None, None, :] & (segment.dest >= self.query)[:, None, :, None]

        def hide(scores: Tensor) -> Tensor:
            return scores.masked_fill(hidden, float("-inf"))

        return [(Site("scores", layer), hide) for layer in range(segment.model.info.n_layers)]


@dataclass(frozen=True, eq=False)
class StandIn:
    """What queries see instead of their demonstrations.

    Attributes:
        query: Where the query begins in the full prompt.
        first: Position id of its first token.
        kept: Prompt positions that are seen.
        cache: Keys and values; of the kept positions alone, unless `whole`.
        whole: The cache holds all positions, and those not kept are hidden.
    """

    query: int
    first: int
    kept: Kept
    cache: KeyValues
    whole: bool = False

    @property
    def interventions(self) -> list[Intervention]:
        """What hides columns, if the cache is not cut."""
        return [Unseen(self.kept, self.query)] if self.whole else []

    def segment(self, model: LanguageModel, prompts: PromptBatch, indices: list[int]) -> Segment:
        """The rows of some prompts from their query to their target, behind the stand-in.

        Padding stands on the right: none may stand between cached and new columns.
        """
        batch = prompts[indices]
        cached = torch.arange(self.query) if self.whole else torch.tensor(self.kept)
        return Segment.build(
            model,
            batch,
            indices,
            spans=[(self.query, prompt.target + 1) for prompt in batch],
            left=False,
            cache=self.cache.expand(len(batch)),
            cached=cached.expand(len(batch), -1),
            shift=self.first - self.query,
        )


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """The demonstrations some prompts share, with what precedes them.

    Attributes:
        model: The model.
        tokens: Everything before the query.
        numbered: The model takes position ids, see `takes_positions`.
    """

    model: LanguageModel
    tokens: tuple[int, ...]
    numbered: bool

    @cached_property
    def cache(self) -> KeyValues:
        """Keys and values of all their tokens; computed when first asked for."""
        return keys_and_values(self.model, self.tokens)

    @property
    def full(self) -> StandIn:
        """Their full cache, nothing left out."""
        end = len(self.tokens)
        return StandIn(end, end, tuple(range(end)), self.cache)

    def stand_in(self, kept: Kept, *, as_text: bool, position: Position) -> StandIn:
        """What is left of them when only `kept` is kept.

        Raises:
            RunError: the query would stand elsewhere than a model counts that takes no
                position ids.
        """
        query = len(self.tokens)
        if as_text:
            cache = keys_and_values(self.model, [self.tokens[i] for i in kept])
            return StandIn(query, len(kept), kept, cache)
        if position == "overlap" and not self.numbered:
            raise misplaced(self.model, 0, len(kept))
        if len(kept) < query and not self.numbered:
            return StandIn(query, query, kept, self.cache, whole=True)
        columns = torch.tensor(kept, device=self.model.device)
        first = query if position == "true" else 0
        return StandIn(query, first, kept, self.cache.select(columns))


def misplaced(model: LanguageModel, first: int, kept: int) -> RunError:
    """The error for a model that would not put a query where it is to stand."""
    return RunError(
        f"{model.info.name!r} ({model.info.library}) counts positions itself, so a query cannot stand at "
        f"position {first} behind {kept} kept tokens. Load it with icl_mech.load_model, or use "
        "method='text_anchor'."
    )


def keys_and_values(model: LanguageModel, tokens: Sequence[int]) -> KeyValues:
    """Keys and values of the beginning of a prompt.

    Raises:
        RunError: a model without a cache.
    """
    ids = torch.tensor([list(tokens)], device=model.device)
    places = torch.arange(len(tokens), device=model.device)[None]
    with torch.no_grad():
        cache = model.forward(ids, torch.ones_like(ids).bool(), places, keep_cache=True).cache
    if cache is None:
        raise RunError(f"{model.info.architecture} returned no keys and values.")
    return cache


def takes_positions(model: LanguageModel) -> bool:
    """False if the model gives the same whatever position ids it gets."""
    ids = torch.tensor([[1, 2]], device=model.device)
    residuals = []
    with torch.no_grad():
        for second in (1, 3):
            places = torch.tensor([[0, second]], device=model.device)
            residuals.append(model.forward(ids, ids.bool(), places).residual)
    return not torch.equal(*residuals)
