"""Rows of several works in one pass give what a pass of each alone gives, in few passes."""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.engine import run, run_variants
from icl_mech.engine.hooks import on_rows
from icl_mech.engine.layouts import entries
from icl_mech.engine.work import Stack
from icl_mech.errors import RunError
from icl_mech.interventions import AddVector, Cut, Intervention, Isolate, Patch, ZeroHeads
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import LanguageModel, Site, adapt
from tests.engine.cases import EdgeReading
from tests.engine.test_paths import CLOSE, PREFIX, TARGET, TASK
from tests.said import Words
from tests.small import small_model
from tests.tiny import FAMILIES, tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

ALL = {"batch_size": 10_000}
"""A batch that holds all."""


@dataclass(frozen=True, eq=False)
class Doubled(Intervention):
    """A user's: returns a new tensor, and goes by the number of the prompt."""

    def hooks(self, segment):
        factors = torch.tensor([1.0 + index for index in segment.indices])[:, None, None]
        return [(Site("mlp_out", 1), lambda activation: activation * factors)]


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, icl.build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture
def passes(monkeypatch):
    """Rows of each forward pass."""
    rows, forward = [], LanguageModel.forward

    def counted(self, tokens, *args, **kwargs):
        rows.append(len(tokens))
        return forward(self, tokens, *args, **kwargs)

    monkeypatch.setattr(LanguageModel, "forward", counted)
    return rows


