"""Fixes for families that TransformerLens wraps incorrectly.

* Falcon's new decoder architecture: the fused projection holds, for each group of heads, its
  queries, one key and one value; TransformerLens assumes that all queries come first. With one
  norm (Falcon 2) it looks for a norm of another name.
* GPT of 2018: blocks return lists, so that the hook of their output does not fire, and a padding
  mask is assumed to hide the future too.
* Models that also take images: TransformerLens would look for their image processor on the hub,
  and need torchvision for it. Texts need neither.
* GPT-J, GPT-Neo, OPT, XGLM and others: `TransformerBridge` lets the wrapped Hugging Face module compute
  attention and fires `hook_attn_scores` and `hook_pattern` afterwards, both with the pattern: edits are
  dropped and no gradient passes. `reroute_attention` makes both fire inside the computation:

      scores  = hook_attn_scores(q k^T / scale + mask)     before softmax, additive mask
      pattern = hook_pattern(softmax(scores))              after softmax (and dropout)
      z       = pattern v

  The arithmetic is that of the wrapped modules, so logits do not change (the softmax is always
  computed in float32, which XGLM itself does in float16 only; for float64 models see
  `icl_mech.models.undo`). There is no cost beyond eager attention.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from transformer_lens.model_bridge.generalized_components import AttentionBridge
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask
from transformers.models.opt.modeling_opt import OPTAttention

from icl_mech._typing import Float, Tensor
from icl_mech.errors import ModelError


@contextmanager
def mended_adapters(hf_model: "PreTrainedModel") -> Iterator[None]:
    """Context in which TransformerLens wraps these families correctly, for making a bridge."""
    hf_config = hf_model.config
    with ExitStack() as stack:
        if not hf_config.architectures:  # made from a config; TransformerLens needs the name
            names = [type(hf_model).__name__]
            stack.enter_context(patch.object(hf_config, "architectures", names))
        if getattr(hf_config, "new_decoder_architecture", False):
            falcon = "transformer_lens.model_bridge.supported_architectures.falcon"
            adapter = import_module(falcon).FalconArchitectureAdapter
            stack.enter_context(patch.object(adapter, "_split_falcon_qkv", _split_by_group))
            stack.enter_context(patch.object(adapter, "__init__", _named_norm(adapter.__init__)))
            # TransformerLens reads it first, and would then ignore num_kv_heads.
            stack.enter_context(patch.object(hf_config, "multi_query", False))
        if hf_config.get_text_config() is not hf_config:
            processor = "transformers.AutoProcessor.from_pretrained"
            stack.enter_context(patch(processor, lambda *_, **__: None))
        yield


def _named_norm(constructor: Callable[..., None]) -> Callable[..., None]:
    """A constructor that also handles the single norm of Falcon 2."""

    def init(self: "ArchitectureAdapter", cfg: object) -> None:
        constructor(self, cfg)
        if getattr(cfg, "num_ln_in_parallel_attn", None) == 1:
            mapping: Any = self.component_mapping
            mapping["blocks"].submodules["ln1"].name = "input_layernorm"

    return init


def _split_by_group(_: object, attention: "FalconAttention") -> tuple[nn.Linear, ...]:
    """Queries, keys and values of a `FalconAttention`."""
    fused, width = attention.query_key_value, attention.head_dim
    groups: Any = attention.num_kv_heads
    parts: list[nn.Linear] = []
    for rows in (slice(None, -2), slice(-2, -1), slice(-1, None)):

        def taken(values: Tensor, rows: slice = rows) -> Tensor:
            by_group = values.detach().reshape(groups, -1, width, *values.shape[1:])
            return by_group[:, rows].reshape(-1, *values.shape[1:]).clone()

        weight = taken(fused.weight)
        linear = nn.Linear(
            weight.shape[1], weight.shape[0], bias=fused.bias is not None, device="meta"
        )
        linear.weight = nn.Parameter(weight)
        if fused.bias is not None:
            linear.bias = nn.Parameter(taken(fused.bias))
        parts.append(linear)
    return tuple(parts)


def mend_blocks(bridge: "TransformerBridge") -> None:
    """Make the blocks of a bridge return what its hooks expect; idempotent.

    Raises:
        ModelError: a bridge around Falcon's new decoder that `load_model` did not make.
    """
    if getattr(bridge.original_model.config, "new_decoder_architecture", False):
        attention = bridge.blocks[0].attn
        queries = _split_by_group(None, attention.original_component)[0].weight
        if not torch.equal(attention.q.weight, queries):
            raise ModelError(
                "TransformerLens splits the fused projection of Falcon's new decoder incorrectly, "
                "so this bridge gives wrong numbers. Load the model with load_model(name), or "
                "with load_model(hf_model, tokenizer=tokenizer)."
            )
    if type(bridge.original_model).__name__ == "OpenAIGPTLMHeadModel":
        for block in bridge.blocks:
            block.original_component.forward = partial(_gpt_block, block.original_component)


def _gpt_block(
    block: "Block",
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Any, ...]:
    """`Block.forward` of GPT with a causal mask, as a tuple."""
    if attention_mask is not None:
        length, least = hidden_states.shape[1], torch.finfo(hidden_states.dtype).min
        future = hidden_states.new_full((length, length), least).triu(1)
        attention_mask = torch.minimum(attention_mask, future)
    return tuple(type(block).forward(block, hidden_states, attention_mask, output_attentions))


if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
    from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
    from transformers import PreTrainedConfig, PreTrainedModel
    from transformers.models.falcon.modeling_falcon import FalconAttention
    from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention
    from transformers.models.gptj.modeling_gptj import GPTJAttention
    from transformers.models.openai.modeling_openai import Block

HOOKED_ATTENTION = "icl_mech_hooked"
"""Name of the hooked attention function in `config._attn_implementation`."""

HookPoint = Callable[[Tensor], Tensor]
Attended = tuple[Tensor, Float[Tensor, "batch head dest src"]]


class _Hooks(NamedTuple):
    """The two HookPoints of the attention component around a wrapped module."""

    scores: HookPoint
    pattern: HookPoint


class ReroutedAttention(AttentionBridge):
    """An attention component whose wrapped module itself fires the hooks of scores and pattern."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[object, ...]:
        """Output of the wrapped module, through `hook_in` and `hook_out` only."""
        if "hidden_states" in kwargs:
            kwargs["hidden_states"] = self.hook_in(kwargs["hidden_states"])
        else:
            args = (self.hook_in(args[0]), *args[1:])
        wrapped: Any = self.original_component
        try:
            output, *rest = wrapped(*args, **kwargs)
        finally:
            # The block component stores it at every forward; it would keep the graph alive.
            self._captured_pre_ln_residual = None
        return (self.hook_out(output), *rest)


