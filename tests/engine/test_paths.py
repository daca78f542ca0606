"""Fast paths give what computing every position of every prompt gives."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import Example, Task, Template, build_prompts, flow_scores
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.layouts import common_prefix
from icl_mech.engine.memory import SURELY, parse_memory, plan, prompt_bytes
from icl_mech.engine.work import Stack
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, Reweight, ZeroHeads, ZeroLayers
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import adapt
from icl_mech.segments import Segment
from tests.said import Words
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

CLOSE = {"atol": 2e-5, "rtol": 1e-5}
TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")

TASK = Task(
    "tiny",
    Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
    tuple(Example(text, i % 2) for i, text in enumerate(TEXTS)),
)

PREFIX = {
    "plain": [],
    "isolate first": [Isolate([0])],
    "isolate late": [Isolate([1, 2])],
    "isolate random": [Isolate([1], tokens="random", seed=3)],
    "isolate after softmax": [Isolate([1], mode="zero")],
    "heads everywhere": [ZeroHeads([(1, 0)], at="all")],
    "uniform heads everywhere": [ZeroHeads([(1, 0)], kind="uniform_attention", at="all")],
    "composed": [Isolate([1]), ZeroLayers(2)],
}
TARGET = {
    "heads": [ZeroHeads([(1, 0), (2, 3)])],
    "uniform heads": [ZeroHeads([(1, 0)], kind="uniform_attention")],
    "mean heads": [ZeroHeads([(1, 1)], kind="mean")],
    "blocks": [ZeroLayers(1)],
    "attention": [ZeroLayers(1, part="attention")],
    "uniform attention": [ZeroLayers(1, part="attention", kind="reference")],
    "mlp": [ZeroLayers(0, part="mlp", kind="reference")],
    "reweighted": [Reweight(torch.linspace(-1, 1, 3 * 4 * 2).reshape(3, 4, 2))],
}


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


def logits(model, prompts, changes, **options):
    ((label_logits, *_),) = run(model, prompts, [PredictionReading()], changes, **options)
    return label_logits


def test_the_demonstrations_are_shared(setting):
    _, prompts = setting
    last_label = max(prompt.label_positions[-1] for prompt in prompts)
    assert common_prefix(prompts) > last_label


@pytest.mark.parametrize("name", [*PREFIX, *TARGET])
def test_shared_beginning(setting, name):
    model, prompts = setting
    changes = (PREFIX | TARGET)[name]
    whole = logits(model, prompts, changes, path="whole")
    assert_close(logits(model, prompts, changes), whole, **CLOSE)
    # What isolation changes in a tiny Gemma's late blocks lies outside the target's window.
    late = name.startswith("isolate") and name != "isolate first"
    if changes and not (late and "gemma" in adapt(model).info.name):
        assert not torch.allclose(whole, logits(model, prompts, [], path="whole"), atol=1e-3)


def test_variants(setting):
    model, prompts = setting
    for table in (PREFIX, TARGET):
        read = run_variants(model, prompts, [PredictionReading()], list(table.values()))
        for changes, ((label_logits, *_),) in zip(table.values(), read, strict=True):
            assert_close(label_logits, logits(model, prompts, changes, path="whole"), **CLOSE)


@pytest.mark.parametrize("name", TARGET)
def test_single_token(setting, name):
    model, prompts = setting
    prepared = prepare(model, prompts, batch_size=4)
    whole = logits(model, prompts, TARGET[name], path="whole")
    assert_close(logits(model, prepared, TARGET[name]), whole, **CLOSE)
    assert_close(logits(model, prepared, TARGET[name]), whole, **CLOSE)  # the cache is not used up


def test_single_token_needs_target_only_interventions(setting):
    model, prompts = setting
    changes = PREFIX["isolate first"]
    whole = logits(model, prompts, changes, path="whole")
    assert_close(logits(model, prepare(model, prompts), changes), whole, **CLOSE)


def test_recomputed_blocks_give_equal_scores(setting):
    model, prompts = setting
    plain = flow_scores(model, prompts).per_prompt
    _, checkpoint = plan(adapt(model), prompts.lengths.tolist(), gradient=True, memory=1)
    assert checkpoint
    from icl_mech.measurements.saliency.flow import FlowReading

    (sums,) = run(model, prompts, [FlowReading()], memory=1)
    (expected,) = run(model, prompts, [FlowReading()])
    assert_close(sums, expected, atol=2e-6, rtol=1e-4)
    assert_close(flow_scores(model, prompts).per_prompt, plain, atol=0, rtol=0, equal_nan=True)


def test_halves_hold_the_same_rows(setting):
    model, prompts = setting
    whole = Segment.build(adapt(model), prompts, range(len(prompts)))
    parts = list(whole.halves())
    assert [i for part in parts for i in part.indices] == list(whole.indices)
    for part in parts:
        for row, index in enumerate(part.indices):
            assert part.tokens[row][part.dest[row] >= 0].tolist() == list(prompts[index].tokens)


def test_a_batch_that_does_not_fit_is_halved(setting, monkeypatch):
    model, prompts = setting
    expected = logits(model, prompts, [], path="whole")
    values = Stack.values
    tried = []

    def small_memory(self):
        tried.append(len(self.segment.prompts))
        if len(self.segment.prompts) > 2:
            raise torch.OutOfMemoryError
        return values(self)

    monkeypatch.setattr(Stack, "values", small_memory)
    assert_close(logits(model, prompts, [], path="whole"), expected, **CLOSE)
    assert max(tried) > 2

    def no_memory(self):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Stack, "values", no_memory)
    with WORDS.raises(RunError, "batch_fit_halved"):
        logits(model, prompts, [])


def test_interventions_that_cannot_act_are_refused(setting):
    model, prompts = setting
    zero_shot = build_prompts(TASK, model, shots=0, n=2)
    with WORDS.raises(RunError, "interventions_cannot_act_refused"):
        logits(model, zero_shot, [Isolate([0])])
    with WORDS.raises(RunError, "interventions_cannot_act_refused_2", "9"):
        logits(model, prompts, [Isolate([9])])
    with WORDS.raises(RunError, "interventions_cannot_act_refused_3", "4"):
        logits(model, prompts, [ZeroHeads([(0, 4)])])
    with WORDS.raises(RunError, "interventions_cannot_act_refused_4", "5", "2"):
        logits(model, prompts, [Reweight(torch.zeros(3, 4, 5))])
    processed = adapt(model)
    own = processed.info
    processed.info = replace(own, processed_weights=True)
    try:
        with WORDS.raises(RunError, "interventions_cannot_act_refused_5"):
            logits(processed, prompts, [ZeroHeads([(0, 1)])])
    finally:
        processed.info = own


def test_memory_sizes(setting):
    model = adapt(setting[0])
    assert parse_memory("8GB", model) == 8 * 10**9
    assert parse_memory("1.5 MiB", model) == 1_500_000
    assert parse_memory(12, model) == 12
    assert parse_memory(None, model) > 10**6
    assert parse_memory("auto", model) > 10**6
    with pytest.raises(RunError, match="memory='8GB'"):
        parse_memory("lots", model)


def test_what_does_not_fit_is_refused_before_anything_runs(setting, monkeypatch):
    """Without a budget it is a warning; either says how long prompts may be, and those fit."""
    model, prompts = setting
    adapted = adapt(model)

    def least(tokens):
        return prompt_bytes(adapted, tokens, gradient=True, checkpoint=True) // SURELY

    monkeypatch.setattr("icl_mech.engine.memory.free_memory", lambda _: least(30))
    monkeypatch.setattr(type(adapted), "_forward", None)
    with WORDS.raises(RunError, "does_not_fit", "30"):
        flow_scores(model, prompts, memory="auto")
    monkeypatch.undo()
    assert least(30) < least(31) <= least(int(prompts.lengths.max()))
