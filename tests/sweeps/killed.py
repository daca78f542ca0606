"""A sweep that is killed from outside: `python -m tests.sweeps.killed FOLDER [dask]`.

Prints the ids of its processes as they begin, and `done` at the end.
"""

import os
import sys
from pathlib import Path

import torch

from icl_mech.measurements import Flow, Predict
from icl_mech.sweeps import sweep
from tests.patience import seconds
from tests.sweeps.loaders import OTHER, TASK, slow

MEASUREMENTS = (Predict(), Flow(), Predict(score="sum"))
SEEDS = range(int(os.environ.get("SEEDS", "6")))


def run(folder, **how):
    """The sweep: 2 tasks x seeds items."""
    return sweep(
        {"tiny": slow}, [TASK, OTHER], MEASUREMENTS, seeds=SEEDS, n=4, batch_size=1,
        progress=False, **({"out": folder, "resume": Path(folder).exists()} if folder else {}), **how,
    )  # fmt: skip


def main(folder, executor="processes"):
    torch.set_num_threads(1)
    if executor.startswith("tcp://"):
        from distributed import Client

        with Client(executor, timeout=seconds(20)) as client:
            found = run(folder, executor=client.get_executor(), timeout=seconds(120))
    elif executor == "dask":
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            found = run(folder, executor=client.get_executor())
    else:
        found = run(folder, workers=2)
    sys.stdout.write(found.summary() + "\ndone\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
