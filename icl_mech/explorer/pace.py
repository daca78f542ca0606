"""The number of torch threads: measured, set during a run, and restored."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from icl_mech.explorer.asking import Asker
from icl_mech.explorer.experiment import Experiment
from icl_mech.explorer.reuse import Runs
from icl_mech.models import LanguageModel, exclusive
from icl_mech.prompts import PromptBatch

_PACED: list[int] = []
"""The process's number of threads, once for each worker that has changed it."""

_PACE = threading.Lock()


@contextmanager
def pace(threads: int | None) -> Iterator[None]:
    """Context with this many torch threads; the process's number is restored when the last one ends."""
    with _PACE:
        _PACED.append(_PACED[0] if _PACED else torch.get_num_threads())
        torch.set_num_threads(threads or _PACED[0])
    try:
        yield
    finally:
        with _PACE:
            before = _PACED.pop()
            if not _PACED:
                torch.set_num_threads(before)


@exclusive
def fastest(model: LanguageModel, asker: Asker, start: Experiment) -> int:
    """The number of threads at which a pass is fastest; on shared cores fewer may be faster.

    The best of two passes for 1, 2, 4, ... threads, up to those the process has.
    """
    prompts = asker.prompts(start)
    most, seconds = torch.get_num_threads(), {}
    count = 1
    while count <= most:
        with pace(count):
            seconds[count] = min(_seconds(asker, prompts) for _ in range(2))
        count *= 2
    return min(seconds, key=lambda threads: seconds[threads])


def _seconds(asker: Asker, prompts: PromptBatch) -> float:
    began = time.perf_counter()
    Runs(asker.model, asker.runs.readings).plain(prompts)
    return time.perf_counter() - began
