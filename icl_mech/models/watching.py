"""Digests of everything that determines a model's outputs (weights, settings, hooks), cheap to repeat.

A digest of every byte is computed once for each tensor, and again when the tensor is another object, has
another storage or version counter, or when a sample of its entries differs. The sample is needed
because changes through `.data` or NumPy do not change the counter: norms and biases are compared byte
for byte, larger tensors by about `SAMPLED` entries spread over them. A change of a few entries of a
large tensor made in one of these ways is detected only by `exact=True`, which reads everything; all
comparisons with records on disk use it.

Samples are gathered on the device of the weights, and copied to the host in one transfer per device. A
digest covers the entries in logical order, whatever the memory layout; they are read in pieces of `PIECE`
bytes.
"""

import hashlib
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import lru_cache
from itertools import chain, cycle
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.weak import WeakTensorKeyDictionary

from icl_mech._typing import Tensor

SMALL = 8192
"""Largest number of bytes of a tensor that is compared whole."""

SAMPLED = 256
"""Approximate number of entries of a larger tensor that are compared."""

PIECE = 1 << 21
"""Bytes copied to host memory at once for a digest."""

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

LIBRARIES = (
    *("torch", "transformers", "transformer_lens", "accelerate", "bitsandbytes", "nnsight"),
    "icl_mech",
)
"""Libraries whose hooks are part of how a model runs."""

PLAIN = (bool, int, float, str)


class Call:
    """A call that holds a model's lock."""

    open = True
    """True until the call returns; a copy of its context may live longer."""


CALL: ContextVar[Call | None] = ContextVar("call", default=None)
"""The outermost call in progress; None outside all calls."""

NO_SETTINGS = frozenset(
    {"training", "name_or_path", "_name_or_path", "max_seq_len_cached", "transformers_version"}
)
"""Paths, states and versions, which do not affect what the model computes."""


class _Known(NamedTuple):
    """A tensor's digest and the marks by which the tensor is recognised."""

    marks: tuple[Any, ...]
    checksum: int
    storage: StorageWeakRef | None
    """Held so that no other storage gets the same address."""


class _Sample(NamedTuple):
    """Sampled entries of the tensors of one device, concatenated."""

    content: bytes
    lengths: list[tuple[int, int]]
    """Index of each tensor and the number of its bytes."""


_READ: Any = WeakTensorKeyDictionary()
"""Known digests by tensor, so that a model and the bridge around it are read only once."""


