"""`Runs`: forward passes over single prompts that compute only what is new.

A plain run keeps keys, values and the residual entering every block. Another prompt goes on after the longest
beginning they share; a changed run enters at the first block that is changed, with the first row that is. What
lies before is the plain run's.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from icl_mech._typing import Float, Tensor
from icl_mech.engine import Kept, Reading, Work
from icl_mech.engine.finite import Finite, Part
from icl_mech.engine.hooks import Values, counted, taps_of
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, HookFunction, KeyValues, LanguageModel, Resume, Site, exclusive
from icl_mech.models.interface import ModelInfo
from icl_mech.prompts import PromptBatch
from icl_mech.segments import Segment

KEPT = 12
"""Plain runs, one action asks for up to ten; of SmolLM2 one of 190 tokens takes 22 MB."""


@dataclass(frozen=True, eq=False)
class PlainRun:
    """One prompt under the unchanged model.

    Attributes:
        tokens: Its ids.
        cache: Keys and values of all its tokens.
        entering: Residual entering every block, the one leaving the last after them.
        values: What each reading keeps, by site.
    """

    tokens: tuple[int, ...]
    cache: KeyValues
    entering: Float[Tensor, "entry pos d_model"]
    values: Values


@dataclass
class _From(Reading[Any]):
    """Of a reading the sites from a block on."""

    reading: Reading[Any]
    layer: int

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """Those that run."""
        return [site for site in self.reading.sites(info) if site.layer >= self.layer]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """As it does."""
        return self.reading.reduce(site, activation, segment)

    def collect(self, kept: Kept) -> Any:
        """As it does."""
        return self.reading.collect(kept)


class Runs:
    """Runs of one model, with readings at the target that every run takes."""

    def __init__(self, model: LanguageModel, readings: Sequence[Reading[Any]]) -> None:
        """Nothing is kept yet."""
        self.model, self.readings = model, list(readings)
        self._plain: OrderedDict[tuple[tuple[int, ...], ...], PlainRun] = OrderedDict()

    @property
    def parts(self) -> bool:
        """True if parts of a prompt can run by themselves."""
        return self.model.takes_cache and self.model.splits

    def plain(self, prompts: PromptBatch) -> PlainRun:
        """The run of one prompt.

        Raises:
            IclMechError: the prompt does not fit, or the model gives no finite numbers.
        """
        key = prompts[0].tokens, prompts[0].label_tokens  # readings are of the words scored
        if key not in self._plain:
            self._plain[key] = _run_plain(self.model, self, prompts)
        self._plain.move_to_end(key)
        while len(self._plain) > KEPT:
            self._plain.popitem(last=False)
        return self._plain[key]

    def longest(self, prompts: PromptBatch) -> tuple[int, PlainRun | None]:
        """How much of a prompt before its target a kept run has, and which one."""
        best, found = 0, None
        for own in [own for own in self._plain.values() if own.cache.keys and self.parts]:
            length = prompts[0].target
            for place, (one, other) in enumerate(
                zip(own.tokens[:length], prompts[0].tokens[:length], strict=False)
            ):
                if one != other:
                    length = place
                    break
            if (length := min(length, len(own.tokens))) > best:
                best, found = length, own
        return best, found

    def values(self, prompts: PromptBatch, changes: Sequence[Intervention] = ()) -> list[Any]:
        """The value of each reading for one prompt under changes.

        Raises:
            IclMechError: what the engine refuses.
        """
        found = self.plain(prompts).values
        if changes:
            found = _run_changed(self.model, self, prompts, changes)
        collected = []
        for reading, own in zip(self.readings, found, strict=True):
            kept = Kept(1)
            kept.add([0], {site: own[site] for site in reading.sites(self.model.info)})
            collected.append(reading.collect(kept))
        return collected


@exclusive
def _run_plain(model: LanguageModel, runs: Runs, prompts: PromptBatch) -> PlainRun:
    prompt, layers = prompts[0], model.info.n_layers
    start, known = runs.longest(prompts)
    entering: list[Tensor] = []
    segment = Segment.build(model, prompts, [0])
    if known is not None:
        # Selected columns are copies: a pass after them extends nothing that is kept.
        before = torch.arange(start)
        segment = Segment.build(
            model,
            prompts,
            [0],
            spans=[(start, len(prompt))],
            cache=known.cache.select(before),
            cached=before[None],
        )
    values: Values = [{} for _ in runs.readings]
    taps, _ = taps_of(runs.readings, segment, values)
    keep: list[Hook] = [(Site("resid_pre", layer), _keep(entering)) for layer in range(layers)]
    hooks, check = counted([*(("kept residuals", hook) for hook in keep), *taps], segment)
    with torch.no_grad():
        output = model.forward(
            segment.tokens,
            segment.mask,
            segment.positions,
            cache=segment.cache,
            hooks=hooks,
            keep_cache=runs.parts,
        )
    check()
    finite = Finite()
    finite.rows(output.residual, segment, [Part.of(segment)])
    finite.settle()
    residuals = torch.stack([*entering, output.residual])[:, 0]
    if known is not None:
        residuals = torch.cat([known.entering[:, :start], residuals], dim=1)
    cache = output.cache or KeyValues((), ())
    return PlainRun(prompt.tokens, cache, residuals, values)


def _keep(entering: list[Tensor]) -> HookFunction:
    def hook(activation: Tensor) -> None:
        entering.append(activation.detach().clone())

    return hook


@exclusive
def _run_changed(
    model: LanguageModel, runs: Runs, prompts: PromptBatch, changes: Sequence[Intervention]
) -> Values:
    plain, prompt = runs.plain(prompts), prompts[0]
    for change in changes:
        change.check(model.info)
        change.check_prompts(prompts)
    layer = row = 0
    segment = Segment.build(model, prompts, [0])
    if runs.parts:
        layer = min(change.first_layer for change in changes)
        row = first_row(model, prompts, changes)
        before = torch.arange(row)
        rows = plain.entering[layer, row:][None].clone()
        segment = Segment.build(
            model,
            prompts,
            [0],
            spans=[(row, len(prompt))],
            cache=plain.cache.select(before) if row else None,
            cached=before[None] if row else None,
        )
        if layer:
            segment = replace(segment, start=Resume(layer, rows))
    work = Work([_From(own, layer) for own in runs.readings], changes, checkpoint=False)
    values = work.values(segment)
    work.check_acted()
    return [{**below, **own} for below, own in zip(plain.values, values, strict=True)]


def first_row(model: LanguageModel, prompts: PromptBatch, changes: Sequence[Intervention]) -> int:
    """The first row of a prompt that changes differ in, its target at the latest."""

    def quiet(length: int) -> bool:
        head = Segment.build(model, prompts, [0], spans=[(0, length)])
        return not any(change.hooks(head) for change in changes)

    low, high = 0, prompts[0].target
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if quiet(middle) else (low, middle - 1)
    return low
