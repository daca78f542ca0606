"""`TransformerBridge` as a `LanguageModel`, with checks for stale fused weights and hooks it does not call.

*Fused projections.* Families with one matrix for queries, keys and values (GPT-NeoX, BLOOM, Falcon,
CodeGen, ...) or for the two halves of a gated MLP (Phi 3, GLM) get it split when the bridge is made. Where
the parts are copies, later changes of the fused weights (training, merging, edits) would not reach them.

*Hooks added by the caller.* A bridge computes some parts by itself (attention with rotary positions, layer
norms, fused projections) from the weights of the wrapped modules, which are then never called; and the final
norm and the unembedding are given the rows that are read, not the whole prompt. Hooks there would silently
be skipped, or see other positions.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from icl_mech._typing import Tensor
from icl_mech.errors import ModelError
from icl_mech.models.hooked import TransformerLensModel
from icl_mech.models.huggingface import dynamic_cache, key_values, scaled_logits
from icl_mech.models.interface import ForwardInput, ForwardOutput, Resume, Site
from icl_mech.models.undo import Undo, undiminished
from icl_mech.models.watching import HOOK_TABLES, checksum

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge

_SPLITS = (("split_qkv_matrix", ("q", "k", "v")), ("split_gate_up_matrix", ("gate", "in")))
"""Names of the methods that split a fused matrix, and of the resulting parts."""


class FusedWeights:
    """The split parts of one bridge, and digests of the fused weights they were made of."""

    def __init__(self, bridge: "TransformerBridge") -> None:
        self._components = list(components(bridge))
        self._made_of = [_digest(_tensors(fresh)) for _, _, fresh in self._split()]

    def _split(self) -> Iterator[tuple[Any, list[torch.nn.Module], Sequence[torch.nn.Module]]]:
        """Each component, the parts it computes with, and a fresh split of its fused weights."""
        for component, split, parts in self._components:
            # Splitting creates layers, whose initialisation draws random numbers before they are filled.
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                fresh = split(component.original_component)
            yield component, parts, fresh

    def renew(self) -> None:
        """Bring the parts up to date with the fused weights.

        Raises:
            ModelError: both the parts and the fused weights were changed.
        """
        for number, (component, parts, fresh) in enumerate(self._split()):
            now, before = _digest(_tensors(fresh)), self._made_of[number]
            if now == before:
                continue
            old, new = _tensors(parts), _tensors(fresh)
            if (current := _digest(old)) not in (before, now):
                raise ModelError(
                    f"The fused weights of {component.name!r} and the parts that the bridge split "
                    "them into were both changed, so it is unclear which to use. Change only one "
                    "of them, or load the model again."
                )
            if current != now:
                with torch.no_grad():
                    for target, source in zip(old, new, strict=True):
                        target.copy_(source)
            self._made_of[number] = now


def components(bridge: "TransformerBridge") -> Iterator[tuple[Any, Any, list[torch.nn.Module]]]:
    """Components with fused weights, the methods that split them, and their parts."""
    for block in getattr(bridge, "blocks", ()):
        for component in (getattr(block, "attn", None), getattr(block, "mlp", None)):
            for name, names in _SPLITS:
                split = getattr(component, name, None)
                parts: list[Any] = [
                    getattr(getattr(component, n, None), "original_component", None) for n in names
                ]
                if callable(split) and all(isinstance(p, torch.nn.Module) for p in parts):
                    yield component, split, parts


def _tensors(modules: Sequence[Any]) -> list[Tensor]:
    return [
        tensor
        for module in modules
        for tensor in (module.weight, getattr(module, "bias", None))
        if tensor is not None
    ]


def _digest(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(map(checksum, tensors))


Modules = Mapping[str, torch.nn.Module]


def called(modules: Modules, run: Callable[[], object], undo: Undo) -> set[str]:
    """Names of the modules that are called while a function runs, with their hooks disabled.

    Args:
        modules: The modules by name.
        run: The function that may call them.
        undo: Reverts the temporary changes.
    """
    called_names: set[str] = set()
    before = [
        (module, {name: module.__dict__.get(name) for name in (*HOOK_TABLES, "forward")})
        for module in modules.values()
    ]

    def restore() -> None:
        for module, attributes in before:
            for name, value in attributes.items():
                if value is None:
                    module.__dict__.pop(name, None)
                else:
                    module.__dict__[name] = value

    with undo.by(restore):
        for name, module in modules.items():
            module.__dict__.pop("forward", None)
            for table in HOOK_TABLES:
                # Emptied, not deleted: a module looks its tables up at every call.
                if table in module.__dict__:
                    module.__dict__[table] = type(module.__dict__[table])()

            def heard(*_: object, name: str = name) -> None:
                called_names.add(name)

            module.register_forward_pre_hook(heard)
        run()
    return called_names


def check_heard(modules: Modules, inside: set[str], behind: set[str]) -> None:
    """Reject hooks that a pass would skip, or call with other rows.

    Args:
        modules: Modules with hooks added by the caller.
        inside: Names of the modules that a pass calls.
        behind: Names of the modules that compute logits of selected rows.

    Raises:
        ModelError: names the modules.
    """
    for name in modules:
        if name in behind:
            raise ModelError(
                f"You added a hook to {name!r}, which receives only the rows that are read, not "
                "whole prompts, so it would see other positions than in the Hugging Face model. "
                "Remove it, or change the output of the last block by an intervention."
            )
        if name not in inside:
            raise ModelError(
                f"You added a hook to {name!r}, which the bridge does not call: it computes that "
                "part itself, so the hook would be skipped. Put it on a part of the model that "
                "load_model returned (such as the output of its block), or make it an "
                "intervention."
            )


@dataclass(repr=False)
class BridgeModel(TransformerLensModel):
    """`TransformerBridge` (TransformerLens 3.x and 4.x): a wrapped Hugging Face model."""

    def __post_init__(self) -> None:
        """Determine what blocks return now: this takes a pass, which hooks of a run must not see."""
        _ = self._blocks_return

    def refresh(self) -> None:
        """Drop values derived from changed weights, renew split weights, and reject hooks that would be skipped.

        Raises:
            ModelError: a hook added by the caller that a pass would not run, or fused weights changed
                together with their parts.
        """
        super().refresh()
        self._check_own_hooks()

    def renew(self) -> None:
        """Also split fused weights again."""
        self._fused.renew()
        super().renew()

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
        """False for GPT of 2018, and for hybrids, whose state is more than keys and values."""
        return "past_key_values" in self._accepted and not self.info.is_hybrid

    @cached_property
    def _accepted(self) -> frozenset[str]:
        names = inspect.signature(self.wrapped.original_model.forward).parameters
        return frozenset({"position_ids", "logits_to_keep", "past_key_values"} & set(names))

    def _forward(self, asked: ForwardInput) -> ForwardOutput:
        """See `LanguageModel.forward`."""
        final: list[Tensor] = []
        last = Site("resid_post", asked.stop - 1)
        options: dict[str, Any] = {"use_cache": False}
        if asked.caches:
            if not self.takes_cache:
                raise ModelError(f"{self.info.architecture} takes no key/value cache.")
            options = {"past_key_values": dynamic_cache(asked.cache), "use_cache": True}
        # The wrapped model's logits are discarded: the readout starts from the residual in `final`.
        if "logits_to_keep" in self._accepted:
            options["logits_to_keep"] = 1
        if "position_ids" in self._accepted:
            options["position_ids"] = asked.positions
        with (
            self._only(asked.start, asked.stop),
            self.installed([*asked.hooks, (last, final.append)]),
            undiminished(self.info.dtype),
        ):
            mask = asked.mask.long()
            self.wrapped(asked.tokens, return_type=None, attention_mask=mask, **options)
        if not asked.keep_cache:
            return ForwardOutput(final[-1])
        return ForwardOutput(final[-1], key_values(options["past_key_values"]))

    @cached_property
    def _blocks_return(self) -> int | None:
        """Length of the tuple the wrapped model expects from its blocks; None: the bare residual."""
        seen: list[int | None] = []
        block = self.wrapped.blocks[0].original_component
        forward = block.forward

        def watched(*args: object, **kwargs: object) -> object:
            output = forward(*args, **kwargs)
            seen.append(len(output) if isinstance(output, tuple) else None)
            return output

        with self.undo.kept(), self.replaced([(block, watched)]), torch.no_grad():
            token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
            self.forward(token, token == 0, token)
        return seen[0]

    @contextmanager
    def _only(self, start: Resume | None, stop: int) -> Iterator[None]:
        """Context in which blocks outside `start.layer <= block < stop` pass the given residual on."""
        blocks = list(self.wrapped.blocks)
        skipped = [*blocks[: start.layer if start else 0], *blocks[stop:]]
        if not skipped:
            yield
            return
        length = self._blocks_return

        def passed_on(*args: object, **kwargs: object) -> object:
            # Above the last block that runs, the value passed on does not matter.
            given = args[0] if args else kwargs["hidden_states"]
            residual = start.residual if start and start.layer else given
            return residual if length is None else (residual, *[None] * (length - 1))

        with self.replaced([(block, passed_on) for block in skipped]):
            yield

    def _scaled(self, logits: Tensor) -> Tensor:
        return scaled_logits(self.wrapped.original_model.config.get_text_config(), logits)
