"""Errors and interrupts at any moment of a run leave no trace; many runs leave none either."""

import gc
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import Work, prepare, run, run_variants
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import Resume, adapt
from icl_mech.segments import Segment
from tests.engine.cases import ragged
from tests.engine.test_paths import TASK
from tests.faults.traces import (
    CHANGES,
    CONTEXTS,
    FaultError,
    Firings,
    State,
    Steps,
    Untouched,
    interrupted,
    moments,
)
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

LENS = LayerLensReading()
ISOLATED = [Isolate([1])]
RUNS = {
    "whole": lambda m, p: run(m, p, [FlowReading(), LENS], ISOLATED, path="whole"),
    "recomputed": lambda m, p: run(
        m, p[:1], [FlowReading(), LENS], ISOLATED, path="whole", memory=1
    ),
    "shared": lambda m, p: run(m, p, [FlowReading(), LENS], ISOLATED),
    "shared, recomputed": lambda m, p: run(m, p, [FlowReading(), LENS], ISOLATED, memory=1),
    "variants": lambda m, p: run_variants(m, p, [LENS], [[Isolate([1])], [Isolate([2])]]),
    "target": lambda m, p: run(m, prepare(m, p), [LENS], [ZeroHeads([(1, 0)])]),
    "trained": lambda m, p: icl.fit_reweighting(m, p, epochs=1, batch_size=2),
}


@pytest.fixture(scope="module", params=["gpt2", "opt"])
def setting(request):
    model = tiny_model(request.param)
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)
    before = Untouched(adapt(model))
    for call in RUNS.values():
        call(model, prompts)
    before.check()
    return model, prompts, before


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("setting", "name"),
    [
        *(("gpt2", name) for name in ("whole", "shared", "target", "trained")),
        *(
            pytest.param(*own, marks=pytest.mark.slow)
            for own in (
                *(("gpt2", name) for name in ("recomputed", "shared, recomputed", "variants")),
                *(("opt", name) for name in ("whole", "recomputed")),
            )
        ),
    ],
    indirect=["setting"],
)
def test_an_error_at_every_hook_call(setting, monkeypatch, name):
    model, prompts, before = setting
    firings = Firings(monkeypatch, FlowReading)
    RUNS[name](model, prompts)
    count = firings.restart()
    assert count > 4
    for fatal in range(count):
        firings.restart(fatal)
        with pytest.raises(FaultError):
            RUNS[name](model, prompts)
        firings.restart()
        before.check()


def entered(segment):
    """The same rows, entered at a later block."""
    residual = torch.zeros(*segment.tokens.shape, segment.model.info.d_model)
    return replace(segment, start=Resume(1, residual))


PASSES = {
    "recomputed": lambda s: Work([FlowReading()], ISOLATED, checkpoint=True).values(s),
    "beginning": lambda s: Work([FlowReading()], ISOLATED, checkpoint=False).begin(s),
    "entered": lambda s: Work([PredictionReading()], [Isolate([2])], checkpoint=False).values(
        entered(s)
    ),
}


def interrupt_at_every_step(model, call, files, *, last=False):
    """At the first or last time of every line and call of our contexts, and of what enters them."""
    before = Untouched(model)
    call()
    steps = Steps(files)
    steps.run(call)
    before.check()
    assert len(steps.seen) > 40
    for step, count in steps.seen.items():
        broken = Steps(files, step, count if last else 1)
        try:
            broken.run(call)
        except KeyboardInterrupt:
            before.check()
        assert broken.done, step


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "name",
    [pytest.param(own, marks=[] if own == "beginning" else pytest.mark.slow) for own in PASSES],
)
def test_an_interrupt_at_every_step_of_a_pass(name):
    model = adapt(tiny_model("gpt2"))
    segment = Segment.whole(model, ragged()[[1]])
    interrupt_at_every_step(model, lambda: PASSES[name](segment), CHANGES)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
def test_an_interrupt_at_every_step_of_a_training():
    model = adapt(tiny_model("gpt2"))
    prompts = icl.build_prompts(TASK, model.wrapped, shots=1, n=2)
    interrupt_at_every_step(model, lambda: RUNS["trained"](model, prompts), CONTEXTS, last=True)


@pytest.mark.parametrize("nth", [1, 2, 4])
@pytest.mark.usefixtures("unchecked")
def test_an_interrupt_between_a_context_of_torch_and_what_it_holds(monkeypatch, nth):
    """Torch's checkpointing puts hooks for saved tensors on a stack of the process, which would stay there."""
    model, count = adapt(tiny_model("gpt2")), -1
    segment = Segment.whole(model, ragged()[[1]])
    enter = torch.autograd.graph.saved_tensors_hooks.__enter__
    before = Untouched(model)

    def entered_and_interrupted(hooks):
        nonlocal count
        enter(hooks)
        count += 1
        if count == nth:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        torch.autograd.graph.saved_tensors_hooks, "__enter__", entered_and_interrupted
    )
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):  # the caller's own
        outer = State.of(model)
        with pytest.raises(KeyboardInterrupt):
            PASSES["recomputed"](segment)
        assert State.of(model) == outer
    before.check()
    PASSES["recomputed"](segment)


@pytest.mark.usefixtures("unchecked")
def test_an_interrupt_at_the_end_of_a_batched_product_leaves_no_level(setting, monkeypatch):
    model, prompts, before = setting
    leave = torch._functorch.vmap._vmap_decrement_nesting

    def interrupted_instead():
        raise KeyboardInterrupt

    monkeypatch.setattr(torch._functorch.vmap, "_vmap_decrement_nesting", interrupted_instead)
    with pytest.raises(KeyboardInterrupt):
        RUNS["shared"](model, prompts)
    before.check()
    monkeypatch.setattr(torch._functorch.vmap, "_vmap_decrement_nesting", leave)
    RUNS["shared"](model, prompts)


def taken(call):
    """Seconds."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("unchecked")
def test_interrupts_at_random_moments(setting):
    model, prompts, before = setting
    hits = 0
    for seed, name in enumerate(RUNS):

        def call(name=name):
            RUNS[name](model, prompts)

        longest = min(taken(call) for _ in range(3))  # a hitch would put them behind the end
        hits += sum(interrupted(call, s, before.check) for s in moments(24, longest, seed))
    assert hits > 100
    before.check()


def resident():
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def things():
    """Open files, threads, and tensors that are alive."""
    gc.collect()
    tensors = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), tensors


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
@pytest.mark.usefixtures("unchecked")
def test_three_hundred_rounds():
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)
    nothing = [Isolate([1], positions=[()] * len(prompts))]

    def rounds(count):
        for number in range(count):
            icl.predict(model, prompts, interventions=[Isolate([1])])
            if number % 3 == 0:
                icl.flow_scores(model, prompts, memory=number % 2 or None)
            if number % 3 == 1:
                with WORDS.raises(RunError, "three_hundred_rounds"):
                    icl.predict(model, prompts, interventions=nothing)

    rounds(30)
    before, memory = things(), resident()
    rounds(300)
    assert things() == before
    assert resident() - memory < 8 * 2**20
