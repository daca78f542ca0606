"""All that is claimed of a GPU, measured on one: `python -m tests.benchmarks.gpu`.

Parts, each to be had alone (`--part profile --size "1 B" --limit 120`): `equality` of every method with the CPU,
in float32, over five families; `ratios` of two sides that take turns; peak `memory` of long prompts; `growth` with
the number of prompts; a `profile` of what each method does beside computing; a label-words `study`; `formats`, the
deviation of half precision. Models have random weights, of the shapes of 1 and 7 billion parameters in bfloat16
where numbers are times. A table and a JSON file beside it are written anew after every row.

Neither an installed package nor the offline model is needed: a source tree on `PYTHONPATH`, and `--tokenizer` with a
folder that `tokenizer.save_pretrained` wrote. `--device cpu --small --out FILE` tries all parts in a minute.
"""

import argparse
import copy
import gc
import os
import platform
import statistics
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import icl_mech as icl
from icl_mech.errors import IclMechError
from icl_mech.interventions import Isolate
from icl_mech.models import adapt
from icl_mech.names import VERSIONED, version
from tests.benchmarks import baselines
from tests.benchmarks.cards import CALLS, Setting
from tests.benchmarks.formats import deviation, tensors_of
from tests.benchmarks.instrument import Measured, Number, Plan, Report, attempted, peak
from tests.benchmarks.measure import Other, compare, seconds
from tests.benchmarks.memory import long_prompt
from tests.benchmarks.profiling import counted, profiled

ROOT = Path(__file__).parents[2]
OUT = Path("gpu_measured.md")

SIZES: dict[str, dict[str, int]] = {
    "1 B": {"hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8},
    "7 B": {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "num_attention_heads": 32, "num_key_value_heads": 32},
    "small": {"hidden_size": 64, "num_hidden_layers": 6, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 4},
}  # fmt: skip
OFFLINE = {"hidden_size": 576, "num_hidden_layers": 30, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}  # fmt: skip
"""Shape of the offline model."""

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "gpt2": {},
    "gpt_neox": {},
    "gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "qwen2": {"num_key_value_heads": 2, "tie_word_embeddings": True},
}
FAMILY_SHAPE = {"hidden_size": 32, "num_hidden_layers": 6, "intermediate_size": 64, "num_attention_heads": 4, "max_position_embeddings": 2048}  # fmt: skip

CLOSE = 2e-5
"""Largest difference between two devices in float32, over the largest value (or 1)."""

FEW = ("predict", "flow_scores", "logit_lens", "isolation")
"""Methods that are compared where a run is only tried."""

QUIET: dict[str, Any] = {"progress": False}


@dataclass(frozen=True)
class Amount:
    """How much is measured: prompts, repetitions, lengths; and whether the study takes the offline model."""

    prompts: int = 32
    few: int = 4
    compared: int = 8
    repeats: int = 3
    lengths: tuple[int, ...] = (2048, 8192)
    counts: tuple[int, ...] = (16, 64, 256)
    study: int = 8
    offline: bool = True


TRIED = Amount(
    prompts=4, few=2, compared=2, repeats=1, lengths=(128,), counts=(2, 4), study=2, offline=False
)


