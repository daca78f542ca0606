"""A sweep on a Dask cluster: here two worker processes, elsewhere any number of machines."""

from distributed import Client, LocalCluster

import icl_mech as icl
from icl_mech.measurements import Predict


def main() -> None:
    """Run it."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        found = icl.sweep(
            "smollm2-135m",
            ["reviews", "headlines"],
            [Predict()],
            seeds=range(2),
            n=8,
            executor=client.get_executor(),
            out="runs/dask",
            resume=True,
        )
    print(found.summary())


if __name__ == "__main__":
    main()
