"""Where the answer stands early and late on the offline model: transplants on the four tasks with classes.

    python -m tests.benchmarks.transplants OUT.json [--seeds 5] [--most 48] [--n 16] [--model smollm2-135m]

Every cell (task, seed) is written when it is done, and those that are there are not made again. Of at most
`--most` queries behind one set of demonstrations for each seed, the first `--n` are taken that true and false
demonstrations answer differently: the others say nothing about flips. Where label words have other numbers of
tokens in the other run, the entrance of the first block is asked, too: what falls short of 1 there is lost by
exchanging words of other lengths, whatever the model does with them. Prints the tables of
docs/guides/transplant.md: shares over the prompts of all seeds with 95 % intervals over prompts, which take
the demonstrations as they are, the seeds one by one, and the verdicts.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements import Transplant
from icl_mech.measurements.causal.transplant import DIRECTIONS, TransplantResult
from icl_mech.results.wording import counted, said, told
from icl_mech.studies.hand_over import EARLY, HAND_OVER, LATE
from icl_mech.studies.judge import of_run

TASKS = {"headlines": 1, "questions": 1, "reviews": 2, "unnatural": 2}
"""With how many demonstrations of each class: four to six in all."""
DRAWS = 2
TENSORS = ("log_probs", "random", "plain", "answers", "taught")


def cell(model: Any, task: str, seed: int, most: int, n: int) -> dict[str, Any]:
    """What was found of one task and seed: the result's tensors, the verdict and how many differ."""
    pair = icl.build_prompt_pairs(task, model, shots=TASKS[task], n=most, seed=seed)
    true, false = (icl.predict(model, side, progress=False).predicted for side in pair)
    differ = (true != false).nonzero().flatten().tolist()
    kept: dict[str, Any] = {"queries": most, "differ": len(differ)}
    if differ:
        third, late = (round(model.cfg.n_layers * depth) for depth in (1 / 3, 5 / 6))
        few = (pair[0][differ[:n]], pair[1][differ[:n]])
        run = icl.measure(model, few, Transplant(layers=[third, late], draws=DRAWS), progress=False)
        own: TransplantResult = run[TransplantResult]
        (verdict,) = of_run([HAND_OVER], run)
        kept |= {"verdict": verdict.status, "finding": verdict.finding, **plain(own)}
        if own.unlike:
            first = icl.transplant(model, *few, at="anchors", layers=[0], draws=1, progress=False)
            kept["first"] = plain(first)
    return kept


def plain(own: TransplantResult) -> dict[str, Any]:
    """The fields of a result as JSON has them."""
    fields = {name: getattr(own, name).tolist() for name in TENSORS}
    return fields | {name: getattr(own, name) for name in ("at", "layers", "n_layers", "unlike")}


def together(cells: list[dict[str, Any]]) -> TransplantResult:
    """The result of all prompts of several cells."""
    joined: dict[str, Any] = {
        name: torch.cat([torch.tensor(own[name]) for own in cells]) for name in TENSORS
    }
    return TransplantResult(
        **joined,
        at=tuple(cells[0]["at"]),
        layers=tuple(cells[0]["layers"]),
        n_layers=cells[0]["n_layers"],
        unlike=sum(own["unlike"] for own in cells),
    )


def table(found: dict[str, dict[str, Any]]) -> str:
    """Flips by direction, the effects of the claim, pooled and by seed, and the verdicts."""
    lines = []
    for task in TASKS:
        all_cells = [own for name, own in found.items() if name.startswith(f"{task} ")]
        cells = [own for own in all_cells if "verdict" in own]
        if not cells:
            continue
        own = together(cells)
        differ, asked = (sum(one[name] for one in all_cells) for name in ("differ", "queries"))
        lines.append(
            f"{task}: {differ} of {asked} differ, by seed {[one['differ'] for one in all_cells]}, "
            f"measured {int(own.differ.sum())}, {counted(own.unlike, 'label word')} of other lengths"
        )
        flips, random = own.sel("flips"), own.sel("random_flips")
        for i, direction in enumerate(DIRECTIONS):
            for j, at in enumerate(own.at):
                for k, layer in enumerate(own.layers):
                    of = (flips.values, flips.low, flips.high)
                    value, low, high = (float(ends[i, j, k]) for ends in of)
                    lines.append(
                        f"  {direction}, {at}, block {layer}: {told(value)} [{told(low)}, {told(high)}], "
                        f"random {told(float(random.values[i, j, k]))}"
                    )
        unlike = [one["first"] for one in cells if "first" in one]
        for i, direction in enumerate(DIRECTIONS if unlike else ()):
            first = together(unlike).sel("flips")
            value, low, high = (
                float(ends[i, 0, 0]) for ends in (first.values, first.low, first.high)
            )
            lines.append(
                f"  {direction}, anchors, block 0: {told(value)} [{told(low)}, {told(high)}]"
            )
        for words, effect in (EARLY | LATE).items():
            each = [effect(together([one])) for one in cells]
            seeds = ", ".join(told(one.value) if one else "–" for one in each)
            pooled = effect(own)
            lines.append(
                f"  {words}: {said(pooled, sign=True) if pooled else '–'}, by seed {seeds}"
            )
        lines.append(
            f"  verdicts: {dict(Counter(one.get('verdict', 'cannot be judged') for one in all_cells))}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=48)
    parser.add_argument("--n", type=int, default=16)
    parser.add_argument("--model", default="smollm2-135m")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    model = icl.load_model(given.model)
    for seed in range(given.seeds):
        for task in TASKS:
            if f"{task} {seed}" not in found:
                found[f"{task} {seed}"] = cell(model, task, seed, given.most, given.n)
                given.out.write_text(json.dumps(found))
    print(table(found))


if __name__ == "__main__":
    main()
