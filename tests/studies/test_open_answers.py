"""Studies of pairs with open answers: what goes by classes is left out, and the page says nothing of it."""

import re

import pytest

import icl_mech as icl
from tests.measurements.test_open_answers import made
from tests.tiny import tiny_model

BY_CLASSES = ("calibrated", "constant answer", "of each class", "per class")


@pytest.fixture(scope="module")
def pair():
    return icl.build_prompt_pairs(
        made(), tiny_model("gpt2"), shots=2, n=4, false_labels="other", demonstrations="per_prompt"
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("study", "there", "left_out"),
    [
        ("causal", {"head_mediation", "compare_heads", "steer"}, ("Head scores", "Calibration")),
        (
            "overthinking",
            {"layer_accuracy", "early_exit", "late_ablation"},
            ("Head scores", "Context accuracy", "Top words"),
        ),
    ],
)
def test_a_study_of_open_answers(study, there, left_out, pair, tmp_path):
    found = icl.analyze(tiny_model("gpt2"), pair, study=study)
    assert there <= set(found.results)
    for name in left_out:
        assert any(note.startswith(f"{name} left out") for note in found.notes)
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    text = re.sub(r"<(script|style|svg|math)[\s\S]*?</\1>", "", page)
    assert "free-form answers" in text
    figures = [
        f"{own.question} {own.answer} {own.caption} {own.limits}"
        for result in found.results.values()
        for own in result.figures()
    ]
    said = " ".join([*figures, *(verdict.finding for verdict in found.verdicts())]).casefold()
    assert [word for word in BY_CLASSES if word in said] == []
