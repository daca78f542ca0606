"""Over-trust against the goldens of OPERA's reference code, in float64."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech.metrics import log_over_trust
from icl_mech.metrics.over_trust import head_maximum, over_trust_penalty, points_to
from tests.golden_data import arrays, golden_model

SETS = {"given": 6, "overflow": 4}
"""Length of the prompt."""


def opera():
    return arrays("any_text", "opera.npz")


def window(name, step):
    """Rows of the response at a step, each over its sum."""
    start = SETS[name]
    stop = start + step + 1
    rows = head_maximum(torch.tensor(opera()[f"{name}_attention"]).tril())
    return rows[start:stop, start:stop]


def test_a_case_by_hand():
    rows = torch.tensor([[0.5, 0.0, 0.0], [0.2, 0.4, 0.0], [0.1, 0.3, 0.2]])
    found = log_over_trust(rows, scale=10.0)
    by_hand = [1e-7 * 5 * 2 * 1, 1e-7 * 4 * 3, 1e-7 * 2]
    assert_close(found.exp(), torch.tensor(by_hand, dtype=torch.float64))
    assert int(points_to(found)) == 1


def test_rows_are_the_largest_head_over_their_sum():
    pattern = torch.tensor([[[1.0, 0.0], [0.2, 0.8]], [[1.0, 0.0], [0.6, 0.4]]])
    assert_close(head_maximum(pattern), torch.tensor([[1.0, 0.0], [0.6 / 1.4, 0.8 / 1.4]]).double())


@pytest.mark.parametrize("name", SETS)
def test_scores_and_where_steps_point(name):
    scores, pointed = (opera()[f"{name}_{own}"] for own in ("column_score_f64", "points_to_f64"))
    for step, expected in enumerate(scores):
        found = log_over_trust(window(name, step))
        real = ~np.isnan(expected)
        assert len(found) == real.sum()
        np.testing.assert_allclose(found, np.log(expected[real]), rtol=0, atol=1e-4)
        assert int(points_to(found)) == pointed[step]


def test_penalties_and_penalised_logits():
    data = opera()
    rows = head_maximum(torch.tensor(data["given_attention"]).tril())
    for step, expected in enumerate(data["given_penalty"]):
        mass = rows[SETS["given"] + step, 1:4].sum()
        assert float(mass) == pytest.approx(data["given_image_mass"][step], abs=1e-6)
        penalty = float(over_trust_penalty(log_over_trust(window("given", step)), mass))
        # The reference keeps penalties of long windows in float16.
        assert penalty == pytest.approx(expected[0], rel=1e-3, abs=1e-6)
        plain = data["given_candidate_logits_before"][step]
        np.testing.assert_allclose(
            plain - penalty, data["given_candidate_logits_penalised"][step], rtol=1e-3, atol=1e-3
        )


def test_products_that_leave_float16_stay_ordered():
    data = opera()
    last = len(data["overflow_points_to"]) - 1
    assert data["overflow_points_to"][last] != data["overflow_points_to_f64"][last]
    found = log_over_trust(window("overflow", last))
    assert found.isfinite().all()
    assert float(found.max()) > math.log(65504)


@pytest.mark.parametrize("beams", [2, 3])
def test_scores_of_tiny_gpt2(beams):
    data, model = opera(), golden_model("overthinking", "tiny_gpt2")
    part = {
        own: data[f"gpt2_beams{beams}_{own}"]
        for own in (
            "step_input_ids", "candidates", "column_score_f64", "points_to_f64", "last_row",
        )
    }  # fmt: skip
    start = len(data["gpt2_prompt_ids"]) if "gpt2_prompt_ids" in data.files else 30
    for step in (0, 5, 12, 23):
        ids = torch.tensor(part["step_input_ids"][step])
        ids = ids[:, : int((ids[0] >= 0).sum())]
        candidates = torch.tensor(part["candidates"][step])
        texts = torch.cat(
            [ids[:, None].expand(-1, candidates.shape[1], -1), candidates[..., None]], -1
        )
        with torch.no_grad():
            _, cache = model.run_with_cache(texts.flatten(0, 1))
        rows = head_maximum(cache["blocks.3.attn.hook_pattern"]).unflatten(0, candidates.shape)
        count = texts.shape[-1]
        np.testing.assert_allclose(
            rows[:, :, -1], part["last_row"][step][..., :count], rtol=0, atol=2e-6
        )
        found = log_over_trust(rows[..., start:, start:])
        expected = part["column_score_f64"][step][..., : count - start]
        np.testing.assert_allclose(found, np.log(expected), rtol=0, atol=2e-4)
        np.testing.assert_array_equal(points_to(found), part["points_to_f64"][step])