def llama(sizes: dict[str, int], device: str, dtype: torch.dtype, tokenizer: Any) -> Any:
    """A random Llama of these sizes, made where it runs."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "llama", vocab_size=len(tokenizer), max_position_embeddings=8192, tie_word_embeddings=True, **sizes
    )  # fmt: skip
    before = torch.get_default_dtype()
    torch.manual_seed(0)
    try:
        torch.set_default_dtype(dtype)
        with torch.device(device):
            fresh = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    finally:
        torch.set_default_dtype(before)
    return icl.load_model(fresh, tokenizer=tokenizer)


def tiny(family: str, tokenizer: Any) -> Any:
    """A small random Hugging Face model of a family, in float32, on the CPU."""
    from transformers import AutoConfig, AutoModelForCausalLM

    ends = {
        f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")
    }
    config = AutoConfig.for_model(
        family, vocab_size=len(tokenizer), initializer_range=0.15, **ends, **FAMILY_SHAPE, **FAMILIES[family],
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.config.architectures = [type(model).__name__]
    return model


@dataclass
class Bench:
    """Where and how much is measured, and the model that is loaded now."""

    device: str
    tokenizer: Any
    amount: Amount = Amount()
    methods: Sequence[str] = tuple(CALLS)
    families: Sequence[str] = tuple(FAMILIES)
    late: Callable[[], bool] = lambda: False
    loaded: dict[str, Any] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether the device is a GPU of CUDA."""
        return self.device.startswith("cuda")

    def model(self, size: str) -> Any:
        """The random Llama of a size in bfloat16; that of another size is let go."""
        if size not in self.loaded:
            self.free()
            self.loaded[size] = llama(SIZES[size], self.device, torch.bfloat16, self.tokenizer)
        return self.loaded[size]

    def free(self) -> None:
        """Let the loaded model go."""
        self.loaded.clear()
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()


# --- parts ---


def equality(bench: Bench) -> tuple[Plan, str]:
    """Largest difference between the CPU and the device, of each method and family."""
    plan = []
    for family in bench.families:
        sides = Sides(bench, family)
        plan += [(f"{family}: {name}", partial(sides.compared, name)) for name in bench.methods]
    return plan, (
        "Largest difference of a number of the result, over the largest value of its field, or over 1 where that "
        "is smaller; how many whole numbers (classes, tokens, layers) are others. float32, tiny random models."
    )


@dataclass
class Sides:
    """One tiny model on the CPU and on the device."""

    bench: Bench
    family: str

    @cached_property
    def settings(self) -> tuple[Setting, Setting]:
        """What methods need, on either side."""
        model, tokenizer = tiny(self.family, self.bench.tokenizer), self.bench.tokenizer
        sides = (model, copy.deepcopy(model).to(self.bench.device))
        one, two = (icl.load_model(side, tokenizer=tokenizer) for side in sides)
        n = self.bench.amount.compared
        return Setting(one, "headlines", n), Setting(two, "headlines", n)

    def compared(self, name: str) -> Measured:
        """The largest difference of a method."""
        return difference(*(called(name, side) for side in self.settings))


def called(name: str, setting: Setting) -> Any:
    """The result of a method, after what it needs."""
    needs, call = CALLS[name]
    for need in needs:
        getattr(setting, need)
    return call(setting)


def difference(one: Any, two: Any) -> Measured:
    """The largest difference between two results' fractions, and how many of their whole numbers differ, as a row."""
    first, second = dict(tensors_of(one)), dict(tensors_of(two))
    if not first and not second:
        return (), "no numbers to compare"
    gaps, changed = [0.0], {}
    for name in first.keys() | second.keys():
        if name not in first or name not in second:
            return _differs(f"{name.strip('.')} is on one side only")
        fraction = first[name].is_floating_point()
        a, b = (side[name].detach().double().cpu() for side in (first, second))
        if a.shape != b.shape:
            return _differs(f"{name.strip('.')} has another shape")
        if not torch.equal(a.isfinite(), b.isfinite()):
            return _differs(f"{name.strip('.')} is not finite in other places")
        if not fraction:
            changed[name.strip(".")] = int((a != b).sum())
            continue
        largest = a.nan_to_num(0, 0, 0).abs().max().clamp(min=1)
        gaps.append(float((a - b)[a.isfinite()].abs().max() / largest) if a.isfinite().any() else 0)
    numbers = [
        Number("largest difference", max(gaps), aim=f"<= {CLOSE:g}"),
        Number("whole numbers that differ", sum(changed.values()), aim="<= 0"),
    ]
    where = [f"{count} of {name}" for name, count in sorted(changed.items()) if count]
    differs = bool(where) or max(gaps) > CLOSE
    return numbers, ": ".join(["**differs**"] * differs + ["; ".join(where)] * bool(where))


