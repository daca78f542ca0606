"""What of a model decides its numbers: weights, settings, hooks; asking again costs next to nothing.

A digest of every byte is taken once for each tensor, and again when the tensor is another one, has
another storage or version counter, or when a sample of its entries differs. The sample is needed
because changes through `.data` or NumPy leave no trace in the counter: norms and biases are compared
byte for byte, of larger tensors about `SAMPLED` entries spread over them. A change of a few entries
of a large tensor made in one of these ways is seen by `exact=True` alone, which reads everything;
whatever is compared with something on disk asks for that.

Samples are gathered where the weights are, and those of one device come to this machine's memory at
once. A digest is of the entries in their order, however they lie; they pass through `PIECE` bytes.
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
"""Bytes of a tensor that is compared whole."""

SAMPLED = 256
"""Entries of a larger one that are compared, about."""

PIECE = 1 << 21
"""Bytes that are brought to this machine's memory at once for a digest."""

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

LIBRARIES = (
    *("torch", "transformers", "transformer_lens", "accelerate", "bitsandbytes", "nnsight"),
    "icl_mech",
)
"""Hooks of these belong to how a model runs."""

PLAIN = (bool, int, float, str)


class Call:
    """A call that holds a model's lock."""

    open = True
    """Until it returns; a copy of its context may live longer."""


CALL: ContextVar[Call | None] = ContextVar("call", default=None)
"""The outermost call under way; None outside of all."""

NO_SETTINGS = frozenset(
    {"training", "name_or_path", "_name_or_path", "max_seq_len_cached", "transformers_version"}
)
"""Places, states and versions: they say nothing of how the model computes."""


class _Known(NamedTuple):
    """A tensor's digest and by what it is recognised."""

    marks: tuple[Any, ...]
    checksum: int
    storage: StorageWeakRef | None
    """While it is held, no other storage gets its number."""


class _Sample(NamedTuple):
    """Entries of tensors of one device, one after the other."""

    content: bytes
    lengths: list[tuple[int, int]]
    """Which tensors these are, and the bytes of each."""


_READ: Any = WeakTensorKeyDictionary()
"""What is known of tensors, whatever holds them: a model and the bridge around it are read once."""


class Watch:
    """Weights, settings and hooks of one module."""

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
            exact: Read every byte, whatever the counters say.
        """
        named = list(self._tensors())
        tensors = [tensor for _, tensor in named]
        names, places = [name for name, _ in named], [_place(own) for own in tensors]
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
            # zlib works outside of the interpreter's lock.
            with ThreadPoolExecutor() as pool:
                read = list(pool.map(lambda own: _read(own[1], own[2], self._held), changed))
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
        self._seen, self._looked = seen, looked
        return self._weights[1]

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters, then buffers; each tensor once."""
        parameters, buffers = [], []
        for prefix, module in self._parts():
            tables = module.__dict__
            if own := tables["_parameters"]:
                # Of packed ones with the scales that make numbers of their integers.
                own = module.state_dict() if is_packed(module) else own
                parameters.append((prefix, module, own))
            if tables["_buffers"]:
                buffers.append((prefix, module, tables["_buffers"]))
        for held in (parameters, buffers):
            seen: set[int] = set()
            for prefix, module, own in held:
                for name, tensor in own.items():
                    if tensor is not None and id(tensor) not in seen:
                        seen.add(id(tensor))
                        if tensor.is_meta:
                            self._held[tensor] = (module, name)
                        yield f"{prefix}.{name}" if prefix else name, tensor

    def _parts(self) -> list[tuple[str, torch.nn.Module]]:
        """All modules by name; found anew when one was put in, taken out or exchanged."""
        if not self._modules or any(
            (*module.__dict__["_modules"].values(),) != children
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


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, how, and how often it was changed as far as is counted."""
    here = _is_here(tensor)
    return (
        *((tensor.untyped_storage()._cdata, tensor.data_ptr(), tensor.stride()) if here else ()),
        -1 if tensor.is_inference() else tensor._version,  # not counted there
        *(tensor.shape, tensor.dtype, tensor.device),
    )


def _is_here(tensor: Tensor) -> bool:
    return not tensor.is_meta and tensor.layout is torch.strided


def _marks(places: Sequence[tuple[Any, ...]], samples: Sequence[_Sample]) -> list[tuple[Any, ...]]:
    """By what each tensor is recognised: its place, and a checksum of its sample if it has one."""
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
            joined = [torch.cat([p for _, p in own]).view(torch.uint8) for own in kinds.values()]
            content = (torch.cat(joined) if len(joined) > 1 else joined[0]).cpu().numpy().tobytes()
            lengths = [(number, part.nbytes) for number, part in chain(*kinds.values())]
            samples.append(_Sample(content, lengths))
    return samples


def _sample(tensor: Tensor) -> Tensor:
    """Entries of a tensor in a row, gathered where it is: a view if they lie at equal distances."""
    size, step, places = _plan(tensor.shape, tensor.stride(), tensor.itemsize, tensor.device)
    part = torch.as_strided(tensor, (size,), (step,))
    if tensor.itemsize == 1:
        part = part.view(torch.uint8)  # packed formats have few operations
    return part if places is None else part.index_select(0, places)


@lru_cache(maxsize=1024)
def _plan(
    shape: tuple[int, ...], stride: tuple[int, ...], itemsize: int, device: torch.device
) -> tuple[int, int, Tensor | None]:
    """Which entries are compared: number and distance in memory of those that lie in reach.

    Returns:
        The number, the distance, and which of these entries, if not all of them.
    """
    # What is expanded lies there once.
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
    """The distance near `apart` at which rows of `inner` entries are met at ever other columns."""
    rows = max(apart, 1) / inner
    whole, rest = divmod(max(rows, 1 / rows), 1)
    golden = whole + (0.382 if rest < 0.5 else 0.618)
    return max(1, round(inner * (golden if rows >= 1 else 1 / golden)))


def checksum(tensor: Tensor) -> int:
    """CRC-32 of a tensor's bytes in the order of its entries, wherever and however they lie."""
    found = 0
    for content in _contents(tensor.detach()):
        found = zlib.crc32(content, found)
    return found


def _contents(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes, shared where they lie in this machine's memory in order.

    Others come in pieces through two buffers: from a GPU one is filled while the other is read.
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
    """A tensor of a module, or what accelerate keeps of one that is off-loaded."""
    hook = getattr(module, "_hf_hook", None)
    for own in getattr(hook, "hooks", (hook,)) if tensor.is_meta else ():
        if (kept := getattr(own, "weights_map", None)) is not None:
            found: Tensor = kept[name]
            return found
    return tensor


def is_packed(module: object) -> bool:
    """True for a layer of bitsandbytes, whose weights are integers in a format of their own."""
    return type(module).__module__.startswith("bitsandbytes")


def is_compact(model: torch.nn.Module) -> bool:
    """True if weights are quantised by bitsandbytes, or off-loaded."""
    return any(map(is_packed, model.modules())) or any(own.is_meta for own in model.parameters())


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
