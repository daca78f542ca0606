"""One stem for each method: its file, class, key, result and function have the same name."""

import importlib
import inspect
import pkgutil
import re

import pytest

import icl_mech as icl
from icl_mech import measurements, names
from icl_mech.measurements import AnyMeasurement
from icl_mech.measurements.doors import _result_of
from icl_mech.results.record import known_kinds
from icl_mech.sweeps.config import by_name, measurement
from tests.engine.test_paths import TASK
from tests.tiny import tiny_model

# What differs by contract: `Predict` gives `predictions`, `report.flow` comes of `flow_scores`, fitting gives an
# intervention, both measurements of weights give one kind of result, and what is kept of a context stands with what runs behind it.
FILES = {"Predict": "predictions", "PredictBehind": "compress_context"}
KEYS = {"Predict": "predictions"}
RESULTS = {
    "Predict": "Predictions",
    "PredictBehind": "Predictions",
    "Flow": "FlowScores",
    "EvaluateReweighting": "ReweightingResult",
}
FUNCTIONS = {
    "Confusion": "diagnose_confusion",
    "FalseInduction": "find_false_induction_heads",
    "Flow": "flow_scores",
    "Reweighting": "fit_reweighting",
}
WITHOUT_FUNCTION = {"CompareCompression", "CompressContext", "PredictBehind", "TopWords"}


def kinds():
    """All measurements of the package that can be made."""
    for module in pkgutil.walk_packages(measurements.__path__, "icl_mech.measurements."):
        importlib.import_module(module.name)
    left, found = [AnyMeasurement], {}
    while left:
        kind = left.pop()
        left += kind.__subclasses__()
        if kind.__module__.startswith("icl_mech.measurements.") and not inspect.isabstract(kind):
            found[kind.__name__] = kind
    return [found[name] for name in sorted(found)]


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_one_stem(kind):
    own = kind.__name__
    stem = snake(own)
    assert kind.__module__.rpartition(".")[2] == FILES.get(own, stem)
    assert kind.name == KEYS.get(own, stem)
    result = _result_of(kind)
    given = {one.__name__ for one in getattr(result, "__args__", (result,))}
    assert RESULTS.get(own, f"{own}Result") in given
    if own not in WITHOUT_FUNCTION:
        assert callable(getattr(icl, FUNCTIONS.get(own, stem)))


def test_no_key_is_that_of_two():
    keys = [kind.name for kind in kinds()]
    assert len(keys) == len(set(keys))


def test_earlier_names_stay_valid():
    for old, now in names.MEASUREMENTS.items():
        assert getattr(measurements, old) is getattr(measurements, now)
        assert not hasattr(measurements, f"{old}s")
    assert set(names.KEYS.values()) <= set(by_name())
    assert not set(names.KEYS) & set(by_name())
    for old, now in names.KINDS.items():
        assert known_kinds()[old] is known_kinds()[now]
        assert known_kinds()[now].__name__ == now


@pytest.mark.parametrize("name", ["Lens", "lens", "logit_lens", "logit-lens", "LogitLens"])
def test_measurements_by_earlier_names_in_a_file(name):
    assert measurement(name) == measurements.LogitLens()


def test_measurements_by_earlier_keys_in_a_file():
    assert measurement({"saliency": {"first": 2}}) == measurements.SaliencyMaps(first=2)
    assert names.key_now("saliency") == "saliency_maps"
    assert names.key_now("saliency", {"saliency": 1}) == "saliency"
    assert names.key_now("mine") == "mine"


def test_results_of_other_kinds_keep_their_earlier_keys(tmp_path):
    class Mine(measurements.Predict):
        name = "compression"

    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=1, n=2)
    icl.measure(model, prompts, Mine(), progress=False).save(tmp_path / "run")
    assert list(icl.load(tmp_path / "run").results) == ["compression"]