def _differs(what: str) -> Measured:
    return [Number("largest difference", None, aim=f"<= {CLOSE:g}")], f"**differs**: {what}"


def ratios(bench: Bench, size: str) -> tuple[Plan, str]:
    """Two sides of each comparison, in turn."""
    model, amount = bench.model(size), bench.amount
    each = _prompts(model, amount.prompts, "per_prompt")
    shared = _prompts(model, amount.prompts)
    depths = [1, 3, 5]
    window = Isolate([0], tokens="label")
    places = [window.isolated(prompt, i, 0) for i, prompt in enumerate(shared)]

    def forward() -> None:
        baselines.hugging_face_forward(model, each, 8, kept=1)

    def both(prompts: Any) -> Callable[[], None]:
        return lambda: baselines.hugging_face_backward(model, prompts, 8)

    def flow(prompts: Any) -> Callable[[], object]:
        return lambda: icl.flow_scores(model, prompts, **QUIET)

    def lens() -> object:
        return icl.logit_lens(model, each, vocabulary=False, **QUIET)

    def isolated() -> object:
        return icl.isolation(model, shared, depths=depths, tokens="label", draws=1, **QUIET)

    def full() -> object:
        return baselines.isolated_logits(model, shared, window.layers, places, 8)

    def predicted() -> object:
        return icl.predict(model, each, **QUIET)

    cases = (
        (predicted, Other("predict / bare forward of the same rows", forward, "<= 1.0", inverse=True)),
        (flow(each), Other("flow scores / bare forward and backward", both(each), "<= 1.1", inverse=True)),
        (flow(shared), Other("flow scores, shared demonstrations / bare forward and backward", both(shared), "<= 1.1", inverse=True)),
        (lens, Other("logit lens of all layers / bare forward", forward, "<= 1.2", inverse=True)),
        (lens, Other("`run_with_cache` and a lens of all layers / logit lens", lambda: baselines.cached_lens(model, each, 8), ">= 1.5")),
        (isolated, Other("a full run per window / isolation of the same windows", full, ">= 4", times=2 * len(depths))),
        (flow(each), Other("`retain_grad` on every pattern / flow scores", lambda: baselines.retained_flow(model, each, 8), "")),
    )  # fmt: skip
    plan = [(other.name, partial(_compared, bench, ours, other)) for ours, other in cases]
    return plan, (
        f"{_sized(each)}; every demonstration of its prompt, but shared ones for isolation and where it says so. "
        "Plain sides run 8 prompts at a time. Median and range of paired ratios; both sides ran once before."
    )


def _compared(bench: Bench, ours: Callable[[], object], other: Other) -> Measured:
    ours()
    other.run()
    [row] = compare(ours, [other], repeats=bench.amount.repeats, late=bench.late)
    times = [
        Number(side, 1000 * row.seconds[name], "ms")
        for side, name in (("icl_mech", "ours"), ("other side", "other"))
    ]
    ratio = Number("ratio", row.ratio, low=row.low, high=row.high, aim=row.target)
    return [ratio, *times], "" if row.repeats == bench.amount.repeats else f"{row.repeats} pairs"


def _prompts(model: Any, n: int, demonstrations: Any = "shared", seed: int = 0) -> icl.PromptBatch:
    return icl.build_prompts(
        "headlines", model, shots=1, n=n, seed=seed, demonstrations=demonstrations
    )


def _sized(prompts: icl.PromptBatch) -> str:
    lengths = [len(prompt) for prompt in prompts]
    return f"{len(lengths)} prompts of {min(lengths)} to {max(lengths)} tokens"


