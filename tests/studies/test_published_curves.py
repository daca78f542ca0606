"""What the paper publishes by layer and by share of false labels, through our statistics."""

from pathlib import Path

import numpy as np
import pytest
import torch

from icl_mech.metrics import critical_layer, early_exit_layer

PUBLISHED = Path(__file__).parents[1] / "golden" / "overthinking" / "published_curves.npz"

EXITS = {
    "gpt2_xl": (30, -0.517, 2.658), "gpt_j": (16, -1.538, 10.299), "gpt_neox_20B": (32, 0.477, 0.869),
}  # fmt: skip
"""Layer left at, and what that changes with true and with false demonstrations, in points."""


@pytest.fixture(scope="module")
def curves():
    """Calibrated accuracy `[task, side, layer]` of each model, 14 tasks."""
    with np.load(PUBLISHED) as found:
        return {name: found[name] for name in found.files}


def points(accuracy):
    return 100 * float(accuracy.mean())


@pytest.mark.parametrize("model", EXITS)
def test_critical_layers(curves, model):
    """All 14 of each model, by the published rule: the first crossing."""
    true, false = torch.from_numpy(curves[model]).unbind(1)
    found = critical_layer(true - false, "reference")
    assert found.tolist() == curves[f"{model}/critical"].tolist()
    assert bool((critical_layer(true - false) >= found).all())


@pytest.mark.parametrize(("model", "expected"), EXITS.items())
def test_leaving_early(curves, model, expected):
    true, false = torch.from_numpy(curves[model]).double().unbind(1)
    layer = early_exit_layer(false)
    changes = [points(side[:, layer] - side[:, -1]) for side in (true, false)]
    assert (layer, *changes) == pytest.approx(expected, abs=5e-4)


def test_mean_accuracies_of_gpt_j(curves):
    true, false = curves["gpt_j"][:, :, -1].T
    assert (points(true), points(false)) == pytest.approx((65.54, 37.42), abs=0.005)


def test_the_gap_grows_with_the_share_of_false_labels(curves):
    assert curves["gpt_j/dose"].tolist() == [0.2, 0.4, 0.5, 0.6, 0.8, 1.0]
    true, false = np.moveaxis(curves["gpt_j/by_dose"], 2, 0)
    gaps = (true - false).mean(1)
    assert gaps == pytest.approx([0.038, 0.083, 0.123, 0.145, 0.227, 0.281], abs=5e-4)
    assert bool((np.diff(gaps) > 0).all())
