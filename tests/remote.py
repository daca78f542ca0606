"""A device that is not there: its tensors lie in this machine's memory, and what would wait for a GPU is counted.

`with Remote() as remote` makes the devices `remote:0`, `remote:1` and so on; backward passes are for the first
alone. Tensors on one compute as those of a CPU do. Counted are copies to the host (`to_host`) and from it
(`from_host`, or `uploads` if nothing waits for them), and other steps at which a GPU would have to finish all
that was asked of it before (`waits`): a number, a truth value, places that are not zero. Tensors of several
devices in one step are refused, as a GPU refuses them; so are copies to the host that do not wait, as the
host would read them before they are there.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "remote"
WAITING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten._unique2.default,
    torch.ops.aten.unique_dim.default,
    torch.ops.aten.bincount.default,
}
"""Steps whose result, or its shape, the host must know."""

INDEXING = {
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put.default,
    torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default,
}
"""They take indices of the host too, and look for the places where booleans are true."""


class _Here(torch.Tensor):
    """A tensor of the device."""

    raw: torch.Tensor

    @staticmethod
    def __new__(cls, raw: torch.Tensor, device: torch.device) -> "_Here":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=device,
            requires_grad=False,
        )
        made.raw = raw
        return made

    def __repr__(self, **_: Any) -> str:
        return f"remote {self.raw!r}"

    def data_ptr(self) -> int:
        return self.raw.data_ptr()

    def tolist(self) -> Any:
        if _CURRENT:
            _CURRENT[-1].count("waits")
        return self.raw.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _Made(TorchFunctionMode):
    """`torch.tensor` does not ask modes where its numbers are to lie: they are moved there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and _is_remote(kwargs.get("device")):
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            whole, place, *value = args
            places = place if isinstance(place, tuple) else (place,)
            place = tuple(
                torch.tensor(own, dtype=None if own else torch.long)
                if isinstance(own, list)
                else own
                for own in places
            )
            return func(whole, place, *value, **kwargs)
        return func(*args, **kwargs)


class Remote(TorchDispatchMode):
    """The device, and what was counted on it."""

    def __init__(self) -> None:
        _registered()
        super().__init__()
        self.to_host = self.waits = self.from_host = self.uploads = self.launches = 0
        self.places: Counter[str] = Counter()

    def __enter__(self) -> "Remote":
        """Also where tensors are made of numbers."""
        self._made = _Made()
        self._made.__enter__()
        super().__enter__()
        _CURRENT.append(self)
        return self

    def __exit__(self, *error: Any) -> None:
        """Leave both."""
        _CURRENT.remove(self)
        super().__exit__(*error)
        self._made.__exit__(*error)

    def clear(self) -> None:
        """Count anew."""
        self.to_host = self.waits = self.from_host = self.uploads = self.launches = 0
        self.places.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})

    def count(self, kind: str) -> None:
        """Something that a GPU would be waited for."""
        setattr(self, kind, getattr(self, kind) + 1)
        if kind not in ("to_host", "waits", "from_host"):
            return
        frames = [f for f in traceback.extract_stack() if "/icl_mech/" in f.filename]
        where = [f"{f.filename.split('/icl_mech/')[-1]}:{f.lineno}" for f in frames[-7:]]
        self.places[f"{kind} {' > '.join(where)}"] += 1


_REGISTERED: list[Any] = []
_CURRENT: list[Remote] = []
"""The device that counts; threads have no modes of their own."""


def _registered() -> None:
    """Make the device known to torch, once for the process."""
    if not _REGISTERED:
        backend_registration._setup_privateuseone_for_python_backend(NAME)
        library = torch.library.Library("aten", "IMPL")
        for name in ("empty.memory_format", "empty_strided"):
            library.impl(name, _empty(getattr(torch.ops.aten, name.split(".")[0])), "PrivateUse1")
        library.impl("_copy_from", _copy_from, "PrivateUse1")
        _REGISTERED.append(library)


def _copy_from(source: torch.Tensor, target: Any, non_blocking: bool = False) -> torch.Tensor:
    target.raw.copy_(source.raw if isinstance(source, _Here) else source)
    return target


def _empty(made: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def empty(*args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        return _Here(made(*args, device="cpu", **kwargs), torch.device(device))

    return empty


def _is_remote(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _computed(func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    remote = _CURRENT[-1] if _CURRENT else None
    leaves, spec = tree_flatten((args, kwargs))
    here = {id(own.raw): own for own in leaves if isinstance(own, _Here)}
    asked = kwargs.get("device")
    if not here and not _is_remote(asked):
        return func(*args, **kwargs)
    copied = func is torch.ops.aten._to_copy.default
    moved = copied or func is torch.ops.aten.copy_.default
    if moved and (not _is_remote(asked) if copied else not isinstance(args[0], _Here)):
        _refuse_unfinished(func, args, kwargs)
    if func is torch.ops.aten.copy_.default and not isinstance(args[0], _Here):
        _count(remote, "to_host")
        return args[0].copy_(args[1].raw)
    if func in INDEXING:
        if any(
            isinstance(own, _Here) and own.dtype == torch.bool for own in args[1] if own is not None
        ):
            _count(remote, "waits")
    elif not moved:
        _refuse_mixed(func, leaves)
    if func in WAITING:
        _count(remote, "waits")
    stays = not here or asked is None or _is_remote(asked)
    if copied and not here:
        waits = args[0].numel() and not kwargs.get("non_blocking")
        _count(remote, "from_host" if waits else "uploads")
    elif copied:
        _count(remote, "launches" if stays else "to_host")
    elif remote:
        remote.launches += 1
    given = next(iter(here.values()), None)
    device = (
        torch.device(asked) if _is_remote(asked) else given.device if given is not None else None
    )
    plain = [own.raw if isinstance(own, _Here) else own for own in leaves]
    args, kwargs = tree_unflatten(plain, spec)
    if _is_remote(asked):
        kwargs = {**kwargs, "device": torch.device("cpu")}
    found = func(*args, **kwargs)
    if not stays:
        return found

    def wrapped(own: Any) -> Any:
        if not isinstance(own, torch.Tensor):
            return own
        return here[id(own)] if id(own) in here else _Here(own, device)

    return tree_map(wrapped, found)


def _count(remote: Remote | None, kind: str) -> None:
    if remote is not None:
        remote.count(kind)


def _refuse_unfinished(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """A copy to the host that is not waited for."""
    if kwargs.get("non_blocking") or (func is torch.ops.aten.copy_.default and args[2:] == (True,)):
        raise RuntimeError(f"{func}: the host does not wait for what it will read")


def _refuse_mixed(func: Callable[..., Any], leaves: Sequence[Any]) -> None:
    """Tensors of several devices, numbers of the host apart."""
    tensors = [own for own in leaves if isinstance(own, torch.Tensor)]
    devices = {own.device for own in tensors if own.ndim or isinstance(own, _Here)}
    if len(devices) > 1:
        raise RuntimeError(f"{func}: tensors on {sorted(map(str, devices))}")
