"""Open answers of the offline tasks: right answers by shots, the layer where they appear, function vectors.

    python -m tests.benchmarks.open_answers OUT.json [--seeds 5] [--n 24] [--model smollm2-135m]

Every cell (task, seed) is written when it is done, and those that are there are not made again. Prints the
table of docs/guides/open_answers.md: means over all prompts of all seeds, with 95 % intervals over prompts;
prompts of several seeds may ask the same, and those of one seed share most of their choices behind few
demonstrations, which the intervals do not know.

Behind five demonstrations the answers are judged beside the same demonstrations with each other's answers,
query by query. The function vector is that of the ten heads whose mean outputs behind five true
demonstrations raise the right answer's logit most behind permuted ones; it is added a third of the way up to
bare queries that none of those prompts asks, beside vectors of ten other heads drawn at random, of its length.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.measurements.demonstrations import query
from icl_mech.measurements.isolation.agreement import with_draws
from icl_mech.metrics import mean_interval, wilson_interval
from icl_mech.results.judging import judged
from icl_mech.results.wording import said

TASKS = ("antonyms", "plurals", "past_tense", "capitals", "english_french")
SHOTS = (0, 1, 2, 5, 10)
PAIRS = 10
"""Of prompts that choose the heads."""
HEADS, DRAWS = 10, 5


def by_shots(model: Any, task: str, seed: int, n: int) -> dict[str, Any]:
    """How the right answer fares behind so many demonstrations, and by layer behind five."""
    found: dict[str, Any] = {}
    for shots in SHOTS:
        prompts = icl.build_prompts(
            task, model, shots=shots, n=n, seed=seed, demonstrations="per_prompt"
        )
        own = icl.predict(model, prompts)
        found[f"right {shots}"] = (own.predicted == own.answers).tolist()
        found[f"exact {shots}"] = own.exact_match.tolist()
        found[f"log P {shots}"] = own.answer_log_prob.tolist()
        if shots == 5:
            lens = icl.logit_lens(model, prompts).label_logits.argmax(-1) == 0
            found["lens"] = lens.tolist()
    return found


def beside_permuted(model: Any, task: str, seed: int, n: int) -> dict[str, Any]:
    """Behind five demonstrations, and behind the same ones with each other's answers: the form without the relation."""
    found: dict[str, Any] = {}
    pair = icl.build_prompt_pairs(task, model, shots=5, n=n, seed=seed, demonstrations="per_prompt")
    for name, prompts in zip(("true", "permuted"), pair, strict=True):
        own = icl.predict(model, prompts)
        found[f"{name} exact"] = own.exact_match.tolist()
        found[f"{name} log P"] = own.answer_log_prob.tolist()
    return found


def vector(model: Any, task: str, seed: int, n: int) -> dict[str, Any]:
    """What the function vector does in bare queries."""
    true, permuted = icl.build_prompt_pairs(
        task, model, shots=5, n=PAIRS, seed=seed, demonstrations="per_prompt"
    )
    mediation = icl.head_mediation(model, true, permuted)
    asked = [query(prompt) for prompt in true]
    bare = icl.build_prompts(task, model, shots=0, n=n + PAIRS, seed=seed + 100)
    others = bare[[i for i, prompt in enumerate(bare) if query(prompt) not in asked][:n]]
    every = icl.function_vector(
        model, mediation, k=mediation.means[..., 0].numel(), by="difference"
    )
    chosen, rest = every.parts[:HEADS].sum(0), every.parts[HEADS:]
    steered = icl.steer(model, others, chosen)
    place = steered.layers.index(steered.third)
    generator, random = torch.Generator().manual_seed(seed), []
    for _ in range(DRAWS):
        own = rest[torch.randperm(len(rest), generator=generator)[:HEADS]].sum(0)
        own = own * chosen.norm() / own.norm()
        random.append(icl.steer(model, others, own, layers=[steered.third]).changes[:, 0].tolist())
    return {
        "random change": random,
        "layer": steered.third,
        "plain": steered.plain_correct.tolist(),
        "with": steered.correct[:, place].tolist(),
        "change": steered.changes[:, place].tolist(),
        "heads": mediation.top(5, "difference"),
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """One row for each task."""
    rows = []
    for task in TASKS:
        cells = [own for name, own in found.items() if name.startswith(f"{task} ")]
        if not cells:
            continue

        def pooled(key: str, cells: list[dict[str, Any]] = cells) -> torch.Tensor:
            return torch.tensor([value for own in cells for value in own[key]])

        row = [f"{task} ({len(cells)})"]
        for name in ("right", "exact"):
            row += [said(wilson_interval(pooled(f"{name} {shots}"))) for shots in SHOTS]
        row += [said(mean_interval(pooled(f"log P {shots}").double())) for shots in SHOTS]
        # The first entry has seen the last token only, which is the same in all prompts.
        by_layer = pooled("lens").double()
        curve = by_layer.mean(0)
        half = curve[0] + (curve[-1] - curve[0]) / 2
        row.append(f"{int((curve >= half).int().argmax())} of {len(curve) - 1}")
        gained = (by_layer - by_layer[:, :1]).T
        clear = [mean_interval(own, "change").low > 0 for own in gained]
        from_here = len(clear) - clear[::-1].index(False) if False in clear else 0
        row.append(str(from_here) if from_here < len(clear) else "none")
        for own, kind in (("exact", "change"), ("log P", "value")):
            lost = pooled(f"true {own}").double() - pooled(f"permuted {own}").double()
            gain = mean_interval(lost, kind)
            row.append(f"{said(gain, sign=True)}: {judged(gain)}")
        cells = [own for own in cells if "random change" in own]
        if cells:
            bare = [said(wilson_interval(pooled(name, cells))) for name in ("plain", "with")]
            row += [f"{bare[0]} ({len(cells)})", bare[1]]
            change = pooled("change", cells).double()
            row.append(said(mean_interval(change), sign=True))
            drawn = torch.cat([torch.tensor(own["random change"]).T for own in cells]).double()
            row.append(said(mean_interval(drawn.mean(1)), sign=True))
            gaps = change[:, None] - drawn
            beyond = with_draws(mean_interval(gaps.mean(1)), gaps.mean(0))
            row.append(f"{said(beyond, sign=True)}: {judged(beyond)}")
        rows.append(" | ".join(row))
    heads = [
        "task (seeds)",
        *(f"{name} {s}" for name in ("right", "exact", "log P") for s in SHOTS),
    ]
    heads += ["half-way layer", "above the first entry from"]
    heads += ["exact, true minus permuted", "log P, true minus permuted"]
    heads += ["bare (seeds)", "with vector", "change of the logit", "random heads", "beyond these"]
    return "\n".join([" | ".join(heads), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--n", type=int, default=24)
    parser.add_argument("--model", default="smollm2-135m")
    given = parser.parse_args()
    found = json.loads(given.out.read_text()) if given.out.exists() else {}
    model = icl.load_model(given.model)
    made = {by_shots: "lens", beside_permuted: "permuted exact", vector: "random change"}
    for part, known in made.items():
        for seed in range(given.seeds):
            for task in TASKS:
                cell = found.setdefault(f"{task} {seed}", {})
                if known not in cell:
                    cell |= part(model, task, seed, given.n)
                    given.out.write_text(json.dumps(found))
    print(table(found))


if __name__ == "__main__":
    main()
