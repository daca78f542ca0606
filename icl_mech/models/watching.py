"""What of a model decides its numbers: weights, settings, hooks; asking again costs next to nothing.

A digest of every byte is taken once for each tensor, and again when the tensor is another one, has
another storage or version counter, or when a sample of its bytes differs. The sample is needed
because changes through `.data` or NumPy leave no trace in the counter: norms and biases are compared
byte for byte, of larger tensors `SAMPLED` bytes spread over them. A change of a few entries of a large
tensor made in one of these ways is seen by `exact=True` alone, which reads everything; whatever is
compared with something on disk asks for that.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.weak import WeakTensorKeyDictionary

from icl_mech._typing import Tensor

SMALL = 8192
"""Bytes of a tensor that is compared whole."""

SAMPLED = 256
"""Bytes of a larger one that are compared."""

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

LIBRARIES = (
    *("torch", "transformers", "transformer_lens", "accelerate", "bitsandbytes", "nnsight"),
    "icl_mech",
)
"""Hooks of these belong to how a model runs."""

PLAIN = (bool, int, float, str)

NO_SETTINGS = frozenset(
    {"training", "name_or_path", "_name_or_path", "max_seq_len_cached", "transformers_version"}
)
"""Places, states and versions: they say nothing of how the model computes."""


class _Known(NamedTuple):
    """A tensor's digest and by what it is recognised."""

    marks: tuple[Any, ...]
    checksum: int
    bytes: NDArray[np.uint8] | None


_READ: Any = WeakTensorKeyDictionary()
"""What is known of tensors, whatever holds them: a model and the bridge around it are read once."""


class Watch:
    """Weights, settings and hooks of one module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._known: dict[str, _Known] = {}
        self._weights: tuple[list[tuple[Any, ...]], str] = ([], "")
        self._modules: list[tuple[str, torch.nn.Module]] = []
        self._children: list[tuple[torch.nn.Module, tuple[Any, ...]]] = []
        self._settings: tuple[list[Any], str] = ([], "")
        self._held: Any = WeakTensorKeyDictionary()  # off-loaded tensors: module and name

    # Weights

    def weights(self, *, exact: bool = False) -> str:
        """A digest of every parameter and buffer: names, shapes, formats, bytes.

        Args:
            exact: Read every byte, whatever the counters say.
        """
        named = list(self._tensors())
        if exact:
            self._known.clear()
            for _, tensor in named:
                _READ.pop(tensor, None)
        marks = [_marks(tensor, self._known.get(name)) for name, tensor in named]
        changed = [
            (name, tensor, mark)
            for (name, tensor), mark in zip(named, marks, strict=True)
            if (known := self._known.get(name)) is None or known.marks != mark
        ]
        if changed or len(named) != len(self._known):
            # zlib works outside of the interpreter's lock.
            with ThreadPoolExecutor() as pool:
                read = list(pool.map(lambda own: _read(own[1], self._held), changed))
            for (_, tensor, _), found in zip(changed, read, strict=True):
                _READ[tensor] = found
            before, self._known = self._known, {}
            fresh = {own[0]: found for own, found in zip(changed, read, strict=True)}
            for name, _ in named:
                self._known[name] = fresh.get(name) or before[name]
            checks = [
                (name, tuple(tensor.shape), str(tensor.dtype), self._known[name].checksum)
                for name, tensor in named
            ]
            self._weights = (checks, hashlib.sha256(repr(checks).encode()).hexdigest()[:32])
        return self._weights[1]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters, then buffers; each tensor once."""
        for table in ("_parameters", "_buffers"):
            seen: set[int] = set()
            for prefix, module in self._parts():
                if not (own := module.__dict__[table]):
                    continue
                if is_packed(module) and table == "_parameters":
                    own = module.state_dict()  # with the scales that make numbers of its integers
                for name, tensor in own.items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        if tensor.is_meta:
                            self._held[tensor] = (module, name)
                        yield f"{prefix}.{name}" if prefix else name, tensor

    def _parts(self) -> list[tuple[str, torch.nn.Module]]:
        """All modules by name; found anew when one was put in, taken out or exchanged."""
        if not self._modules or any(
            len(own := module.__dict__["_modules"]) != len(children)
            or any(one is not other for one, other in zip(own.values(), children, strict=True))
            for module, children in self._children
        ):
            self._modules = list(self.module.named_modules())
            self._children = [
                (module, tuple(own.values()))
                for _, module in self._modules
                if (own := module.__dict__["_modules"])
            ]
        return self._modules

    # Settings

    def settings(self) -> str:
        """A digest of the plain numbers, words and switches of all modules, and of their configs.

        Factors of attention, widths of windows and the like are not weights, yet decide numbers.
        """
        found: list[Any] = []
        for _, module in self._parts():
            if type(module).__name__ == "HookPoint":
                continue
            plain = [
                (name, value)
                for name, value in vars(module).items()
                if type(value) in PLAIN and name[0] != "_" and name not in NO_SETTINGS
            ]
            found.append(plain)
        config: Any = getattr(getattr(self.module, "original_model", self.module), "config", None)
        if config is not None and hasattr(config, "to_dict"):
            values = config.to_dict()
            found.append(sorted((k, repr(v)) for k, v in values.items() if k not in NO_SETTINGS))
        if found != self._settings[0]:
            self._settings = (found, hashlib.sha256(repr(found).encode()).hexdigest()[:32])
        return self._settings[1]

    # Hooks

    def foreign_hooks(self) -> tuple[str, ...]:
        """Where modules have hooks that no library put there, and which; hook points apart.

        A `forward` that was put in the place of a module's own is one, too.
        """
        found = [*self._foreign()]
        hooks = (f"{name}: {_name(own)}" for name, _, own, forward in found if not forward)
        replaced = (f"{name}: forward = {_name(own)}" for name, _, own, forward in found if forward)
        return (*hooks, *replaced)

    def hooked(self) -> dict[str, torch.nn.Module]:
        """The modules that `foreign_hooks` tells of, by name."""
        return {name: module for name, module, _, _ in self._foreign()}

    def _foreign(self) -> Iterator[tuple[str, torch.nn.Module, Callable[..., Any], bool]]:
        """Name, module, hook, and whether it is a `forward` in the place of the module's own."""
        for name, module in self._parts():
            if type(module).__name__ == "HookPoint":
                continue
            named = name or "the model"
            for table in HOOK_TABLES:
                for hook in (module.__dict__.get(table) or {}).values():
                    if not _of_library(hook):
                        yield named, module, hook, False
            forward = module.__dict__.get("forward")
            if forward is not None and not _of_library(forward):
                yield named, module, forward, True


