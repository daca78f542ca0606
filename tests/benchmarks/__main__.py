"""Run all comparisons, or some, and put them into `docs/benchmarks/engine.json` and `engine.md`.

`python -m tests.benchmarks [--only flow lens] [--prompts 64] [--repeats 3]`; every comparison
checks that both sides give the same numbers before it times them. Rows of comparisons not run
stay as they were.
"""

import argparse
import json
import os
import platform
from pathlib import Path

import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.readings import target_loss
from icl_mech.interventions import Isolate, Reweight, ZeroHeads
from icl_mech.measurements.lens.components import FrozenComponentReading
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import adapt
from tests.benchmarks import baselines
from tests.benchmarks.measure import Other, Row, compare

OUT = Path(__file__).parents[2] / "docs" / "benchmarks"
CHECKED = 8
"""Prompts on which isolation windows are checked to be equal."""

TIMED = 4
"""Head draws of 20 that are run in full; each costs the same."""

CLOSE = {"rtol": 1e-3, "atol": 1e-3}


def flow(model, prompts, repeats: int) -> list[Row]:
    def ours(path="auto"):
        return run(model, prompts, [FlowReading("label")], path=path, progress=False)[0]

    def bare():
        baselines.hugging_face_backward(model, prompts, 8)

    assert_close(ours(), ours("whole"), rtol=1e-3, atol=1e-5)
    for size in (8, 1):
        assert_close(ours(), baselines.retained_flow(model, prompts, size), rtol=1e-3, atol=1e-5)
    bare_name = "bare forward + activation backward"
    whole = compare(
        lambda: ours("whole"),
        [Other(f"flow scores, whole prompts / {bare_name}", bare, "<= 1.15", inverse=True)],
        repeats=repeats,
    )
    return whole + compare(
        ours,
        [
            Other(
                "flow scores / flow scores, whole prompts",
                lambda: ours("whole"),
                "<= 0.8",
                inverse=True,
            ),
            Other(f"flow scores / {bare_name}", bare, "<= 1.15", inverse=True),
            Other(
                "retain_grad on every pattern, batch 8 / flow scores",
                lambda: baselines.retained_flow(model, prompts, 8),
                ">= 1.15",
            ),
            Other(
                "retain_grad on every pattern, batch 1 / flow scores",
                lambda: baselines.retained_flow(model, prompts, 1),
                ">= 1.5",
            ),
            Other(
                "analyze (no map) / flow scores",
                lambda: icl.analyze(model, prompts, maps=0, progress=False),
                "<= 1.15",
            ),
        ],
        repeats=repeats,
    )


