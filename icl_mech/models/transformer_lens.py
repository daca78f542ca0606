"""The only file that knows TransformerLens: its two model classes as `LanguageModel`s."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from icl_mech._typing import Bool, Float, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.interface import (
    ForwardOutput,
    Hook,
    HookFunction,
    KeyValues,
    LanguageModel,
    ModelInfo,
    Resume,
    Site,
    SiteName,
)
from icl_mech.models.rerouting import reroute_attention

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


def boot_bridge(
    hf_model: Any, tokenizer: Any, *, name: str, dtype: torch.dtype, device: str
) -> Any:
    """A `TransformerBridge` around a loaded Hugging Face model, in eval mode."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge = TransformerBridge.boot_transformers(
        name, hf_model=hf_model, tokenizer=tokenizer, dtype=dtype, device=device
    )
    return bridge.eval()


def wrap(model: torch.nn.Module, *, revision: str | None = None) -> LanguageModel:
    """The adapter for a `TransformerBridge` or `HookedTransformer`.

    Raises:
        ModelError: another kind of model, or one that is not a causal decoder.
    """
    kind = type(model).__name__
    if kind not in ("TransformerBridge", "HookedTransformer"):
        raise ModelError(
            f"Expected a TransformerBridge or HookedTransformer, got a {kind}. Wrap a Hugging Face "
            "model with TransformerBridge.boot_transformers(name, hf_model=model), or use load_model."
        )
    config: Any = model.cfg
    hf_config = getattr(getattr(model, "original_model", None), "config", None)
    if getattr(hf_config, "is_encoder_decoder", False) or (
        getattr(config, "attention_dir", "causal") != "causal"
    ):
        raise ModelError(
            f"{config.model_name!r} is an encoder model; in-context learning is studied in decoder "
            "(causal) language models. Load one, for example load_model('gpt2')."
        )
    info = ModelInfo(
        name=_short_name(str(config.model_name)),
        architecture=str(getattr(config, "architecture", None) or config.model_name),
        library=f"transformer-lens {version('transformer-lens')} {kind}",
        n_layers=int(config.n_layers),
        n_heads=int(config.n_heads),
        n_kv_heads=int(getattr(config, "n_key_value_heads", None) or config.n_heads),
        d_model=int(config.d_model),
        d_head=int(config.d_head),
        d_vocab=int(config.d_vocab),
        n_ctx=int(config.n_ctx),
        revision=revision,
        **_weights(model),
    )
    if kind == "TransformerBridge":
        reroute_attention(model)
        return BridgeModel(model, info, getattr(model, "tokenizer", None))
    return HookedModel(model, info, getattr(model, "tokenizer", None))


def is_current(adapted: LanguageModel) -> bool:
    """False if the model was moved, cast or processed since it was wrapped."""
    known = asdict(adapted.info)
    return all(known[name] == value for name, value in _weights(adapted.wrapped).items())


def _weights(model: Any) -> dict[str, Any]:
    """Facts that calls such as `model.to(...)` change."""
    first = next(model.parameters())
    return {
        "dtype": str(first.dtype).removeprefix("torch."),
        "device": str(first.device),
        "processed_weights": _is_processed(model),
    }


def _short_name(name: str) -> str:
    """A folder's name without the machine's path; hub ids stay whole."""
    return Path(name).name if Path(name).exists() else name


def _is_processed(model: Any) -> bool:
    if type(model).__name__ == "TransformerBridge":
        return bool(getattr(model, "compatibility_mode", False))
    return str(model.cfg.normalization_type).endswith("Pre")


