"""How a model is loaded, as the command line and a sweep's file say it."""

import json

import pytest

import icl_mech as icl
from icl_mech.cli.inputs import load_options
from icl_mech.cli.options import LoadOptions
from icl_mech.sweeps.config import read_config
from tests.cli.conftest import MODEL


@pytest.fixture
def asked(monkeypatch):
    """What `load_model` is called with."""
    seen, real = [], icl.load_model

    def load(name, **options):
        seen.append(options)
        kept = {key: own for key, own in options.items() if key in ("device", "dtype")}
        return real(name, **kept)

    monkeypatch.setattr(icl, "load_model", load)
    return seen


def measured(command, *options):
    return command(
        "measure", "predictions", "--model", MODEL, "--task", "reviews", "--n", 2, *options
    )


def test_options_reach_load_model(command, asked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = tmp_path / "map.json"
    places.write_text(json.dumps({"transformer": "cpu", "lm_head": "disk"}))
    for options, found in (
        (("--device", "cpu", "--dtype", "float32"), {"device": "cpu", "dtype": "float32"}),
        (
            ("--device-map", "auto", "--max-memory", "cpu=2GB"),
            {"device_map": "auto", "max_memory": {"cpu": "2GB"}},
        ),
        (("--device-map", "a.b=cpu,c=disk"), {"device_map": {"a.b": "cpu", "c": "disk"}}),
        (("--device-map", places), {"device_map": {"transformer": "cpu", "lm_head": "disk"}}),
    ):
        code, _, err = measured(command, *options)
        assert (code, err) == (0, "") or "answer" in err, err
        assert asked.pop() == found
        asked.clear()


def test_numbers_are_gpus():
    given = LoadOptions(device_map="a.b=1,c=cpu", max_memory="0=20GB,cpu=2GB")
    assert load_options(given) == {
        "device_map": {"a.b": 1, "c": "cpu"},
        "max_memory": {0: "20GB", "cpu": "2GB"},
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-memory", "20GB"), ("--max-memory", "place=value")),
        (("--device", "cpu", "--device-map", "auto"), ("--device", "--device-map", "contradict")),
        (("--quantization", "3bit"), ("--quantization", "8bit")),
        (("--revision", "v2"), ("--revision", "hub")),
        (("--device-map", "nowhere.json"), ("nowhere.json",)),
    ],
)
def test_what_is_refused(options, words, command):
    code, out, err = measured(command, *options)
    assert code != 0
    assert out == ""
    assert all(word in err for word in words), err


def test_models_of_a_file_have_options_of_their_own(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("models: {a: x, b: {path: y, dtype: bfloat16}}\ntasks: reviews\n")
    assert read_config(path)["models"] == {"a": "x", "b": {"path": "y", "dtype": "bfloat16"}}
    found = read_config(path, {"dtype": "float16", "device": "cpu"})["models"]
    assert found["a"] == {"path": "x", "dtype": "float16", "device": "cpu"}
    assert found["b"] == {"path": "y", "dtype": "bfloat16", "device": "cpu"}


def test_a_recipe_takes_them_too(tmp_path):
    from icl_mech.cli.reproduce import RecipeOptions, _models
    from icl_mech.recipes import recipe

    chosen, load = recipe("lw-table-1"), {"dtype": "bfloat16"}
    assert _models(RecipeOptions(model=["x"]), chosen, load) == [{"dtype": "bfloat16", "path": "x"}]
    every = _models(RecipeOptions(model=["all"]), chosen, load)
    assert [own["path"] for own in every] == list(chosen.models)
    assert _models(RecipeOptions(tasks="offline"), chosen, load)[0]["path"] == "smollm2-135m"
    assert _models(RecipeOptions(), chosen, load) is None
    assert _models(RecipeOptions(model=["x"]), chosen, {}) == ["x"]
