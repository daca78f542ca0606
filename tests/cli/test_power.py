"""`icl-mech power`: what a study of so many prompts can see."""

import json

import pytest

from icl_mech.studies import power
from icl_mech.studies.power import Cell, Power
from tests.said import Words

WORDS = Words(__file__)

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
    WORDS(out, "rate_prompts_needed", "0.2")
    WORDS(out, "rate_prompts_needed_2", "24", "20", "50", "48")
    code, out, _ = command("power", study, "--effect", 0.2, "--power", 0.9, "--json")
    (row,) = json.loads(out)["rows"]
    assert (row["power"], row["prompts_needed"]) == (pytest.approx(0.2), None)


def test_what_cannot_be_said(command, study):
    code, out, _ = command("power", study, "--effect", 0.6)
    assert code == 0
    assert "supported in" not in out
    WORDS(out, "what_cannot_said")
    study.write_text("models: smollm2-135m\ntasks: reviews\nmeasurements: [flow]\n")
    code, _, errors = command("power", study)
    assert code == 1
    WORDS(errors, "what_cannot_said_2")


def test_claims_are_those_of_the_studies(command, study):
    study.write_text("models: smollm2-135m\ntasks: reviews\nstudy: overthinking\nn: 24\n")
    _, out, _ = command("power", study, "--effect", 0.2)
    WORDS(out, "claims_studies", "0.2")
    assert "Shallow aggregation" not in out
