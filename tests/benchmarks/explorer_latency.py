"""How long the explorer's parts take after an action, beside the public functions without reuse.

    python -m tests.benchmarks.explorer_latency [--actions 50] [--model smollm2-135m] [--threads 1]

Two prompts of the offline tasks, a short and a long one. For each of so many random actions the wall and the CPU
time of the answer with lens and heads (`now`), of all parts with flow and maps, and of `predict`, `logit_lens` and
`logit_lens(per="head")` of the same state; the two in turn. Beside them a bare forward pass (whole vocabulary at
every token). Medians and 90th percentiles in milliseconds; of `at the target` only actions that change nothing but
the target's row, of `undo` states that were measured before.
"""

import argparse
import random
import statistics
import time

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


def timed(function):
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)


def public(model, asker, experiment):
    prompts = asker.prompts(experiment)
    how = {"interventions": asker.changes(experiment, prompts), "progress": False}
    icl.predict(model, prompts, **how)
    icl.logit_lens(model, prompts, **how)
    icl.logit_lens(model, prompts, per="head", **how)


def measured(model, task, actions, threads):
    view = explore(model, task, n=24, threads=threads)
    asker, stage, rng = view.session.asker, view.session.asker.stage, random.Random(0)
    start = now = view.experiment
    parts = ("now", "pair", "cal", "flow")
    for part in parts:
        asker.ask(part, start)
    tokens = asker.prompts(start)[0].tokens
    found = {name: [] for name in ("now", "at the target", "all parts", "undo", "public")}
    found["bare pass"] = [
        timed(lambda: asker.model.own_logits(torch.tensor([tokens]))) for _ in range(5)
    ]
    done = 0
    while done < actions:
        try:
            do = action(rng, stage.info.n_layers, stage.info.n_heads, len(now.demos))
            after = act(now, do, stage)[0]
            if asker.has("now", after):
                continue
            answer = timed(lambda own=after: asker.ask("now", own))
        except IclMechError:
            continue
        rest = timed(lambda own=after: [asker.ask(part, own) for part in parts])
        found["now"].append(answer)
        changes = asker.changes(after, asker.prompts(after))
        if do["do"] in ("range", "head") and all(own.target_only for own in changes):
            found["at the target"].append(answer)
        found["all parts"].append((answer[0] + rest[0], answer[1] + rest[1]))
        found["undo"].append(timed(lambda: [asker.ask(part, start) for part in parts]))
        found["public"].append(timed(lambda own=after: public(model, asker, own)))
        # A hand does not pile up changes for ever.
        now, done = (start if len(after.changes) > 3 or done % 10 == 9 else after), done + 1
    view.close()
    return len(tokens), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--actions", type=int, default=50)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    model = icl.load_model(given.model)
    print("| prompt | what | n | wall median | 90 % | CPU median |\n|---|---|---:|---:|---:|---:|")
    with pace(given.threads), torch.no_grad():
        for name, task in TASKS.items():
            with torch.enable_grad():
                tokens, found = measured(model, task, given.actions, given.threads)
            for what, times in found.items():
                if times:
                    wall, cpu = (sorted(own) for own in zip(*times, strict=True))
                    print(
                        f"| {name}, {tokens} tokens | {what} | {len(wall)} | {statistics.median(wall):.0f} | "
                        f"{wall[int(0.9 * (len(wall) - 1))]:.0f} | {statistics.median(cpu):.0f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
