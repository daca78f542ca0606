"""What a call does beside computing: passes, module calls; on a GPU launches, copies, synchronisations, idle time."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from icl_mech.models import LanguageModel
from tests.benchmarks.instrument import Number

ITEM = "aten::_local_scalar_dense"
LAUNCH = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel")
SYNCHRONISE = ("cudaStreamSynchronize", "cudaEventSynchronize", "hipStreamSynchronize")


@dataclass
class Calls:
    """How often a model, and modules, were called."""

    passes: int = 0
    modules: int = 0


@contextmanager
def counted(model: Any, *, modules: bool = True) -> Iterator[Calls]:
    """Count passes of the engine; with `modules` all module calls too, and plain passes of the Hugging Face model.

    Hooks on modules would change how the engine runs; none is put there.
    """
    calls, inside = Calls(), [0]
    engine, plain = LanguageModel.forward, model.original_model

    def forward(*given: Any, **more: Any) -> Any:
        calls.passes += 1
        inside[0] += 1
        try:
            return engine(*given, **more)
        finally:
            inside[0] -= 1

    def before(module: Any, given: Any) -> None:
        calls.modules += 1
        calls.passes += module is plain and not inside[0]

    hook = register_module_forward_pre_hook(before) if modules else nullcontext()
    LanguageModel.forward = forward  # type: ignore[method-assign]
    try:
        with hook:
            yield calls
    finally:
        LanguageModel.forward = engine  # type: ignore[method-assign]


@dataclass(frozen=True)
class Event:
    """An event of a profile, in microseconds; `device`: the device worked on it."""

    name: str
    start: float
    end: float
    device: bool = False


def events_of(profile: Any) -> Iterator[Event]:
    """Events of torch's profiler; marks that a user made are none.

    They are read as they were recorded: torch's table of a million events takes minutes.
    """
    for event in profile.profiler.kineto_results.events():
        if not getattr(event, "is_user_annotation", bool)():
            start, device = event.start_ns(), event.device_type().name != "CPU"
            yield Event(event.name(), start / 1000, (start + event.duration_ns()) / 1000, device)


def busy(events: Iterable[Event]) -> float:
    """Milliseconds in which the device worked on something; what overlaps counts once."""
    total, until = 0.0, float("-inf")
    for event in sorted((each for each in events if each.device), key=lambda each: each.start):
        total += max(0.0, event.end - max(event.start, until))
        until = max(until, event.end)
    return total / 1000


def counts(events: Iterable[Event], milliseconds: float, *, device: bool) -> list[Number]:
    """Numbers of a profiled call, which takes so long when it is not profiled.

    Profiling slows the host down, but not the device: the idle share is that of the time without it.
    """
    every = list(events)
    if not device:
        return [Number(".item()", sum(event.name == ITEM for event in every))]
    host = [event.name for event in every if not event.device]
    worked = [event.name for event in every if event.device]
    work = busy(every) if worked else None
    idle = None if work is None else max(0.0, 1 - work / milliseconds)
    return [
        Number("launches", sum(name.startswith(LAUNCH) for name in host)),
        Number("host to device", sum("HtoD" in name for name in worked)),
        Number("device to host", sum("DtoH" in name for name in worked)),
        Number("synchronisations", sum(name in SYNCHRONISE for name in host)),
        Number("device busy", work, "ms"),
        Number("idle share", idle),
    ]


def profiled(function: Callable[[], object], milliseconds: float, *, device: bool) -> list[Number]:
    """Numbers of one more call, under torch's profiler.

    On a device, torch's own steps on the host are left out: a call with many passes has millions, which take minutes.
    """
    from torch.profiler import ProfilerActivity, profile

    kind = ProfilerActivity.CUDA if device else ProfilerActivity.CPU
    with profile(activities=[kind]) as profile_of_call:
        function()
        if device:
            torch.cuda.synchronize()
    return counts(events_of(profile_of_call), milliseconds, device=device)
