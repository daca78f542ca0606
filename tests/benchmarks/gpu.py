"""All that is claimed of a GPU, measured on one in under ten minutes: `python -m tests.benchmarks.gpu`.

Four parts: every method gives on the GPU what it gives on the CPU (float32, a small random Llama); ratios of
two sides, and peak memory of prompts of 2,048 and 8,192 tokens, at the shapes of models with one and seven
billion parameters (random weights, bfloat16); how time and memory grow with the number of prompts. The tables
go to `docs/benchmarks/gpu.md` with the device's name. `--device cpu --small` tries the same lines elsewhere
and needs `--out`.
"""

import argparse
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.engine import run, run_variants
from icl_mech.errors import IclMechError
from icl_mech.interventions import Isolate
from icl_mech.measurements.lens.components import FrozenComponentReading
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import adapt
from tests.benchmarks import baselines
from tests.benchmarks.cards import CALLS, Setting
from tests.benchmarks.measure import Other, compare, seconds
from tests.benchmarks.memory import long_prompt

OUT = Path(__file__).parents[2] / "docs" / "benchmarks" / "gpu.md"
SIZES = {
    "1 B": {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "num_key_value_heads": 8},
    "7 B": {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "num_key_value_heads": 32},
}  # fmt: skip
SMALL = {
    "small": {
        "hidden_size": 64,
        "num_hidden_layers": 6,
        "intermediate_size": 128,
        "num_key_value_heads": 4,
    }
}
CLOSE = 2e-4
"""Largest difference between two devices in float32, over the largest value (or 1)."""


def llama(
    sizes: dict[str, int], device: str, dtype: torch.dtype, tokenizer: Any, made: str = ""
) -> Any:
    """A random Llama of these sizes, made where it runs unless told."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = 4 if sizes["hidden_size"] < 1024 else 32
    config = LlamaConfig(
        vocab_size=len(tokenizer), num_attention_heads=heads, max_position_embeddings=8192,
        attn_implementation="eager", tie_word_embeddings=True, **sizes,
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    try:
        torch.set_default_dtype(dtype)
        with torch.device(made or device):
            fresh = LlamaForCausalLM(config).eval().to(device)
    finally:
        torch.set_default_dtype(before)
    return icl.load_model(fresh, tokenizer=tokenizer)


def tensors(result: Any) -> dict[str, torch.Tensor]:
    """Numbers of a result, by field."""
    named = (
        {item.name: getattr(result, item.name) for item in fields(result)}
        if is_dataclass(result)
        else {}
    )
    return {
        name: own.detach().double().cpu()
        for name, own in named.items()
        if isinstance(own, torch.Tensor) and own.is_floating_point()
    }


def equality(device: str, tokenizer: Any, names: list[str]) -> Iterator[tuple[str, str]]:
    """Largest difference between CPU and device of each method."""
    kept = llama(SMALL["small"], "cpu", torch.float32, tokenizer)
    moved = llama(SMALL["small"], device, torch.float32, tokenizer, made="cpu")
    sides = [Setting(model, "headlines", 8) for model in (kept, moved)]
    for name in names:
        needs, call = CALLS[name]
        try:
            for side in sides:
                for need in needs:
                    getattr(side, need)
            one, two = (tensors(call(side)) for side in sides)
        except IclMechError as error:
            yield name, f"not measured: {error}"
            continue
        gaps = [
            float(
                (one[own] - two[own]).abs().nan_to_num().max()
                / one[own].abs().nan_to_num().max().clamp(min=1)
            )
            for own in one
            if one[own].numel()
        ]
        worst = max(gaps, default=0.0)
        yield name, f"{worst:.1e}" + (" **differs**" if worst > CLOSE else "")


def ratios(model: Any, n: int, repeats: int) -> Iterator[tuple[str, str]]:
    """Two sides of each comparison, in turn."""
    prompts = icl.build_prompts("headlines", model, shots=1, n=n, seed=0)
    layers = adapt(model).info.n_layers
    windows = [Isolate(list(range(k)), tokens="label") for k in (1, 3, 5)]
    windows += [Isolate(list(range(layers - k, layers)), tokens="label") for k in (1, 3, 5)]
    places = [windows[0].isolated(prompt, i, 0) for i, prompt in enumerate(prompts)]

    def flow() -> object:
        return run(model, prompts, [FlowReading("label")], progress=False)

    def isolated() -> object:
        return run_variants(
            model, prompts, [PredictionReading()], [[own] for own in windows], progress=False
        )

    def lens() -> object:
        readings: list[Any] = [LayerLensReading(vocabulary=False), FrozenComponentReading()]
        return run(model, prompts, readings, progress=False)

    bare = Other(
        "flow scores / bare forward and backward, batch 8",
        lambda: baselines.hugging_face_backward(model, prompts, 8), "", inverse=True,
    )  # fmt: skip
    retained = Other(
        "`retain_grad` on every pattern, batch 8 / flow scores",
        lambda: baselines.retained_flow(model, prompts, 8), "",
    )  # fmt: skip
    full = Other(
        "a full run per isolation window, batch 8 / ours",
        lambda: baselines.isolated_logits(model, prompts, windows[0].layers, places, 8), "", times=len(windows),
    )  # fmt: skip
    cached = Other(
        "`run_with_cache` and a lens of all layers, batch 8 / lens of layers and heads",
        lambda: baselines.cached_lens(model, prompts, 8), "",
    )  # fmt: skip
    for ours, others in ((flow, (bare, retained)), (isolated, (full,)), (lens, (cached,))):
        ours()
        for other in others:
            other.run()
        for row in compare(ours, others, repeats=repeats):
            yield row.name, f"{row.ratio:.2f} [{row.low:.2f}, {row.high:.2f}]"


def peak(device: str, function: Callable[[], object]) -> str:
    """Peak memory above what was there, or that it does not fit."""
    if device == "cpu":
        function()
        return "–"
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    try:
        function()
    except (torch.cuda.OutOfMemoryError, IclMechError):
        gc.collect()
        torch.cuda.empty_cache()
        return "does not fit"
    return f"{(torch.cuda.max_memory_allocated() - before) / 1e9:.2f} GB"


def memory(model: Any, device: str, lengths: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Peaks of flow scores of one long prompt, ours and plain."""
    for length in lengths:
        prompts = long_prompt(model.cfg.d_vocab, length)
        yield (
            f"{length} tokens, ours",
            peak(
                device, lambda prompts=prompts: run(model, prompts, [FlowReading()], progress=False)
            ),
        )
        yield (
            f"{length} tokens, `retain_grad` on every pattern",
            peak(device, lambda prompts=prompts: baselines.retained_flow(model, prompts, 1)),
        )


