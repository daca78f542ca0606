"""`HookedTransformer` as a `LanguageModel`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from icl_mech._typing import Bool, Int, Tensor
from icl_mech.models.common import TransformerLensModel
from icl_mech.models.interface import ForwardOutput, Hook, Resume, Site
from icl_mech.models.key_values import KeyValues


@dataclass(repr=False)
class HookedModel(TransformerLensModel):
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
        stop: int | None = None,
    ) -> ForwardOutput:
        """See `LanguageModel.forward`; positions follow from the mask."""
        cached = 0 if cache is None else cache.length
        past = self._past(mask[:, :cached], cache) if cache is not None or keep_cache else None
        # Entered at the embedding, the class appends this mask to the cache's own.
        seen = mask if start is not None else mask[:, cached:]
        final: list[Tensor] = []
        stop = self.info.n_layers if stop is None else stop
        last = Site("resid_post", stop - 1)
        with self.installed([*hooks, (last, final.append)]):
            self.wrapped(
                tokens if start is None else start.residual,
                return_type=None,
                start_at_layer=None if start is None else start.layer,
                stop_at_layer=stop,
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
