"""What measurements give in half precision, quantised and off-loaded, and which need gradients: from tries.

    python -m tests.benchmarks.formats                  # writes docs/formats_table.md
    python -m tests.benchmarks.formats --formats bfloat16,float16
    python -m tests.benchmarks.formats --moves          # how far half precision moves SmolLM2's numbers

Every measurement is made in each format on the same prompts, with a Llama of random weights; some with
SmolLM2-135M. Its *deviation* from float32 is the largest, over the number fields of the result, of
||found - float32|| / ||float32||; `refused` is an error of ours, with its reason below the table. 8 and 4
bits need bitsandbytes, and are left out without it.

With `--moves` the offline model answers, and is measured on, three of the built-in tasks in float32, bfloat16
and float16. It writes docs/benchmarks/formats.md, and icl_mech/results/half_precision.json, which pages quote.
"""

import argparse
import gc
import inspect
import json
import re
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import icl_mech as icl
from icl_mech import measurements
from icl_mech.errors import IclMechError
from icl_mech.lenses import TunedLens, fit_jacobian_lens, fit_tuned_lens
from icl_mech.measurements import AnyMeasurement, PairMeasurement
from icl_mech.models import adapt

FORMATS = ("bfloat16", "float16", "8bit", "4bit", "off-loaded")
TABLE = Path(__file__).parents[2] / "docs" / "formats_table.md"

PAGE = TABLE.parent / "benchmarks" / "formats.md"
QUOTED = Path(__file__).parents[2] / "icl_mech" / "results" / "half_precision.json"

HALF = ("bfloat16", "float16")
TASKS = ("reviews", "headlines", "questions")
N, ISOLATED, DEPTH = 24, 8, 5
"""Prompts of a task, those of isolation, and the layers in which label words are isolated."""

TEXT = (
    "The film was good. Nobody saw it. Then a prize came. The hall was full. Many wrote of it. "
    "A second one followed. It was bad. The prize stayed."
)

FEWER: dict[str, dict[str, Any]] = {
    "Ablation": {"start": 2, "draws": 2},
    "CompareCompression": {"draws": 1},
    "CompareHeads": {"sets": {"one": [(0, 1), (1, 0)], "other": [(2, 1), (1, 1)]}, "draws": 2},
    "CompressContext": {},
    "Confusion": {"components": 2},
    "Generate": {"max_new_tokens": 4},
    "HeadAttention": {"heads": [(0, 1), (2, 1)]},
    "Reweighting": {"epochs": 1, "per_class": 1},
}
"""Options of measurements that need some, or that would take long."""


def known() -> dict[str, type[AnyMeasurement[Any, Any]]]:
    """All measurements that can be made, by class name."""
    kinds = ((name, getattr(measurements, name)) for name in measurements.__all__)
    return {
        name: kind
        for name, kind in kinds
        if isinstance(kind, type)
        and issubclass(kind, AnyMeasurement)
        and not inspect.isabstract(kind)
    }


@dataclass
class Prompts:
    """What all formats are given."""

    shared: icl.PromptBatch
    pair: tuple[icl.PromptBatch, icl.PromptBatch]
    texts: icl.PromptBatch

    @classmethod
    def of(cls, model: Any, task: Any, n: int = 4) -> "Prompts":
        pair = icl.build_prompt_pairs(task, model, shots=1, n=n, demonstrations="per_prompt")
        shared = icl.build_prompts(task, model, shots=1, n=n)
        return cls(shared, pair, icl.texts([TEXT, TEXT.replace("film", "match")], model))

    def of_kind(self, kind: type[AnyMeasurement[Any, Any]]) -> Any:
        if kind.__name__ in ("AnchorAgreement", "SpanFlow", "Suppression"):
            return self.texts
        if issubclass(kind, PairMeasurement):
            return self.pair
        side = getattr(kind, "side", None)
        return self.shared if side is None else self.pair[side == "false"]


