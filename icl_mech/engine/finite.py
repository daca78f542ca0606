"""Refuses NaN and infinite numbers, and finds out where they come from.

A NaN anywhere in a computed row reaches the residual stream that leaves the last block, and what
is read of it. So a pass looks at that residual, at its reductions and its losses: a few thousand
numbers. Only if one of them is not finite, the prompt is run once more by itself, block by block.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, runtime_checkable

import torch

from icl_mech._typing import Bool, Float, Tensor
from icl_mech.engine.readings import Loss, target_loss
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention
from icl_mech.models import Hook, LanguageModel, Site, SiteName
from icl_mech.models.checks import plain_name
from icl_mech.segments import PADDING, Segment

P = ParamSpec("P")
R = TypeVar("R")


@runtime_checkable
class Intervening(Protocol):
    """What runs segments under interventions."""

    interventions: Sequence[Intervention]


W = TypeVar("W", bound=Intervening)

_PLACES: dict[SiteName, str] = {
    "resid_pre": "what enters block {}",
    "pattern": "the attention of block {}",
    "resid_post": "what leaves block {}",
}


class NotFinite(Exception):  # noqa: N818 - never seen by callers
    """A number of a pass is not finite; what is told of it is found out after the pass."""

    def __init__(self, what: str, finite: Bool[Tensor, " batch"], loss: Loss | None = None) -> None:
        """Say what it is, and of which rows of the segment."""
        super().__init__(what)
        self.what, self.row, self.loss = what, int((~finite).int().argmax()), loss


def check_rows(segment: Segment, residual: Float[Tensor, "batch dest d_model"]) -> None:
    """Refuse a residual stream that is not finite; padding may hold anything.

    Raises:
        NotFinite: of the first prompt that has such a row.
    """
    finite = residual.detach().isfinite().all(-1) | (segment.dest == PADDING)
    if not bool(finite.all()):
        raise NotFinite("The residual stream", finite.all(1))


def check_reductions(reading: str, values: dict[Site, Tensor], loss: Loss | None = None) -> None:
    """Refuse reductions that are not finite; scores are -inf where attention is masked.

    Raises:
        NotFinite: of the first prompt and site.
    """
    for site, value in values.items():
        finite = value.isfinite()
        if site.name == "scores":
            finite |= value == -torch.inf
        if not bool(finite.all()):
            what = f"What {reading} reads of {site.name!r} of block {site.layer}"
            raise NotFinite(what, finite.flatten(1).all(1), loss)


def check_losses(losses: Float[Tensor, " batch"]) -> None:
    """Refuse losses that are not finite.

    Raises:
        NotFinite: of the first prompt.
    """
    finite = losses.detach().isfinite()
    if not bool(finite.all()):
        raise NotFinite("The loss", finite)


def told(
    method: Callable[Concatenate[W, Segment, P], R],
) -> Callable[Concatenate[W, Segment, P], R]:
    """A method of `Work` that runs a segment: leaves nothing behind, and explains `NotFinite`.

    Raises:
        RunError: which prompt, which block, what to do.
    """

    @wraps(method)
    def run(self: W, segment: Segment, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            with segment.model.undo.kept():
                return method(self, segment, *args, **kwargs)
        except NotFinite as found:
            refusal = _explained(found, segment, self.interventions)
        raise refusal

    return run


def _explained(
    found: NotFinite, segment: Segment, interventions: Sequence[Intervention]
) -> RunError:
    """The refusal, after another look at the prompt."""
    model, index = segment.model, segment.indices[found.row]
    alone = Segment.build(model, segment.prompts[[found.row]], [index])
    with model.undo.kept():
        place, blamed = _place(alone, (), found.loss), ""
        if place is None and interventions:
            hooks = [hook for change in interventions for hook in change.hooks(alone)]
            place = _place(alone, hooks, found.loss)
            blamed = f" under {', '.join(map(repr, interventions))}, and only then" if place else ""
    where = f"first in {place} of {model.info.architecture}{blamed}"
    if not place:
        where = (
            f"though the whole prompt, run by itself through {model.info.architecture}, is finite in "
            "every block: it comes from what the pass builds on (given keys and values), or from "
            "what the reading makes of it"
        )
    return RunError(
        f"{found.what} of prompt {index} (counted from 0) is NaN or infinite, {where}. "
        f"{_advice(model, blamed)}"
    )


def _advice(model: LanguageModel, blamed: str) -> str:
    if blamed:
        return "Use a weaker intervention, or a model in a wider dtype."
    for name, parameter in model.module.named_parameters():
        if not parameter.is_meta and not bool(parameter.isfinite().all()):
            return (
                f"The weights {plain_name(name)!r} hold such values; they were changed since the model "
                "was checked: load it again."
            )
    wider = {
        "float16": "float16 ends at 65504: load it with dtype='bfloat16', which has the range of "
        "float32, or with 'float32'.",
        "float64": "No dtype is wider; the prompt or hooks of your own drive it there.",
    }
    return wider.get(model.info.dtype, f"Load it in a dtype wider than {model.info.dtype}.")


def _place(segment: Segment, hooks: Sequence[Hook], loss: Loss | None) -> str | None:
    """The first place that is not finite, in the forward pass or else in the backward pass."""
    place = _first(segment, hooks)
    return _first_gradient(segment, hooks, loss) if place is None and loss is not None else place


def _first(segment: Segment, hooks: Sequence[Hook]) -> str | None:
    """The first place of a forward pass that is not finite."""
    found: list[str] = []

    def watch(name: SiteName, layer: int) -> Hook:
        def hook(activation: Tensor) -> None:
            if not bool(activation.isfinite().all()):
                found.append(_PLACES[name].format(layer))

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
        found.append("the final norm or the logits of the labels")
    return found[0] if found else None


def _first_gradient(segment: Segment, hooks: Sequence[Hook], loss: Loss) -> str | None:
    """The first place of a backward pass, from the loss down, that is not finite."""
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
            return f"the gradient at what leaves block {layer} (from the loss down)"
    return None


def _run(segment: Segment, hooks: Sequence[Hook]) -> Tensor:
    return segment.model.forward(
        segment.tokens, segment.mask, segment.positions, hooks=hooks
    ).residual
