"""`HookedTransformer` as a `LanguageModel`, and the code it shares with `TransformerBridge`.

Hook points by site, gradients and the readout are the same in both classes of TransformerLens.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.huggingface import frozen, plain_weight
from icl_mech.models.interface import (
    ForwardInput,
    ForwardOutput,
    Hook,
    HookFunction,
    KeyValues,
    LanguageModel,
    NormFunction,
    Site,
    SiteName,
)
from icl_mech.models.norms import FrozenNorm
from icl_mech.models.undo import aside, undiminished
from icl_mech.models.watching import stored

if TYPE_CHECKING:
    from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache
    from transformer_lens.hook_points import HookPoint

R = TypeVar("R")

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


_MIXERS = ("mamba", "mixer", "linear_attn", "conv")
"""TransformerLens' names of layers that mix positions without attention."""


@dataclass(repr=False)
class TransformerLensModel(LanguageModel):
    """Base class of both adapters: hook points by site, and the readout."""

    @cached_property
    def _points(self) -> "dict[Site, HookPoint]":
        known = dict(self.wrapped.hook_dict)
        points: dict[Site, HookPoint] = {}
        for layer, block in enumerate(self.wrapped.blocks):
            # Latent attention (DeepSeek) exposes queries and keys only after rotary, with heads first.
            latent = type(getattr(block, "attn", None)).__name__ == "MLAAttentionBridge"
            for name, suffix in _HOOK_NAMES.items():
                if latent and name in ("q", "k", "v"):
                    continue
                point = known.get(f"blocks.{layer}.{suffix}")
                if point is not None:
                    points[Site(name, layer)] = point
        return points

    @property
    def has_own_hooks(self) -> bool:
        """True if a hook point or a module has hooks; permanent ones belong to TransformerLens."""
        return bool(self.watch.foreign_hooks()) or any(
            not handle.is_permanent
            for point in self._all_points
            for handle in (*point.fwd_hooks, *point.bwd_hooks)
        )

    @cached_property
    def _all_points(self) -> "list[HookPoint]":
        return list(self.wrapped.hook_dict.values())

    def has_site(self, name: SiteName) -> bool:
        """True if every block has this hook point."""
        return all(Site(name, layer) in self._points for layer in range(self.info.n_layers))

    @contextmanager
    def installed(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Context with hooks installed in the order given; hooks added by the caller stay."""
        self.refuse_missing([site for site, _ in hooks])
        # Hooks run outside the float64 mode of the pass, in the dtypes they ask for.
        wide = self.info.dtype == "float64"
        added = [
            (self._points[s], _called(self._by_head(s, aside(f) if wide else f), self.device))
            for s, f in hooks
        ]

        def remove() -> None:
            for point, function in added:
                _remove(point, function)

        with self.undo.by(remove):
            for point, function in added:
                point.add_hook(function)
            yield

    def refuse_missing(self, sites: Sequence[Site]) -> None:
        """Reject sites without a hook point."""
        for site in sites:
            if site in self._points:
                continue
            if site.layer in self.without_pattern:
                raise ModelError(self._no_pattern(site))
            raise ModelError(
                f"{self.info.name!r} has no {site.name!r} in block {site.layer}; its architecture "
                f"({self.info.architecture}) does not expose it."
            )

    @cached_property
    def without_pattern(self) -> tuple[int, ...]:
        """Blocks of state space, convolution or linear attention."""
        layers = range(self.info.n_layers)
        return tuple(layer for layer in layers if Site("pattern", layer) not in self._points)

    @property
    def beside_attention(self) -> tuple[str, ...]:
        """Names of state-space and other layers next to attention in the first block."""
        return tuple(name for name in _MIXERS if hasattr(self.wrapped.blocks[0], name))

    def _no_pattern(self, site: Site) -> str:
        with_pattern = sorted({*range(self.info.n_layers)} - {*self.without_pattern})
        rest = (
            ". Attention knockouts, heads and head attention work in the blocks that have a "
            f"pattern: {with_pattern}"
            if with_pattern
            else ""
        )
        return (
            f"{self.info.name!r} has no {site.name!r} in block {site.layer}: blocks "
            f"{[*self.without_pattern]} of {self.info.n_layers} ({self.info.architecture}) have "
            "no attention pattern; they mix positions by a state space, a convolution or linear "
            "attention. Available without a pattern: predict, generate(attention=False), "
            "logit_lens, layer_accuracy, transplant, ZeroLayers, AddVector, Patch of "
            f"residuals{rest}."
        )

    def _by_head(self, site: Site, function: HookFunction) -> HookFunction:
        return partial(_by_head, self.info.n_heads, function) if site.name == "z" else function

    def gradients(self) -> AbstractContextManager[None]:
        """Context with parameters frozen and gradients enabled; both are restored afterwards."""
        return frozen(self.wrapped.parameters(), self.undo)

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Context in which blocks are recomputed in the backward pass, so that memory is flat in depth."""
        with self.replaced([(b, self._recomputed(b.forward)) for b in self.wrapped.blocks]):
            yield

    def _recomputed(self, forward: Callable[..., R]) -> Callable[..., R]:
        # The mode is entered inside: the backward pass reruns blocks outside the forward's context.
        def computed(*args: object, **kwargs: object) -> R:
            with undiminished(self.info.dtype):
                return forward(*args, **kwargs)

        def run(*args: object, **kwargs: Any) -> R:
            output: R = checkpoint(computed, *args, use_reentrant=False, **kwargs)
            return output

        return run

    @contextmanager
    def replaced(self, forwards: Sequence[tuple[Any, Callable[..., Any]]]) -> Iterator[None]:
        """Context in which blocks have another `forward`.

        It is set in the `__dict__` of the instances: a bridge's setattr would pass it through to the
        Hugging Face module inside.
        """
        saved = [(vars(block), vars(block).get("forward")) for block, _ in forwards]

        def restore() -> None:
            for attributes, forward in saved:
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
        if not hasattr(self.wrapped, "ln_final"):  # GPT of 2018, OPT-350m
            return residual
        with undiminished(self.info.dtype):
            normed: Tensor = self.wrapped.ln_final(residual.reshape(1, -1, residual.shape[-1]))
        return normed.reshape(residual.shape).to(self.device)

    def unembed(
        self, normed: Float[Tensor, "*rows d_model"], *, bias: bool = True
    ) -> Float[Tensor, "*rows d_vocab"]:
        """Logits by unembedding, scaling and soft-cap."""
        projection = getattr(self.wrapped, "project_out", None)  # OPT-350m
        projected = normed if projection is None else projection(normed)
        with undiminished(self.info.dtype):
            logits: Tensor = self.wrapped.unembed(projected.reshape(1, -1, projected.shape[-1]))
        removed_bias = None if bias else getattr(self.wrapped, "b_U", None)
        logits = logits if removed_bias is None else logits - removed_bias
        return self._scaled(logits).reshape(*normed.shape[:-1], -1).to(self.device)

    def readout(self, labels: Int[Tensor, "batch label"]) -> tuple[Tensor, Tensor | None]:
        """Rows of the unembedding and its biases."""
        bias, weight = getattr(self.wrapped, "b_U", None), self.wrapped.W_U.T
        if weight.is_meta:
            head = self.wrapped.unembed.original_component
            weight, bias = stored(head, "weight", weight), head.bias
            bias = None if bias is None else stored(head, "bias", bias)
        rows: Tensor = weight[labels.to(weight.device)]
        if (projection := getattr(self.wrapped, "project_out", None)) is not None:
            rows = rows @ projection.weight
        taken = None if bias is None else bias[labels.to(bias.device)].to(labels.device)
        return rows.to(labels.device), taken

    @cached_property
    def final_norm_parts(self) -> FrozenNorm:
        """Gain and offset of the final norm."""
        return FrozenNorm.of(self.final_norm, self._like)

    @property
    def _like(self) -> Tensor:
        """A vector of the residual stream's width and dtype."""
        parameter: Tensor = next(self.wrapped.parameters())
        return parameter.new_empty(self.info.d_model, device=self.device)

    def attention_norm(self, layer: int) -> tuple[FrozenNorm, NormFunction] | None:
        """The norm after attention, in blocks that have one (Gemma 2 and 3, OLMo 2)."""
        return self._attention_norms[layer]

    @cached_property
    def _attention_norms(self) -> list[tuple[FrozenNorm, NormFunction] | None]:
        norms = [getattr(block, "ln1_post", None) for block in self.wrapped.blocks]
        return [None if norm is None else (FrozenNorm.of(norm, self._like), norm) for norm in norms]

    def projected(self, site: Site, residual: Tensor) -> Tensor | None:
        """See `LanguageModel.projected`; parts of fused projections are those that the bridge computes with."""
        block = self.wrapped.blocks[site.layer]
        norm = getattr(getattr(block, "ln1", None), "original_component", None)
        part = getattr(getattr(block.attn, site.name, None), "original_component", None)
        if not isinstance(norm, torch.nn.Module) or not isinstance(part, torch.nn.Module):
            return None
        with undiminished(self.info.dtype):
            rows = norm(residual.reshape(1, -1, residual.shape[-1]))
            made: Tensor = part(rows)
        heads = self.info.n_heads if site.name == "q" else self.info.n_kv_heads
        return made.reshape(*residual.shape[:-1], heads, -1)

    def head_weights(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """`W_O` by head, and the bias of the attention output."""
        attention = self.wrapped.blocks[layer].attn
        linear = getattr(getattr(attention, "o", None), "original_component", None)
        bias = attention.b_O
        if isinstance(linear, torch.nn.Linear):
            weight = plain_weight(linear, self._like).T
            bias = None if bias is None else stored(linear, "bias", bias)
        else:
            weight = attention.W_O
        # Values can be narrower or wider than keys (DeepSeek).
        weight = weight.detach().reshape(self.info.n_heads, -1, self.info.d_model)
        # Granite scales the outputs of attention and MLP.
        scale = getattr(self.wrapped.blocks[layer], "residual_contribution_scale", 1.0)
        scaled = None if bias is None else (bias * scale).to(self.device)
        return (weight * scale).to(self.device), scaled


def _by_head(n_heads: int, function: HookFunction, z: Tensor) -> Tensor | None:
    """Call a hook of `z` by head where the library splits `z` by the width of keys, not of values."""
    if z.shape[2] == n_heads and z.ndim == 4:
        return function(z)
    replaced = function(z.reshape(*z.shape[:2], n_heads, -1))
    return None if replaced is None else replaced.reshape(z.shape)


def _called(function: HookFunction, device: torch.device) -> Callable[..., Tensor | None]:
    def hook_function(activation: Tensor, hook: object) -> Tensor | None:
        replaced = function(activation.to(device))  # moves where a model is spread over devices
        return None if replaced is None else replaced.to(activation.device)

    return hook_function


def _remove(point: "HookPoint", function: Callable[..., Tensor | None]) -> None:
    """Remove a function from a hook point, on which it may be registered in part or not at all."""
    # TransformerLens wraps the function, and names the wrapper by its repr.
    name, hooks = repr(function), point._forward_hooks
    for number in [key for key, hook in hooks.items() if getattr(hook, "__name__", "") == name]:
        del hooks[number]
    point.fwd_hooks[:] = [handle for handle in point.fwd_hooks if handle.hook.id in hooks]


@dataclass(repr=False)
class HookedModel(TransformerLensModel):
    """`HookedTransformer` (TransformerLens 3.x)."""

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """See `LanguageModel.forward`; positions follow from the mask."""
        cached, start = 0 if asked.cache is None else asked.cache.length, asked.start
        past = self._past(asked.mask[:, :cached], asked.cache) if asked.caches else None
        # Entered at the embedding, TransformerLens appends this mask to that of the cache.
        seen = asked.mask if start is not None else asked.mask[:, cached:]
        final: list[Tensor] = []
        last = Site("resid_post", asked.stop - 1)
        with self.installed([*asked.hooks, (last, final.append)]):
            self.wrapped(
                asked.tokens if start is None else start.residual,
                return_type=None,
                start_at_layer=None if start is None else start.layer,
                stop_at_layer=asked.stop,
                attention_mask=seen.long(),
                past_kv_cache=past,
            )
        if past is None or not asked.keep_cache:
            return ForwardOutput(final[-1])
        keys, values = (
            tuple(getattr(entry, name).transpose(1, 2) for entry in past.entries)
            for name in ("past_keys", "past_values")
        )
        return ForwardOutput(final[-1], KeyValues(keys, values))

    def _past(
        self, mask: Bool[Tensor, "batch cached"], cache: KeyValues | None
    ) -> "TransformerLensKeyValueCache":
        from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

        past: TransformerLensKeyValueCache = TransformerLensKeyValueCache.init_cache(
            self.wrapped.cfg, self.device, len(mask)
        )
        if cache is not None:
            for entry, key, value in zip(past.entries, cache.keys, cache.values, strict=True):
                entry.past_keys, entry.past_values = key.transpose(1, 2), value.transpose(1, 2)
        past.previous_attention_mask = mask.long()
        return past

    def _scaled(self, logits: Tensor) -> Tensor:
        cap = float(getattr(self.wrapped.cfg, "output_logits_soft_cap", 0.0) or 0.0)
        return torch.tanh(logits / cap) * cap if cap > 0 else logits
