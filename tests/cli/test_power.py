"""`icl-mech power`: what a study of so many prompts can see."""

import json

import pytest

from icl_mech.studies import power
from icl_mech.studies.power import Cell, Power

CELLS = ((0.0, 12, 0), (0.4, 12, 4), (0.0, 48, 0), (0.4, 48, 10))


@pytest.fixture
def study(tmp_path, monkeypatch):
    cells = tuple(Cell(e, n, k, 10) for e, n, k in CELLS)
    own = Power("label_words", "Shallow aggregation", "isolation", cells)
    other = Power("overthinking", "Harm", "harm", cells)
    monkeypatch.setattr(power, "powers", lambda: (own, other))
    path = tmp_path / "study.yaml"
    path.write_text("models: smollm2-135m\ntasks: reviews\nstudy: label_words\nn: 24\n")
    return path


def test_rate_and_prompts_needed(command, study):
    code, out, _ = command("power", study, "--effect", 0.2, "--power", 0.5)
    assert code == 0
    assert "Shallow aggregation: 0.2 label loyalty lost beyond random tokens" in out
    assert "n = 24 of one seed supported in 20% of runs; 50% need 48 prompts" in out
    code, out, _ = command("power", study, "--effect", 0.2, "--power", 0.9, "--json")
    (row,) = json.loads(out)["rows"]
    assert (row["power"], row["prompts_needed"]) == (pytest.approx(0.2), None)


def test_what_cannot_be_said(command, study):
    code, out, _ = command("power", study, "--effect", 0.6)
    assert code == 0
    assert "supported in beyond what was measured" not in out
    assert "beyond what was measured" in out
    study.write_text("models: smollm2-135m\ntasks: reviews\nmeasurements: [flow]\n")
    code, _, errors = command("power", study)
    assert code == 1
    assert "power was measured for the claims of label_words and overthinking" in errors


def test_claims_are_those_of_the_studies(command, study):
    study.write_text("models: smollm2-135m\ntasks: reviews\nstudy: overthinking\nn: 24\n")
    _, out, _ = command("power", study, "--effect", 0.2)
    assert "Harm: 0.2 accuracy lost to false demonstrations" in out
    assert "Shallow aggregation" not in out