@dataclass
class _TransformerLensModel(LanguageModel):
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

    def has_site(self, name: SiteName) -> bool:
        """True if every block has this hook point."""
        return all(Site(name, layer) in self._points for layer in range(self.info.n_layers))

    @contextmanager
    def installed(self, hooks: Sequence[Hook]) -> Iterator[None]:
        """Hooks in the order given; the caller's own hooks stay."""
        with ExitStack() as stack:
            for site, function in hooks:
                if site not in self._points:
                    raise ModelError(
                        f"{self.info.name!r} has no {site.name!r} in block {site.layer}; its architecture "
                        f"({self.info.architecture}) does not expose it."
                    )
                stack.enter_context(_hooked(self._points[site], function))
            yield

    @contextmanager
    def gradients(self) -> Iterator[None]:
        """Parameters frozen, gradients enabled; both restored afterwards."""
        trainable = [p for p in self.wrapped.parameters() if p.requires_grad]
        for parameter in trainable:
            parameter.requires_grad_(False)
        try:
            with torch.enable_grad():
                yield
        finally:
            for parameter in trainable:
                parameter.requires_grad_(True)

    @contextmanager
    def checkpointed(self) -> Iterator[None]:
        """Blocks recomputed in the backward pass; memory is then flat in depth."""
        wrapped: list[tuple[Any, Any]] = []
        for block in self.wrapped.blocks:
            wrapped.append((block, block.__dict__.get("forward")))
            # Set in the instance's own dictionary: a bridge's setattr would reach through to
            # the Hugging Face module inside.
            block.__dict__["forward"] = _recomputed(block.forward)
        try:
            yield
        finally:
            for block, own in wrapped:
                del block.__dict__["forward"]
                if own is not None:
                    block.__dict__["forward"] = own

    @property
    def _readout(self) -> tuple[Tensor, Tensor | None]:
        """Rows of the unembedding by token, and its bias."""
        return self.wrapped.W_U.T, getattr(self.wrapped, "b_U", None)

    def logits(self, residual: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_vocab"]:
        """Final norm, unembedding, scaling, soft-cap."""
        rows = residual.reshape(1, -1, residual.shape[-1])
        logits: Tensor = self.wrapped.unembed(self.wrapped.ln_final(rows))
        return self._scaled(logits).reshape(*residual.shape[:-1], -1)

    def label_logits(
        self, residual: Float[Tensor, "batch d_model"], labels: Int[Tensor, "batch label"]
    ) -> Float[Tensor, "batch label"]:
        """Columns of `logits`, from the rows of the unembedding that are needed."""
        weight, bias = self._readout
        normed = self.wrapped.ln_final(residual[:, None])
        logits = torch.einsum("bld,bd->bl", weight[labels], normed[:, 0])
        return self._scaled(logits if bias is None else logits + bias[labels])

    def _scaled(self, logits: Tensor) -> Tensor:
        raise NotImplementedError


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return run


@contextmanager
def _hooked(point: Any, function: HookFunction) -> Iterator[None]:
    known = list(point.fwd_hooks)

    def hook_function(activation: Tensor, hook: Any) -> Tensor | None:
        return function(activation)

    point.add_hook(hook_function)
    added = [handle for handle in point.fwd_hooks if handle not in known]
    try:
        yield
    finally:
        for handle in added:
            handle.hook.remove()
            point.fwd_hooks.remove(handle)


@dataclass
class BridgeModel(_TransformerLensModel):
    """`TransformerBridge` (TransformerLens 3.x and 4.x): a wrapped Hugging Face model."""

    @cached_property
    def _accepted(self) -> frozenset[str]:
        names = inspect.signature(self.wrapped.original_model.forward).parameters
        return frozenset({"position_ids", "logits_to_keep", "past_key_values"} & set(names))

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch src"],
        positions: Int[Tensor, "batch pos"],
        *,
        hooks: Sequence[Hook] = (),
        cache: KeyValues | None = None,
        keep_cache: bool = False,
        start: Resume | None = None,
    ) -> ForwardOutput:
        """See `LanguageModel.forward`."""
        final: list[Tensor] = []
        last = Site("resid_post", self.info.n_layers - 1)
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None or keep_cache:
            if "past_key_values" not in self._accepted:
                raise ModelError(f"{self.info.architecture} takes no key/value cache.")
            options = {"past_key_values": _dynamic_cache(cache), "use_cache": True}
        if "logits_to_keep" in self._accepted:
            options["logits_to_keep"] = 1
        if "position_ids" in self._accepted:
            options["position_ids"] = positions
        with self._entered(start), self.installed([*hooks, (last, final.append)]):
            self.wrapped(tokens, return_type=None, attention_mask=mask.long(), **options)
        if not keep_cache:
            return ForwardOutput(final[-1])
        layers = options["past_key_values"].layers
        nothing = layers[-1].keys[:, :, :0]  # of blocks that were not run
        keys, values = (
            tuple(nothing if getattr(la, name) is None else getattr(la, name) for la in layers)
            for name in ("keys", "values")
        )
        return ForwardOutput(final[-1], KeyValues(keys, values))

    @cached_property
    def _blocks_return_tuples(self) -> bool:
        """Whether the wrapped model's loop expects tuples from its blocks."""
        seen: list[bool] = []
        block = self.wrapped.blocks[0].original_component
        handle = block.register_forward_hook(
            lambda module, args, output: seen.append(isinstance(output, tuple))
        )
        try:
            with torch.no_grad():
                self.wrapped(torch.zeros(1, 1, dtype=torch.long, device=self.device))
        finally:
            handle.remove()
        return seen[0]

    @contextmanager
    def _entered(self, start: Resume | None) -> Iterator[None]:
        """Blocks below the start pass their input on; the start gets the given residual."""
        if start is None or start.layer == 0:
            yield
            return
        as_tuple = self._blocks_return_tuples
        skipped = list(self.wrapped.blocks)[: start.layer]

        def passed_on(*args: Any, **kwargs: Any) -> Any:
            return (start.residual,) if as_tuple else start.residual

        own = [block.__dict__.get("forward") for block in skipped]
        for block in skipped:
            block.__dict__["forward"] = passed_on
        try:
            yield
        finally:
            for block, forward in zip(skipped, own, strict=True):
                del block.__dict__["forward"]
                if forward is not None:
                    block.__dict__["forward"] = forward

    def _scaled(self, logits: Tensor) -> Tensor:
        config = self.wrapped.original_model.config
        scale = getattr(config, "logit_scale", None)
        divisor = getattr(config, "logits_scaling", None)
        cap = getattr(config, "final_logit_softcapping", None)
        logits = logits * scale if scale else logits
        logits = logits / divisor if divisor else logits
        return torch.tanh(logits / cap) * cap if cap else logits


