"""The hooks of one pass, from interventions and readings, each counting its calls."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import torch

from icl_mech._typing import Tensor
from icl_mech.checking import Called, conformed, shown
from icl_mech.engine.beginning import Sink
from icl_mech.engine.readings import GradientReading, Reading
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, HookFunction, Site
from icl_mech.segments import Segment


class Tap(torch.autograd.Function):
    """Identity in the forward pass; in the backward pass the gradient of `sink` is the reduction.

    `sink` is a tensor of zeros with the shape of the reduction. Reading through the gradient of an
    input, not by a side effect, keeps the value correct when a checkpointed pass is recomputed.
    """

    @staticmethod
    def forward(
        ctx: Any, activation: Tensor, sink: Tensor, reduce: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Save the activation through autograd, which frees it after the backward pass."""
        ctx.save_for_backward(activation)
        ctx.reduce = reduce
        # A view, to which autograd attaches this function's node without a copy.
        return activation.view_as(activation)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Pass the gradient on unchanged; its reduction is the gradient of the sink."""
        (activation,) = ctx.saved_tensors
        return gradient, ctx.reduce(activation, gradient), None


AnyReading = Reading[Any] | GradientReading[Any]
Hooks = Annotated[
    Sequence[tuple[Site, HookFunction]], Called("a list of pairs (Site(...), function)")
]
Owned = tuple[str, Hook]
"""The name of a hook's owner, for error messages, and the hook."""
Values = list[dict[Site, Tensor]]
"""For each reading, the reduction at each of its sites."""


def hooks_of(intervention: Intervention, segment: Segment) -> Sequence[Hook]:
    """The hooks of a built-in or user-defined intervention.

    Raises:
        RunError: `hooks` did not return a list of pairs of a site and a function.
    """
    name = f"hooks() of {type(intervention).__name__}"
    hooks: Sequence[Hook] = conformed(name, intervention.hooks(segment), Hooks)
    return hooks


def taps_of(
    readings: Sequence[AnyReading],
    segment: Segment,
    values: Values | None = None,
    *,
    layer: int | None = None,
) -> tuple[list[Owned], list[Sink]]:
    """Hooks of the readings and sinks of the gradient readings, for all layers or one.

    Without `values` to write to, only gradient readings are included.
    """
    sinks: list[Sink] = []
    taps: list[Owned] = []
    for number, reading in enumerate(readings):
        for site in reading.sites(segment.model.info):
            if layer not in (None, site.layer):
                continue
            if isinstance(reading, GradientReading):
                shape, device = reading.shape(segment), segment.tokens.device
                sink = torch.zeros(shape, device=device, requires_grad=True)
                sinks.append((number, site, sink))
                hook = _tap(reading, site, segment, sink)
            elif values is not None:
                hook = _read(reading, site, segment, values[number])
            else:
                continue
            taps.append((type(reading).__name__, (site, hook)))
    return taps, sinks


def counted(owned: Sequence[Owned], segment: Segment) -> tuple[list[Hook], Callable[[], None]]:
    """The hooks, and a function that raises unless all of them fired."""
    fired = [0] * len(owned)

    def check() -> None:
        for (owner, (site, _)), count in zip(owned, fired, strict=True):
            if not count:
                raise RunError(
                    f"{owner} did not fire at {site.name!r} of block {site.layer} in "
                    f"{segment.model.info.architecture}; its effect or readout would be missing."
                )

    hooks = [
        (site, _counted(owner, function, fired, index))
        for index, (owner, (site, function)) in enumerate(owned)
    ]
    return hooks, check


def on_rows(hooks: Sequence[Sequence[Hook]], rows: Sequence[slice]) -> list[Hook]:
    """Hooks that each see and change only some rows of the batch; one hook per site."""
    by_site: dict[Site, list[tuple[slice, HookFunction]]] = {}
    for hooks_of_part, part in zip(hooks, rows, strict=True):
        for site, function in hooks_of_part:
            by_site.setdefault(site, []).append((part, function))
    return [(site, _on_rows(functions)) for site, functions in by_site.items()]


def _on_rows(functions: Sequence[tuple[slice, HookFunction]]) -> HookFunction:
    def hook(activation: Tensor) -> Tensor | None:
        changed, replaced = activation, False
        for rows, function in functions:
            given = changed[rows]
            new = function(given)
            replaced |= new is not None
            # Without a graph most hooks write in place, here into a view of the activation.
            if new is None or new is given:
                continue
            if changed is activation:
                changed = activation.clone()
            changed[rows] = new
        return changed if replaced else None

    return hook


def _read(
    reading: Reading[Any], site: Site, segment: Segment, values: dict[Site, Tensor]
) -> HookFunction:
    def hook(activation: Tensor) -> None:
        with torch.no_grad():
            values[site] = reading.reduce(site, activation.detach(), segment)

    return hook


def _tap(reading: GradientReading[Any], site: Site, segment: Segment, sink: Tensor) -> HookFunction:
    def reduce(activation: Tensor, gradient: Tensor) -> Tensor:
        return reading.reduce(site, activation, gradient, segment).to(sink.dtype)

    def hook(activation: Tensor) -> Tensor:
        tapped: Tensor = Tap.apply(activation, sink, reduce)  # type: ignore[no-untyped-call]
        return tapped

    return hook


def _counted(owner: str, function: HookFunction, fired: list[int], index: int) -> HookFunction:
    def hook(activation: Tensor) -> Tensor | None:
        fired[index] += 1
        result = function(activation)
        if result is not None and getattr(result, "shape", None) != activation.shape:
            raise RunError(
                f"A hook of {owner} returned {shown(result)}; expected a tensor of shape "
                f"{list(activation.shape)}, or None to leave the activation as it is."
            )
        return result

    return hook
