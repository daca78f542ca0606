"""A batch gives what its prompts give one by one, in the order they came in."""

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import prepare, run
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.models import adapt
from icl_mech.prompts import PromptBatch
from tests.engine.cases import LABEL_TOKENS, Edge, prompt, ragged
from tests.margins import assert_top, vocabulary
from tests.tiny import FAMILIES, tiny_model

SAME = {"rtol": 1e-4, "atol": 3e-6}
LOGITS = {"rtol": 0, "atol": 5e-5}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request):
    return tiny_model(request.param)


def assert_same_predictions(model, prompts, found, edits=()):
    """What `PredictionReading` read; top tokens but for near ties."""
    (expected,) = run(model, prompts, [PredictionReading()], edits, path="whole")
    for one, other in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other, **LOGITS)
    assert_top(found[2], vocabulary(model, prompts, edits))


@pytest.fixture(scope="module")
def whole(model):
    prompts = ragged()
    return (
        icl.flow_scores(model, prompts),
        icl.saliency_maps(model, prompts),
        icl.predict(model, prompts),
    )


def test_flow_equals_that_of_single_prompts(model, whole):
    singles = [icl.flow_scores(model, ragged()[[i]]).per_prompt for i in range(5)]
    torch.testing.assert_close(whole[0].per_prompt, torch.cat(singles), **SAME)
    assert len({round(float(s[0, 1, 0]), 9) for s in singles}) == 5  # order would be noticed


def test_maps_equal_those_of_single_prompts(model, whole):
    for i, values in enumerate(whole[1].values):
        (single,) = icl.saliency_maps(model, ragged()[[i]]).values
        torch.testing.assert_close(values, single, **SAME)


def test_predictions_equal_those_of_single_prompts(model, whole):
    singles = [icl.predict(model, ragged()[[i]]) for i in range(5)]
    for name in ("label_logits", "log_probs"):
        expected = torch.cat([getattr(single, name) for single in singles])
        torch.testing.assert_close(getattr(whole[2], name), expected, **LOGITS)
    logits = torch.cat([vocabulary(model, ragged()[[i]]) for i in range(5)])
    for top in (whole[2].top_tokens, torch.cat([single.top_tokens for single in singles])):
        assert_top(top, logits)


def test_batch_size_changes_nothing(model, whole):
    prompts, batch_size = ragged(), 1
    flow = icl.flow_scores(model, prompts, batch_size=batch_size)
    torch.testing.assert_close(flow.per_prompt, whole[0].per_prompt, **SAME)
    maps = icl.saliency_maps(model, prompts, batch_size=batch_size)
    for found, expected in zip(maps.values, whole[1].values, strict=True):
        torch.testing.assert_close(found, expected, **SAME)
    predicted = icl.predict(model, prompts, batch_size=batch_size)
    torch.testing.assert_close(predicted.label_logits, whole[2].label_logits, **LOGITS)


def test_results_follow_the_order_of_the_prompts(model, whole):
    order = [3, 0, 4, 2, 1]
    flow = icl.flow_scores(model, ragged()[order])
    torch.testing.assert_close(flow.per_prompt, whole[0].per_prompt[order], **SAME)
    maps = icl.saliency_maps(model, ragged()[order])
    for found, i in zip(maps.values, order, strict=True):
        torch.testing.assert_close(found, whole[1].values[i], **SAME)
    predicted = icl.predict(model, ragged()[order])
    torch.testing.assert_close(predicted.label_logits, whole[2].label_logits[order], **LOGITS)


def test_little_memory_changes_nothing(model, whole):
    """One byte: prompts run one by one, activations are computed again in the backward pass."""
    (read,) = run(model, ragged(), [PredictionReading()], memory=1)
    torch.testing.assert_close(read[0], whole[2].label_logits, **LOGITS)
    (planned,) = Flow("label").passes(adapt(model), ragged())
    flow = Flow("label").result(
        adapt(model), ragged(), [run(model, ragged(), planned.readings, memory=1)]
    )
    torch.testing.assert_close(flow.per_prompt, whole[0].per_prompt, **SAME)


def sharing():
    """Four prompts with their first twelve tokens in common."""
    head = prompt(12, (4, 9), (0, 1), seed=20).tokens
    tails = (5, 9, 3, 7)
    rows = []
    for seed, length in enumerate(tails):
        tail = prompt(length, (), (), seed=30 + seed).tokens
        rows.append(
            type(ragged()[0]).from_positions(
                (*head, *tail),
                label_positions=(4, 9),
                label_classes=(0, 1),
                label_tokens=LABEL_TOKENS,
                answer=seed % 3,
            )
        )
    return PromptBatch(tuple(rows))


@pytest.mark.parametrize("edits", [(), (Edge(0, dest=9, src=2, factor=0.0, term=2.0),)])
def test_a_shared_beginning_computed_once_changes_nothing(model, edits):
    (shared,) = run(model, sharing(), [PredictionReading()], edits)
    assert_same_predictions(model, sharing(), shared, edits)


@pytest.mark.parametrize("prompts", [ragged(), sharing()], ids=["ragged", "sharing"])
def test_prepared_prompts_change_nothing(model, prompts):
    prepared = prepare(model, prompts)
    for _ in range(2):  # the kept keys and values are not changed by a run
        (found,) = run(model, prepared, [PredictionReading()])
        assert_same_predictions(model, prompts, found)
