"""The lines that measure a GPU run, on a processor and a small model."""

import sys

import pytest

from tests.benchmarks import gpu
from tests.said import Words

WORDS = Words(__file__)


@pytest.mark.slow
def test_the_tables_are_written(tmp_path, monkeypatch, capsys):
    place = tmp_path / "gpu.md"
    options = [
        "--device",
        "cpu",
        "--small",
        "--methods",
        "predict",
        "flow_scores",
        "--out",
        str(place),
    ]
    monkeypatch.setattr(sys, "argv", ["gpu", *options])
    gpu.main()
    text = place.read_text()
    assert "| predict | 0.0e+00 |" in text
    assert "| flow_scores | 0.0e+00 |" in text
    for title in ("Ratios", "Memory", "Prompts"):
        assert f"## {title}, small, random weights, bfloat16" in text
    WORDS(text, "tables_written", "8")


def test_another_device_never_replaces_the_documentation(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--small"])
    with pytest.raises(SystemExit):
        gpu.main()
    WORDS(capsys.readouterr().err, "another_device_never_replaces")
