"""Gradients behind a common beginning are those of whole prompts."""

import copy
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from icl_mech import Prompt, PromptBatch, Task, Template, analyze, build_prompts, predict
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.beginning import Beginning, RecomputedBeginning
from icl_mech.engine.layouts import WORTH_SHARING, common_prefix
from icl_mech.engine.memory import TOKENS_PER_BATCH, plan_behind, prompt_bytes
from icl_mech.engine.work import Stack, Work
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.measurements.saliency.saliency_maps import SaliencyReading
from icl_mech.models import Site, adapt
from tests.engine.test_paths import FAMILIES, PREFIX, TARGET, TASK
from tests.margins import apart
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

SAME = {"rtol": 1e-4, "atol": 2e-6}
LOSSES = ("label", "prediction", "vocab")
REDUCTIONS = ("sum_then_abs", "abs_then_sum")


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture
def batches(monkeypatch):
    """Number of prompts of each batch that went back through a common beginning."""
    seen = []
    reductions = Beginning.reductions

    def counted(self, gradients):
        seen.append(len(gradients[0]))
        return reductions(self, gradients)

    monkeypatch.setattr(Beginning, "reductions", counted)
    monkeypatch.setattr(RecomputedBeginning, "reductions", lambda *_: pytest.fail("recomputed"))
    return seen


def sums(model, prompts, changes=(), reading=None, **options):
    (found,) = run(model, prompts, [reading or FlowReading()], changes, **options)
    return found


@pytest.mark.parametrize("name", [*PREFIX, *TARGET])
def test_flow(setting, name, batches):
    model, prompts = setting
    changes = (PREFIX | TARGET)[name]
    found = sums(model, prompts, changes)
    assert sum(batches) == len(prompts)
    assert_close(found, sums(model, prompts, changes, path="whole"), **SAME)
    assert sum(batches) == len(prompts)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_variants(setting, loss, reduction):
    model, prompts = setting
    reading = FlowReading(loss, reduction)
    if loss == "prediction":  # which class it is must not hang on the last bits
        assert bool(apart(predict(model, prompts).label_logits).all())
    whole = sums(model, prompts, reading=reading, path="whole")
    assert_close(sums(model, prompts, reading=reading), whole, **SAME)


@pytest.mark.parametrize(("size", "expected"), [(1, [1] * 6), (4, [4, 2]), (None, [6])])
def test_batches(setting, size, expected, batches):
    model, prompts = setting
    found = sums(model, prompts, batch_size=size)
    assert batches == expected
    assert_close(found, sums(model, prompts, path="whole"), **SAME)


def test_the_beginning_runs_forward_once(setting, monkeypatch):
    model, prompts = setting
    adapted = adapt(model)
    rows = []
    forward = type(adapted).forward

    def counted(self, tokens, *args, **options):
        rows.append(tuple(tokens.shape))
        return forward(self, tokens, *args, **options)

    monkeypatch.setattr(type(adapted), "forward", counted)
    length = common_prefix(prompts)
    sums(adapted, prompts, batch_size=2)
    assert rows[0] == (1, length)
    assert [count for count, _ in rows[1:]] == [2, 2, 2]
    assert all(width <= max(map(len, prompts)) - length for _, width in rows[1:])


def test_readings_of_the_target_in_the_same_pass(setting, batches):
    model, prompts = setting
    readings = [FlowReading(), PredictionReading()]
    flow, read = run(model, prompts, readings)
    assert batches
    whole_flow, whole_read = run(model, prompts, readings, path="whole")
    assert_close(flow, whole_flow, **SAME)
    assert_close(read[0], whole_read[0], atol=2e-5, rtol=1e-5)


def test_maps_are_not_sums(setting, batches):
    model, prompts = setting
    found = run(model, prompts, [FlowReading(), SaliencyReading()])
    assert not batches
    assert_close(found[0], sums(model, prompts, path="whole"), **SAME)


def test_a_batch_that_does_not_fit_is_halved(setting, monkeypatch, batches):
    model, prompts = setting
    expected = sums(model, prompts)
    values = Stack.values

    def small_memory(self):
        if len(self.segment.prompts) > 2:
            raise torch.OutOfMemoryError
        return values(self)

    monkeypatch.setattr(Stack, "values", small_memory)
    batches.clear()
    assert_close(sums(model, prompts), expected, **SAME)
    assert max(batches) == 2