def memory(bench: Bench, size: str) -> tuple[Plan, str]:
    """Peaks of flow scores of one long prompt, ours and plain."""
    model, plan = bench.model(size), []

    def measured(function: Callable[[], object]) -> Measured:
        took, most = peak(bench.device, function)
        return [Number("peak", most, "GB"), Number("time", took, "ms")], ""

    for length in bench.amount.lengths:
        prompts = long_prompt(model.cfg.d_vocab, length)
        sides: dict[str, Callable[[], object]] = {
            "flow scores": partial(icl.flow_scores, model, prompts, **QUIET),
            "`retain_grad` on every pattern": partial(baselines.retained_flow, model, prompts, 1),
        }
        plan += [
            (f"{name}, {length:,} tokens", partial(measured, function))
            for name, function in sides.items()
        ]
    return (
        plan,
        "One prompt with eight label words; peak above the loaded model, counted on a GPU only.",
    )


def growth(bench: Bench, size: str) -> tuple[Plan, str]:
    """Time of a prompt and peak memory of flow scores of so many."""
    model = bench.model(size)
    prompts = _prompts(model, min(64, max(bench.amount.counts)), "per_prompt")
    icl.flow_scores(model, prompts[:2], **QUIET)

    def measured(count: int) -> Measured:
        repeated = prompts[[i % len(prompts) for i in range(count)]]
        took, most = peak(bench.device, lambda: icl.flow_scores(model, repeated, **QUIET))
        return [Number("time of a prompt", took / count, "ms"), Number("peak", most, "GB")], ""

    plan = [(f"{count} prompts", partial(measured, count)) for count in bench.amount.counts]
    return plan, f"Flow scores, {_sized(prompts)}, repeated."


def profile(bench: Bench, size: str) -> tuple[Plan, str]:
    """What each method does beside computing."""
    model, amount = bench.model(size), bench.amount
    each = _prompts(model, amount.prompts, "per_prompt")
    shared = _prompts(model, amount.prompts)
    few = amount.few
    true, false = icl.build_prompt_pairs(
        "headlines", model, shots=1, n=few, seed=0, demonstrations="per_prompt"
    )
    calls: dict[str, Callable[[], object]] = {
        "bare forward": lambda: baselines.hugging_face_forward(model, each, 8, kept=1),
        "bare forward and backward": lambda: baselines.hugging_face_backward(model, each, 8),
        "predict": lambda: icl.predict(model, each, **QUIET),
        "flow scores": lambda: icl.flow_scores(model, each, **QUIET),
        "flow scores, shared demonstrations": lambda: icl.flow_scores(model, shared, **QUIET),
        "logit lens": lambda: icl.logit_lens(model, each, **QUIET),
        "extraction": lambda: icl.extraction(model, each, **QUIET),
        f"isolation, {few} prompts": lambda: icl.isolation(model, shared[:few], **QUIET),
        f"attribution patching, {few} pairs": lambda: icl.attribution_patching(
            model, true, false, exact=False, **QUIET
        ),
    }
    plan = [(name, partial(_profiled, bench, model, function)) for name, function in calls.items()]
    return plan, (
        f"{_sized(each)}, 8 at a time in bare passes. The first call, and the middle one of those after it; counts "
        "are of one call each. Idle share: 1 - time in which the device worked / middle time."
    )


def _profiled(bench: Bench, model: Any, function: Callable[[], object]) -> Measured:
    first, _ = peak(bench.device, function)
    times: list[float] = []
    while len(times) < bench.amount.repeats and not (times and bench.late()):
        took, most = peak(bench.device, function)
        times.append(took)
    middle = statistics.median(times)
    numbers = [Number("first", first, "ms"), Number("middle", middle, "ms")]
    numbers += [Number("peak", most, "GB")] if bench.cuda else []
    if bench.late():
        return numbers, "not counted: out of time"
    with counted(model) as calls:
        function()
    numbers += [Number("passes", calls.passes), Number("module calls", calls.modules)]
    return [*numbers, *profiled(function, middle, device=bench.cuda)], ""