def made(name: str, model: Any) -> AnyMeasurement[Any, Any]:
    """A measurement with few draws; vectors and lenses are the same for all formats."""
    info = adapt(model).info
    generator = torch.Generator().manual_seed(0)
    options = FEWER.get(name, {})
    if name == "Steer":
        options = {"vectors": torch.randn(info.n_layers, info.d_model, generator=generator)}
    if name == "EvaluateReweighting":
        beta = 0.1 * torch.randn(info.n_layers, info.n_heads, 1, generator=generator)
        options = {"reweighting": icl.Reweight(beta.expand(-1, -1, 2).contiguous())}
    if name == "CompareLenses":
        maps = 0.01 * torch.randn(info.n_layers, info.d_model, info.d_model, generator=generator)
        options = {"lens": TunedLens.given(model, maps, maps[..., 0].clone())}
    return known()[name](**options)


def numbers(result: Any) -> Iterator[tuple[str, Tensor]]:
    """Fields of a result that hold numbers, in float64."""
    return ((name, value.detach().double()) for name, value in fields_of(result))


def fields_of(value: Any) -> Iterator[tuple[str, Tensor]]:
    """Fields of a result that hold numbers with a fraction."""
    return ((name, each) for name, each in tensors_of(value) if each.is_floating_point())