def test_a_beginning_that_does_not_fit(setting, monkeypatch):
    model, prompts = setting

    def no_memory(self, segment, taps=(), **_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Work, "_cache", no_memory)
    for memory in (None, 1):
        with WORDS.raises(RunError, "beginning_fit"):
            sums(model, prompts, memory=memory)


class Cutting(ZeroHeads):
    """Cuts the graph, by mistake."""

    def hooks(self, segment):
        return [(Site("attn_out", 1), lambda activation: activation.detach())]


@pytest.mark.parametrize("path", ["auto", "whole"])
def test_a_cut_graph_is_refused(path):
    model = tiny_model("llama")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    with WORDS.raises(RunError, "cut_graph_refused", "'pattern'", "1"):
        sums(model, prompts, [Cutting([(1, 0)], at="all")], path=path)


def test_hooks_of_the_caller_see_whole_prompts(batches):
    """A hook that looks at positions would hit the last row of a beginning run apart."""
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    plain, reading = sums(model, prompts), PredictionReading()
    batches.clear()

    def last_row(activation, hook):
        return torch.cat([activation[:, :-1], 0 * activation[:, -1:]], 1)

    with model.hooks([("blocks.1.hook_resid_pre", last_row)]):
        found, expected = sums(model, prompts), sums(model, prompts, path="whole")
        assert_close(found, expected, **SAME)
        assert not torch.allclose(expected, plain, rtol=1e-2)
        ((expected, *_),) = run(model, prompts, [reading], path="whole")
        ((found, *_),) = run(model, prompts, [reading])
        assert_close(found, expected)
        (((found, *_),),) = run_variants(model, prompts, [reading], [[ZeroHeads([(2, 0)])]])
        ((expected, *_),) = run(model, prompts, [reading], [ZeroHeads([(2, 0)])], path="whole")
        assert_close(found, expected)
        with WORDS.warns(UserWarning, "hooks_caller_see_whole"):
            prepare(model, prompts)
    assert not batches
    assert_close(sums(model, prompts), plain, rtol=0, atol=0)
    assert batches


def test_without_gradients_outside():
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    with torch.no_grad():
        found = sums(model, prompts)
    assert_close(found, sums(model, prompts), rtol=0, atol=0)
    with torch.inference_mode():
        inside = sums(model, prompts)
    assert_close(found, inside, rtol=0, atol=0)


def test_the_model_is_left_as_it_was(setting):
    model, prompts = setting
    before = [parameter.requires_grad for parameter in adapt(model).wrapped.parameters()]
    first = sums(model, prompts)
    parameters = list(adapt(model).wrapped.parameters())
    assert [parameter.requires_grad for parameter in parameters] == before
    assert all(parameter.grad is None for parameter in parameters)
    assert_close(sums(model, prompts), first, rtol=0, atol=0)


def test_analyze_goes_through_it(batches):
    model = tiny_model("llama")
    analyze(model, build_prompts(TASK, model, shots=2, n=6), nulls=0, progress=False)
    assert sum(batches) == 6


INSTRUCTED = Task(
    "instructed",
    Template(
        "Review: {text}\nSentiment: {label}",
        narrative="the film was a wonderful story of hope and courage\n",
    ),
    TASK.labels,
    TASK.train,
    TASK.test,
)


@pytest.mark.parametrize("redraw", ["set", "prompt", "layer"])
@pytest.mark.parametrize("family", FAMILIES)
def test_random_tokens_behind_an_instruction(family, redraw):
    """Prompts with their own demonstrations share an instruction, in which draws differ."""
    model = tiny_model(family)
    prompts = build_prompts(INSTRUCTED, model, shots=1, n=6, demonstrations="per_prompt")
    length = common_prefix(prompts)
    assert length >= WORTH_SHARING
    change = Isolate([0, 1], tokens="random", redraw=redraw, seed=1)
    drawn = {tuple(p for p in change.isolated(prompt, i, 0) if p < length)
             for i, prompt in enumerate(prompts)}  # fmt: skip
    assert len(drawn) > 1
    assert_close(
        sums(model, prompts, [change]), sums(model, prompts, [change], path="whole"), **SAME
    )
    ((fast, *_),) = run(model, prompts, [PredictionReading()], [change])
    ((slow, *_),) = run(model, prompts, [PredictionReading()], [change], path="whole")
    assert_close(fast, slow, atol=2e-5, rtol=1e-5)


