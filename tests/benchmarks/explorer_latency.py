"""How long after an action the explorer's page hears each figure, beside a bare forward pass and the public functions.

    python -m tests.benchmarks.explorer_latency [--actions 20] [--model smollm2-135m] [--threads 1] [--busy 1]

Two prompts of the offline tasks, a short and a long one. So many random actions go through `Session` with the board
open; the clock runs from the action to the message with the answer, the flow, ten queries of the board, all of it,
and the last part. Beside each, in turn: a bare forward pass (whole vocabulary at every token), and `predict`,
`logit_lens` and `logit_lens(per="head")` of the same state. `--busy` keeps so many cores busy meanwhile. It prints
the table of `docs/benchmarks/explorer.md`: medians and 90th percentiles of wall time, median CPU time, and the latter
as a multiple of that of a bare forward pass. Of `at the target` only actions that change nothing but the target's row.
"""

import argparse
import multiprocessing
import random
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.explorer import explore
from icl_mech.explorer.actions import act
from icl_mech.explorer.pace import pace

TASKS = {"short": "reviews", "long": "headlines"}


def action(rng, layers, heads, demos):
    """What a hand does: mostly labels, layers and heads."""
    ends = {"from": rng.randrange(layers), "to": rng.randrange(layers)}
    what = rng.choice(["isolate", "to_target", "between", "patch", "reweight", "hide", "token"])
    return rng.choice(
        [
            {"do": "flip", "demo": rng.randrange(demos)},
            {"do": "flip", "demo": rng.randrange(demos)},
            {"do": "flip_all"},
            {"do": "add"},
            {"do": "drop", "demo": rng.randrange(demos)},
            {"do": "move", "demo": rng.randrange(demos), "by": rng.choice([-1, 1])},
            {"do": "query", "number": rng.randrange(24)},
            {"do": "range", "what": what, **ends, "demo": rng.randrange(demos), "token": 3},
            {"do": "range", "what": what, **ends, "demo": rng.randrange(demos), "token": 3},
            {"do": "head", "layer": rng.randrange(layers), "head": rng.randrange(heads)},
        ]
    )


NAMES = {
    "bare": "bare forward pass",
    "now": "answer, lens and heads",
    "target": "… of changes at the target",
    "flow": "flow and saliency maps",
    "ten": "board, ten queries",
    "board": "board, all 24",
    "undo": "undo, to the flow",
    "public": "the three functions",
}
TEN = 10
LOOK = {"layer": 0, "token": None, "mode": "roles", "board": True}

Times = tuple[float, float]
"""Wall and CPU time in milliseconds."""


class Heard:
    """When a page heard what since the last action."""

    def __init__(self, session):
        self.session, self.rows, self.at = session, 0, {}
        self.settled = threading.Event()
        self.began = clock()
        session.join(self.hear)

    def hear(self, message):
        kind, wall, cpu = message["kind"], *clock()
        since = wall - self.began[0], cpu - self.began[1]
        if kind == "part":
            self.at.setdefault(message["part"], since)
        if kind == "board":
            self.rows += len(message["rows"])
            if self.rows >= TEN:
                self.at.setdefault("ten", since)
            if message.get("done"):
                self.at["board"] = since
        if message == {"kind": "busy", "part": None}:
            self.settled.set()

    def do(self, action):
        """Perform an action and wait for the last figure."""
        self.settled.clear()
        self.rows, self.at, self.began = 0, {}, clock()
        self.session.do({**action, "look": LOOK})
        self.settled.wait()
        return self.at


def clock() -> Times:
    return 1000 * time.perf_counter(), 1000 * time.process_time()


def timed(function) -> Times:
    wall, cpu = clock()
    function()
    now = clock()
    return now[0] - wall, now[1] - cpu


def public(model, asker, experiment):
    prompts = asker.prompts(experiment)
    how = {"interventions": asker.changes(experiment, prompts), "progress": False}
    icl.predict(model, prompts, **how)
    icl.logit_lens(model, prompts, **how)
    icl.logit_lens(model, prompts, per="head", **how)


def measured(model, task, actions, threads):
    view = explore(model, task, n=24, threads=threads)
    session, rng = view.session, random.Random(0)
    asker, stage = session.asker, session.asker.stage
    page = Heard(session)
    page.do({"do": "hello"})
    tokens = torch.tensor([asker.prompts(view.experiment)[0].tokens])
    found: dict[str, list[Times]] = {name: [] for name in NAMES}
    while len(found["now"]) < actions:
        do = action(rng, stage.info.n_layers, stage.info.n_heads, len(view.experiment.demos))
        try:
            after, _ = act(view.experiment, do, stage)
            if asker.has("now", after):
                continue
            at = page.do(do)
        except IclMechError:
            continue
        if "now" not in at:  # a change without effect
            session.do({"do": "undo"})
            continue
        for name in ("now", "flow", *(("ten", "board") if do["do"] != "query" else ())):
            if name in at:
                found[name].append(at[name])
        changes = asker.changes(after, asker.prompts(after))
        if do["do"] in ("range", "head") and all(own.target_only for own in changes):
            found["target"].append(at["now"])
        found["undo"].append(page.do({"do": "undo"})["flow"])
        page.do({"do": "redo"})
        with pace(threads):
            found["public"].append(timed(lambda own=after: public(model, asker, own)))
            with torch.no_grad():
                found["bare"].append(timed(lambda: asker.model.own_logits(tokens)))
        # A hand does not pile up changes for ever.
        if len(after.changes) > 3 or len(found["now"]) % 10 == 9:
            page.do({"do": "reset"})
    view.close()
    return tokens.shape[1], found


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Context in which other processes keep so many cores busy."""
    started = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(cores)]
    for process in started:
        process.start()
    try:
        yield
    finally:
        for process in started:
            process.terminate()


def _spin() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actions", type=int, default=20)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--busy", type=int, default=0, help="cores kept busy meanwhile")
    given = parser.parse_args()
    model = icl.load_model(given.model)
    print("| prompt | until the page has | n | wall, ms | 90 % | CPU, ms | bare passes |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with busy(given.busy):
        for task in TASKS.values():
            tokens, found = measured(model, task, given.actions, given.threads)
            bare = statistics.median(cpu for _, cpu in found["bare"])
            for name, times in found.items():
                if times:
                    wall, cpu = (sorted(own) for own in zip(*times, strict=True))
                    middle = statistics.median(cpu)
                    print(
                        f"| {tokens} tokens | {NAMES[name]} | {len(wall)} | {statistics.median(wall):.0f} | "
                        f"{wall[int(0.9 * (len(wall) - 1))]:.0f} | {middle:.0f} | {middle / bare:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