def _marks(tensor: Tensor, known: _Known | None) -> tuple[Any, ...]:
    """By what a tensor is recognised without reading it whole."""
    try:
        version = tensor._version
    except RuntimeError:  # made in inference mode: not counted
        version = -1
    place = (tensor.data_ptr() if not tensor.is_meta else 0, version, tensor.shape, tensor.dtype)
    content = known.bytes if known is not None and known.marks[:4] == place else _bytes(tensor)
    return (*place, tensor.device, _sample(content))


def _bytes(tensor: Tensor) -> NDArray[np.uint8] | None:
    """The tensor's bytes, shared where they lie in this machine's memory in order."""
    if tensor.is_meta or not tensor.numel() or tensor.layout is not torch.strided:
        return None
    own = tensor.detach().cpu().contiguous().flatten()
    found: NDArray[np.uint8] = own.view(torch.uint8).numpy()
    return found


def _sample(content: NDArray[np.uint8] | None) -> int:
    if content is None:
        return 0
    if len(content) <= SMALL:
        return zlib.crc32(content.data)
    # An odd step reaches every byte of the numbers.
    return zlib.crc32(content[:: (len(content) // SAMPLED) | 1].tobytes())


def stored(module: torch.nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of a module, or what accelerate keeps of one that is off-loaded."""
    hook = getattr(module, "_hf_hook", None)
    for own in getattr(hook, "hooks", (hook,)) if tensor.is_meta else ():
        if (kept := getattr(own, "weights_map", None)) is not None:
            found: Tensor = kept[name]
            return found
    return tensor


def is_packed(module: object) -> bool:
    """True for a layer of bitsandbytes, whose weights are integers in a format of their own."""
    return type(module).__module__.partition(".")[0] == "bitsandbytes"


def is_compact(model: torch.nn.Module) -> bool:
    """True if weights are quantised by bitsandbytes, or off-loaded."""
    return any(map(is_packed, model.modules())) or any(own.is_meta for own in model.parameters())


def _read(tensor: Tensor, held: WeakTensorKeyDictionary) -> _Known:
    known: _Known | None = _READ.get(tensor)
    if known is not None and known.marks == _marks(tensor, known):
        return known
    module, name = held.get(tensor, (None, ""))
    content = _bytes(tensor if module is None else stored(module, name, tensor))
    marks = _marks(tensor, None)
    shared = content if tensor.device.type == "cpu" and tensor.is_contiguous() else None
    return _Known(marks, zlib.crc32(content.data) if content is not None else 0, shared)


def _of_library(hook: Callable[..., Any]) -> bool:
    function = getattr(hook, "func", hook)
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0] in LIBRARIES


def _name(hook: Callable[..., Any]) -> str:
    function = getattr(hook, "func", hook)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
