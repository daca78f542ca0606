"""Errors and interrupts at any moment of a run leave no trace; many runs leave none either."""

import gc
import os
import threading
import time
from pathlib import Path

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import prepare, run, run_variants
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.measurements.lens.residuals import LayerLensReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import adapt
from tests.engine.test_paths import TASK
from tests.faults.traces import FaultError, Firings, Steps, Untouched, interrupted, moments
from tests.tiny import tiny_model

LENS = LayerLensReading()
ISOLATED = [Isolate([1])]
RUNS = {
    "whole": lambda m, p: run(m, p, [FlowReading(), LENS], ISOLATED, path="whole"),
    "recomputed": lambda m, p: run(m, p[:1], [FlowReading(), LENS], ISOLATED, path="whole", memory=1),
    "shared": lambda m, p: run(m, p, [FlowReading(), LENS], ISOLATED),
    "variants": lambda m, p: run_variants(m, p, [LENS], [[Isolate([1])], [Isolate([2])]]),
    "target": lambda m, p: run(m, prepare(m, p), [LENS], [ZeroHeads([(1, 0)])]),
    "trained": lambda m, p: icl.fit_reweighting(m, p, epochs=1, batch_size=2),
}


@pytest.fixture(scope="module", params=["gpt2", "opt"])
def setting(request):
    model = tiny_model(request.param)
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)
    for call in RUNS.values():
        call(model, prompts)  # what is made at a first use stays
    return model, prompts


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", RUNS)
def test_an_error_at_every_hook_call(setting, monkeypatch, name):
    model, prompts = setting
    before = Untouched(adapt(model))
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


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", ["recomputed", "variants"])
def test_an_interrupt_at_every_step(name):
    """At every line and call of our contexts, and of what enters and leaves them."""
    model = tiny_model("gpt2")
    prompts = icl.build_prompts(TASK, model, shots=2, n=2)

    def call():
        RUNS[name](model, prompts)

    call()
    before = Untouched(adapt(model))
    steps = Steps()
    steps.run(call)
    before.check()
    assert len(steps.seen) > 100
    for step in steps.seen:
        broken = Steps(step)
        try:
            broken.run(call)
        except KeyboardInterrupt:
            before.check()
        assert broken.done, step


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("unchecked")
def test_interrupts_at_random_moments(setting):
    model, prompts = setting
    before = Untouched(adapt(model))
    hits = 0
    for seed, name in enumerate(RUNS):

        def call(name=name):
            RUNS[name](model, prompts)

        start = time.perf_counter()
        call()
        longest = time.perf_counter() - start
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
    return len(os.listdir("/proc/self/fd")), threading.active_count(), tensors


@pytest.mark.slow
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
            with pytest.raises(RunError, match="changed nothing"):
                icl.predict(model, prompts, interventions=nothing)

    rounds(30)
    before, memory = things(), resident()
    rounds(300)
    assert things() == before
    assert resident() - memory < 8 * 2**20
