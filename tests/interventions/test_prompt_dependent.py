"""An intervention of a user's own that differs by prompt, through every way to lay prompts out.

Activation patching is the case: each prompt has values of its own, also inside the tokens that
all prompts share. Where nothing else is said nothing may be shared (`Intervention.shares`).
"""

from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech._typing import Float, Tensor
from icl_mech.engine import common_prefix, prepare, run, run_variants
from icl_mech.errors import RunError
from icl_mech.interventions import Intervention, Isolate, load_intervention
from icl_mech.measurements import Reweighting
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import Site
from icl_mech.prompts import Prompt
from tests.engine.test_paths import FAMILIES, TASK
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3

CLOSE = {"atol": 2e-5, "rtol": 1e-5}


@dataclass(frozen=True, eq=False, repr=False)
class Swap(Intervention):
    """Replaces what enters a block at one position by values of each prompt's own."""

    values: Float[Tensor, "batch d_model"]
    layer: int
    position: int

    def hooks(self, segment):
        cells = [
            (row, segment.column(row, self.position), index)
            for row, index in enumerate(segment.indices)
        ]
        inside = [(row, column, index) for row, column, index in cells if column is not None]
        if not inside:
            return []
        rows, columns, indices = torch.tensor(inside).T

        def hook(activation):
            edited = activation.clone()
            edited[rows, columns] = self.values[indices].to(activation)
            return edited

        return [(Site("resid_pre", self.layer), hook)]


@dataclass(frozen=True, eq=False, repr=False)
class SwapTarget(Swap):
    """The same at each prompt's target."""

    @property
    def target_only(self):
        return True

    def hooks(self, segment):
        rows, columns = segment.targets_inside
        if not len(rows):
            return []
        indices = torch.tensor(segment.indices)[rows]

        def hook(activation):
            edited = activation.clone()
            edited[rows, columns] = self.values[indices].to(activation)
            return edited

        return [(Site("resid_pre", self.layer), hook)]


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    prompts = icl.build_prompts(TASK, model, shots=2, n=6)
    generator = torch.Generator().manual_seed(0)
    values = 3 * torch.randn(6, model.cfg.d_model, generator=generator)
    assert common_prefix(prompts) > 8
    return model, prompts, Swap(values, layer=1, position=5), SwapTarget(values, 1, -1)


def one_by_one(model, prompts, patch, readings):
    """Each prompt alone and whole, with its own row of the values."""
    found = []
    for number in range(len(prompts)):
        alone = type(patch)(patch.values[[number]], patch.layer, patch.position)
        found.append(run(model, prompts[[number]], readings, [alone], path="whole"))
    return found


def logits_of(found):
    return torch.cat([read[0][0] for read in found])


def test_it_differs_by_prompt(setting):
    """Else the other tests could not fail: prompt 0's values for all give other logits."""
    model, prompts, patch, _ = setting
    same = Swap(patch.values[[0]].expand(6, -1), patch.layer, patch.position)
    own = run(model, prompts, [PredictionReading()], [patch], path="whole")[0][0]
    zeroth = run(model, prompts, [PredictionReading()], [same], path="whole")[0][0]
    assert float((own - zeroth)[1:].abs().max()) > 1e-2


@pytest.mark.parametrize("path", ["auto", "whole"])
def test_alone(setting, path):
    model, prompts, patch, _ = setting
    expected = logits_of(one_by_one(model, prompts, patch, [PredictionReading()]))
    found = run(model, prompts, [PredictionReading()], [patch], path=path)[0][0]
    assert_close(found, expected, **CLOSE)


def test_among_variants_that_share(setting):
    model, prompts, patch, target = setting
    variants = [[], [Isolate([1])], [patch], [Isolate([0]), patch], [target]]
    found = run_variants(model, prompts, [PredictionReading()], variants)
    for variant, ((logits, *_),) in zip(variants, found, strict=True):
        expected = run(model, prompts, [PredictionReading()], variant, path="whole")[0][0]
        assert_close(logits, expected, **CLOSE)


