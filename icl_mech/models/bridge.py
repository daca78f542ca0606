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
from icl_mech.models.fused import FusedWeights
from icl_mech.models.huggingface import dynamic_cache, key_values, scaled_logits
from icl_mech.models.interface import ForwardOutput, Hook, Resume, Site
from icl_mech.models.key_values import KeyValues
from icl_mech.models.own_hooks import called, check_heard
from icl_mech.models.precision import undiminished


@dataclass(repr=False)
class BridgeModel(TransformerLensModel):
    """`TransformerBridge` (TransformerLens 3.x and 4.x): a wrapped Hugging Face model."""

    def __post_init__(self) -> None:
        """Find out what blocks return: it takes a pass, which the hooks of a run must not see."""
        _ = self._blocks_return_tuples

    def refresh(self) -> None:
        """Forget what was made of changed weights, renew what was split; refuse hooks left out.

        Raises:
            ModelError: a hook of the caller's where a pass would not run it, or weights of which
                two versions were changed.
        """
        if self.fingerprint() != self.__dict__.get("_made_of"):
            self._fused.renew()
        super().refresh()
        self._check_own_hooks()

    @cached_property
    def _fused(self) -> FusedWeights:
        return FusedWeights(self.wrapped)

    def _check_own_hooks(self) -> None:
        hooked = self.watch.hooked()
        known = self.__dict__.setdefault("_heard", {})
        if not hooked.keys() <= known.keys() or any(
            known[n][0] is not m for n, m in hooked.items()
        ):
            token = torch.zeros(1, 1, dtype=torch.long, device=self.device)

            def behind() -> None:
                with torch.no_grad():
                    self.unembed(self.final_norm(self._like[None]))

            def inside() -> None:
                with torch.no_grad():
                    self.forward(token, token == 0, token)

            after, during = (called(hooked, run, self.undo) for run in (behind, inside))
            known.clear()
            known |= {n: (m, n in during, n in after) for n, m in hooked.items()}
        check_heard(
            hooked,
            {name for name, (_, during, _) in known.items() if during},
            {name for name, (_, _, after) in known.items() if after},
        )

    @property
    def takes_cache(self) -> bool:
        """False for GPT of 2018."""
        return "past_key_values" in self._accepted

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
        stop: int | None = None,
    ) -> ForwardOutput:
        """See `LanguageModel.forward`."""
        final: list[Tensor] = []
        stop = self.info.n_layers if stop is None else stop
        last = Site("resid_post", stop - 1)
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None or keep_cache:
            if not self.takes_cache:
                raise ModelError(f"{self.info.architecture} takes no key/value cache.")
            options = {"past_key_values": dynamic_cache(cache), "use_cache": True}
        if "logits_to_keep" in self._accepted:
            options["logits_to_keep"] = 1
        if "position_ids" in self._accepted:
            options["position_ids"] = positions
        with (
            self._only(start, stop),
            self.installed([*hooks, (last, final.append)]),
            undiminished(self.info.dtype),
        ):
            self.wrapped(tokens, return_type=None, attention_mask=mask.long(), **options)
        if not keep_cache:
            return ForwardOutput(final[-1])
        return ForwardOutput(final[-1], key_values(options["past_key_values"]))

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
    def _only(self, start: Resume | None, stop: int) -> Iterator[None]:
        """Blocks outside of `start.layer <= block < stop` hand the given residual on."""
        blocks = list(self.wrapped.blocks)
        skipped = [*blocks[: start.layer if start else 0], *blocks[stop:]]
        if not skipped:
            yield
            return
        as_tuple = self._blocks_return_tuples

        def passed_on(*args: Any, **kwargs: Any) -> Any:
            # Above the last block that runs it does not matter what is handed on.
            given = args[0] if args else kwargs["hidden_states"]
            residual = start.residual if start and start.layer else given
            return (residual,) if as_tuple else residual

        with self.replaced([(block, passed_on) for block in skipped]):
            yield

    def _scaled(self, logits: Tensor) -> Tensor:
        return scaled_logits(self.wrapped.original_model.config.get_text_config(), logits)
