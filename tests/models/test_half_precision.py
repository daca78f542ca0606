"""bfloat16 and float16 beside float32, per measurement; whatever is reduced is reduced in float32 or wider."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

import icl_mech as icl
from tests.benchmarks import formats
from tests.benchmarks.unchanged import TWO
from tests.engine.cases import ragged
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

HALF = ("bfloat16", "float16")
ALLOWED = {"bfloat16": 0.2, "float16": 0.03}
"""Largest deviation (see `formats.deviation`) on random weights; seen: half of these at most."""

MORE = {
    "AnchorAgreement": {"bfloat16": 0.9, "float16": 0.03},  # ranks of five spans
    "AnchorTokens": {"bfloat16": 0.9, "float16": 0.2},  # divided by medians nearby
    "SaliencyMaps": {"bfloat16": 0.7, "float16": 0.04},  # every edge by itself
    "Gain": {"bfloat16": 0.6, "float16": 0.6},  # one answer more or less of a few
    "Reweighting": {"bfloat16": 0.6, "float16": 0.03},  # steps of Adam
    "SaliencyCheck": {"bfloat16": 0.4, "float16": 0.05},  # ranks
}
CHOOSING = {"bfloat16": ("Generate", "CompareCompression", "CompressDemonstrations")}
"""Words, and tokens to keep, may be others where a digit is."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The same weights in each format."""
    folder = tmp_path_factory.mktemp("half")
    tiny_hf("llama").save_pretrained(folder)
    tiny_tokenizer("sentencepiece").save_pretrained(folder)
    return {kind: icl.load_model(str(folder), dtype=kind) for kind in ("float32", *HALF)}


@pytest.fixture(scope="module")
def prompts(models):
    return formats.Prompts.of(models["float32"], TWO)


QUICK = ("Flow", "Predict", "LogitLens", "Extraction", "HeadScores")
NAMES = [
    own if own in QUICK else pytest.param(own, marks=pytest.mark.slow) for own in formats.names()
]


class Reduced(TorchFunctionMode):
    """Notes sums, means, softmaxes and the like that code of the package asks for in half precision."""

    KINDS = frozenset(
        [
            "sum",
            "mean",
            "nansum",
            "nanmean",
            "std",
            "var",
            "norm",
            "softmax",
            "log_softmax",
            "logsumexp",
            "cumsum",
            "prod",
            "median",
            "quantile",
            "sum_to_size",
            "trapezoid",
            "cosine_similarity",
            "corrcoef",
            "cov",
            "kl_div",
            "cross_entropy",
        ]
    )

    def __init__(self):
        self.found: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").strip("_")
        first = args[0] if args else kwargs.get("input")
        if (
            name in self.KINDS
            and isinstance(first, torch.Tensor)
            and first.dtype in (torch.bfloat16, torch.float16)
            and kwargs.get("dtype") not in (torch.float32, torch.float64)
        ):
            frame = sys._getframe(1)
            # Through beartype's checks and torch's own Python to whoever asked.
            while "/torch/" in frame.f_code.co_filename:
                frame = frame.f_back
            where = Path(frame.f_code.co_filename)
            if "icl_mech" in where.parts and "tests" not in where.parts:
                self.found.append(f"{name} in {where.name}:{frame.f_lineno}")
        return func(*args, **kwargs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HALF)
def test_a_measurement_in_half_precision(models, prompts, kind, name):
    expected = formats.tried(name, models["float32"], prompts)
    with Reduced() as mode:
        found = formats.tried(name, models[kind], prompts)
    assert not expected.refused + found.refused
    assert mode.found == []
    if name == "CompressContext":  # keys and values, as the model has them
        return
    for field, own in formats.fields_of(found.result):
        assert own.dtype in (torch.float32, torch.float64), (field, own.dtype)
    if name not in CHOOSING.get(kind, ()):
        allowed = MORE.get(name, ALLOWED)[kind]
        assert not formats.deviation(found.result, expected.result) > allowed


def test_estimates_are_in_float64(models, prompts):
    found = icl.flow_scores(models["bfloat16"], prompts.shared)
    with Reduced() as mode:
        table = found.to_pandas()
    assert mode.found == []
    assert set(table.dtypes[2:].astype(str)) == {"float64"}


def test_a_reduction_in_half_precision_is_noted():
    """The watch itself: code of this name, wherever it lies, is the package's."""
    source = "(x.sum(), x.sum(dtype=t), x.float().sum())"
    code = compile(source, "/x/icl_mech/here.py", "eval")
    with Reduced() as mode:
        eval(code, {"x": torch.ones(3, dtype=torch.bfloat16), "t": torch.float32})  # noqa: S307
    assert mode.found == ["sum in here.py:1"]


@pytest.mark.parametrize("precision", ["highest", "high"])
def test_how_float32_is_multiplied_is_recorded(precision):
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(precision)
        origin = icl.predict(tiny_model("gpt2"), ragged(), progress=False).provenance
    finally:
        torch.set_float32_matmul_precision(before)
    assert origin["float32_products"] == precision
    # Part of the identity where it is not as usual; results kept before it was recorded stay known.
    assert origin["model"].get("products", "highest") == precision


@pytest.mark.slow
@pytest.mark.parametrize("place", ["torch.backends.cuda.matmul", "torch.backends"])
def test_the_newer_switch_counts(place):
    # In a process of its own: torch refuses to mix its two ways of switching.
    program = (
        f"import torch; {place}.fp32_precision = 'tf32'\n"
        "from icl_mech.measurements.provenance import float32_products; print(float32_products())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("high", 0), done.stderr