def reroute_attention(bridge: "TransformerBridge") -> bool:
    """Make `hook_attn_scores` and `hook_pattern` fire inside the attention computation.

    Args:
        bridge: A `TransformerBridge`; changed in place. Calling again does nothing.

    Returns:
        True if the family needs it (it is then done), False if its hooks work already.

    Raises:
        ModelError: The family needs it, but its attention module is not supported.
    """
    components = [part for part in _attention_components(bridge) if _fires_afterwards(part)]
    pending = [part for part in components if not isinstance(part, ReroutedAttention)]
    for component in pending:  # all are checked before any is changed
        _check_supported(bridge, type(component.original_component).__name__)
    config: Any = bridge.original_model.config
    for component in pending:
        module: Any = component.original_component
        # In `__dict__`: set as an attribute, the HookPoints would be registered as submodules twice.
        module.__dict__["_hooks"] = _Hooks(component.hook_attn_scores, component.hook_pattern)
        _ROUTES[type(module).__name__](module, config)
        component.__class__ = ReroutedAttention
    return bool(components)


def _attention_components(bridge: "TransformerBridge") -> list[AttentionBridge]:
    components = (getattr(block, "attn", None) for block in getattr(bridge, "blocks", ()))
    return [component for component in components if isinstance(component, AttentionBridge)]


def _fires_afterwards(component: AttentionBridge) -> bool:
    # Components that compute attention themselves, with the hooks inside, override `forward`.
    inherited = type(component).forward is AttentionBridge.forward
    return inherited or isinstance(component, ReroutedAttention)


def _check_supported(bridge: "TransformerBridge", module_name: str) -> None:
    if module_name not in _ROUTES:
        architecture = type(bridge.original_model).__name__
        raise ModelError(
            f"{architecture} cannot be analysed: TransformerLens lets its {module_name} compute "
            "attention and fires hook_attn_scores and hook_pattern afterwards, so edits of them "
            "would be dropped and their gradients would be missing. This can be corrected for "
            f"{', '.join(_ROUTES)} only; use a model of another family."
        )


