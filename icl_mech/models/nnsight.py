"""A model wrapped by nnsight as a `LanguageModel`: every pass is one nnsight trace.

The trace (`models/tracing.py`) stops after the last block; the unembedding is computed only for rows
that are read. nnsight itself is not imported here; its objects are recognised by `adapt`.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch
from torch.nn.functional import linear

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import ModelError, RunError
from icl_mech.models.huggingface import (
    dynamic_cache,
    frozen,
    key_values,
    plain_weight,
    scaled_logits,
)
from icl_mech.models.interface import (
    ForwardInput,
    ForwardOutput,
    Hook,
    LanguageModel,
    ModelInfo,
    NormFunction,
    Site,
    SiteName,
)
from icl_mech.models.norms import FrozenNorm
from icl_mech.models.stored import of_model
from icl_mech.models.tracing import FAMILIES, Family, Hooks, Pass, traced
from icl_mech.names import version


def is_nnsight(model: object) -> bool:
    """True for nnsight's wrappers; the library itself is not imported."""
    return any(
        base.__name__ == "Envoy" and base.__module__.split(".")[0] == "nnsight"
        for base in type(model).__mro__
    )


def wrap(model: Any, *, revision: str | None = None) -> "NnsightModel":
    """The adapter for nnsight's `LanguageModel` or `NNsight` around a Hugging Face model.

    Raises:
        ModelError: an unsupported architecture or attention implementation, or weights that are not
            loaded.
    """
    info, module = info_of(model, revision=revision), model._module
    if any(parameter.is_meta for parameter in module.parameters()):
        raise ModelError(
            f"nnsight has not loaded the weights of {info.name!r}. Load them with "
            "nnsight.LanguageModel(name, dispatch=True), or leave them on a server with "
            "icl_mech.remote_model(model)."
        )
    attention = module.config._attn_implementation
    if attention not in ("eager", "sdpa"):
        raise ModelError(
            f"The attention implementation of {info.name!r} is {attention!r}, whose masks do not "
            "allow reading patterns; load the model with attn_implementation='eager' or 'sdpa'."
        )
    return NnsightModel(model, info, getattr(model, "tokenizer", None))


def info_of(model: Any, *, revision: str | None = None) -> ModelInfo:
    """Facts about a model inside nnsight's wrapper.

    Raises:
        ModelError: an architecture without an entry in `FAMILIES`.
    """
    module = model._module
    config, architecture = getattr(module, "config", None), type(module).__name__
    # GPT-2's upcast attention does not go through the attention function that is replaced here.
    if (
        architecture not in FAMILIES
        or config is None
        or getattr(config, "reorder_and_upcast_attn", False)
    ):
        raise ModelError(
            f"{architecture} cannot be analysed through nnsight, for which {', '.join(FAMILIES)} "
            "are supported. Use a TransformerBridge, or add its parts to FAMILIES in "
            "icl_mech/models/tracing.py."
        )
    heads, width = config.num_attention_heads, config.hidden_size
    return ModelInfo(
        name=str(getattr(model, "repo_id", None) or config.name_or_path or architecture),
        architecture=architecture,
        library=f"nnsight {version('nnsight')} {type(model).__name__}",
        n_layers=config.num_hidden_layers,
        n_heads=heads,
        n_kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        d_model=width,
        d_head=getattr(config, "head_dim", None) or width // heads,
        d_vocab=module.get_output_embeddings().weight.shape[0],
        n_ctx=config.max_position_embeddings,
        revision=revision or getattr(model, "revision", None),
        weights_format=of_model(module),
        **_weights(module),
    )


def is_current(adapted: LanguageModel) -> bool:
    """False if the model was moved or cast since it was wrapped."""
    info = adapted.info
    return replace(info, **_weights(adapted.module)) == info


def _weights(module: torch.nn.Module) -> dict[str, Any]:
    first = next(module.parameters())
    return {"dtype": str(first.dtype).removeprefix("torch."), "device": str(first.device)}


