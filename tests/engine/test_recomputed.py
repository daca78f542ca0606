"""Beginnings whose blocks run again give what whole prompts give."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

from icl_mech import build_prompts
from icl_mech.engine import GradientReading, Kept, run
from icl_mech.engine.beginning import RecomputedBeginning
from icl_mech.engine.layouts import WORTH_SHARING, common_prefix
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, ZeroHeads
from icl_mech.interventions.base import Intervention
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import Site, adapt
from tests.engine.test_beginning import INSTRUCTED, SAME, Cutting
from tests.engine.test_paths import FAMILIES, PREFIX, TARGET, TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture
def batches(monkeypatch):
    """Number of prompts of each batch whose beginning ran again."""
    seen = []
    reductions = RecomputedBeginning.reductions

    def counted(self, gradients):
        seen.append(len(gradients[0]))
        return reductions(self, gradients)

    monkeypatch.setattr(RecomputedBeginning, "reductions", counted)
    return seen


class Gradients(GradientReading):
    """Sum over rows of activation times gradient at any sites."""

    additive = True
    loss = "label"

    def __init__(self, *sites):
        self._sites = sites

    def sites(self, info):
        return self._sites

    def shape(self, segment):
        return (len(segment.prompts),)

    def reduce(self, site, activation, gradient, segment):
        return (activation * gradient).flatten(1).sum(1)

    def collect(self, kept: Kept):
        return kept.stacked()


class Shift(Intervention):
    """Adds to the residual stream where a block begins; twice would be seen."""

    def shares(self, prompts, length):
        return True

    def hooks(self, segment):
        return [(Site("resid_pre", layer), lambda stream: stream + 0.3) for layer in (0, 1, 2)]


def found_by_both(model, prompts, readings, changes=(), **options):
    """What little memory gives, and whole prompts."""
    return (
        run(model, prompts, readings, changes, memory=1, **options),
        run(model, prompts, readings, changes, path="whole"),
    )


@pytest.mark.parametrize("name", ["plain", "isolate late", "heads everywhere", "composed", "heads"])
def test_flow(setting, name, batches):
    model, prompts = setting
    (found,), (whole,) = found_by_both(model, prompts, [FlowReading()], (PREFIX | TARGET)[name])
    assert sum(batches) == len(prompts)
    assert_close(found, whole, **SAME)


def test_every_site_and_loss(setting, batches):
    model, prompts = setting
    names = ("resid_pre", "k", "v", "pattern", "z", "resid_post")
    sites = [Site(name, layer) for layer in (2, 0, 1) for name in names]
    (found,), (whole,) = found_by_both(model, prompts, [Gradients(*sites)])
    assert batches
    assert_close(found, whole, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("layer", range(3))
def test_one_layer_alone(setting, layer):
    """Of the last one nothing in the beginning is seen by what follows but keys and values."""
    model, prompts = setting
    reading = Gradients(Site("pattern", layer))
    (found,), (whole,) = found_by_both(model, prompts, [reading])
    assert_close(found, whole, rtol=1e-3, atol=2e-6)


def test_changes_where_blocks_begin_are_made_once(setting, batches):
    model, prompts = setting
    readings = [FlowReading(), PredictionReading()]
    (flow, read), (whole, whole_read) = found_by_both(model, prompts, readings, [Shift()])
    assert batches
    assert_close(flow, whole, **SAME)
    assert_close(read[0], whole_read[0], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(("size", "expected"), [(1, [1] * 6), (4, [4, 2])])
def test_batches(setting, size, expected, batches, monkeypatch):
    monkeypatch.setattr("icl_mech.engine.runs.plan_behind", lambda *_, **__: (10**6, 3))
    model, prompts = setting
    (found,), (whole,) = found_by_both(model, prompts, [FlowReading()], batch_size=size)
    assert batches == expected
    assert_close(found, whole, **SAME)


def test_what_runs(setting, monkeypatch):
    """The beginning once, and again block by block for every batch, never a whole prompt."""
    model, prompts = setting
    adapted = adapt(model)
    length = common_prefix(prompts)
    ran = []
    forward = type(adapted).forward

    def counted(self, tokens, *args, **options):
        start = options.get("start")
        ran.append((tokens.shape[1] == length, start and start.layer, options.get("stop")))
        return forward(self, tokens, *args, **options)

    monkeypatch.setattr(type(adapted), "forward", counted)
    run(adapted, prompts, [FlowReading()], memory=1, batch_size=1)
    again = [(True, layer, layer + 1) for layer in (2, 1, 0)]
    assert ran == [(True, None, None), *[(False, None, None), *again] * 6]


def test_nothing_is_left_behind(setting):
    model, prompts = setting
    adapted = adapt(model)
    before = [parameter.requires_grad for parameter in adapted.wrapped.parameters()]
    first = run(model, prompts, [FlowReading()], [Isolate([0])], memory=1)
    assert [parameter.requires_grad for parameter in adapted.wrapped.parameters()] == before
    assert not adapted.has_own_hooks
    assert not any("forward" in vars(block) for block in adapted.wrapped.blocks)
    again = run(model, prompts, [FlowReading()], [Isolate([0])], memory=1)
    assert torch.equal(first[0], again[0])


def test_a_cut_graph_is_refused():
    model = tiny_model("llama")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    with WORDS.raises(RunError, "cut_graph_refused", "'pattern'", "1"):
        run(model, prompts, [FlowReading()], [Cutting([(1, 0)], at="all")], memory=1)


@dataclass(frozen=True, eq=False)
class StopGradients(Intervention):
    """Cuts the graph of the first tokens where a block begins."""

    length: int
    layer: int

    def shares(self, prompts, length):
        return True

    def hooks(self, segment):
        first = (segment.dest < self.length)[..., None]

        def cut(stream):
            return stream.detach() if bool(first.all()) else stream.where(~first, stream.detach())

        return [(Site("resid_pre", self.layer), cut)]


@pytest.mark.parametrize(("cut", "sites"), [(1, [0]), (1, [0, 1]), (2, [2])])
def test_a_graph_that_is_cut_in_the_beginning(cut, sites, batches):
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    reading = Gradients(*(Site("pattern", layer) for layer in sites))
    change = StopGradients(common_prefix(prompts), cut)
    (found,), (whole,) = found_by_both(model, prompts, [reading], [change])
    assert batches
    assert_close(found, whole, rtol=1e-3, atol=2e-6)


def test_an_intervention_without_effect_is_told():
    model = tiny_model("gpt2")
    prompts = build_prompts(TASK, model, shots=2, n=2)
    with WORDS.raises(RunError, "intervention_without_effect_told"):
        run(model, prompts, [FlowReading()], [Isolate([0], positions=[[]] * 2)], memory=1)
    run(model, prompts, [FlowReading()], [ZeroHeads([(0, 0)])], memory=1)


def test_a_short_beginning_is_not_worth_it(batches):
    """What stands behind it would keep its graph in every block; whole prompts run again instead."""
    model = tiny_model("gpt2")
    short = build_prompts(INSTRUCTED, model, shots=2, n=3, demonstrations="per_prompt")
    assert WORTH_SHARING <= common_prefix(short) < min(map(len, short)) // 2
    (found,), (whole,) = found_by_both(model, short, [FlowReading()])
    assert not batches
    assert_close(found, whole, **SAME)
