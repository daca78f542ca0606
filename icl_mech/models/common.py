"""What both TransformerLens classes share: hook points by site, gradients, and the readout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.huggingface import frozen
from icl_mech.models.interface import (
    Hook,
    HookFunction,
    LanguageModel,
    NormFunction,
    Site,
    SiteName,
)
from icl_mech.models.norms import FrozenNorm
from icl_mech.models.precision import aside, undiminished

_HOOK_NAMES: dict[SiteName, str] = {
    "pattern": "attn.hook_pattern",
    "scores": "attn.hook_attn_scores",
    "z": "attn.hook_z",
    "q": "attn.hook_q",
    "k": "attn.hook_k",
    "v": "attn.hook_v",
    "attn_out": "hook_attn_out",
    "mlp_out": "hook_mlp_out",
    "mlp_post": "mlp.hook_post",
    "resid_pre": "hook_resid_pre",
    "resid_post": "hook_resid_post",
}


@dataclass
class TransformerLensModel(LanguageModel):
    """What both classes share: hook points by site, and the readout."""

    @cached_property
    def _points(self) -> dict[Site, Any]:
        known = dict(self.wrapped.hook_dict)
        points: dict[Site, Any] = {}
        for layer in range(self.info.n_layers):
            for name, suffix in _HOOK_NAMES.items():
                point = known.get(f"blocks.{layer}.{suffix}")
                if point is not None:
                    points[Site(name, layer)] = point
        return points

    @property
    def has_own_hooks(self) -> bool:
        """True if a hook point has hooks; permanent ones are TransformerLens' own."""
        return any(
            not handle.is_permanent
            for point in self._all_points
            for handle in (*point.fwd_hooks, *point.bwd_hooks)
        )

    @cached_property
    def _all_points(self) -> list[Any]:
        return list(self.wrapped.hook_dict.values())

    def has_site(self, name: SiteName) -> bool:
        """True if every block has this hook point."""
        return all(Site(name, layer) in self._points for layer in range(self.info.n_layers))

    @contextmanager
    def installed(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Hooks in the order given; the caller's own hooks stay."""
        for site, _ in hooks:
            if site not in self._points:
                raise ModelError(
                    f"{self.info.name!r} has no {site.name!r} in block {site.layer}; its architecture "
                    f"({self.info.architecture}) does not expose it."
                )
        wide = self.info.dtype == "float64"
        added = [(self._points[s], _called(aside(f) if wide else f)) for s, f in hooks]

        def remove() -> None:
            for point, function in added:
                _remove(point, function)

        with self.undo.by(remove):
            for point, function in added:
                point.add_hook(function)
            yield

    def gradients(self) -> AbstractContextManager[None]:
        """Parameters frozen, gradients enabled; both restored afterwards."""
        return frozen(self.wrapped.parameters(), self.undo)

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Blocks recomputed in the backward pass; memory is then flat in depth."""
        with self.replaced([(b, self._recomputed(b.forward)) for b in self.wrapped.blocks]):
            yield

    def _recomputed(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        def computed(*args: Any, **kwargs: Any) -> Any:
            with undiminished(self.info.dtype):
                return forward(*args, **kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(computed, *args, use_reentrant=False, **kwargs)

        return run

    @contextmanager
    def replaced(self, forwards: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
        """Blocks with other `forward`s.

        Set in the instances' own dictionaries: a bridge's setattr would reach through to the
        Hugging Face module inside.
        """
        own = [(vars(block), vars(block).get("forward")) for block, _ in forwards]

        def restore() -> None:
            for attributes, forward in own:
                if forward is None:
                    attributes.pop("forward", None)
                else:
                    attributes["forward"] = forward

        with self.undo.by(restore):
            for block, forward in forwards:
                vars(block)["forward"] = forward
            yield

    def final_norm(
        self, residual: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """The norm before the unembedding."""
        with undiminished(self.info.dtype):
            normed: Tensor = self.wrapped.ln_final(residual.reshape(1, -1, residual.shape[-1]))
        return normed.reshape(residual.shape)

    def unembed(
        self, normed: Float[Tensor, "*rows d_model"], *, bias: bool = True
    ) -> Float[Tensor, "*rows d_vocab"]:
        """Unembedding, scaling, soft-cap."""
        with undiminished(self.info.dtype):
            logits: Tensor = self.wrapped.unembed(normed.reshape(1, -1, normed.shape[-1]))
        own = None if bias else getattr(self.wrapped, "b_U", None)
        logits = logits if own is None else logits - own
        return self._scaled(logits).reshape(*normed.shape[:-1], -1)

    def unembed_labels(
        self,
        normed: Float[Tensor, "batch *rows d_model"],
        labels: Int[Tensor, "batch label"],
        *,
        bias: bool = True,
    ) -> Float[Tensor, "batch *rows label"]:
        """Columns of `unembed`, from the rows of the unembedding that are needed."""
        weight, own = self.readout(labels)
        logits = torch.einsum("bld,b...d->b...l", weight, normed)
        if bias and own is not None:
            logits = logits + own.reshape(len(own), *[1] * (normed.ndim - 2), -1)
        return self._scaled(logits)

    def readout(self, labels: Int[Tensor, "batch label"]) -> tuple[Tensor, Tensor | None]:
        """Rows of the unembedding and its biases."""
        bias = getattr(self.wrapped, "b_U", None)
        return self.wrapped.W_U.T[labels], None if bias is None else bias[labels]

    @cached_property
    def final_norm_parts(self) -> FrozenNorm:
        """Gain and offset of the final norm."""
        return FrozenNorm.of(self.wrapped.ln_final, self.wrapped.W_U[:, 0].detach())

    def attention_norm(self, layer: int) -> tuple[FrozenNorm, NormFunction] | None:
        """The norm after attention, in blocks that have one (Gemma 2 and 3, OLMo 2)."""
        return self._attention_norms[layer]

    @cached_property
    def _attention_norms(self) -> list[tuple[FrozenNorm, NormFunction] | None]:
        like = self.wrapped.W_U[:, 0].detach()
        norms = [getattr(block, "ln1_post", None) for block in self.wrapped.blocks]
        return [None if norm is None else (FrozenNorm.of(norm, like), norm) for norm in norms]

    def head_weights(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """`W_O` by head, and the bias of the attention output."""
        attention = self.wrapped.blocks[layer].attn
        return attention.W_O.detach(), attention.b_O

    def _scaled(self, logits: Tensor) -> Tensor:
        raise NotImplementedError


def _called(function: HookFunction) -> Callable[..., Tensor | None]:
    def hook_function(activation: Tensor, hook: Any) -> Tensor | None:
        return function(activation)

    return hook_function


def _remove(point: Any, function: Callable[..., Any]) -> None:
    """Take a function off a hook point, on which it may be in part or not at all."""
    # TransformerLens wraps it, and names the wrapper so.
    name, hooks = repr(function), point._forward_hooks
    for number in [key for key, hook in hooks.items() if getattr(hook, "__name__", "") == name]:
        del hooks[number]
    point.fwd_hooks[:] = [handle for handle in point.fwd_hooks if handle.hook.id in hooks]
