"""Reject NaN and infinite values, and locate where they arise.

A NaN anywhere in a computed row reaches the residual stream after the last block, and everything
read from it. So a pass flags the rows whose residual, reductions and losses are finite. The flags
stay on the device, because reading one would wait for all work queued before it; they are read
together (`Finite.settle`), on a CPU after each pass. Only if a flag is False is the prompt run
once more, alone and block by block.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar, runtime_checkable

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.engine.readings import Loss, target_loss
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, LanguageModel, Site, SiteName, to_host
from icl_mech.models.checks import plain_name
from icl_mech.prompts import PromptBatch
from icl_mech.segments import PADDING, Segment

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 10.0
"""Seconds after which a run on an accelerator reads its flags, even before it ends."""


class Part(NamedTuple):
    """Rows of a pass that belong to one work, and the interventions on them."""

    model: LanguageModel
    prompts: PromptBatch
    indices: Sequence[int]
    interventions: Sequence[Intervention]

    @classmethod
    def of(cls, segment: Segment, interventions: Sequence[Intervention] = ()) -> "Part":
        """Rows of a segment, without a reference to it: its keys and values take memory."""
        return cls(segment.model, segment.prompts, segment.indices, interventions)


_PLACES: dict[SiteName, str] = {
    "resid_pre": "the input of block {}",
    "pattern": "the attention of block {}",
    "resid_post": "the output of block {}",
}


class _Flags(NamedTuple):
    """Which rows of a pass are finite, for several quantities."""

    what: Sequence[str]
    finite: Bool[Tensor, "what batch"]
    parts: Sequence[Part]
    loss: Loss | None


class Finite:
    """Records which rows of the passes of a run are finite."""

    def __init__(self, *, patient: bool = False) -> None:
        """Check flags after each pass, or (`patient`, on an accelerator) every few seconds."""
        self._patient, self._since = patient, time.monotonic()
        self._flags: list[_Flags] = []

    def rows(
        self, residual: Float[Tensor, "batch dest d_model"], segment: Segment, parts: Sequence[Part]
    ) -> None:
        """Flag the residual stream after the last block; padding may hold any value."""
        finite = residual.detach().isfinite().all(-1) | (segment.dest == PADDING)
        self._flags.append(_Flags(["The residual stream"], finite.all(1)[None], parts, None))

    def reductions(
        self, reading: str, values: Mapping[Site, Tensor], parts: Sequence[Part], loss: Loss | None
    ) -> None:
        """Flag the reductions of a reading; attention scores are -inf where masked."""
        flags, what = [], []
        for site, value in values.items():
            finite = value.detach().isfinite()
            if site.name == "scores":
                finite |= value.detach() == -torch.inf
            flags.append(finite.reshape(len(value), -1).all(1))
            what.append(f"The value that {reading} reads at {site.name!r} of block {site.layer}")
        if flags:
            self._flags.append(_Flags(what, torch.stack(flags), parts, loss))

    def losses(self, losses: Float[Tensor, " batch"], parts: Sequence[Part]) -> None:
        """Flag losses."""
        self._flags.append(_Flags(["The loss"], losses.detach().isfinite()[None], parts, None))

    def settle_if_due(self) -> None:
        """Check the flags unless that can wait.

        Raises:
            RunError: see `settle`.
        """
        if not self._flags:
            return
        waits = self._patient and self._flags[-1].finite.device.type != "cpu"
        if not waits or time.monotonic() - self._since > PATIENCE:
            self.settle()

    def settle(self, tensors: Sequence[Tensor] = ()) -> list[Tensor]:
        """Check all flags, and copy other tensors to the host in the same transfer.

        Raises:
            RunError: a value is not finite; names the prompt, the block and a remedy.
        """
        flags, self._flags = self._flags, []
        self._since = time.monotonic()
        moved = to_host([*(group.finite for group in flags), *tensors])
        for group, finite in zip(flags, moved, strict=False):
            if not bool(finite.all()):
                number = int((~finite.all(1)).int().argmax())
                row = int((~finite[number]).int().argmax())
                raise _explained(group.what[number], group.parts, row, group.loss)
        return moved[len(flags) :]


@runtime_checkable
class Checked(Protocol):
    """An object that runs segments and records whether their rows are finite."""

    finite: Finite


W = TypeVar("W", bound=Checked)


def explained(
    method: Callable[Concatenate[W, Segment, P], R],
) -> Callable[Concatenate[W, Segment, P], R]:
    """Wrap a method of `Work` that runs a segment: undo all hooks, and reject values that are not finite.

    Raises:
        RunError: a value is not finite; names the prompt, the block and a remedy.
    """

    @wraps(method)
    def run(self: W, segment: Segment, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with segment.model.undo.kept():
            result = method(self, segment, *args, **kwargs)
        self.finite.settle_if_due()
        return result

    return run


class NonFiniteError(RunError):
    """A value is NaN or infinite under interventions, and finite without them."""


def _explained(what: str, parts: Sequence[Part], row: int, loss: Loss | None) -> RunError:
    """The error to raise, after rerunning the prompt alone to locate the first bad value."""
    for part in parts:
        if row < len(part.prompts):
            break
        row -= len(part.prompts)
    model, interventions, index = part.model, part.interventions, part.indices[row]
    alone = Segment.build(model, part.prompts[[row]], [index])
    with model.undo.kept():
        place, blamed = _place(alone, (), loss), ""
        if place is None and interventions:
            hooks = [hook for change in interventions for hook in change.hooks(alone)]
            place = _place(alone, hooks, loss)
            blamed = f", and only under {', '.join(map(repr, interventions))}" if place else ""
    where = f"first in {place} of {model.info.architecture}{blamed}"
    if not place:
        where = (
            f"although the whole prompt, run alone through {model.info.architecture}, is finite "
            "in every block: the value arises in the given keys and values, or in the reading "
            "itself"
        )
    error = NonFiniteError if blamed else RunError
    return error(
        f"{what} of prompt {index} (counted from 0) is NaN or infinite, {where}. "
        f"{_advice(model, blamed)}"
    )


def _advice(model: LanguageModel, blamed: str) -> str:
    if blamed:
        return "Use a weaker intervention, or a model in a wider dtype."
    for name, parameter in model.module.named_parameters():
        if not parameter.is_meta and not bool(parameter.isfinite().all()):
            return (
                f"The weights {plain_name(name)!r} contain such values, because they were changed "
                "after the model was checked: load it again."
            )
    wider = {
        "float16": (
            "float16 overflows above 65504: load the model with dtype='bfloat16', which has the "
            "range of float32, or with 'float32'."
        ),
        "float64": "No wider dtype is available; the prompt or hooks that you added produce such values.",
    }
    return wider.get(model.info.dtype, f"Load the model in a dtype wider than {model.info.dtype}.")


def _place(segment: Segment, hooks: Sequence[Hook], loss: Loss | None) -> str | None:
    """The first place with a non-finite value, in the forward pass or else in the backward pass."""
    place = _first(segment, hooks)
    return _first_gradient(segment, hooks, loss) if place is None and loss is not None else place


def _first(segment: Segment, hooks: Sequence[Hook]) -> str | None:
    """The first place of a forward pass with a non-finite value."""
    places: list[str] = []

    def watch(name: SiteName, layer: int) -> Hook:
        def hook(activation: Tensor) -> None:
            if not bool(activation.isfinite().all()):
                places.append(_PLACES[name].format(layer))

        return Site(name, layer), hook

    model = segment.model
    names = [name for name in _PLACES if model.has_site(name)]
    watched = [watch(name, layer) for layer in range(model.info.n_layers) for name in names]
    with torch.no_grad():
        output = _run(segment, [*hooks, *watched])
        at_target = segment.at_target(output)
        labels = segment.label_tokens
        logits = (
            model.label_logits(at_target, labels) if labels.numel() else model.logits(at_target)
        )
    if not bool(logits.isfinite().all()):
        places.append("the final norm or the logits of the labels")
    return places[0] if places else None


def _first_gradient(segment: Segment, hooks: Sequence[Hook], loss: Loss) -> str | None:
    """The first place of a backward pass, from the loss backwards, with a non-finite gradient."""
    model, layers = segment.model, range(segment.model.info.n_layers)
    seen: list[Tensor] = []

    def leaf(activation: Tensor) -> Tensor:
        return activation.detach().requires_grad_()

    keep: list[Hook] = [(Site("resid_post", layer), seen.append) for layer in layers]
    with model.gradients():
        residual = _run(segment, [(Site("resid_pre", 0), leaf), *hooks, *keep])
        total = target_loss(residual, segment, loss).sum()
        gradients: Sequence[Tensor | None] = torch.autograd.grad(total, seen, allow_unused=True)
    for layer, gradient in reversed(list(zip(layers, gradients, strict=True))):
        if gradient is not None and not bool(gradient.isfinite().all()):
            return f"the gradient at the output of block {layer} (from the loss backwards)"
    return None


def _run(segment: Segment, hooks: Sequence[Hook]) -> Tensor:
    return segment.model.forward(
        segment.tokens, segment.mask, segment.positions, hooks=hooks
    ).residual