class Watch:
    """Digests of the weights, settings and hooks of one module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self._known: dict[str, _Known] = {}
        self._seen: tuple[list[str], list[tuple[Any, ...]], list[_Sample]] | None = None
        self._weights: tuple[list[tuple[Any, ...]], str] = ([], "")
        self._modules: list[tuple[str, torch.nn.Module]] = []
        self._children: list[tuple[torch.nn.Module, tuple[Any, ...]]] = []
        self._settings: tuple[list[Any], str] = ([], "")
        self._held: Any = WeakTensorKeyDictionary()  # off-loaded tensors: module and name
        self.passes = 0
        self._looked: tuple[Call | None, int] = (None, 0)

    # Weights

    def weights(self, *, exact: bool = False) -> str:
        """A digest of every parameter and buffer: names, shapes, formats, bytes.

        Within one call samples are taken again only after a pass, whose hooks may change weights.

        Args:
            exact: Read every byte, regardless of version counters.
        """
        named = list(self._tensors())
        tensors = [tensor for _, tensor in named]
        names, places = [name for name, _ in named], [_place(tensor) for tensor in tensors]
        call = CALL.get()
        looked = call, self.passes
        again = call is not None and call.open and looked == self._looked and not exact
        if again and self._seen is not None and (names, places) == self._seen[:2]:
            return self._weights[1]
        seen = names, places, _samples(tensors)
        if exact:
            self._known.clear()
            for tensor in tensors:
                _READ.pop(tensor, None)
        elif seen == self._seen:
            self._looked = looked
            return self._weights[1]
        marks = _marks(*seen[1:])
        changed = [
            (name, tensor, mark)
            for (name, tensor), mark in zip(named, marks, strict=True)
            if (known := self._known.get(name)) is None or known.marks != mark
        ]
        if changed or len(named) != len(self._known):
            # zlib releases the interpreter lock.
            with ThreadPoolExecutor() as pool:
                read = list(
                    pool.map(lambda change: _read(change[1], change[2], self._held), changed)
                )
            for (_, tensor, _), record in zip(changed, read, strict=True):
                _READ[tensor] = record
            before, self._known = self._known, {}
            fresh = {change[0]: record for change, record in zip(changed, read, strict=True)}
            for name, _ in named:
                self._known[name] = fresh.get(name) or before[name]
            checks = [
                (name, tuple(tensor.shape), str(tensor.dtype), self._known[name].checksum)
                for name, tensor in named
            ]
            self._weights = (checks, hashlib.sha256(repr(checks).encode()).hexdigest()[:32])
        self._seen, self._looked = seen, looked
        return self._weights[1]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters, then buffers; each tensor once."""
        parameters, buffers = [], []
        for prefix, module in self._parts():
            tables = module.__dict__
            if table := tables["_parameters"]:
                # For packed layers the state dict also holds the scales of their integers.
                table = module.state_dict() if is_packed(module) else table
                parameters.append((prefix, module, table))
            if tables["_buffers"]:
                buffers.append((prefix, module, tables["_buffers"]))
        for held in (parameters, buffers):
            seen: set[int] = set()
            for prefix, module, table in held:
                for name, tensor in table.items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        if tensor.is_meta:
                            self._held[tensor] = (module, name)
                        yield f"{prefix}.{name}" if prefix else name, tensor

    def _parts(self) -> list[tuple[str, torch.nn.Module]]:
        """All modules by name; listed again after one was added, removed or replaced."""
        if not self._modules or any(
            (*module.__dict__["_modules"].values(),) != children
            for module, children in self._children
        ):
            self._modules = list(self.module.named_modules())
            self._children = [
                (module, tuple(submodules.values()))
                for _, module in self._modules
                if (submodules := module.__dict__["_modules"])
            ]
        return self._modules

    # Settings

    def settings(self) -> str:
        """A digest of the plain numbers, strings and switches of all modules, and of their configs.

        Attention factors, window widths and the like are not weights, yet determine outputs.
        """
        settings: list[Any] = []
        for _, module in self._parts():
            if type(module).__name__ == "HookPoint":
                continue
            plain = [
                (name, value)
                for name, value in vars(module).items()
                if type(value) in PLAIN and name[0] != "_" and name not in NO_SETTINGS
            ]
            settings.append(plain)
        config: Any = getattr(getattr(self.module, "original_model", self.module), "config", None)
        if config is not None and hasattr(config, "to_dict"):
            values = config.to_dict()
            settings.append(sorted((k, repr(v)) for k, v in values.items() if k not in NO_SETTINGS))
        if settings != self._settings[0]:
            self._settings = (settings, hashlib.sha256(repr(settings).encode()).hexdigest()[:32])
        return self._settings[1]

    # Hooks

    def foreign_hooks(self) -> tuple[str, ...]:
        """Modules with hooks that no library installed, and these hooks; hook points are not included.

        A replaced `forward` counts as a hook.
        """
        foreign = [*self._foreign()]
        hooks = (f"{name}: {_name(hook)}" for name, _, hook, forward in foreign if not forward)
        replaced = (
            f"{name}: forward = {_name(hook)}" for name, _, hook, forward in foreign if forward
        )
        return (*hooks, *replaced)

    def hooked(self) -> dict[str, torch.nn.Module]:
        """The modules that `foreign_hooks` reports, by name."""
        return {name: module for name, module, _, _ in self._foreign()}

    def _foreign(self) -> Iterator[tuple[str, torch.nn.Module, Callable[..., Any], bool]]:
        """Name, module, hook, and whether the hook is a replaced `forward`."""
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


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Storage, layout, version counter, shape, dtype and device of a tensor."""
    here = _is_here(tensor)
    return (
        *((tensor.untyped_storage()._cdata, tensor.data_ptr(), tensor.stride()) if here else ()),
        -1 if tensor.is_inference() else tensor._version,  # inference tensors have no counter
        *(tensor.shape, tensor.dtype, tensor.device),
    )


def _is_here(tensor: Tensor) -> bool:
    return not tensor.is_meta and tensor.layout is torch.strided


def _marks(places: Sequence[tuple[Any, ...]], samples: Sequence[_Sample]) -> list[tuple[Any, ...]]:
    """The marks by which each tensor is recognised: its place, and a checksum of its sample if it has one."""
    marks = [*places]
    for content, lengths in samples:
        start = 0
        for number, length in lengths:
            marks[number] += (zlib.crc32(content[start : start + length]),)
            start += length
    return marks


def _samples(tensors: Sequence[Tensor]) -> list[_Sample]:
    """Some entries of each tensor, in one transfer for each device."""
    groups: dict[torch.device, dict[torch.dtype, list[tuple[int, Tensor]]]] = {}
    samples = []
    with torch.no_grad():
        for number, tensor in enumerate(tensors):
            if _is_here(tensor) and tensor.numel():
                part = _sample(tensor)
                kinds = groups.setdefault(tensor.device, {})
                kinds.setdefault(part.dtype, []).append((number, part))
        for kinds in groups.values():
            joined = [
                torch.cat([p for _, p in group]).view(torch.uint8) for group in kinds.values()
            ]
            content = (torch.cat(joined) if len(joined) > 1 else joined[0]).cpu().numpy().tobytes()
            lengths = [(number, part.nbytes) for number, part in chain(*kinds.values())]
            samples.append(_Sample(content, lengths))
    return samples


def _sample(tensor: Tensor) -> Tensor:
    """Sampled entries of a tensor, gathered on its device; a view if they are equally spaced."""
    size, step, places = _plan(tensor.shape, tensor.stride(), tensor.itemsize, tensor.device)
    part = torch.as_strided(tensor, (size,), (step,))
    if tensor.itemsize == 1:
        part = part.view(torch.uint8)  # packed formats support few operations
    return part if places is None else part.index_select(0, places)


@lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int, device: torch.device
) -> tuple[int, int, Tensor | None]:
    """The entries of a tensor to compare, as a strided view and a selection from it.

    Returns:
        The number of entries of the view, their distance in memory, and the indices of the selected
        ones, or None for all.
    """
    # Expanded dimensions (stride 0) are stored once.
    lying = sorted((step, n) for n, step in zip(shape, stride, strict=True) if n > 1 and step)
    count, filled = 1, True
    for step, n in lying:
        filled &= step == count
        count *= n
    inner = lying[0][1] if lying else 1
    apart = 1 if count * itemsize <= SMALL else _spread(count / SAMPLED, inner)
    if filled:
        return -(-count // apart), apart, None
    numbers = torch.arange(0, count, apart)
    places = torch.zeros_like(numbers)
    for step, n in lying:
        places += numbers % n * step
        numbers //= n
    return 1 + sum((n - 1) * step for step, n in lying), 1, places.to(device)


def _spread(apart: float, inner: int) -> int:
    """A sampling distance near `apart` that hits rows of `inner` entries at ever different columns."""
    rows = max(apart, 1) / inner
    whole, rest = divmod(max(rows, 1 / rows), 1)
    golden = whole + (0.382 if rest < 0.5 else 0.618)
    return max(1, round(inner * (golden if rows >= 1 else 1 / golden)))


def checksum(tensor: Tensor) -> int:
    """CRC-32 of a tensor's bytes in the logical order of its entries, on any device and in any layout."""
    crc = 0
    for content in _contents(tensor.detach()):
        crc = zlib.crc32(content, crc)
    return crc


