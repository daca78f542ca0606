"""Dask in processes of its own, each of which is killed: what the sweep says, what is left.

`python -m tests.sweeps.apart FOLDER [KILLS OF EACH]` prints one line per kill; SEEDS and SLOW are its
environment. After each kill the dead are replaced, and the sweep is resumed.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.sweeps.killed import SEEDS
from tests.sweeps.kills import compare, finished

ROLES = ("worker", "scheduler", "client")
WAIT = 240


class Cluster:
    """A scheduler and two workers, each a process."""

    def __init__(self, port):
        self.address = f"tcp://127.0.0.1:{port}"
        self.port = port
        self.scheduler = None
        self.workers = []

    def complete(self):
        """Start what is not there."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            for worker in self.workers:
                worker.kill()
            self.workers = []
            self.scheduler = self._start(
                "scheduler", "--port", str(self.port), "--host", "127.0.0.1"
            )
            time.sleep(3)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            self.workers.append(
                self._start(
                    "worker", self.address, "--nthreads", "1", "--no-nanny", "--death-timeout", "30"
                )
            )

    def _start(self, kind, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "dask", kind, *arguments, "--no-dashboard"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def stop(self):
        """End all."""
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                process.kill()
                process.wait()


def once(folder, cluster, role, chance):
    """Run the sweep, kill one process after a while, and see how it ends."""
    cluster.complete()
    client = subprocess.Popen(
        [sys.executable, "-m", "tests.sweeps.killed", str(folder), cluster.address],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    after = chance.uniform(5, 15)
    try:
        client.wait(after)
    except subprocess.TimeoutExpired:
        victim = {"client": client, "scheduler": cluster.scheduler}.get(role)
        (victim or chance.choice(cluster.workers)).send_signal(signal.SIGKILL)
        killed = True
    else:
        killed = False
    start = time.monotonic()
    try:
        output, errors = client.communicate(timeout=WAIT)
        ended = f"ended {time.monotonic() - start:.0f} s later"
    except subprocess.TimeoutExpired:
        client.kill()
        output, errors = client.communicate()
        ended = f"WAITED {WAIT} s"
    told = (output + errors).strip().splitlines()[-1:] or [""]
    return killed, f"{role} after {after:.0f} s: {ended}, code {client.returncode}; {told[0][:90]}"


def main(folder, each="10", *roles):
    folder, chance = Path(folder), random.Random(0)
    cluster = Cluster(18786 + os.getpid() % 1000)
    try:
        for role in roles or ROLES:
            left, kept = int(each), {}
            while left:
                killed, line = once(folder, cluster, role, chance)
                left -= killed
                now = finished(folder)
                lost = sum(now.get(key) != files for key, files in kept.items())
                kept = now
                sys.stdout.write(f"{line}; {len(now)} done, {lost} lost or changed\n")
                sys.stdout.flush()
                if len(now) == 2 * len(SEEDS) or not left:
                    for _ in range(3):
                        cluster.complete()
                        subprocess.run(
                            [sys.executable, "-m", "tests.sweeps.killed", str(folder), cluster.address],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
                        )  # fmt: skip
                    compare(folder)
                    sys.stdout.write("complete, equal to an undisturbed run bit for bit\n")
                    shutil.rmtree(folder)
                    kept = {}
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
