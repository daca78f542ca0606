"""`Runs`: forward passes over single prompts that compute only what is new.

A plain run keeps keys, values and the residual entering every block. Another prompt resumes after the longest
prefix they share; a changed run starts at the first changed block and the first changed row, and takes everything
before from the plain run.
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
"""Maximum number of cached plain runs: one action needs up to ten; 190 tokens of SmolLM2 take 22 MB."""


@dataclass(frozen=True, eq=False)
class PlainRun:
    """The run of one prompt through the unchanged model.

    Attributes:
        tokens: The prompt's token ids.
        cache: Keys and values of all tokens.
        entering: Residual entering every block, then the one leaving the last.
        values: Values that each readout keeps, by hook point.
    """

    tokens: tuple[int, ...]
    cache: KeyValues
    entering: Float[Tensor, "entry pos d_model"]
    values: Values


@dataclass
class _From(Reading[Any]):
    """A readout restricted to the hook points from a block on."""

    reading: Reading[Any]
    layer: int

    def sites(self, info: ModelInfo) -> Sequence[Site]:
        """The hook points that run."""
        return [site for site in self.reading.sites(info) if site.layer >= self.layer]

    def reduce(self, site: Site, activation: Tensor, segment: Segment) -> Tensor:
        """Reduce as the full readout does."""
        return self.reading.reduce(site, activation, segment)

    def collect(self, kept: Kept) -> Any:
        """Collect as the full readout does."""
        return self.reading.collect(kept)


class Runs:
    """Runs of one model, with readouts at the target that every run performs."""

    def __init__(self, model: LanguageModel, readings: Sequence[Reading[Any]]) -> None:
        """Start with no cached runs."""
        self.model, self.readings = model, list(readings)
        self._plain: OrderedDict[tuple[tuple[int, ...], ...], PlainRun] = OrderedDict()

    @property
    def parts(self) -> bool:
        """True if parts of a prompt can run separately."""
        return self.model.takes_cache and self.model.splits

    def plain(self, prompts: PromptBatch) -> PlainRun:
        """The run of one prompt.

        Raises:
            IclMechError: the prompt does not fit, or the model returns non-finite numbers.
        """
        key = prompts[0].tokens, prompts[0].label_tokens  # readouts depend on the scored words
        if key not in self._plain:
            self._plain[key] = _run_plain(self.model, self, prompts)
        self._plain.move_to_end(key)
        while len(self._plain) > KEPT:
            self._plain.popitem(last=False)
        return self._plain[key]

    def longest(self, prompts: PromptBatch) -> tuple[int, PlainRun | None]:
        """Length of the longest prefix before a prompt's target that a cached run shares, and that run."""
        best, match = 0, None
        for run in [run for run in self._plain.values() if run.cache.keys and self.parts]:
            length = prompts[0].target
            for place, (cached, token) in enumerate(
                zip(run.tokens[:length], prompts[0].tokens[:length], strict=False)
            ):
                if cached != token:
                    length = place
                    break
            if (length := min(length, len(run.tokens))) > best:
                best, match = length, run
        return best, match

    def values(self, prompts: PromptBatch, changes: Sequence[Intervention] = ()) -> list[Any]:
        """The value of each readout for one prompt under changes.

        Raises:
            IclMechError: the engine rejects the prompt or a change.
        """
        values = self.plain(prompts).values
        if changes:
            values = _run_changed(self.model, self, prompts, changes)
        collected = []
        for reading, by_site in zip(self.readings, values, strict=True):
            kept = Kept(1)
            kept.add([0], {site: by_site[site] for site in reading.sites(self.model.info)})
            collected.append(reading.collect(kept))
        return collected

    def read(
        self, prompts: PromptBatch, changes: Sequence[Intervention], reading: Reading[Any], row: int
    ) -> Any:
        """A further readout of one prompt under changes, of no rows before `row`.

        Raises:
            IclMechError: the engine rejects the prompt or a change.
        """
        kept = Kept(1)
        kept.add([0], _run_rows(self.model, self, prompts, changes, reading, row))
        return reading.collect(kept)


@exclusive
def _run_plain(model: LanguageModel, runs: Runs, prompts: PromptBatch) -> PlainRun:
    prompt, layers = prompts[0], model.info.n_layers
    start, known = runs.longest(prompts)
    entering: list[Tensor] = []
    segment = Segment.build(model, prompts, [0])
    if known is not None:
        # Selected columns are copies, so a pass after them does not extend a cached run.
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
    plain = runs.plain(prompts)
    for change in changes:
        change.check(model.info)
        change.check_prompts(prompts)
    layer = 0
    segment = Segment.build(model, prompts, [0])
    if runs.parts:
        layer = min(change.first_layer for change in changes)
        row = first_row(model, prompts, changes)
        segment = _from_row(model, plain, prompts, row)
        if layer:
            rows = plain.entering[layer, row:][None].clone()
            segment = replace(segment, start=Resume(layer, rows))
    work = Work([_From(reading, layer) for reading in runs.readings], changes, checkpoint=False)
    values = work.values(segment)
    work.check_acted()
    return [{**below, **above} for below, above in zip(plain.values, values, strict=True)]


def _from_row(model: LanguageModel, plain: PlainRun, prompts: PromptBatch, row: int) -> Segment:
    """The rows of a prompt from one on, after the cached keys and values of those before."""
    before = torch.arange(row)
    return Segment.build(
        model,
        prompts,
        [0],
        spans=[(row, len(prompts[0]))],
        cache=plain.cache.select(before) if row else None,
        cached=before[None] if row else None,
    )


@exclusive
def _run_rows(
    model: LanguageModel,
    runs: Runs,
    prompts: PromptBatch,
    changes: Sequence[Intervention],
    reading: Reading[Any],
    row: int,
) -> dict[Site, Tensor]:
    segment = Segment.build(model, prompts, [0])
    if runs.parts:
        first = first_row(model, prompts, changes)
        segment = _from_row(model, runs.plain(prompts), prompts, min(row, first))
    work = Work([reading], changes, checkpoint=False)
    (values,) = work.values(segment)
    work.check_acted()
    return values


def first_row(model: LanguageModel, prompts: PromptBatch, changes: Sequence[Intervention]) -> int:
    """The first row of a prompt that the changes affect, its target at the latest."""

    def quiet(length: int) -> bool:
        head = Segment.build(model, prompts, [0], spans=[(0, length)])
        return not any(change.hooks(head) for change in changes)

    low, high = 0, prompts[0].target
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if quiet(middle) else (low, middle - 1)
    return low