def test_at_the_target_behind_kept_keys(setting):
    model, prompts, _, target = setting
    expected = logits_of(one_by_one(model, prompts, target, [PredictionReading()]))
    ready = prepare(model, prompts, batch_size=2)
    assert_close(run(model, ready, [PredictionReading()], [target])[0][0], expected, **CLOSE)
    ((found,),) = run_variants(model, prompts, [PredictionReading()], [[target], [target]])[:1]
    assert_close(found[0], expected, **CLOSE)


def test_with_gradients(setting):
    model, prompts, patch, target = setting
    for edit in (patch, target):
        expected = torch.cat(
            [read[0] for read in one_by_one(model, prompts, edit, [FlowReading()])]
        )
        found = run(model, prompts, [FlowReading()], [edit])[0]
        assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_in_halves(setting, monkeypatch):
    """A batch that does not fit keeps the numbers of its prompts."""
    model, prompts, patch, _ = setting
    from icl_mech.engine.work import Stack

    values = Stack.values

    def full(self):
        if len(self.segment.prompts) > 2:
            raise torch.OutOfMemoryError("full")
        return values(self)

    monkeypatch.setattr(Stack, "values", full)
    expected = logits_of(one_by_one(model, prompts, patch, [PredictionReading()]))
    assert_close(run(model, prompts, [PredictionReading()], [patch])[0][0], expected, **CLOSE)


def test_through_measurements(setting):
    model, prompts, patch, _ = setting
    expected = logits_of(one_by_one(model, prompts, patch, [PredictionReading()]))
    assert_close(icl.predict(model, prompts, interventions=[patch]).label_logits, expected, **CLOSE)
    report = icl.analyze(model, prompts, interventions=[patch], maps=0)
    assert_close(report.predictions.label_logits, expected, **CLOSE)


def test_its_tensors_are_saved_without_being_named(setting):
    _, _, patch, _ = setting
    assert_close(load_intervention(patch.to_dict()).values, patch.values)


def test_refused_where_prompts_have_other_numbers(setting):
    """Re-weighting is judged on a part of the prompts, whose numbers are not those of the values."""
    model, prompts, patch, _ = setting
    many = icl.PromptBatch(prompts.prompts * 3, prompts.source)
    whole = type(patch)(patch.values.repeat(3, 1), patch.layer, patch.position)
    given = Isolate([1], positions=[(5,)] * len(many))
    for edit in (whole, given):
        with WORDS.raises(RunError, "refused_where_prompts_other"):
            icl.measure(model, many, Reweighting(epochs=1), interventions=[edit], progress=False)
    # As many prompts in the same order, with a label word behind each, have the same numbers.
    words = icl.predict(model, prompts, score="sum", interventions=[patch])
    assert words.log_probs.isfinite().all()
    assert not Isolate([1]).by_number


def test_an_intervention_that_is_no_dataclass_is_refused(setting):
    class Steer(Intervention):
        def __init__(self, scale):
            self.__dict__["scale"] = scale

        def hooks(self, segment):
            return [(Site("resid_pre", 1), lambda activation: activation * self.scale)]

    model, prompts, _, _ = setting
    with WORDS.raises(RunError, "intervention_no_dataclass_refused"):
        icl.predict(model, prompts, interventions=[Steer(2.0)])


@pytest.mark.parametrize("redraw", ["set", "prompt", "layer"])
def test_what_follows_the_target_changes_no_draw(redraw):
    """Label words of several tokens are scored behind the target: each under the same isolation."""
    places = {"label_positions": (4,), "label_classes": (0,), "label_tokens": (301, 302)}
    start = [*range(10, 14), 301, *range(20, 30)]
    drawn = {
        Isolate([0], tokens="random", redraw=redraw).isolated(
            Prompt.from_positions([*start, *behind], target=14, **places), 0, 0
        )
        for behind in ([], [50], [60, 61])
    }
    assert len(drawn) == 1
