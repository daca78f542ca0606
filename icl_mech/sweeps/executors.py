"""Ways to execute the runs of a sweep: in this process, in worker processes, or on a given executor."""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures.process import ProcessPoolExecutor
from multiprocessing.connection import wait as wait_for
from typing import Any

import torch

from icl_mech.errors import SweepError
from icl_mech.sweeps.patience import Flying, gone, too_long
from icl_mech.sweeps.work import Job, Outcome, run_job, use_device

TRIES = 3
"""Number of times a run is tried if its worker is killed, or if it cannot be sent."""


def serially(jobs: Sequence[Job]) -> Iterator[Outcome]:
    """Execute the runs one after the other in this process."""
    yield from map(run_job, jobs)


class Workers:
    """Worker processes, restarted if one of them is killed."""

    def __init__(self, count: int, devices: Sequence[str] = ()) -> None:
        """Set the number of processes; none is started yet.

        Args:
            count: Number of processes.
            devices: One for each process; empty: the default device.
        """
        self.count, self._devices = count, tuple(devices)
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, job: Job) -> "Future[Outcome]":
        """Give a run to a process."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            for device in self._devices:
                queue.put(device)
            threads = max(1, torch.get_num_threads() // self.count)
            given = queue if self._devices else None
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (threads, given))
        return self._pool.submit(run_job, job)

    def begin_anew(self) -> None:
        """Stop all processes after one was killed; new ones start with the next run."""
        self.stop()

    def stop(self) -> None:
        """End all processes, including busy ones."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        running = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running:
            process.terminate()
        for process in running:
            process.join(5)


def _begin(threads: int, devices: Any) -> None:
    """Initialise a worker: limit its threads, set its device, ignore Ctrl-C and exit with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if devices is not None:
        use_device(devices.get())
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait_for([sentinel])
    os._exit(1)


def in_processes(jobs: Sequence[Job], workers: Workers, timeout: float) -> Iterator[Outcome]:
    """Execute runs in worker processes; runs of a killed process are repeated.

    All runs that were active at that moment are suspects. A run suspected twice is executed alone, so that
    a run that kills its process ends no other. A run that takes longer than `timeout` seconds
    fails: all processes are ended, and the other runs are repeated.
    """
    suspected: Counter[str] = Counter()
    single: deque[Job] = deque()
    waiting = deque(jobs)
    try:
        while waiting or single:
            queue, limit = (waiting, workers.count) if waiting else (single, 1)
            for killed in (yield from _until_killed(queue, workers, limit, timeout)):
                key = killed.item.key
                suspected[key] += 1
                if limit == 1 and suspected[key] >= TRIES:
                    yield _lost(killed, f"its process was killed {suspected[key]} times")
                else:
                    # If only one process was active, the run itself must have killed it.
                    again = limit > 1 and suspected[key] >= 2
                    (single if again else queue).append(killed)
    finally:
        workers.stop()


def _until_killed(
    queue: "deque[Job]", workers: Workers, limit: int, timeout: float
) -> Generator[Outcome, None, list[Job]]:
    """Continue until a process is killed or no run is left; return the runs that were active then."""
    flying: Flying[Job] = Flying(timeout)
    lost: list[Job] = []
    while (queue or flying.jobs) and not lost:
        try:
            while queue and len(flying.jobs) < limit:
                flying.add(workers.submit(queue[0]), queue[0])
                queue.popleft()
        except BrokenExecutor:
            lost += [queue.popleft()]
        for future, job in flying.look():
            try:
                yield future.result()
            except BrokenExecutor:  # noqa: PERF203 - each run has its own
                lost.append(job)
            except Exception as error:  # noqa: BLE001 - it could not be sent
                yield _lost(
                    job, f"it could not be sent to a worker ({type(error).__name__}: {error})"
                )
        if late := flying.overdue():
            queue.extendleft(flying.jobs.values())  # they are not suspects
            workers.begin_anew()
            yield from (_lost(job, too_long(timeout)) for job in late)
            return []
    for future, job in flying.jobs.items():  # all futures end once one process is killed
        if isinstance(future.exception(), BrokenExecutor):
            lost.append(job)
        else:
            yield future.result()
    if lost:
        workers.begin_anew()
    return lost


def on_executor(jobs: Sequence[Job], executor: Executor, timeout: float) -> Iterator[Outcome]:
    """Execute the runs on a given executor: all are submitted at once, in order.

    A run that comes back with an error of the executor itself (a worker was lost) is submitted
    again. If the executor is gone, or does not answer for `timeout` seconds, the runs that
    have not come back fail.

    Raises:
        SweepError: the executor is broken, and only its creator can make another.
    """
    tries: Counter[str] = Counter()
    flying: Flying[Job] = Flying(timeout)
    try:
        for number, job in enumerate(jobs):
            try:
                flying.add(executor.submit(run_job, job), job)
            except Exception as error:  # noqa: BLE001, PERF203 - it accepts no more
                why = f"the executor does not accept it ({type(error).__name__}: {error})"
                yield from (_lost(job, why) for job in jobs[number:])
                break
        while flying.jobs:
            for future, job in flying.look():
                problem = None if future.cancelled() else future.exception()
                if isinstance(problem, BrokenExecutor):
                    raise SweepError(
                        f"The executor is broken ({problem}): one of its workers was killed, and it accepts "
                        "no more runs. Finished runs are kept if there is a folder; call again "
                        "with a new executor and resume=True, or give workers= instead, which "
                        "restarts by itself."
                    ) from problem
                if not future.cancelled() and problem is None:
                    yield future.result()
                    continue
                # An error of the executor: errors of runs come back as outcomes.
                why = f"{type(problem).__name__}: {problem}" if problem else "it was cancelled"
                tries[job.item.key] += 1
                if tries[job.item.key] >= TRIES or gone(executor):
                    yield _lost(job, gone(executor) or why)
                    continue
                try:
                    flying.add(executor.submit(run_job, job), job)
                except Exception as refusal:  # noqa: BLE001 - it accepts no more
                    yield _lost(job, f"{why}; {type(refusal).__name__}: {refusal}")
            yield from (_lost(job, too_long(timeout)) for job in flying.overdue())
            if why := gone(executor) or "":
                yield from (_lost(job, why) for job in flying.jobs.values())
                return
    finally:
        for future in flying.jobs:
            future.cancel()


def _lost(job: Job, why: str) -> Outcome:
    return Outcome(job.item.key, "failed", 0.0, f"No worker finished the run: {why}.")
