"""What a pass costs on a GPU, where the host starts each block's work, and which layout follows from it."""

import copy
from dataclasses import replace

import pytest

import icl_mech as icl
from icl_mech.engine import memory
from icl_mech.engine.layouts import Shared
from icl_mech.engine.memory import PASS_COST, pass_cost, worth_sharing
from icl_mech.models import LanguageModel, adapt
from tests.engine.test_paths import TASK
from tests.tiny import tiny_model


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(memory, "_on_gpu", lambda model: True)


def sized(width: int, dtype: str = "bfloat16") -> LanguageModel:
    """A model of which only the size counts."""
    made = copy.copy(adapt(tiny_model("llama")))
    made.info = replace(made.info, d_model=width, dtype=dtype)
    return made


@pytest.mark.usefixtures("on_gpu")
def test_a_pass_over_small_blocks_costs_as_much_as_many_tokens():
    assert pass_cost(sized(2048)) == pytest.approx(4500, rel=0.2)  # as was measured
    assert pass_cost(sized(576)) > pass_cost(sized(2048)) > pass_cost(sized(4096))
    assert pass_cost(sized(2048, "float32")) < pass_cost(sized(2048)) / 4
    assert pass_cost(sized(100_000)) == PASS_COST


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize(
    ("width", "prompts", "shares"),
    [(2048, 32, False), (4096, 32, True), (4096, 8, False), (2048, 256, True)],
)
def test_a_gpu_runs_a_beginning_apart_where_that_saves_more_than_two_passes(width, prompts, shares):
    assert worth_sharing(sized(width), [175] * prompts, 150) is shares


def test_a_cpu_always_does():
    assert worth_sharing(sized(2048), [175] * 2, 10)
    assert pass_cost(sized(2048)) == PASS_COST


def gradients_behind_a_beginning(monkeypatch) -> int:
    """How often flow scores of a small model were laid out so."""
    model, laid, made = tiny_model("llama"), [], Shared.__init__

    def noted(*args, **options):
        laid.append(args)
        made(*args, **options)

    monkeypatch.setattr(Shared, "__init__", noted)
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    icl.flow_scores(model, prompts, progress=False)
    return len(laid)


def test_the_layout_follows(monkeypatch):
    assert gradients_behind_a_beginning(monkeypatch) == 1
    monkeypatch.setattr(memory, "_on_gpu", lambda model: True)
    assert gradients_behind_a_beginning(monkeypatch) == 0