def others(model, prompts):
    """Variants of every kind beside those of paths."""
    width = adapt(model).info.d_model
    return [
        [],
        [AddVector(torch.linspace(-1, 1, width), layer=1)],
        [Patch("resid_pre", layers=[1], source=prompts[[1, 0, 3, 2, 5, 4]])],
        [Cut("before", "anchors", layers=[0, 2])],
        [Doubled()],
        [Isolate([0]), ZeroHeads([(2, 1)], at="all")],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("size", [10_000, 7, 1])
def test_layouts_give_the_same_numbers(setting, size):
    """However many rows a pass holds, whatever is shared."""
    model, prompts = setting
    variants = [*PREFIX.values(), *TARGET.values(), *others(model, prompts)]
    read = run_variants(model, prompts, [PredictionReading()], variants, batch_size=size)
    for changes, ((logits, log_probs, *_),) in zip(variants, read, strict=True):
        ((expected, expected_log_probs, *_),) = run(
            model, prompts, [PredictionReading()], changes, path="whole", batch_size=1
        )
        assert_close(logits, expected, **CLOSE)
        assert_close(log_probs, expected_log_probs, **CLOSE)


def test_readings_of_whole_prompts(setting, passes):
    """The works share passes over the same prompts."""
    model, prompts = setting
    variants = [[], [Isolate([0])], [ZeroHeads([(1, 0)], at="all")], [Doubled()]]
    readings = [EdgeReading(1, 2, 1)]
    adapt(model)
    passes.clear()
    read = run_variants(model, prompts, readings, variants, **ALL)
    assert passes == [len(variants) * len(prompts)]
    for changes, (found,) in zip(variants, read, strict=True):
        (expected,) = run(model, prompts, readings, changes, path="whole", batch_size=1)
        assert_close(found, expected, atol=2e-6, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("memory", [None, "600KB"])
def test_gradients_go_through_the_beginning_of_their_own_work(setting, path, memory):
    """Also where one set of interventions cannot share a beginning, and others can."""
    model, prompts = setting
    variants = [[], [Isolate([0])], [Isolate([1])], [Doubled()], [Isolate([0, 1])]]
    read = run_variants(model, prompts, [FlowReading()], variants, path=path, memory=memory, **ALL)
    for changes, (found,) in zip(variants, read, strict=True):
        (expected,) = run(model, prompts, [FlowReading()], changes, path="whole", batch_size=1)
        assert_close(found, expected, atol=2e-5, rtol=1e-4)


@dataclass(frozen=True, eq=False)
class CutsTheGraph(Intervention):
    """Leaves the values as they are, and their gradients out."""

    def hooks(self, segment):
        return [(Site("resid_pre", 2), lambda activation: activation.detach() * 1.0)]


def test_a_work_that_cuts_the_graph_is_refused_beside_others(setting):
    model, prompts = setting
    with WORDS.raises(RunError, "cuts_the_graph"):
        run_variants(model, prompts, [FlowReading()], [[], [CutsTheGraph()]], path="whole", **ALL)


class Remembers(Intervention):
    """What leaves block 0 is added to what enters block 2; it keeps that on itself, for one pass at a time."""

    def hooks(self, segment):
        def take(activation):
            object.__setattr__(self, "seen", activation.clone())

        return [
            (Site("resid_post", 0), take),
            (Site("resid_pre", 2), lambda activation: activation + self.seen),
        ]


class RemembersAlike(Remembers):
    """The same, run once for the beginning that prompts share."""

    def shares(self, prompts, length):
        return True


@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("kind", [Remembers, RemembersAlike])
def test_an_intervention_that_keeps_something_of_a_pass(setting, path, kind):
    model, prompts = setting
    same = kind()
    variants = [[same], [same, Isolate([0])], [], [Isolate([1]), same]]
    read = run_variants(model, prompts, [PredictionReading()], variants, path=path, **ALL)
    for changes, ((found, *_),) in zip(variants, read, strict=True):
        ((expected, *_),) = run(
            model, prompts, [PredictionReading()], changes, path="whole", batch_size=1
        )
        assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("at", ["target", "label_word"])
def test_a_run_patched_into_itself_stands_in_batches_like_its_source(setting, passes, at):
    """Only so are numbers equal to the last bit."""
    model, prompts = setting
    adapt(model)
    variants = [[], [Patch("resid_pre", layers=[1], at=at, source=prompts)]]
    passes.clear()
    how = {**ALL, "path": "whole"}
    (plain,), (same,) = run_variants(model, prompts, [PredictionReading()], variants, **how)
    assert set(passes) == {len(prompts)}
    assert all(torch.equal(one, other) for one, other in zip(plain, same, strict=True))


def test_no_variants_at_all(setting):
    model, prompts = setting
    assert run_variants(model, prompts, [PredictionReading()], []) == []


def test_one_work_leaves_the_rows_of_others_alone(setting):
    """Edits in place, replacements, and rows between them that nothing changes."""
    model, prompts = setting
    variants = [[], [Isolate([1])], [], [Doubled()], [], [ZeroHeads([(1, 0)], at="all")], []]
    read = run_variants(model, prompts, [PredictionReading()], variants, path="whole", **ALL)
    plain = [logits for number, ((logits, *_),) in enumerate(read) if not variants[number]]
    for found in plain[1:]:
        assert_close(found, plain[0], **CLOSE)


def test_hooks_see_their_rows_only():
    """Also where a later hook of the same rows goes on from what an earlier one returned."""
    seen = []

    def plus(amount, activation):
        seen.append(activation.shape[0])
        return activation + amount

    def in_place(activation):
        activation[:] = -1.0
        return activation

    site = Site("z", 0)
    parts = [
        [(site, lambda a: plus(1.0, a)), (site, lambda a: plus(2.0, a))],
        [],
        [(site, in_place)],
        [(site, lambda a: None)],
    ]
    rows = [slice(0, 2), slice(2, 3), slice(3, 5), slice(5, 6)]
    ((where, hook),) = on_rows(parts, rows)
    changed = hook(torch.zeros(6, 2))
    assert where == site
    assert seen == [2, 2]
    assert changed[:, 0].tolist() == [3.0, 3.0, 0.0, -1.0, -1.0, 0.0]
    assert on_rows([[], []], rows[:2]) == []
    ((_, silent),) = on_rows([[(site, lambda a: None)]], [slice(0, 6)])
    assert silent(torch.zeros(6, 2)) is None


@pytest.mark.parametrize(
    ("starts", "fixed", "expected"),
    [
        # Blocks cost so much by themselves that one pass does all.
        ([0, 2, 3], 1000, [0, 0, 0]),
        # They cost nothing: everyone enters where it can.
        ([0, 2, 3, 3], 0, [0, 2, 3, 3]),
        # Two that enter at 0 take 4 (30 + 20), one at 3 takes 30 + 10, the plain run below it 3 (30 + 10):
        # 360 in all. Together they take 4 (30 + 30) = 240.
        ([3, 0, 0], 30, [0, 0, 0]),
        ([3, 2, 3], 30, [2, 2, 2]),
        ([3, 3, 3], 30, [3, 3, 3]),
        ([], 30, []),
    ],
)
def test_where_works_enter(starts, fixed, expected):
    assert entries(starts, blocks=4, each=10, most=1000, fixed=fixed) == expected


@pytest.mark.parametrize("fixed", [0, 5, 40, 400])
@pytest.mark.parametrize("most", [20, 100])
def test_no_other_entries_cost_less(fixed, most):
    """Against all ways to divide the blocks where works begin into groups that enter together."""
    starts, blocks, each = [0, 1, 1, 3, 4, 4, 4], 6, 10
    begins = sorted(set(starts))

    def passes(works):
        return fixed * -(-works * each // most) + works * each

    def cost(entered):
        groups = {entry: entered.count(entry) for entry in entered}
        return max(entered) * passes(1) + sum((blocks - e) * passes(v) for e, v in groups.items())

    def ways(first):
        if first == len(begins):
            yield []
        for end in range(first + 1, len(begins) + 1):
            together = sum(begins[first] <= start <= begins[end - 1] for start in starts)
            for rest in ways(end):
                yield [begins[first]] * together + rest

    found = entries(starts, blocks=blocks, each=each, most=most, fixed=fixed)
    assert all(entry <= start for entry, start in zip(found, starts, strict=True))
    assert cost(found) == min(map(cost, ways(0)))


def test_a_stack_that_does_not_fit_is_halved(setting, monkeypatch, passes):
    """First between works, then between prompts."""
    model, prompts = setting
    variants = [*PREFIX.values()]
    expected = run_variants(model, prompts, [PredictionReading()], variants, path="whole", **ALL)
    values = Stack.values

    def small(self):
        if len(self.segment.prompts) > 4:
            raise torch.OutOfMemoryError
        return values(self)

    monkeypatch.setattr(Stack, "values", small)
    passes.clear()
    found = run_variants(model, prompts, [PredictionReading()], variants, path="whole", **ALL)
    assert max(passes) == 3
    for (one,), (other,) in zip(found, expected, strict=True):
        assert_close(one[0], other[0], **CLOSE)


def test_beginnings_that_do_not_fit_together_are_run_apart(setting, monkeypatch, passes):
    model, prompts = setting
    variants = [[Isolate([0])], [Isolate([1])], [Isolate([0, 1])]]
    expected = run_variants(model, prompts, [PredictionReading()], variants, **ALL)
    caches = Stack._caches

    def small(self):
        if len(self.parts) > 1:
            raise torch.OutOfMemoryError
        return caches(self)

    monkeypatch.setattr(Stack, "_caches", small)
    found = run_variants(model, prompts, [PredictionReading()], variants, **ALL)
    for (one,), (other,) in zip(found, expected, strict=True):
        assert_close(one[0], other[0], **CLOSE)


def test_the_work_that_is_not_finite_is_named(setting):
    model, prompts = setting

    @dataclass(frozen=True, eq=False)
    class Spoilt(Intervention):
        def hooks(self, segment):
            if 2 not in segment.indices:
                return [(Site("mlp_out", 0), lambda a: None)]
            row = segment.indices.index(2)
            spoil = torch.zeros(len(segment.indices), 1, 1)
            spoil[row] = torch.nan
            return [(Site("mlp_out", 0), lambda a: a + spoil)]

    variants = [[], [Isolate([0])], [Spoilt()], [Isolate([1])]]
    with WORDS.raises(RunError, "work_not_finite", "2", "Spoilt()"):
        run_variants(model, prompts, [PredictionReading()], variants, path="whole", **ALL)


@pytest.mark.slow
def test_passes_of_isolation_and_of_its_study(passes):
    """In a batch that holds all: before, one pass for each window and draw, and one for each batch."""
    model = small_model(8)
    prompts = icl.build_prompts("reviews", model, shots=1, n=8)
    adapt(model)
    passes.clear()
    icl.isolation(model, prompts, progress=False, **ALL)
    assert len(passes) <= 12
    passes.clear()
    icl.analyze(model, prompts, study="label_words", progress=False, **ALL)
    assert len(passes) <= 100
