"""`TransformerBridge` as a `LanguageModel`."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from icl_mech._typing import Bool, Int, Tensor
from icl_mech.errors import ModelError
from icl_mech.models.common import TransformerLensModel
from icl_mech.models.interface import ForwardOutput, Hook, KeyValues, Resume, Site
from icl_mech.models.precision import undiminished


@dataclass
class BridgeModel(TransformerLensModel):
    """`TransformerBridge` (TransformerLens 3.x and 4.x): a wrapped Hugging Face model."""

    def __post_init__(self) -> None:
        """Find out what blocks return: it takes a pass, which the hooks of a run must not see."""
        _ = self._blocks_return_tuples

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
        with (
            self._entered(start),
            self.installed([*hooks, (last, final.append)]),
            undiminished(self.info.dtype),
        ):
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
        forward = block.forward

        def watched(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            seen.append(isinstance(output, tuple))
            return output

        with self.undo.kept(), self.replaced([(block, watched)]), torch.no_grad():
            token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
            self.forward(token, token == 0, token)
        return seen[0]

    @contextmanager
    def _entered(self, start: Resume | None) -> Iterator[None]:
        """Blocks below the start pass their input on; the start gets the given residual."""
        if start is None or start.layer == 0:
            yield
            return
        residual = (start.residual,) if self._blocks_return_tuples else start.residual

        def passed_on(*args: Any, **kwargs: Any) -> Any:
            return residual

        with self.replaced([(b, passed_on) for b in list(self.wrapped.blocks)[: start.layer]]):
            yield

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