@dataclass(repr=False)
class NnsightModel(LanguageModel):
    """A Hugging Face model inside nnsight's `LanguageModel` or `NNsight`."""

    _held: list[Hook] = field(default_factory=list, init=False, repr=False)

    @property
    def module(self) -> torch.nn.Module:
        """The Hugging Face model."""
        module: torch.nn.Module = self.wrapped._module
        return module

    @property
    def family(self) -> Family:
        """Names of the modules of its architecture."""
        return FAMILIES[self.info.architecture]

    def own_logits(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Logits of the original model."""
        logits: Tensor = self.module(tokens, use_cache=False).logits
        return logits

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """See `LanguageModel.forward`."""
        past = dynamic_cache(asked.cache) if asked.caches else None
        inputs = {
            "input_ids": asked.tokens,
            "attention_mask": asked.mask.long(),
            "position_ids": asked.positions,
            "past_key_values": past,
            "use_cache": past is not None,
        }
        wanted: Hooks = {}
        for site, function in [*self._held, *asked.hooks]:
            self._check_site(site)
            wanted.setdefault(site, []).append(function)
        body = Pass(self.wrapped, self.family, self.info, wanted, asked.start, asked.stop)
        try:
            traced(self.wrapped, inputs, body)
        except Exception:
            if body.error is not None:  # as it was raised, without nnsight's additions
                raise body.error from None
            raise
        if body.residual is None:
            raise RunError(f"The trace of {self.info.architecture} ended before its last block.")
        return ForwardOutput(
            body.residual, key_values(past) if past is not None and asked.keep_cache else None
        )

    def installed(self, hooks: Sequence[Hook]) -> AbstractContextManager[None]:
        """Context in which every pass has these hooks."""
        return self._holding(hooks)

    @contextmanager
    def _holding(self, hooks: Sequence[Hook]) -> Iterator[None]:
        for site, _ in hooks:
            self._check_site(site)
        held = self._held
        self._held = [*held, *hooks]
        try:
            yield
        finally:
            self._held = held

    def _check_site(self, site: Site) -> None:
        if not self.has_site(site.name) or not 0 <= site.layer < self.info.n_layers:
            raise ModelError(
                f"{self.info.name!r} has no {site.name!r} in block {site.layer} of "
                f"{self.info.n_layers}."
            )

    def has_site(self, name: SiteName) -> bool:
        """True: every site of `SiteName` is available."""
        return True

    @property
    def has_own_hooks(self) -> bool:
        """True if the model was edited with `model.edit`, or has hooks that nnsight did not add."""
        attributes = vars(self.wrapped)  # keys as in nnsight 0.6 and in 0.8, which adds no hooks
        added = {
            handle.id for handle in getattr(attributes.get("_interleaver"), "hook_handles", ())
        }
        return bool(attributes.get("_default_mediators") or attributes.get("_edits")) or any(
            {*module._forward_hooks, *module._forward_pre_hooks, *module._backward_hooks} - added
            for module in self.module.modules()
        )

    def gradients(self) -> AbstractContextManager[None]:
        """Context with parameters frozen and gradients enabled; both are restored afterwards."""
        return frozen(self.module.parameters(), self.undo)

    def checkpointed(self) -> AbstractContextManager[None]:
        """Not supported: a trace is over when the backward pass would rerun blocks."""
        raise ModelError(
            "Blocks cannot be recomputed through nnsight, and without that this gradient pass "
            "does not fit into memory. Give a larger memory=, shorter prompts or a narrower "
            "dtype, or use a TransformerBridge."
        )

    @cached_property
    def _norm(self) -> Any:
        return attrgetter(self.family.norm)(self.module)

    @cached_property
    def _head(self) -> Any:
        module: Any = self.module
        return module.get_output_embeddings()

    def final_norm(
        self, residual: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """The norm before the unembedding."""
        # `forward`, not a call: inside a trace nnsight would count a call as one of the model.
        normed: Tensor = self._norm.forward(residual)
        return normed

    def unembed(
        self, normed: Float[Tensor, "*rows d_model"], *, bias: bool = True
    ) -> Float[Tensor, "*rows d_vocab"]:
        """Logits by unembedding, scaling and soft-cap."""
        logits = linear(normed, self._head.weight, self._head.bias if bias else None)
        return self._scaled(logits)

    def _scaled(self, logits: Tensor) -> Tensor:
        config: Any = self.module.config
        return scaled_logits(config, logits)

    def readout(self, labels: Int[Tensor, "batch label"]) -> tuple[Tensor, Tensor | None]:
        """Rows of the unembedding and its biases."""
        head = self._head
        return head.weight[labels], None if head.bias is None else head.bias[labels]

    @cached_property
    def final_norm_parts(self) -> FrozenNorm:
        """Gain and offset of the final norm."""
        return FrozenNorm.of(self._norm.forward, self._head.weight[0].detach())

    def attention_norm(self, layer: int) -> tuple[FrozenNorm, NormFunction] | None:
        """None: no block of these families has one."""
        return None

    def head_weights(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """`W_O` by head, and the bias of the attention output."""
        block = attrgetter(self.family.blocks)(self.module)[layer]
        out = attrgetter(f"{self.family.attention}.{self.family.out}")(block)
        # GPT-2's Conv1D stores its weight as [in, out], a Linear as [out, in].
        is_linear = isinstance(out, torch.nn.Linear)
        weight = plain_weight(out, self._head.weight).T if is_linear else out.weight
        return weight.detach().unflatten(0, (self.info.n_heads, -1)), out.bias