def _dynamic_cache(cache: KeyValues | None) -> Any:
    """A bare cache: a model's own sliding-window cache would drop keys."""
    from transformers import DynamicCache

    dynamic = DynamicCache()
    if cache is not None:
        for layer, (key, value) in enumerate(zip(cache.keys, cache.values, strict=True)):
            dynamic.update(key, value, layer)
    return dynamic


@dataclass
class HookedModel(_TransformerLensModel):
    """`HookedTransformer` (TransformerLens 3.x)."""

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        mask: Bool[Tensor, "batch src"],
        positions: Int[Tensor, "batch pos"],
        *,
        hooks: Sequence[Hook] = (),
        cache: KeyValues | None = None,
        keep_cache: bool = False,
        start: Resume | None = None,
    ) -> ForwardOutput:
        """See `LanguageModel.forward`; positions follow from the mask."""
        cached = 0 if cache is None else cache.length
        past = self._past(mask[:, :cached], cache) if cache is not None or keep_cache else None
        # Entered at the embedding, the class appends this mask to the cache's own.
        seen = mask if start is not None else mask[:, cached:]
        final: list[Tensor] = []
        last = Site("resid_post", self.info.n_layers - 1)
        with self.installed([*hooks, (last, final.append)]):
            self.wrapped(
                tokens if start is None else start.residual,
                return_type=None,
                start_at_layer=None if start is None else start.layer,
                stop_at_layer=self.info.n_layers,
                attention_mask=seen.long(),
                past_kv_cache=past,
            )
        if past is None or not keep_cache:
            return ForwardOutput(final[-1])
        keys, values = (
            tuple(getattr(entry, name).transpose(1, 2) for entry in past.entries)
            for name in ("past_keys", "past_values")
        )
        return ForwardOutput(final[-1], KeyValues(keys, values))

    def _past(self, mask: Bool[Tensor, "batch cached"], cache: KeyValues | None) -> Any:
        from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

        past = TransformerLensKeyValueCache.init_cache(self.wrapped.cfg, self.device, len(mask))
        if cache is not None:
            for entry, key, value in zip(past.entries, cache.keys, cache.values, strict=True):
                entry.past_keys, entry.past_values = key.transpose(1, 2), value.transpose(1, 2)
        past.previous_attention_mask = mask.long()
        return past

    def _scaled(self, logits: Tensor) -> Tensor:
        cap = float(getattr(self.wrapped.cfg, "output_logits_soft_cap", 0.0) or 0.0)
        return torch.tanh(logits / cap) * cap if cap > 0 else logits