def tensors_of(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors of a result, by the path of their field; empty ones are left out."""
    if isinstance(value, Tensor):
        if value.numel():
            yield name, value
    elif is_dataclass(value):
        for own in fields(value):
            if own.name not in ("provenance", "seconds", "speed", "readout", "probe", "training"):
                yield from tensors_of(getattr(value, own.name), f"{name}.{own.name}")
    elif isinstance(value, Mapping):
        for key, own in value.items():
            yield from tensors_of(own, f"{name}.{key}")
    elif isinstance(value, tuple | list):
        for place, own in enumerate(value):
            yield from tensors_of(own, f"{name}/{place}")


def deviation(found: Any, reference: Any) -> float:
    """The largest relative difference of a field."""
    theirs = dict(numbers(reference))
    largest = float("nan")
    for name, own in numbers(found):
        other = theirs.get(name)
        if other is None or other.shape != own.shape:
            continue  # what was chosen by its size
        both = own.isfinite() & other.isfinite()
        size = float(other[both].norm())
        if size:
            difference = float((own[both] - other[both]).norm()) / size
            largest = difference if largest != largest else max(largest, difference)
    return largest


@contextmanager
def counted(model: Any) -> Iterator[list[str]]:
    """How often a gradient pass is begun."""
    kind, seen = type(adapt(model)), []
    before = kind.gradients

    def gradients(self: Any) -> Any:
        seen.append("")
        return before(self)

    kind.gradients = gradients
    try:
        yield seen
    finally:
        kind.gradients = before


@dataclass
class Try:
    """One measurement in one format."""

    result: Any = None
    gradients: bool = False
    refused: str = ""
    seconds: float = 0.0


def tried(name: str, model: Any, prompts: Prompts) -> Try:
    """Make one measurement."""
    start = time.perf_counter()
    with counted(model) as seen:
        try:
            if name == "fit_tuned_lens":
                result = fit_tuned_lens(model, prompts.pair[0], epochs=1, progress=False)
            elif name == "fit_jacobian_lens":
                result = fit_jacobian_lens(
                    model, prompts.shared[:1], skip_first=4, rows=64, progress=False
                )
            else:
                measurement = made(name, model)
                data = prompts.of_kind(type(measurement))
                result = icl.measure(model, data, measurement, progress=False).results
            refused = ""
        except IclMechError as error:
            result, refused = None, f"{type(error).__name__}: {error}"
    return Try(result, bool(seen), refused, time.perf_counter() - start)


def names(fitted: bool = True) -> list[str]:
    """Measurements, and what fits lenses."""
    return [*known(), *(["fit_tuned_lens", "fit_jacobian_lens"] if fitted else [])]


def off_loaded(model_config: Any, prefix: str = "model") -> dict[str, str]:
    """A device map with every other block of a Llama on disk."""
    parts = (f"{prefix}.embed_tokens", f"{prefix}.norm", f"{prefix}.rotary_emb", "lm_head")
    blocks = {
        f"{prefix}.layers.{layer}": "disk" if layer % 2 else "cpu"
        for layer in range(model_config.num_hidden_layers)
    }
    return {**dict.fromkeys(parts, "cpu"), **blocks}


def loaded(given: Any, kind: str, folder: str) -> Any:
    """The model in a format."""
    if kind in ("8bit", "4bit"):
        return icl.load_model(given, device="cpu", quantization=kind)
    if kind == "off-loaded":
        config = icl.load_model(given, device="cpu").original_model.config
        return icl.load_model(given, device_map=off_loaded(config), offload_folder=folder)
    return icl.load_model(given, device="cpu", dtype=kind)


def there() -> list[str]:
    """Formats that can be tried here."""
    bits = find_spec("bitsandbytes") is not None
    return [kind for kind in FORMATS if bits or not kind.endswith("bit")]


MAIN = (
    *("Predict", "LogitLens", "Flow", "SaliencyMaps", "HeadScores", "Extraction", "Isolation"),
    *("LayerAccuracy", "ContextAccuracy", "Calibration", "TaskVector", "Generate", "SpanFlow"),
)
"""Measurements that are made with SmolLM2; the others with a small model of random weights."""


def small(folder: str) -> str:
    """A Llama of random weights in a folder."""
    from tests.tiny import tiny_hf, tiny_tokenizer

    tiny_hf("llama").save_pretrained(folder)
    tiny_tokenizer("sentencepiece").save_pretrained(folder)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--formats", default=",".join(there()))
    parser.add_argument("--out", type=Path, default=TABLE)
    parser.add_argument("--moves", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.moves:
        write_moves()
        return
    kinds = asked.formats.split(",")
    cells: dict[tuple[str, str], str] = {}
    gradients: dict[str, bool] = {}
    reasons: dict[str, None] = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as made:
        from tests.benchmarks.unchanged import TWO

        for given, task, wanted in ((small(made), TWO, names()), ("smollm2-135m", "reviews", MAIN)):
            model = icl.load_model(given, device="cpu")
            prompts = Prompts.of(model, task, n=4 if task is TWO else 2)
            first = {name: tried(name, model, prompts) for name in wanted}
            gradients |= {name: own.gradients for name, own in first.items() if task is TWO}
            for kind in kinds:
                model = None
                gc.collect()
                model = loaded(given, kind, folder)
                for name in wanted:
                    own = tried(name, model, prompts)
                    if own.refused:
                        reasons[f"{name}, {kind}: {own.refused}"] = None
                    found = "refused" if own.refused else "yes"
                    if task is not TWO and not own.refused:
                        found = shown(deviation(own.result, first[name].result))
                    cells[name, kind] = found
                    print(f"{given} {kind} {name}: {found} {own.seconds:.1f} s", flush=True)
    asked.out.write_text(table(gradients, kinds, cells, list(reasons)), encoding="utf-8")


@dataclass
class Moved:
    """What a format changed on one task, beside float32.

    Attributes:
        same: Prompts answered alike, of `N`.
        logit: Largest change of a label logit.
        flow: Largest change of a flow score, a share of 1.
        auc: Largest change of an AUC of extraction.
        loyalty: Largest change of a label loyalty of isolation, of `ISOLATED` prompts.
    """

    same: int
    logit: float
    flow: float
    auc: float
    loyalty: float


@dataclass
class Measured:
    """Numbers of one format on one task."""

    results: Mapping[str, Any]
    isolated: Any

    @classmethod
    def of(cls, model: Any, task: str) -> "Measured":
        prompts = icl.build_prompts(task, model, shots=1, n=N, seed=0)
        whole = (measurements.Predict(), measurements.Flow(), measurements.Extraction())
        isolated = measurements.Isolation(depths=(DEPTH,))
        runs = [
            icl.measure(model, prompts, *whole, progress=False),
            icl.measure(model, prompts[:ISOLATED], isolated, progress=False),
        ]
        return cls(runs[0].results, runs[1].results["isolation"])

    def moved_from(self, other: "Measured") -> Moved:
        """What is another than in float32."""

        def gap(name: str, field: str) -> float:
            pair = (getattr(own.results[name], field).double() for own in (self, other))
            return float(torch.sub(*pair).abs().nan_to_num().max())

        answers = (own.results["predictions"].predicted for own in (self, other))
        loyal = (own.isolated.label_kept.double().flatten(0, -2).mean(-1) for own in (self, other))
        return Moved(
            same=int(torch.eq(*answers).sum()),
            logit=gap("predictions", "label_logits"),
            flow=gap("flow", "values"),
            auc=gap("extraction", "auc"),
            loyalty=float(torch.sub(*loyal).abs().max()),
        )


def write_moves() -> None:
    """Measure, and write the page and what pages of runs quote."""
    measured: dict[tuple[str, str], Measured] = {}
    for kind in ("float32", *HALF):
        model = icl.load_model(device="cpu", dtype=kind)
        for task in TASKS:
            start = time.process_time()
            measured[kind, task] = Measured.of(model, task)
            print(f"{kind} {task}: {time.process_time() - start:.0f} s", flush=True)
    moved = {
        kind: [measured[kind, task].moved_from(measured["float32", task]) for task in TASKS]
        for kind in HALF
    }
    quoted = {kind: worst(own) for kind, own in moved.items()}
    of = {"model": "SmolLM2-135M", "tasks": list(TASKS), "prompts": N * len(TASKS)}
    text = json.dumps({**of, **quoted}, indent=1)
    QUOTED.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(moves_page(moved), encoding="utf-8")


def worst(each: list[Moved]) -> dict[str, float]:
    """Over the tasks: sums of counts, and the largest of the rest."""
    found: dict[str, float] = {own.name: 0 for own in fields(Moved)}
    for own in each:
        for name in found:
            value = getattr(own, name)
            counts = isinstance(value, int)
            found[name] = found[name] + value if counts else max(found[name], round(value, 4))
    return found


def moves_page(moved: Mapping[str, list[Moved]]) -> str:
    """The table."""
    head = (
        "# How much does half precision change the numbers?\n\n"
        "Generated by `python -m tests.benchmarks.formats --moves`. SmolLM2-135M on a CPU, one demonstration per class, "
        f"compared with float32. Predictions, flow and extraction use {N} prompts per task; label loyalty uses "
        f"{ISOLATED}, with label words or random tokens isolated in the first or last {DEPTH} layers. The table gives "
        "the largest differences: over prompts and labels (label logit), scores and layers (flow), layers (AUC), and "
        "isolations (label loyalty).\n\n"
    )
    names = ["format", "task", f"same prediction, of {N}", "label logit", "flow", "AUC"]
    rows = [[*names, "label loyalty"], ["---"] * 7]
    rows += [
        [
            *(kind, task, str(own.same), f"{own.logit:.3f}", f"{own.flow:.4f}", f"{own.auc:.3f}"),
            f"{own.loyalty:.3f}",
        ]
        for kind, each in moved.items()
        for task, own in zip(TASKS, each, strict=True)
    ]
    return head + "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def shown(found: float) -> str:
    if found != found:
        return "–"
    return "0" if found == 0 else f"{found:.1g}" if found < 1e-3 else f"{found:.3f}"


def table(
    needed: Mapping[str, bool],
    kinds: list[str],
    cells: Mapping[tuple[str, str], str],
    reasons: list[str],
) -> str:
    head = ["measurement", "gradients", *kinds]
    rows = [head, ["---"] * len(head)]
    for name in sorted(needed, key=lambda own: (own not in MAIN, own)):
        stem = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        rows.append(
            [
                f"`{stem}`",
                "yes" if needed[name] else "",
                *(cells.get((name, kind), "–") for kind in kinds),
            ]
        )
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"* {own}" for own in reasons), ""])


if __name__ == "__main__":
    main()