def growth(model: Any, device: str, counts: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """Time of a prompt and peak memory of flow scores of so many."""
    prompts = icl.build_prompts(
        "headlines", model, shots=1, n=64, seed=0, demonstrations="per_prompt"
    )
    for count in counts:
        repeated = prompts[[i % len(prompts) for i in range(count)]]
        took: list[float] = []

        def flow(repeated: Any = repeated, took: list[float] = took) -> None:
            took.append(seconds(lambda: run(model, repeated, [FlowReading()], progress=False)))

        most = peak(device, flow)
        yield (
            f"{count} prompts",
            f"{1000 * took[0] / count:.1f} ms a prompt, {most}" if took else most,
        )


def main() -> None:
    """All parts, printed as they come and written at the end."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--small", action="store_true", help="a small model in place of 1 B and 7 B"
    )
    parser.add_argument("--methods", nargs="*", default=list(CALLS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    cuda = given.device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        parser.error(
            "torch finds no GPU here; --device cpu --small --out FILE tries the same lines"
        )
    if not cuda and given.out is None:
        parser.error(
            "a table of another device is written where --out says, not into the documentation"
        )
    warnings.simplefilter("ignore")
    tokenizer = icl.load_model().tokenizer
    name = torch.cuda.get_device_name() if cuda else "CPU"
    lines = [
        f"# On a GPU: {name}",
        "",
        f"torch {torch.__version__}; `python -m tests.benchmarks.gpu` repeats it.",
    ]

    def part(title: str, heads: str, rows: Iterator[tuple[str, str]]) -> None:
        lines.extend(["", f"## {title}", "", heads, "|---|---|"])
        for what, found in rows:
            print(f"{title}: {what}: {found}", flush=True)
            lines.append(f"| {what} | {found} |")

    part(
        "CPU and GPU",
        "| method, float32 | largest difference |",
        equality(given.device, tokenizer, given.methods),
    )
    for size, shape in (SMALL if given.small else SIZES).items():
        model = llama(shape, given.device, torch.bfloat16, tokenizer)
        n, repeats = (8, 1) if given.small else (32, 3)
        lengths, counts = ((128,), (4, 8)) if given.small else ((2048, 8192), (16, 64, 256))
        what = f"{size}, random weights, bfloat16"
        part(f"Ratios, {what}", "| comparison | ratio |", ratios(model, n, repeats))
        part(
            f"Memory, {what}",
            "| flow scores of one prompt | peak |",
            memory(model, given.device, lengths),
        )
        part(f"Prompts, {what}", "| flow scores | cost |", growth(model, given.device, counts))
        del model
        gc.collect()
        with torch.cuda.device(given.device) if cuda else nullcontext():
            torch.cuda.empty_cache()
    (given.out or OUT).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
