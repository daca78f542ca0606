"""Calibration by a prior, against the reference's numbers."""

import pytest
import torch
from torch.testing import assert_close

from icl_mech.errors import ResultError
from icl_mech.metrics.calibration import calibrate_batch, calibrate_labels
from tests.golden_data import arrays
from tests.said import Words

WORDS = Words(__file__)

EXACT = {"atol": 1e-12, "rtol": 0}
ROWS = {"contextual": "content_free", "domain": "domain"}


@pytest.fixture(params=["k2", "k4"])
def golden(request):
    numbers = arrays("calibration", "calibration.npz")
    return lambda name: torch.from_numpy(numbers[f"{request.param}_{name}"])


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("form", ["paper", "staicc"])
def test_the_references_outputs(golden, kind, form):
    found = calibrate_labels(golden("label_probs"), golden(f"{ROWS[kind]}_probs"), form)
    assert_close(found, golden(f"{kind}_output_{form}"), **EXACT)


@pytest.mark.parametrize("rows", ROWS.values())
def test_the_paper_form_is_feis_function(golden, rows):
    found = calibrate_labels(golden("label_probs"), golden(f"{rows}_probs"))
    assert_close(found, golden(f"fei_probs_{rows}"), **EXACT)
    assert torch.equal(found.argmax(-1), golden(f"fei_predictions_{rows}"))


@pytest.mark.parametrize("rows", ROWS.values())
@pytest.mark.parametrize(("form", "name"), [("paper", "diagonal_W"), ("difference", "identity_W")])
def test_zhaos_accuracies(golden, rows, form, name):
    found = calibrate_labels(golden("label_probs"), golden(f"{rows}_probs"), form)
    right = (found.argmax(-1) == golden("true_labels")).double().mean()
    assert_close(right, golden(f"zhao_accuracy_{rows}_{name}"), **EXACT)


def test_batches(golden):
    probs = golden("label_probs")
    for size in (128, 16):
        found = calibrate_batch(probs, "staicc", size)
        assert_close(found, golden(f"batch{size}_output_staicc"), **EXACT)
    for form in ("ratio", "log_mean"):
        assert_close(calibrate_batch(probs, form), golden(f"batch_all_{form}"), **EXACT)
    largest = calibrate_batch(probs, "staicc").argmax(-1)
    assert torch.equal(largest, golden("batch_all_prob_difference_argmax"))


def test_what_the_prior_was_measured_on_becomes_uniform():
    one = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64)
    assert torch.equal(calibrate_labels(one, one), torch.full((1, 3), 1 / 3, dtype=torch.float64))
    rows = torch.tensor([[0.5, 0.5], [0.75, 0.25]], dtype=torch.float64)
    mean = rows.mean(0, keepdim=True)
    assert torch.equal(calibrate_labels(mean, rows), torch.full((1, 2), 0.5, dtype=torch.float64))
    assert not torch.equal(calibrate_labels(mean, rows, "staicc"), torch.full((1, 2), 0.5).double())


def test_by_hand():
    probs, prior = torch.tensor([[0.6, 0.4]]), torch.tensor([[0.75, 0.25]])
    found = calibrate_labels(probs, prior)
    assert_close(found, torch.tensor([[0.8 / 2.4, 1.6 / 2.4]]).double())
    assert int(found.argmax()) == 1
    own = torch.stack([prior, prior.flip(-1)])
    both = calibrate_labels(probs.repeat(2, 1), own)
    assert_close(both[1], torch.tensor([2.4, 8 / 15]).double() / (2.4 + 8 / 15))


BAD = [
    ("prior 0", lambda: calibrate_labels(torch.eye(2), torch.eye(2)[:1])),
    ("logarithm", lambda: calibrate_batch(torch.eye(2), "log_mean")),
]


@pytest.mark.parametrize(("says", "call"), BAD)
def test_bad_input_is_refused(says, call):
    with WORDS.raises(ResultError, says):
        call()
