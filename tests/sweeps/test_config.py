"""Sweeps as YAML files."""

import pytest

from icl_mech.errors import SweepError
from icl_mech.interventions import ZeroHeads
from icl_mech.measurements import Flow, Isolation, Predict
from icl_mech.sweeps.config import by_name, read_config, seeds
from icl_mech.tasks import Task
from tests.said import Words

WORDS = Words(__file__)

WHOLE = """
models: {small: smollm2-135m}
tasks:
  reviews: reviews
  films: {path: films.csv, template: "Review: {text}\\nSentiment: {label}", labels: [Negative, Positive],
          text_column: sentence, label_column: verdict}
measurements:
  - flow: {loss: label}
  - predict
  - isolation: {depths: [1, 2]}
labels: [correct, permuted]
shots: [1, 2]
seeds: 0-4
n: 20
batch_size: 4
interventions:
  - {intervention: ZeroHeads, heads: [[5, 1]]}
"""


def test_a_whole_file(tmp_path):
    rows = "\n".join(f"text {i},{'Positive' if i % 2 else 'Negative'}" for i in range(12))
    (tmp_path / "films.csv").write_text(f"sentence,verdict\n{rows}\n")
    (tmp_path / "study.yaml").write_text(WHOLE)
    found = read_config(tmp_path / "study.yaml")
    films = found["tasks"].pop("films")
    assert isinstance(films, Task)
    assert films.name == "films"
    (edit,) = found.pop("interventions")
    assert edit.to_dict() == ZeroHeads([(5, 1)]).to_dict()
    assert found == {
        "models": {"small": "smollm2-135m"},
        "tasks": {"reviews": "reviews"},
        "measurements": [Flow(loss="label"), Predict(), Isolation(depths=(1, 2))],
        "labels": ["correct", "permuted"],
        "shots": [1, 2],
        "seeds": range(5),
        "n": 20,
        "batch_size": 4,
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: a\ntasks: b\nseed: [1]", "seed seeds"),
        ("models: a", "no tasks"),
        ("- a", "list"),
        ("models: [a\n", "no YAML"),
        ("models: !!python/object/apply:os.system [ls]\ntasks: b", "no YAML"),
        ("models: 3\ntasks: b", "models 3"),
        ("models: a\ntasks: {x: {template: sst2}}", "no path"),
        ("models: a\ntasks: {x: {path: b, colour: red}}", "colour"),
        ("models: a\ntasks: b\nseeds: 5", "seeds 5"),
        ("models: a\ntasks: b\nmeasurements: [flo]", "flo flow"),
        ("models: a\ntasks: b\nmeasurements: [{flow: {los: label}}]", "los loss"),
        ("models: a\ntasks: b\nmeasurements: [{flow: {loss: x}}]", "loss x"),
        ("models: a\ntasks: b\nmeasurements: [{flow: {}, predict: {}}]", "two names"),
        ("models: a\ntasks: b\nout: x", "key out"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("unchecked")
def test_what_a_file_may_not_hold(text, message, tmp_path):
    (tmp_path / "study.yaml").write_text(text)
    with WORDS.raises(SweepError, message):
        read_config(tmp_path / "study.yaml")


def test_seeds():
    assert list(seeds("2-4")) == [2, 3, 4]
    assert seeds([7]) == [7]


def test_measurements_go_by_the_names_of_results():
    names = by_name()
    assert {"flow", "isolation", "layer_accuracy", "compare_compression"} <= set(names)
    assert all(kind.name == name for name, kind in names.items())
