"""Run all comparisons and write `docs/benchmarks/engine.json` and `engine.md`.

`python -m tests.benchmarks [--prompts 64] [--repeats 5] [--model smollm2-135m]`; every
comparison checks that both sides give the same numbers before it times them.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.analyses.flow import FlowReading
from icl_mech.analyses.predictions import PredictionReading
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.losses import target_loss
from icl_mech.interventions import Isolate, Reweight, ZeroHeads
from icl_mech.models import adapt
from tests.benchmarks import baselines
from tests.benchmarks.measure import Row, compare

OUT = Path(__file__).parents[2] / "docs" / "benchmarks"
CLOSE = {"rtol": 1e-3, "atol": 1e-3}


def flow(model, prompts, repeats: int) -> list[Row]:
    def ours():
        return run(model, prompts, [FlowReading("label")], progress=False)[0]

    assert_close(ours(), baselines.retained_flow(model, prompts, 8), rtol=1e-3, atol=1e-5)
    return [
        compare(
            "flow scores / bare forward + activation backward",
            ours,
            lambda: baselines.hugging_face_backward(model, prompts, 8),
            target="<= 1.15",
            repeats=repeats,
            inverse=True,
        ),
        compare(
            "retain_grad on every pattern, batch 8 / flow scores",
            ours,
            lambda: baselines.retained_flow(model, prompts, 8),
            target=">= 1.15",
            repeats=repeats,
        ),
        compare(
            "retain_grad on every pattern, batch 1 / flow scores",
            ours,
            lambda: baselines.retained_flow(model, prompts, 1),
            target=">= 1.5",
            repeats=repeats,
        ),
        compare(
            "analyze (no map) / flow scores",
            lambda: icl.analyze(model, prompts, maps=0, progress=False),
            lambda: icl.flow_scores(model, prompts, progress=False),
            target="<= 1.15",
            repeats=repeats,
            inverse=True,
        ),
    ]


def isolation(model, prompts, repeats: int) -> list[Row]:
    n_layers = adapt(model).info.n_layers

    def windows(sides):
        spans = {
            "first": lambda k: range(k),
            "last": lambda k: range(n_layers - k, n_layers),
        }
        return [
            Isolate(list(spans[side](k)), tokens=tokens)
            for side in sides
            for k in (1, 3, 5, 7)
            for tokens in ("label", "random")
        ]

    def ours(sides):
        return run_variants(
            model, prompts, [PredictionReading()], [[w] for w in windows(sides)], progress=False
        )

    def plain(sides, size):
        return [
            baselines.isolated_logits(
                model,
                prompts,
                window.layers,
                [window.isolated(prompt, i, 0) for i, prompt in enumerate(prompts)],
                size,
            )
            for window in windows(sides)
        ]

    both = ("first", "last")
    for mine, theirs in zip(ours(both), plain(both, 8), strict=True):
        assert_close(mine[0][0], theirs, **CLOSE)
    return [
        compare(
            f"a full run per isolation window, batch {size} / ours ({'+'.join(sides)})",
            lambda sides=sides: ours(sides),
            lambda sides=sides, size=size: plain(sides, size),
            target=target,
            repeats=max(1, repeats // 2),
        )
        for sides, size, target in (
            (both, 8, ">= 5"),
            (both, 1, ">= 8"),
            (("first",), 8, ">= 3.5"),
            (("first",), 1, ">= 4.5"),
        )
    ]


def target_only(model, prompts, repeats: int) -> list[Row]:
    adapted = adapt(model)
    info = adapted.info
    prepared = prepare(model, prompts)
    generator = torch.Generator().manual_seed(0)
    beta = torch.randn(info.n_layers, info.n_heads, prompts.n_labels, generator=generator) / 10

    def step():
        leaf = beta.clone().requires_grad_()
        for segment in prepared.segments:
            with adapted.gradients():
                output = adapted.forward(
                    segment.tokens,
                    segment.mask,
                    segment.positions,
                    cache=segment.cache,
                    hooks=Reweight(leaf).hooks(segment),
                )
                target_loss(segment.at_target(output.residual), segment, "label").sum().backward()
        return leaf.grad

    assert_close(step(), baselines.reweighted_step(model, prompts, beta, 8), rtol=1e-3, atol=1e-4)
    draws = [
        [ZeroHeads([(int(i) // info.n_heads, int(i) % info.n_heads) for i in heads])]
        for heads in (
            torch.randperm(info.n_layers * info.n_heads, generator=generator)[:5] for _ in range(20)
        )
    ]

    def rerun():
        readings = [PredictionReading()]
        return [run(model, prompts, readings, d, path="whole", batch_size=8) for d in draws]

    def variants():
        return run_variants(model, prompts, [PredictionReading()], draws, progress=False)

    for mine, theirs in zip(variants(), rerun(), strict=True):
        assert_close(mine[0][0], theirs[0][0], **CLOSE)
    return [
        compare(
            f"a beta step by whole prompts, batch {size} / by single tokens",
            step,
            lambda size=size: baselines.reweighted_step(model, prompts, beta, size),
            target=target,
            repeats=repeats,
        )
        for size, target in ((8, ">= 12"), (1, ">= 4"))
    ] + [
        compare(
            "20 head draws by whole prompts, batch 8 / ours, cache included",
            variants,
            rerun,
            target=">= 9",
            repeats=max(1, repeats // 3),
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["flow", "isolation", "target_only"])
    options = parser.parse_args()
    model = icl.load_model(options.model)
    prompts = icl.build_prompts(
        icl.load_task("headlines"), model, shots=1, n=options.prompts, seed=0
    )
    print(prompts)
    rows: list[Row] = []
    for case in (flow, isolation, target_only):
        if options.only in (None, case.__name__):
            for row in case(model, prompts, options.repeats):
                print(row, flush=True)
                rows.append(row)
    if options.only is None:
        write(rows, options, repr(prompts))


def write(rows: list[Row], options: argparse.Namespace, prompts: str) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    document = {
        "model": options.model,
        "prompts": prompts,
        "machine": machine,
        "repeats": options.repeats,
        "rows": [row.document() for row in rows],
    }
    (OUT / "engine.json").write_text(json.dumps(document, indent=1) + "\n")
    table = [
        "# Engine: ratios of two sides measured in one run",
        "",
        f"{options.model}, {prompts}; {machine}. Median of paired ratios [smallest, largest].",
        "",
        "| comparison | ratio | range | aim |",
        "|---|---|---|---|",
        *(f"| {r.name} | {r.ratio:.2f} | {r.low:.2f}-{r.high:.2f} | {r.target} |" for r in rows),
        "",
    ]
    (OUT / "engine.md").write_text("\n".join(table))


if __name__ == "__main__":
    main()