def study(bench: Bench) -> tuple[Plan, str]:
    """Seconds of a label-words study."""
    bench.free()
    n = bench.amount.study
    model, what = _studied(bench)
    prompts = _prompts(model, n)
    icl.predict(model, prompts[:2], **QUIET)

    def analyze(prompts: icl.PromptBatch) -> object:
        return icl.analyze(model, prompts, study="label_words", **QUIET)

    def timed() -> Measured:
        with counted(model, modules=False) as calls:
            took = seconds(partial(analyze, prompts))
        numbers = [Number("time", took, "s", aim="<= 15"), Number("passes", calls.passes)]
        return [*numbers, Number("time of a pass", 1000 * took / max(1, calls.passes), "ms")], ""

    def modules() -> Measured:
        with counted(model) as calls:
            analyze(_prompts(model, n, seed=1))
        return [Number("passes", calls.passes), Number("module calls", calls.modules)], ""

    plan = [(f"label words, n = {n}", timed), ("other prompts, module calls counted", modules)]
    return plan, f"{what}, {adapt(model).info.dtype}, after one prediction of two prompts."


def _studied(bench: Bench) -> tuple[Any, str]:
    """The offline model, or a random one of its shape, and what it is."""
    if not bench.amount.offline:
        model = llama(SIZES["small"], bench.device, torch.float32, bench.tokenizer)
        return model, "A small model of random weights"
    try:
        return icl.load_model(device=bench.device), "SmolLM2-135M"
    except IclMechError:
        model = llama(OFFLINE, bench.device, torch.float32, bench.tokenizer)
        return model, (
            "**Random weights of the shape of SmolLM2-135M** (30 layers, 9 heads, 3 of keys and values, width 576): the "
            "offline model is not installed here. Time and passes are those of its shape; what a study finds is not"
        )


def formats(bench: Bench) -> tuple[Plan, str]:
    """Deviation of each method in half precision, and quantised, from float32 on the device."""
    kinds = ["bfloat16", "float16"]
    if find_spec("bitsandbytes") is not None and bench.cuda:
        kinds += ["8bit", "4bit"]
    settings: dict[str, Setting] = {}
    with tempfile.TemporaryDirectory() as folder:
        tiny("llama", bench.tokenizer).save_pretrained(folder)
        bench.tokenizer.save_pretrained(folder)
        for kind in ("float32", *kinds):
            how: dict[str, Any] = {"quantization" if kind.endswith("bit") else "dtype": kind}
            model = icl.load_model(folder, device=bench.device, **how)
            settings[kind] = Setting(model, "headlines", bench.amount.compared)

    def against(name: str, kind: str, reference: Any) -> Measured:
        gap = deviation(called(name, settings[kind]), reference)
        return [Number(kind, None if gap != gap else gap)], ""

    def deviating(name: str) -> Measured:
        reference = called(name, settings["float32"])
        numbers: list[Number] = []
        notes: list[str] = []
        for kind in kinds:
            values, why = attempted(partial(against, name, kind, reference))
            numbers += values
            notes += [f"{kind} {why}"] if why else []
        return numbers, "; ".join(notes)

    plan = [(name, partial(deviating, name)) for name in bench.methods]
    return plan, (
        "Largest deviation of a field, ||difference|| / ||float32||, of a tiny random Llama. Methods that choose by "
        "size may choose others."
    )


WHOLE: dict[str, Callable[[Bench], tuple[Plan, str]]] = {
    "equality": equality, "study": study, "formats": formats,
}  # fmt: skip
"""Parts with models of their kind."""

SIZED: dict[str, Callable[[Bench, str], tuple[Plan, str]]] = {
    "ratios": ratios, "memory": memory, "growth": growth, "profile": profile,
}  # fmt: skip
"""Parts that are measured at each size."""

DTYPES = {"equality": "float32", "study": "float32", "formats": ""}
PARTS = ("equality", *SIZED, "study", "formats")
TITLES = {
    "equality": "CPU and device",
    "ratios": "Ratios",
    "memory": "Memory",
    "growth": "Prompts",
    "profile": "Profile",
    "study": "Study",
    "formats": "Formats",
}


