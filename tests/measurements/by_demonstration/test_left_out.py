"""Leaving one demonstration out: against prompts written without it."""

from math import nan

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech import PromptBatch
from icl_mech.errors import PromptError
from icl_mech.measurements import LeaveOneOut
from icl_mech.measurements.by_demonstration.leave_one_out import LeaveOneOutResult, without
from tests.engine.cases import ragged
from tests.measurements.saliency.cases import sharing, with_roles
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


def test_a_prompt_without_a_demonstration():
    prompt = with_roles()[1]  # three demonstrations, classes 0, 2, 0
    found = without(prompt, 1)
    gone = [i for s in prompt.spans if s.demo == 1 for i in range(s.start, s.stop)]
    assert found.tokens == tuple(t for i, t in enumerate(prompt.tokens) if i not in gone)
    assert found.label_classes == (0, 0)
    assert [s.demo for s in found.label_spans] == [0, 1]
    assert found.target == prompt.target - len(gone)
    assert found.answer == prompt.answer
    with WORDS.raises(PromptError, "prompt_without_demonstration", "0", "2"):
        without(prompt, 3)


def test_changes_are_those_of_prompts_run_alone(model):
    prompts = sharing()
    found = icl.leave_one_out(model, prompts)
    for row, prompt in enumerate(prompts):
        for demo in range(2):
            pair = [
                icl.predict(model, PromptBatch((own,))).label_logits.double().log_softmax(-1)
                for own in (prompt, without(prompt, demo))
            ]
            expected = pair[0][0, prompt.answer] - pair[1][0, prompt.answer]
            assert_close(found.change[row, demo], expected, rtol=1e-4, atol=1e-5)


def test_text_prompts_of_the_offline_task(model):
    task = icl.load_task("reviews")
    prompts = icl.build_prompts(task, icl.load_model(), shots=1, n=2, seed=0)
    fewer = without(prompts[0], 0)
    assert "".join(fewer.pieces) == "".join(
        piece
        for span in prompts[0].spans
        if span.demo != 0
        for piece in prompts[0].pieces[span.start : span.stop]
    )
    assert "".join(fewer.pieces).startswith("Review:")


def test_own_class_by_hand(tmp_path):
    """(3 - 1) in the first prompt, (2 - 0) in the second; the third has one kind only."""
    found = LeaveOneOutResult(
        change=torch.tensor([[3.0, 1.0], [0.0, 2.0], [5.0, 5.0]]), log_prob=torch.zeros(3),
        classes=torch.tensor([[0, 1], [0, 1], [1, 1]]), answers=torch.tensor([0, 1, 1]),
        labels=("a", "b"), provenance={"prompts": {"count": 3}},
    )  # fmt: skip
    assert found.same_class().value == pytest.approx(2.0)
    curves = found.drawing()
    assert curves.values[:, 0].tolist() == pytest.approx([8 / 3])
    assert curves.names == ("all",)
    WORDS.starts(found.figures()[0].answer, "own_class_hand", "Cannot be judged")
    WORDS(found.summary(), "own_class_hand_2")
    assert found.plot().data
    assert_close(LeaveOneOutResult.load(found.save(tmp_path / "r")).change, found.change)


def test_classes_are_drawn_where_enough_prompts_have_them():
    found = LeaveOneOutResult(
        change=torch.tensor([[3.0, 1.0]] * 6 + [[0.0, 2.0]] * 2), log_prob=torch.zeros(8),
        classes=torch.tensor([[0, 1]] * 8), answers=torch.tensor([0] * 6 + [1] * 2),
        labels=("a", "b"), provenance={"prompts": {"count": 8}},
    )  # fmt: skip
    assert found.effects()[1, 0].tolist() == pytest.approx([3.0, nan], nan_ok=True)
    assert (found.largest.back, found.largest.effect.value) == (2, 2.25)
    values = found.drawing().values
    assert values[1].tolist() == pytest.approx([nan, 3.0], nan_ok=True)
    assert values[2].tolist() == pytest.approx([1.0, nan], nan_ok=True)


def test_refusals(model):
    with WORDS.raises(PromptError, "refusals", "1", "3"):
        icl.leave_one_out(model, with_roles())
    with WORDS.raises(PromptError, "refusals_2"):
        icl.leave_one_out(model, ragged()[[0]])


def test_the_measurement_is_the_function(model):
    found = icl.measure(model, sharing(), LeaveOneOut())["leave_one_out"]
    assert_close(found.change, icl.leave_one_out(model, sharing()).change)
