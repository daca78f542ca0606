"""A sweep on SLURM, one model per GPU worker: `python slurm.py [cluster]`.

`submitit.AutoExecutor` is a `concurrent.futures`-like executor, but not one: the class below makes it
one. Without an argument jobs run on this machine, so that the script can be tried.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import icl_mech as icl
from icl_mech.measurements import Predict


class Slurm(Executor):
    """Jobs of a submitit executor as futures; each job is one item on one GPU."""

    def __init__(self, jobs: Any) -> None:
        self._jobs = jobs

    def submit(self, function: Callable[..., Any], /, *given: Any, **options: Any) -> "Future[Any]":
        """Hand a job to the cluster, and wait for it in a thread of its own."""
        future: Future[Any] = Future()
        job = self._jobs.submit(function, *given, **options)

        def wait() -> None:
            try:
                future.set_result(job.result())
            except Exception as error:  # noqa: BLE001 - a lost job is submitted again by the sweep
                future.set_exception(error)

        threading.Thread(target=wait, daemon=True).start()
        return future


def main(cluster: str = "local") -> None:
    """Run it; the same call goes on where a stopped one was."""
    import submitit

    jobs = submitit.AutoExecutor(folder="runs/slurm-logs", cluster=cluster)
    jobs.update_parameters(timeout_min=120, cpus_per_task=4, mem_gb=32)
    if cluster == "slurm":
        jobs.update_parameters(gpus_per_node=1, slurm_partition="gpu", slurm_array_parallelism=8)
    found = icl.sweep(
        "smollm2-135m",
        ["reviews", "headlines"],
        [Predict()],
        seeds=range(5),
        n=100,
        executor=Slurm(jobs),
        out="runs/slurm",  # on a disk that all nodes see
        resume=True,
    )
    print(found.summary())


if __name__ == "__main__":
    main(*sys.argv[1:])
