"""Kills a sweep at random moments, its main process or a worker, and looks at what is left.

`python -m tests.sweeps.kills FOLDER [KILLS] [dask] [LONGEST]`; SEEDS and SLOW are its environment
"""

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from icl_mech.sweeps import Sweep
from icl_mech.sweeps.item import LIST
from tests.patience import logged, seconds, tail, until
from tests.saved import contents
from tests.sweeps.killed import run


def children(process):
    """Ids of the processes below another, the deepest last."""
    found = []
    for entry in Path(f"/proc/{process}/task").glob("*/children"):
        for child in entry.read_text().split():
            found += [int(child), *children(child)]
    return found


def workers_of(process):
    """Processes that run items: not the helpers that multiprocessing starts beside them."""
    found = []
    for child in children(process):
        try:
            line = Path(f"/proc/{child}/cmdline").read_text()
        except OSError:
            continue
        if "spawn_main" in line or "nanny" in line.lower():
            found.append(child)
    return found


def finished(folder):
    """Content of all finished items."""
    if not (folder / LIST).is_file():
        return {}
    found = Sweep.load(folder)
    return {
        item.key: contents(folder / "items" / item.key)
        for item in found.plan
        if found.state(item) == "done"
    }


def due(process, folder, enough, begun):
    """Whether a sweep ended, or has begun and finished so many items."""
    if process.poll() is not None:
        return True
    return (begun or workers_of(process.pid)) and len(finished(folder)) >= enough


def torment(folder, kills, executor, seed=0, longest=30, say=lambda text: None):
    """Start, kill and resume until enough were killed and the sweep is done; its log stands beside the folder.

    Returns:
        How many main processes and workers were killed.
    """
    chance = random.Random(seed)
    killed = {"main": 0, "worker": 0}
    kept, rounds = {}, 0
    log = folder.with_name(f"{folder.name}.log")
    while True:
        left = kills - sum(killed.values())
        command = [sys.executable, "-m", "tests.sweeps.killed", str(folder), executor]
        with logged(command, log, stdout=subprocess.PIPE, text=True) as process:
            wanted = chance.choice([0, 1, 3])  # items finished before the next kill
            while left:
                enough = len(kept) + wanted
                ready = partial(due, process, folder, enough, wanted > 0)
                until(ready, 600, f"{enough} finished items", pause=0.2)
                if process.poll() is not None:
                    break
                time.sleep(chance.uniform(0, longest))  # any moment of its work: what is tested
                if process.poll() is not None:
                    break
                workers = workers_of(process.pid)
                victim = chance.choice(["main", "worker"]) if workers else "main"
                try:
                    os.kill(
                        process.pid if victim == "main" else chance.choice(workers), signal.SIGKILL
                    )
                except ProcessLookupError:
                    continue
                killed[victim] += 1
                left -= 1
                wanted += chance.choice([0, 1, 3])
                say(f"killed a {victim}, {left} left, {len(finished(folder))} items done")
                if victim == "main":
                    break
            output = process.communicate(timeout=seconds(900))[0]
        now = finished(folder)
        for key, files in kept.items():
            assert now[key] == files, f"{key} was written twice\n{tail(log)}"
        kept = now
        if process.returncode == 0:
            assert output.endswith("done\n"), f"{output}\n{tail(log)}"
            if len(now) == len(Sweep.load(folder)):
                return killed  # also where it was faster than the kills
        if process.returncode == 0 and not left:
            rounds += 1  # items that were killed too often are recorded, and run when resumed
            assert rounds < 3, f"{output}\n{tail(log)}"


def compare(folder):
    """Every item is there once, with the numbers of a run that nobody disturbed."""
    found, plain = Sweep.load(folder), run(None)
    assert found.items.state.tolist() == ["done"] * len(plain.plan), found.summary()
    folders = [path.name for path in (folder / "items").iterdir()]
    assert sorted(folders) == sorted(item.key for item in plain.plan)
    assert not list(folder.rglob("error.json"))
    for item, analysis in plain:
        own = found.analysis(item.key)
        for name, result in analysis.results.items():
            assert own[name].to_pandas().equals(result.to_pandas()), (item.title, name)


def main(folder, kills="10", executor="processes", longest="30"):
    def say(text):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    say(str(torment(Path(folder), int(kills), executor, longest=float(longest), say=say)))
    compare(Path(folder))
    say("nothing lost, nothing twice")


if __name__ == "__main__":
    main(*sys.argv[1:])
