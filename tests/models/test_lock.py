"""Threads on one model: no wrong number, no raw error; modes of the caller's change nothing."""

import copy
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import ModelError, RunError
from icl_mech.measurements import Flow, Predict
from icl_mech.models.lock import exclusive, lock_of, waiting
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

WORDS = Words(__file__)

TASK = icl.load_task("reviews")


@pytest.fixture(scope="module")
def setting():
    model = tiny_model("llama")
    prompts = icl.build_prompts(TASK, model, shots=1, n=4)
    return model, prompts


@exclusive
def held(model, started, until):
    started.set()
    until.wait(20)


@pytest.fixture
def busy(setting):
    """The model while another thread holds it."""
    started, until = threading.Event(), threading.Event()
    thread = threading.Thread(target=held, args=(setting[0], started, until), name="other")
    thread.start()
    started.wait(20)
    yield until
    until.set()
    thread.join()


def test_eight_threads_get_the_numbers_of_one(setting):
    model, prompts = setting
    calls = [
        lambda: icl.predict(model, prompts, progress=False).label_logits,
        lambda: (
            icl.predict(
                model, prompts, interventions=[icl.Isolate([0, 1])], progress=False
            ).label_logits
        ),
        lambda: icl.flow_scores(model, prompts, progress=False).per_prompt,
        lambda: icl.extraction(model, prompts, progress=False).attention,
    ]
    expected = [call() for call in calls]

    def many(number):
        return all(
            torch.equal(calls[(number + turn) % 4](), expected[(number + turn) % 4])
            for turn in range(8)
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(many, range(8)))


def test_a_model_in_use_is_refused_at_once_or_after_a_while(setting, busy):
    model, prompts = setting
    start = time.monotonic()
    with WORDS.raises(RunError, "model_use_refused_once", "'other'"):
        icl.measure(model, prompts, Predict(), wait=False)
    with WORDS.raises(RunError, "model_use_refused_once_2"):
        icl.analyze(model, prompts, study="label_words", wait=0.05)
    with waiting(0), WORDS.raises(RunError, "model_use_refused_once_2"):
        icl.predict(model, prompts)
    assert time.monotonic() - start < 10


def test_results_are_read_while_the_model_is_in_use(setting):
    model, prompts = setting
    result = icl.flow_scores(model, prompts, progress=False)
    started, until = threading.Event(), threading.Event()
    thread = threading.Thread(target=held, args=(model, started, until))
    thread.start()
    started.wait(20)
    try:
        assert result.summary()
        assert len(result.to_pandas())
    finally:
        until.set()
        thread.join()


def test_calls_nest_and_errors_free_the_model(setting):
    model, prompts = setting

    @exclusive
    def outer(model):
        return icl.measure(model, prompts, Predict(), wait=False)

    assert outer(model)

    @exclusive
    def broken(model):
        raise KeyError

    with pytest.raises(KeyError):
        broken(model)
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(outer, model).result()


def test_every_wrapper_of_a_module_has_its_lock_and_a_copy_has_its_own(setting):
    model, _ = setting
    assert lock_of(model) is lock_of(icl.models.adapt(model)) is lock_of(model.original_model)
    assert lock_of(copy.deepcopy(model.original_model)) is not lock_of(model)
    assert lock_of("no model") is None


def test_two_models_do_not_wait_for_each_other(setting, busy):
    other = tiny_model("llama", seed=1)
    with waiting(0):
        assert icl.predict(other, icl.build_prompts(TASK, other, shots=1, n=2))


@pytest.mark.parametrize(
    "mode",
    [
        torch.inference_mode,
        torch.no_grad,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.device("meta"),
    ],
    ids=["inference", "no_grad", "autocast", "device"],
)
def test_modes_of_the_caller_change_nothing(setting, mode):
    model, prompts = setting
    logits = icl.predict(model, prompts).label_logits
    flow = icl.flow_scores(model, prompts)
    expected = flow.summary()
    with mode():
        fresh = icl.build_prompts(TASK, model, shots=1, n=4)
        assert_close(icl.predict(model, fresh).label_logits, logits, rtol=0, atol=0)
        inside = icl.flow_scores(model, fresh)
        assert_close(inside.per_prompt, flow.per_prompt, rtol=0, atol=0)
        assert inside.summary() == expected
        report = icl.measure(model, fresh, Flow(), Predict())
        assert report.summary()


def test_a_default_dtype_changes_nothing(setting):
    model, prompts = setting
    flow = icl.flow_scores(model, prompts).per_prompt
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert_close(icl.flow_scores(model, prompts).per_prompt, flow, rtol=0, atol=0)
        assert torch.get_default_dtype() is torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)


def test_weights_made_where_they_cannot_be_used_are_refused(setting):
    _, prompts = setting
    with torch.inference_mode(), pytest.raises(ModelError, match="inference_mode"):
        icl.predict(tiny_model("llama", seed=2), prompts)
    with torch.device("meta"), WORDS.raises(ModelError, "weights_made_where_they"):
        icl.predict(tiny_model("llama", seed=3), prompts)


def test_logits_of_a_wide_model_are_wide():
    model = icl.load_model(tiny_hf("gpt2").double(), tokenizer=tiny_tokenizer("bpe"))
    found = icl.predict(model, icl.build_prompts(TASK, model, shots=1, n=2))
    assert found.label_logits.dtype is torch.float64
