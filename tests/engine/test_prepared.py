"""Kept keys and values computed under interventions, and the rows taken from them."""

import pytest
import torch
from torch.testing import assert_close

from icl_mech import build_prompts, load_model
from icl_mech.engine import prepare, run, run_variants, runs, single_rows
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, Reweight, ZeroHeads
from icl_mech.measurements.reading import PredictionReading
from icl_mech.models import adapt
from icl_mech.models.bridge import BridgeModel
from tests.engine.cases import ragged
from tests.engine.test_paths import CLOSE, FAMILIES, PREFIX, TARGET, TASK, logits
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

WORDS = Words(__file__)

pytestmark = pytest.mark.tl3


@pytest.fixture(scope="module", params=FAMILIES)
def setting(request):
    model = tiny_model(request.param)
    return model, build_prompts(TASK, model, shots=2, n=6)


@pytest.mark.parametrize("name", [*PREFIX, *TARGET])
def test_runs_make_the_interventions_of_kept_keys_first(setting, name):
    model, prompts = setting
    before = (PREFIX | TARGET)[name]
    if name == "mean heads":
        before = [ZeroHeads([(1, 1)], kind="mean", means=torch.ones(1, model.cfg.d_head))]
    ready = prepare(model, prompts, interventions=before, batch_size=4)
    heads, isolated = [ZeroHeads([(2, 3)])], [Isolate([0])]
    for more in ([], heads, isolated):
        expected = logits(model, prompts, [*before, *more], path="whole")
        assert_close(logits(model, ready, more), expected, **CLOSE)
    read = run_variants(model, ready, [PredictionReading()], [[], heads])
    for more, ((found, *_),) in zip(([], heads), read, strict=True):
        assert_close(found, logits(model, prompts, [*before, *more], path="whole"), **CLOSE)


def test_variants_of_few_rows_share_a_pass(setting, monkeypatch):
    model, prompts = setting
    ready = prepare(model, prompts)
    last = model.cfg.n_layers - 1
    variants = [[], [ZeroHeads([(last, 0)])], [ZeroHeads([(last, 1)])], [ZeroHeads([(0, 0)])]]
    entered = [0] * model.cfg.n_layers

    # As if by the library: prompts are run whole where there are hooks of others.
    def counted(layer, forward):
        def count(*args, **kwargs):
            entered[layer] += 1
            return forward(*args, **kwargs)

        count.__module__ = forward.__module__
        return count

    with monkeypatch.context() as patched:
        for layer, block in enumerate(model.blocks):
            attention = block.attn
            patched.setitem(vars(attention), "forward", counted(layer, attention.forward))
        read = run_variants(model, ready, [PredictionReading()], variants)
    for own, ((found, *_),) in zip(variants, read, strict=True):
        assert_close(found, logits(model, prompts, own, path="whole"), **CLOSE)
    # So few rows cost next to nothing beside a pass of their own.
    assert entered == [len(ready.segments)] * (last + 1)


def test_an_intervention_that_did_nothing_before_or_at_the_targets_is_refused(setting):
    model, prompts = setting
    ready = prepare(model, prompts, interventions=[Isolate([0], positions=((),) * 6)])
    assert ready.acted == (False,)
    with WORDS.raises(RunError, "intervention_did_nothing_before"):
        logits(model, ready, [])


def test_means_are_those_of_the_unchanged_model(setting):
    model, prompts = setting
    asked = ZeroHeads([(1, 1)], kind="mean")
    ready = prepare(model, prompts, interventions=[Isolate([0])])
    expected = logits(model, prompts, [Isolate([0]), asked], path="whole")
    assert_close(logits(model, ready, [asked]), expected, **CLOSE)


def test_rows_hold_each_prompt_alone(setting):
    model, _ = setting
    ready = prepare(model, ragged())
    rows = single_rows(ready)
    assert [row.indices for row in rows] == [(number,) for number in range(5)]
    for row, prompt in zip(rows, ragged(), strict=True):
        assert row.src[0].tolist() == list(range(prompt.target + 1))
        assert row.cache.length == prompt.target


def test_few_variants_behind_a_long_beginning_keep_no_keys(setting, monkeypatch):
    """Two passes over what follows the demonstrations cost less than one over whole prompts."""
    model, prompts = setting
    kept = []

    def counting(model, batch, **options):
        kept.append(len(batch))
        return prepare(model, batch, **options)

    monkeypatch.setattr(runs, "prepare", counting)
    factors = [Reweight(torch.linspace(-1, 1, 3 * 4 * 2).reshape(3, 4, 2))]
    for count, expected in ((2, []), (40, [6])):
        variants = [[], *[factors] * (count - 1)]
        read = run_variants(model, prompts, [PredictionReading()], variants)
        assert kept == expected
        for changes, ((found, *_),) in zip(variants[:2], read, strict=False):
            assert_close(found, logits(model, prompts, changes, path="whole"), **CLOSE)


def test_a_run_that_is_the_first_to_enter_a_later_block(setting):
    """How blocks return their outputs is asked before the hooks of a run are in place."""
    model, prompts = setting
    adapted = adapt(model)
    if not isinstance(adapted, BridgeModel):
        pytest.skip("only bridges must ask")
    fresh = BridgeModel(adapted.wrapped, adapted.info, adapted.tokenizer)
    variants = [[], [Isolate([0])]]
    read = run_variants(fresh, prompts, [PredictionReading()], variants)
    for changes, ((found, *_),) in zip(variants, read, strict=True):
        assert_close(found, logits(model, prompts, changes, path="whole"), **CLOSE)


def test_keys_of_earlier_weights_are_refused():
    inner = tiny_hf("gpt2")
    model = load_model(inner, tokenizer=tiny_tokenizer("bpe"))
    ready = prepare(model, ragged())
    run(model, ready, [PredictionReading()])
    with torch.no_grad():
        inner.get_parameter("transformer.wte.weight").mul_(1.5)
    with WORDS.raises(RunError, "keys_earlier_weights_refused"):
        run(model, ready, [PredictionReading()])
    run(model, prepare(model, ragged()), [PredictionReading()])