def _hooked_softmax(
    module: nn.Module,
    scores: Float[Tensor, "batch head dest src"],
    value: Float[Tensor, "batch head src d_head"],
    dropout: float,
) -> Attended:
    """The pair `(z, pattern)` of masked scores, with both hooks of `module` applied."""
    # A module that was not re-routed may still share the config that names this function.
    hooks = module.__dict__.get("_hooks")
    if hooks is not None:
        scores = hooks.scores(scores)
    pattern = functional.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    pattern = functional.dropout(pattern, p=dropout, training=module.training)
    if hooks is not None:
        pattern = hooks.pattern(pattern).to(value.dtype)
    return pattern @ value, pattern


def _hooked_attention(
    module: nn.Module,
    query: Float[Tensor, "batch head dest d_head"],
    key: Float[Tensor, "batch kv_head src d_head"],
    value: Float[Tensor, "batch kv_head src d_value"],
    attention_mask: Float[Tensor, "#batch 1 dest src"] | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: object,
) -> Attended:
    """Eager attention with hooks, as an entry of transformers' `AttentionInterface`.

    Sliding windows and chunks are part of the mask.
    """
    if s_aux is not None:
        raise ModelError(
            f"{type(module).__name__} has attention sinks, which re-routing does not support."
        )
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
    scores = (
        query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    )
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if attention_mask is not None:
        scores = scores + attention_mask
    z, pattern = _hooked_softmax(module, scores, value, dropout)
    return z.transpose(1, 2).contiguous(), pattern


def _gptj_attn(
    self: "GPTJAttention",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
) -> Attended:
    """`GPTJAttention._attn` with hooks; scores in float32, as in the original."""
    scores = query.float() @ key.float().transpose(-1, -2) / self.scale_attn
    if attention_mask is not None:
        scores = scores + attention_mask
    return _hooked_softmax(self, scores, value, self.attn_dropout.p)


def _gpt_neo_attn(
    self: "GPTNeoSelfAttention",
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
) -> Attended:
    """`GPTNeoSelfAttention._attn` with hooks: unscaled, local layers masked by `self.bias`."""
    scores = query.float() @ key.float().transpose(-1, -2)
    dest, src = scores.shape[-2:]
    visible = self.bias[:, :, src - dest : src, :src]
    scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
    if attention_mask is not None:
        scores = scores + attention_mask
    return _hooked_softmax(self, scores, value, self.attn_dropout.p)


def _route_gptj(module: nn.Module, _: object) -> None:
    vars(module)["_attn"] = MethodType(_gptj_attn, module)


def _route_gpt_neo(module: nn.Module, _: object) -> None:
    vars(module)["_attn"] = MethodType(_gpt_neo_attn, module)


def _route_interface(module: Any, config: "PreTrainedConfig") -> None:
    """Re-route modules that look up their attention function in transformers' interface."""
    module.config._attn_implementation = config._attn_implementation = HOOKED_ATTENTION


def _route_xglm(module: Any, config: "PreTrainedConfig") -> None:
    # XGLM computes inline what OPT's module does through the interface, with the same attributes.
    module.config = config
    module.forward = MethodType(OPTAttention.forward, module)
    _route_interface(module, config)


_ROUTES: "dict[str, Callable[[nn.Module, PreTrainedConfig], None]]" = {
    "GPTJAttention": _route_gptj,
    "JambaAttention": _route_interface,
    "OlmoHybridAttention": _route_interface,
    "GPTNeoSelfAttention": _route_gpt_neo,
    "OPTAttention": _route_interface,
    "XGLMAttention": _route_xglm,
    "AfmoeAttention": _route_interface,
    "Gemma4TextAttention": _route_interface,
    "LagunaAttention": _route_interface,
    "Llama4TextAttention": _route_interface,
    "NanoChatAttention": _route_interface,
}
"""Wrapped attention classes, by exact name: subclasses such as flash attention differ."""

AttentionInterface.register(HOOKED_ATTENTION, _hooked_attention)
AttentionMaskInterface.register(HOOKED_ATTENTION, eager_mask)
