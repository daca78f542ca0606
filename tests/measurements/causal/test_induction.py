"""Induction scores: the reference code's numbers, a case by hand, and TransformerLens itself."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from icl_mech import induction_scores, measure
from icl_mech.errors import RunError
from icl_mech.measurements import InductionScores
from icl_mech.metrics.heads import (
    attention_elsewhere,
    attention_to_match,
    detection_score,
    matched_columns,
    pattern_map,
)
from tests.golden_data import arrays, golden_model
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

PATTERNS = {"previous": "previous_token_head", "duplicate": "duplicate_token_head",
            "induction": "induction_head"}  # fmt: skip


def test_by_hand():
    tokens = torch.tensor([[5, 7, 5, 5, 7]])
    assert matched_columns(tokens, "induction").tolist() == [[-1, -1, 1, 3, 2]]
    assert matched_columns(tokens, "duplicate").tolist() == [[-1, -1, 0, 2, 1]]
    assert matched_columns(tokens, "previous").tolist() == [[-1, 0, 1, 2, 3]]
    attention = torch.arange(25.0).reshape(1, 1, 5, 5).tril()
    columns = matched_columns(tokens, "induction")
    assert float(attention_to_match(attention, columns)) == (11 + 18 + 22) / 3
    # Row 2: of the columns 1, 2, 3 those up to it but its own: 2. Row 3: 1, 2. Row 4: 1, 3.
    assert float(attention_elsewhere(attention, columns)) == (12 + 16.5 + 22) / 3
    wanted = pattern_map(tokens, "induction")[0].nonzero().tolist()
    assert wanted == [[2, 1], [3, 1], [3, 3], [4, 2]]
    on = attention[0, 0][tuple(torch.tensor(wanted).T)].sum() / attention.sum()
    assert_close(
        detection_score(attention, pattern_map(tokens, "induction"), "mul")[0, 0], on.double()
    )


@pytest.mark.parametrize("name", ["gpt2", "gptj"])
def test_prefix_matching_of_the_function_vector_code(name):
    """Ours is the sound one; the reference averages one row too many and transposes."""
    golden = arrays("causal_heads", "prefix_matching.npz")
    half = torch.tensor(golden[f"{name}_half_ids"]).long()
    found = induction_scores(
        golden_model("overthinking", f"tiny_{name}"), tokens=torch.cat([half, half], 1)
    )
    sound = golden[f"{name}_score_sound_layer_head"]
    assert np.abs(found.values.numpy() - sound).max() <= 1e-6
    assert np.abs(sound - golden[f"{name}_score_head_layer"].T).max() > 1e-4


@pytest.mark.parametrize("number", [0, 1, 2])
def test_detection_of_transformer_lens(number):
    golden = arrays("causal_heads", "transformer_lens.npz")
    model = golden_model("overthinking", "tiny_gpt2")
    tokens = torch.tensor(golden[f"head_{number}_input_ids"]).long()[None]
    checked = 0
    for ours, theirs in PATTERNS.items():
        for key in golden:
            if not key.startswith((f"head_{number}_{ours}_", f"head_{number}_{theirs}_")):
                continue
            if key.endswith("_pattern"):
                assert np.array_equal(pattern_map(tokens, ours)[0].long().numpy(), golden[key])
                continue
            kind, close = ("mul", 1e-6) if "_mul_" in key else ("abs", 1e-6)
            if key.endswith("abs_rounded"):
                close = 6e-4
            found = induction_scores(
                model, tokens=tokens, variant=kind, pattern=ours,
                exclude_bos="bos1" in key, exclude_current="cur1" in key,
            )  # fmt: skip
            assert np.abs(found.values.numpy() - golden[key]).max() <= close, key
            checked += 1
    assert checked >= 6


def test_mean_over_sequences_as_in_icl_heads():
    golden = arrays("causal_heads", "transformer_lens.npz")
    model = golden_model("overthinking", "tiny_gpt2")
    tokens = torch.tensor(golden["icl_heads_generated_ids"]).long()
    for kind in ("mul", "abs"):
        found = induction_scores(model, tokens=tokens, variant=kind)
        expected = golden[f"icl_heads_induction_{kind}_on_generated_ids"]
        assert np.abs(found.values.numpy() - expected).max() <= 1e-6


def test_transformer_lens_itself():
    detector = pytest.importorskip("transformer_lens.head_detector")
    model = tiny_model("gpt2")
    sequence = torch.tensor([[3, 9, 4, 8, 3, 9, 4, 8, 9]])
    _, cache = model.run_with_cache(sequence, remove_batch_dim=True)
    for ours, theirs in PATTERNS.items():
        for kind in ("mul", "abs"):
            own = induction_scores(model, tokens=sequence, variant=kind, pattern=ours)
            model_tokens, model.to_tokens = model.to_tokens, lambda *_, **__: sequence
            try:
                expected = detector.detect_head(
                    model, "any text", theirs, cache=cache, error_measure=kind
                )
            finally:
                model.to_tokens = model_tokens
            assert_close(own.values.float(), expected, atol=6e-4 if kind == "abs" else 1e-6, rtol=0)


def test_random_tokens_stand_there_twice():
    model = tiny_model("llama")
    from icl_mech.measurements.causal.induction_scores import sequences
    from icl_mech.models import adapt

    tokens = sequences(adapt(model), InductionScores(n=3, length=7))
    assert tokens.shape == (3, 15)
    assert bool((tokens[:, 0] == 1).all())
    assert torch.equal(tokens[:, 1:8], tokens[:, 8:])
    assert all(len(set(row.tolist())) == 8 for row in tokens)
    assert not set(tokens[:, 1:].flatten().tolist()) & set(model.tokenizer.all_special_ids)
    found = induction_scores(model, n=3, length=7)
    assert found.scores.shape == (3, 3, 4)
    alone = induction_scores(model, n=3, length=7, batch_size=1)
    assert_close(found.scores, alone.scores, atol=1e-6, rtol=0)
    assert found.provenance["variants"]["length"] == 7


def test_with_other_measurements_prompts_are_not_read():
    model = tiny_model("gpt2")
    from icl_mech import build_prompts
    from tests.engine.test_paths import TASK

    prompts = build_prompts(TASK, model, shots=1, n=4)
    both = measure(model, prompts, InductionScores(n=4, length=6))
    assert torch.equal(
        both["induction_scores"].scores, induction_scores(model, n=4, length=6).scores
    )


def test_refusals():
    model = tiny_model("gpt2")
    for how, says in (
        ({"length": 10**6}, "length 1000000"),
        ({"length": 300}, "length 300"),
        ({"tokens": torch.tensor([[1, 2, 1], [1, 2, 3]])}, "sequence 1"),
        ({"exclude_bos": True}, "mul abs"),
    ):
        with WORDS.raises(RunError, says):
            induction_scores(model, **how)
