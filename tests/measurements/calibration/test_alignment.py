"""What answers follow, counted by hand and in a model that copies."""

import pytest
import torch

from icl_mech import build_prompt_pairs, build_prompts, measure, predict
from icl_mech.errors import PromptError
from icl_mech.measurements.alignment.alignment import Alignment, AlignmentResult, alignment
from icl_mech.measurements.demonstrations import without_demonstrations
from tests.measurements.lens.test_logit_lens import TASK
from tests.planted import planted_model, planted_task
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def gpt2():
    model = tiny_model("gpt2")
    return model, build_prompt_pairs(TASK, model, shots=1, n=6)


def test_by_hand():
    found = AlignmentResult(
        predicted=torch.tensor([[0, 1], [1, 2], [2, 2], [0, 2]]),
        zero_shot=torch.tensor([0, 0, 2, 2]),
        answers=torch.tensor([0, 1, 2, 1]),
        taught=torch.tensor([1, 2, 0, 2]),
        labels=("a", "b", "c"),
    )
    shares = found.sel("alignment").values
    assert shares.tolist() == [[0.75, 0.75, 0.5], [0.25, 0.75, 0.5]]
    # The last one follows the demonstrations, but so does it without them.
    assert found.interval("override").value == 0.5
    assert found.interval("zero_shot_accuracy").value == 0.5
    assert found.lead.tolist() == [1, 1, -1, 1]


def test_answers_are_those_of_predict(gpt2):
    model, (true, false) = gpt2
    found = alignment(model, true, false)
    assert torch.equal(found.predicted[:, 0], predict(model, true).predicted)
    assert torch.equal(found.predicted[:, 1], predict(model, false).predicted)
    assert torch.equal(found.zero_shot, predict(model, without_demonstrations(true)).predicted)
    zero_shot = build_prompts(TASK, model, shots=0, n=6)
    given = alignment(model, true, false, zero_shot)
    assert torch.equal(given.zero_shot, predict(model, zero_shot).predicted)
    assert given.provenance["zero_shot"]["digest"] == zero_shot.digest


def test_a_model_that_copies_follows_false_demonstrations():
    model = planted_model()
    pair = build_prompt_pairs(planted_task(), model, shots=3, n=24, demonstrations="per_prompt")
    found = alignment(model, *pair)
    assert found.interval(side="false", followed="prompt").value > 0.9
    assert found.interval(side="true", followed="truth").value > 0.9
    assert found.interval("zero_shot_accuracy").value > 0.9
    assert found.interval("override").value > 0.9
    assert found.figures()[0].answer.startswith("Yes")


def test_bad_input_is_refused(gpt2):
    model, (true, false) = gpt2
    with WORDS.raises(PromptError, "bad_input_refused", "0"):
        alignment(model, true, false, true)
    with WORDS.raises(PromptError, "bad_input_refused_2"):
        alignment(model, true, false, build_prompts(TASK, model, shots=0, n=4))
    random = build_prompt_pairs(TASK, model, shots=2, n=6, false_labels="random", seed=1)
    with WORDS.raises(PromptError, "bad_input_refused_3"):
        alignment(model, *random)
    with pytest.raises(PromptError, match="pairs"):
        alignment(model, true, false[:3])


def test_in_an_analysis_and_drawn(gpt2):
    model, pair = gpt2
    found = measure(model, pair, Alignment()).alignment
    assert len(found.plot().data) >= 3
    assert "semantic override" in found.figures()[0].answer
    assert bool(((found - alignment(model, *pair)).values == 0).all())