def order(parts: Sequence[str], sizes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each part with its size, or ""; those of one size together, so that its model is loaded once."""
    sized = [part for part in parts if part in SIZED]
    for part in parts:
        if part not in SIZED:
            yield part, ""
        elif part == sized[0]:
            yield from ((one, size) for size in sizes for one in sized)


# --- the whole ---


def about(device: str, commit: str) -> dict[str, str]:
    """Device, versions and source of a run."""
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(torch.device(device))
    else:
        name = f"{platform.machine()}, {torch.get_num_threads()} threads"
    return {
        "device": f"{device} ({name})",
        **{package: version(package) for package in VERSIONED},
        "commit": commit,
        "CUDA": str(torch.version.cuda or ""),
        "Python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def commit_of(folder: Path) -> str:
    """The commit of a source tree, with "-dirty" where files differ from it; "" where git knows none."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def tokenizer_at(folder: str | None) -> Any:
    """The tokenizer of a folder, or that of the offline model."""
    if folder is None:
        from icl_mech.models.loading import load_tokenizer

        return load_tokenizer()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, local_files_only=True)


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    made.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    made.add_argument("--size", nargs="+", choices=list(SIZES), help='default: "1 B" "7 B"')
    made.add_argument("--limit", type=float, help="seconds for each part of each size")
    made.add_argument("--total", type=float, help="seconds for all of them")
    made.add_argument("--device", default="cuda")
    made.add_argument("--tokenizer", help="folder of a saved tokenizer; default: that of the offline model")  # fmt: skip
    made.add_argument("--methods", nargs="+", choices=list(CALLS), metavar="METHOD", help="of equality and formats")  # fmt: skip
    made.add_argument(
        "--family", nargs="+", choices=list(FAMILIES), help="of equality; default: all"
    )
    made.add_argument("--repeats", type=int, help="pairs of a ratio, calls of a profile")
    made.add_argument("--small", action="store_true", help="a small model and few prompts, to try it")  # fmt: skip
    made.add_argument("--commit", help="of a source tree without git")
    made.add_argument("--out", type=Path, help=f"the table; the JSON file stands beside it ({OUT})")
    return made


def main() -> None:
    """All parts, printed as they come; both files are written after every row."""
    asking = parser()
    given = asking.parse_args()
    cuda = given.device.startswith("cuda")
    if cuda and not torch.cuda.is_available():
        asking.error(
            "torch finds no GPU here; --device cpu --small --out FILE tries the same lines"
        )
    if not cuda and given.out is None:
        asking.error("a table of another device is written where --out says")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers.utils.logging import disable_progress_bar

    warnings.simplefilter("ignore")
    if not cuda:
        torch.set_num_threads(1)
    disable_progress_bar()
    try:
        tokenizer = tokenizer_at(given.tokenizer)
    except (IclMechError, OSError, ValueError) as error:
        asking.error(f"no tokenizer ({error}); give --tokenizer the folder of a saved one")
    amount = TRIED if given.small else Amount()
    methods = given.methods or (FEW if given.small else CALLS)
    facts = about(given.device, given.commit or commit_of(ROOT))
    report = Report(
        given.out or OUT, f"Measured on {facts['device']}", facts, limit=given.limit, total=given.total
    )  # fmt: skip
    bench = Bench(
        given.device, tokenizer, amount, list(methods), given.family or list(FAMILIES), report.late
    )
    if given.repeats:
        bench.amount = replace(amount, repeats=given.repeats)
    sizes = given.size or (["small"] if given.small else ["1 B", "7 B"])
    for part, size in order(given.part, sizes):
        if part in SIZED:
            report.measure(
                part, f"{TITLES[part]}, {size}, random weights, bfloat16",
                partial(SIZED[part], bench, size), size=size, dtype="bfloat16",
            )  # fmt: skip
        else:
            report.measure(part, TITLES[part], partial(WHOLE[part], bench), size="", dtype=DTYPES[part])  # fmt: skip
    report.finish()
    print(f"{report.path} and {report.path.with_suffix('.json')}")


if __name__ == "__main__":
    main()