def isolation(model, prompts, repeats: int) -> list[Row]:
    n_layers = adapt(model).info.n_layers
    spans = {"first": lambda k: range(k), "last": lambda k: range(n_layers - k, n_layers)}

    def windows(sides):
        return [
            Isolate(list(spans[side](k)), tokens=tokens)
            for side in sides
            for k in (1, 3, 5, 7)
            for tokens in ("label", "random")
        ]

    def ours(sides):
        variants = [[window] for window in windows(sides)]
        return run_variants(model, prompts, [PredictionReading()], variants, progress=False)

    def plain(chosen, size):
        return [
            baselines.isolated_logits(
                model,
                prompts,
                window.layers,
                [window.isolated(prompt, i, 0) for i, prompt in enumerate(prompts)],
                size,
            )
            for window in chosen
        ]

    both = ("first", "last")
    if len(prompts) > CHECKED:
        isolation(model, prompts[:CHECKED], 0)
    elif not repeats:
        for mine, theirs in zip(ours(both), plain(windows(both), 8), strict=True):
            assert_close(mine[0][0], theirs, **CLOSE)
        return []
    rows = []
    for sides, aims in ((both, (">= 5", ">= 8")), (("first",), (">= 3.5", ">= 4.5"))):
        # A full run costs the same whatever its window: two are timed, and counted as all.
        timed, count = windows(sides)[:2], len(windows(sides))
        others = [
            Other(
                f"a full run per isolation window, batch {size} / ours ({' + '.join(sides)})",
                lambda timed=timed, size=size: plain(timed, size),
                aim,
                times=count // 2,
            )
            for size, aim in zip((8, 1), aims, strict=True)
        ]
        rows += compare(lambda sides=sides: ours(sides), others, repeats=max(1, repeats // 2))
    return rows


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
                target_loss(output.residual, segment, "label").sum().backward()
        return leaf.grad

    for size in (8, 1):
        whole = baselines.reweighted_step(model, prompts, beta, size)
        assert_close(step(), whole, rtol=1e-3, atol=1e-4)
    draws = [
        [ZeroHeads([(int(i) // info.n_heads, int(i) % info.n_heads) for i in heads])]
        for heads in (
            torch.randperm(info.n_layers * info.n_heads, generator=generator)[:5] for _ in range(20)
        )
    ]

    def rerun():
        readings = [PredictionReading()]
        return [run(model, prompts, readings, d, path="whole", batch_size=8) for d in draws[:TIMED]]

    def variants():
        return run_variants(model, prompts, [PredictionReading()], draws, progress=False)

    for mine, theirs in zip(variants()[:TIMED], rerun(), strict=True):
        assert_close(mine[0][0], theirs[0][0], **CLOSE)
    steps = [
        Other(
            f"a beta step by whole prompts, batch {size} / by single tokens",
            lambda size=size: baselines.reweighted_step(model, prompts, beta, size),
            aim,
        )
        for size, aim in ((8, ">= 12"), (1, ">= 4"))
    ]
    return compare(step, steps, repeats=repeats) + compare(
        variants,
        [
            Other(
                "20 head draws by whole prompts, batch 8 / ours, cache included",
                rerun,
                ">= 9",
                times=len(draws) // TIMED,
            )
        ],
        repeats=max(1, repeats // 3),
    )


def lens(model, prompts, repeats: int) -> list[Row]:
    def ours():
        readings = [LayerLensReading(vocabulary=False), FrozenComponentReading()]
        return run(model, prompts, readings, progress=False)

    plain = baselines.cached_lens(model, prompts, 8)
    layers, components = ours()
    assert_close(layers.label_logits[:, 0], plain, **CLOSE)
    assert_close(components.total(), plain[:, -1], **CLOSE)
    return compare(
        ours,
        [
            Other(
                "lens of all layers and heads / bare forward with full logits",
                lambda: baselines.hugging_face_forward(model, prompts, 8),
                "<= 1.0",
                inverse=True,
            ),
            Other(
                "run_with_cache and a lens of all layers, batch 8 / lens of layers and heads",
                lambda: baselines.cached_lens(model, prompts, 8),
                "> 1",
            ),
        ],
        repeats=repeats,
    )


CASES = {"flow": flow, "isolation": isolation, "target_only": target_only, "lens": lens}

REMARKS = (
    "The isolation ratios are limited by the shared prefix, which is run once per window: with fewer prompts, fewer",
    "share its cost (141 tokens, compared with 34 per prompt). With 32 prompts instead of 64, batch 1, the ratios are",
    "7.62 and 4.29.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    model = icl.load_model(options.model)
    prompts = icl.build_prompts(
        icl.load_task("headlines"), model, shots=1, n=options.prompts, seed=0
    )
    print(prompts)
    rows: list[Row] = []
    for name in options.only:
        for row in CASES[name](model, prompts, options.repeats):
            print(row, flush=True)
            rows.append(row)
    write(rows, options.model, len(prompts), repr(prompts))


def write(rows: list[Row], model: str, count: int, prompts: str) -> None:
    """Put the rows into the stored table; those of the same name are replaced."""
    OUT.mkdir(parents=True, exist_ok=True)
    stored = OUT / "engine.json"
    old = json.loads(stored.read_text())["rows"] if stored.exists() else []
    machine = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.get_device_name()}"
    source = {"model": model, "prompts": count, "batch": prompts, "machine": machine}
    new = {row.name: {**row.document(), **source} for row in rows}
    merged = [new.pop(row["name"], row) for row in old] + list(new.values())
    stored.write_text(json.dumps({"rows": merged}, indent=1) + "\n")
    table = [
        "# Speed: ratios of two sides measured in one run",
        "",
        *dict.fromkeys(f"{row['model']}, {row['machine']}, {row['batch']}." for row in merged),
        "Medians of paired ratios [smallest, largest]; a single number is from a single repetition.",
        "Both sides are first checked to give equal results. `make bench` reproduces this table.",
        "",
        "| comparison | prompts | ratio | target |",
        "|---|---|---|---|",
        *map(_line, merged),
        "",
        *REMARKS,
    ]
    (OUT / "engine.md").write_text("\n".join(table) + "\n")


def _line(row: dict) -> str:
    spread = "" if row["repeats"] == 1 else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"| {row['name']} | {row['prompts']} | {row['ratio']:.2f}{spread} | {row['target']} |"


if __name__ == "__main__":
    main()