def test_given_positions_are_shared_where_they_agree(batches):
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=6)
    length = common_prefix(prompts)
    alike = Isolate([0], positions=[[3, length]] * 6)
    differing = Isolate([0], positions=[[3]] * 5 + [[4]])
    at_its_end = Isolate([0], positions=[[length - 1]] * 5 + [[3]])
    assert alike.shares(prompts, length)
    assert not at_its_end.shares(prompts, length)
    assert not differing.shares(prompts, length)
    for change in (alike, differing, at_its_end):
        found = sums(model, prompts, [change])
        assert_close(found, sums(model, prompts, [change], path="whole"), **SAME)
    assert sum(batches) == 6


@pytest.mark.parametrize("path", ["auto", "whole"])
def test_too_few_positions(path):
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=6)
    with WORDS.raises(RunError, "too_few_positions", "2"):
        sums(model, prompts, [Isolate([0], positions=[[3]] * 2)], path=path)


def test_equal_tokens_with_other_label_words(batches):
    """What is a label word is the prompt's affair, not its tokens'."""
    model = tiny_model("gpt2")
    built = build_prompts(TASK, model, shots=2, n=4)
    first = built[0].label_positions[0]
    prompts = PromptBatch(tuple(_from_positions(prompt) for prompt in built))
    mixed = PromptBatch((*prompts.prompts[:3], _from_positions(built[3], first - 1)))
    assert common_prefix(prompts) > first
    assert common_prefix(mixed) == first - 1
    change = [Isolate([0])]
    assert_close(sums(model, mixed, change), sums(model, mixed, change, path="whole"), **SAME)
    assert batches


def _from_positions(prompt, first=None):
    positions = list(prompt.label_positions)
    positions[0] = first or positions[0]
    return Prompt.from_positions(
        prompt.tokens,
        label_positions=positions,
        label_classes=prompt.label_classes,
        label_tokens=[word[0] for word in prompt.label_words],
        answer=prompt.answer,
    )


@pytest.mark.slow
def test_draws_of_every_layer_are_compared():
    """Prompts whose draws agree in the first layer, by chance, and differ in the second."""
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    length = common_prefix(prompts)

    def alike(seed, layer):
        change = Isolate([0, 1], tokens="random", redraw="layer", seed=seed)
        draws = [change.isolated(prompt, i, layer) for i, prompt in enumerate(prompts)]
        one, other = ([p for p in draw if p < length] for draw in draws)
        return one == other

    seed = next(seed for seed in range(10_000) if alike(seed, 0) and not alike(seed, 1))
    change = Isolate([0, 1], tokens="random", redraw="layer", seed=seed)
    assert not change.shares(prompts, length)
    assert Isolate([0], tokens="random", redraw="layer", seed=seed).shares(prompts, length)
    assert_close(
        sums(model, prompts, [change]), sums(model, prompts, [change], path="whole"), **SAME
    )


def test_tokens_of_the_beginning_count(monkeypatch, batches):
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=6)
    monkeypatch.setitem(TOKENS_PER_BATCH, "behind", 2 * max(map(len, prompts)))
    sums(model, prompts)
    assert batches == [2, 2, 2]


def test_batches_fit_the_budget():
    model = copy.copy(adapt(tiny_model("gpt2")))
    model.info = replace(model.info, n_layers=12)
    lengths, common = [100] * 50, 95
    graph, again = (
        prompt_bytes(model, common, gradient=True, checkpoint=checkpoint)
        for checkpoint in (False, True)
    )
    # float32: four patterns of four heads and thirty residuals of width 32; keys and values twice.
    block = 4 * 95 * (4 * 4 * 95 + 30 * 32)
    rows = 12 * (4 * 5 * (4 * 4 * 100 + 30 * 32) + 4 * 4 * 100 * 4 * 8)
    for room, tokens in ((1, 100), (2, 200), (5, 500), (100, 1024)):
        budget = graph + room * (rows + block)
        assert plan_behind(model, lengths, common, memory=budget) == (tokens, None)
    # Blocks run again: the tokens are those behind the beginning.
    assert plan_behind(model, lengths, common, memory=1) == (5, 1)
    assert plan_behind(model, lengths, common, memory=graph + rows + block - 1)[1] is not None
    for budget in range(again + rows + block, graph, block):
        tokens, together = plan_behind(model, lengths, common, memory=budget)
        count, room = tokens // 5, budget - again
        assert count * rows + together * block <= room < (count + 1) * (rows + block)
        assert room < count * rows + (together + 1) * block
    assert count > 1
    assert together > 1