def _contents(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a tensor, without a copy if it is contiguous in host memory.

    Other tensors are copied in pieces through two buffers: one is filled from a GPU while the other is read.
    """
    if not _is_here(tensor) or not tensor.numel():
        return
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        yield tensor.flatten().view(torch.uint8).numpy().data
        return
    size, cuda = min(tensor.nbytes, PIECE), tensor.is_cuda
    buffers = [torch.empty(size, dtype=torch.uint8, pin_memory=cuda) for _ in range(2)]
    begun: tuple[Tensor, torch.cuda.Event | None] | None = None
    for buffer, part in zip(cycle(buffers), _pieces(tensor), strict=False):
        content = buffer[: part.nbytes]
        content.view(part.dtype).view(part.shape).copy_(part, non_blocking=cuda)
        event = torch.cuda.current_stream(part.device).record_event() if cuda else None
        if begun is not None:
            yield _arrived(*begun)
        begun = content, event
    if begun is not None:
        yield _arrived(*begun)


def _arrived(content: Tensor, event: torch.cuda.Event | None) -> memoryview:
    if event is not None:
        event.synchronize()
    return content.numpy().data


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Views of at most `PIECE` bytes, in the order of the entries."""
    tensor = tensor.squeeze()
    if tensor.nbytes <= PIECE:
        yield tensor
        return
    for part in tensor.split(max(1, PIECE * len(tensor) // tensor.nbytes)):
        yield from _pieces(part)


def stored(module: torch.nn.Module, name: str, tensor: Tensor) -> Tensor:
    """A tensor of a module, or the copy that accelerate keeps if it is off-loaded."""
    hook = getattr(module, "_hf_hook", None)
    for inner in getattr(hook, "hooks", (hook,)) if tensor.is_meta else ():
        if (kept := getattr(inner, "weights_map", None)) is not None:
            weight: Tensor = kept[name]
            return weight
    return tensor


def is_packed(module: object) -> bool:
    """True for a layer of bitsandbytes, whose weights are integers in a packed format."""
    return type(module).__module__.startswith("bitsandbytes")


def is_compact(model: torch.nn.Module) -> bool:
    """True if weights are quantised by bitsandbytes, or off-loaded."""
    return any(map(is_packed, model.modules())) or any(
        parameter.is_meta for parameter in model.parameters()
    )


def _read(tensor: Tensor, marks: tuple[Any, ...], held: WeakTensorKeyDictionary) -> _Known:
    known: _Known | None = _READ.get(tensor)
    if known is not None and known.marks == marks:
        return known
    module, name = held.get(tensor, (None, ""))
    digest = checksum(tensor if module is None else stored(module, name, tensor))
    return _Known(
        marks, digest, StorageWeakRef(tensor.untyped_storage()) if _is_here(tensor) else None
    )


def _of_library(hook: Callable[..., Any]) -> bool:
    function = getattr(hook, "func", hook)
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).partition(".")[0] in LIBRARIES


def _name(hook: Callable[..., Any]) -> str:
    function = getattr(hook, "func", hook)
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
