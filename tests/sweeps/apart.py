"""Dask in processes of its own, each of which is killed: what the sweep says, what is left.

`python -m tests.sweeps.apart FOLDER [KILLS OF EACH]` prints one line per kill; SEEDS and SLOW are its
environment. After each kill the dead are replaced, and the sweep is resumed. What each process says stands in
a log in `FOLDER-logs`.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.patience import logged, seconds, tail, until
from tests.sweeps.killed import SEEDS
from tests.sweeps.kills import compare, finished

ROLES = ("worker", "scheduler", "client")


class Cluster:
    """A scheduler and two workers, each a process."""

    def __init__(self, logs):
        logs.mkdir(exist_ok=True)
        self.logs, self.note = logs, logs / "scheduler.json"
        self.address = self.scheduler = None
        self.workers = []

    def complete(self):
        """Start what is not there."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            for worker in self.workers:
                worker.kill()
            self.workers = []
            self.note.unlink(missing_ok=True)
            where = ("--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(self.note))
            self.scheduler = self._start("scheduler", *where)
            log = self.logs / "scheduler.log"
            self.address = until(self._noted, 60, "the address of the scheduler", log)
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < 2:
            how = ("--nthreads", "1", "--no-nanny", "--death-timeout", str(seconds(30)))
            self.workers.append(self._start("worker", self.address, *how))

    def _noted(self):
        """The address, once the scheduler has written it down."""
        assert self.scheduler.poll() is None, tail(self.logs / "scheduler.log")
        with suppress(OSError, ValueError):  # it is not there yet, or half written
            return json.loads(self.note.read_text())["address"]

    def _start(self, kind, *arguments):
        command = [sys.executable, "-m", "dask", kind, *arguments, "--no-dashboard"]
        with (self.logs / f"{kind}.log").open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out)

    def stop(self):
        """End all."""
        for process in [*self.workers, self.scheduler]:
            if process is not None:
                process.kill()
                process.wait()


def once(folder, cluster, role, chance):
    """Run the sweep, kill one process after a while, and see how it ends."""
    cluster.complete()
    log = cluster.logs / "client.log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "tests.sweeps.killed", str(folder), cluster.address]
        client = subprocess.Popen(command, stdout=out, stderr=out)
    after = chance.uniform(5, 15)
    try:
        client.wait(after)  # any moment of its work: what is tested
    except subprocess.TimeoutExpired:
        victim = {"client": client, "scheduler": cluster.scheduler}.get(role)
        (victim or chance.choice(cluster.workers)).send_signal(signal.SIGKILL)
        killed = True
    else:
        killed = False
    start = time.monotonic()
    try:
        client.wait(seconds(240))
        ended = f"ended {time.monotonic() - start:.0f} s later"
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
        ended = f"WAITED {seconds(240):.0f} s\n{tail(log)}\n"
    told = log.read_text("utf-8", "replace").strip().splitlines()[-1:] or [""]
    return killed, f"{role} after {after:.0f} s: {ended}, code {client.returncode}; {told[0][:90]}"


def main(folder, each="10", *roles):
    folder, chance = Path(folder), random.Random(0)
    cluster = Cluster(folder.with_name(f"{folder.name}-logs"))
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
                        command = [sys.executable, "-m", "tests.sweeps.killed", str(folder)]
                        log = cluster.logs / "last.log"
                        with logged([*command, cluster.address], log) as client:
                            client.wait(seconds(900))
                    compare(folder)
                    sys.stdout.write("complete, equal to an undisturbed run bit for bit\n")
                    shutil.rmtree(folder)
                    kept = {}
    finally:
        cluster.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
