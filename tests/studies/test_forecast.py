"""What a run will cost, against what it does: rows to the last one, refusals to the last word."""

import warnings
from collections import Counter

import pytest
import torch

import icl_mech as icl
from icl_mech.engine import memory as engine_memory
from icl_mech.engine import trials
from icl_mech.engine.trials import Costs, _Allocated, _fitted, tried
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements import (
    Ablation,
    CompareCompression,
    Confusion,
    EdgeCuts,
    Extraction,
    Flow,
    HeadScores,
    Isolation,
    LayerAccuracy,
    LogitLens,
    Predict,
    SaliencyMaps,
)
from icl_mech.models import adapt
from icl_mech.models.rehearsal import Call, Ledger, Load, Rehearsed, Stage, rehearsing, stage
from icl_mech.studies import forecast as forecasts
from icl_mech.studies import nulls
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

TEXTS = ("good film", "a Business story", "World Sports", "bad", "a nice Answer to it", "boring")
TASK = icl.Task(
    "tiny",
    icl.Template("Review: {text}\nSentiment: {label}"),
    ("Negative", "Positive"),
    tuple(icl.Example(text, i % 2) for i, text in enumerate(TEXTS[:4])),
    tuple(icl.Example(f"{text} {TEXTS[i - 1]}", i % 2) for i, text in enumerate(TEXTS)),
)
QUIET = {"progress": False}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(trials, "SECONDS", 0.05)


@pytest.fixture(scope="module")
def model():
    return tiny_model("llama")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts(TASK, model, shots=2, n=6)


@pytest.fixture(scope="module")
def pair(model):
    return icl.build_prompt_pairs(TASK, model, shots=2, n=6, demonstrations="per_prompt")


@pytest.fixture
def counted(model):
    """Rows that go through the real blocks, counted at their MLPs, by direction."""
    rows = Counter()
    inner = torch._C._functorch

    def count(forward):
        def run(residual):
            # At the entrance: where blocks run again, they end as soon as nothing more is needed.
            many = residual.shape[0] * residual.shape[1]
            rows["forward"] += many
            output = forward(residual)
            if output.requires_grad:
                output.register_hook(lambda gradient: back(gradient, many))
            return output

        run.__module__ = "torch"  # a hook of one's own would change the path
        return run

    def back(gradient, many):
        batched = inner.is_batchedtensor(gradient)
        copies = inner.get_unwrapped(gradient).numel() // gradient.numel() if batched else 1
        rows["backward"] += many * copies

    mlps = [layer.mlp for layer in model.original_model.model.layers]
    for mlp in mlps:
        vars(mlp)["forward"] = count(mlp.forward)
    yield rows
    for mlp in mlps:
        del vars(mlp)["forward"]


ONE = {
    "flow": Flow(),
    "maps": SaliencyMaps(),
    "predictions": Predict(),
    "extraction": Extraction(),
    "lens": LogitLens(),
    "head scores": HeadScores(),
    "isolation": Isolation(),
    "edge cuts": EdgeCuts(),
    "compression": CompareCompression(),
    "confusion": Confusion(layer=1),
}
TWO = {"layers": LayerAccuracy(), "ablation": Ablation(heads=((1, 2), (2, 0)))}


@pytest.mark.parametrize("path", ["auto", "whole"])
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_forecast_rows_are_those_of_the_run(model, prompts, pair, counted, name, path):
    data = prompts if name in ONE else pair
    measurement = {**ONE, **TWO}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = icl.measure(model, data, measurement, path=path, plan=True, **QUIET).items[0]
        counted.clear()
        icl.measure(model, data, measurement, path=path, **QUIET)
    assert counted["forward"] > 0
    assert (own.rows["forward"], own.rows["backward"]) == (counted["forward"], counted["backward"])


@pytest.mark.parametrize("how", [{"memory": 1}, {"memory": 1, "path": "whole"}, {"batch_size": 1}])
def test_recomputed_blocks_and_small_batches_are_counted(model, prompts, counted, how):
    own = icl.measure(model, prompts, Flow(), plan=True, **how, **QUIET).items[0]
    counted.clear()
    icl.measure(model, prompts, Flow(), **how, **QUIET)
    assert (own.rows["forward"], own.rows["backward"]) == (counted["forward"], counted["backward"])


def test_shared_work_is_counted_once(model, prompts):
    both = icl.measure(model, prompts, Flow(), Predict(), plan=True, **QUIET).items[0]
    flow = icl.measure(model, prompts, Flow(), plan=True, **QUIET).items[0]
    assert both.rows["forward"] == flow.rows["forward"]
    assert both.rows["unembed"] == flow.rows["unembed"] + len(prompts)


# --- nothing happens ---


@pytest.mark.slow
def test_a_plan_changes_nothing(model, prompts, tmp_path):
    before = icl.flow_scores(model, prompts, **QUIET).values
    nulls._KNOWN.clear()
    found = icl.analyze(model, prompts, out=tmp_path / "new", plan=True, **QUIET)
    assert found.items[0].rows["backward"] > 0
    assert not nulls._KNOWN, "numbers of a rehearsal would be taken for those of networks"
    assert not (tmp_path / "new").exists()
    assert stage() is None
    assert torch.equal(icl.flow_scores(model, prompts, **QUIET).values, before)


@pytest.mark.slow
def test_untrained_networks_are_counted_and_not_made(model, prompts, monkeypatch):
    nulls._KNOWN.clear()
    monkeypatch.setattr(trials, "untrained", lambda _: None)
    with_them = icl.analyze(model, prompts, plan=True, maps=0, nulls=2, **QUIET).items[0]
    without = icl.analyze(model, prompts, plan=True, maps=0, nulls=0, **QUIET).items[0]
    assert with_them.rows["backward"] == 3 * without.rows["backward"]


def test_finished_results_cost_nothing(model, prompts, tmp_path):
    icl.measure(model, prompts, Predict(), out=tmp_path / "run", **QUIET)
    files = sorted(tmp_path.rglob("*"))
    own = icl.measure(model, prompts, Predict(), out=tmp_path / "run", plan=True, **QUIET).items[0]
    assert own.rows == {"forward": 0, "backward": 0, "unembed": 0}
    more = (Predict(), Extraction())
    icl.measure(model, prompts, *more, out=tmp_path / "run", plan=True, **QUIET)
    assert sorted(tmp_path.rglob("*")) == files


@pytest.mark.parametrize(
    "refused",
    [
        lambda model, prompts, **how: icl.analyze(model, prompts, study="nothing", **how),
        lambda model, prompts, **how: icl.analyze(model, prompts, study="overthinking", **how),
        lambda model, prompts, **how: icl.analyze(model, prompts, nulls=1, **how),
        lambda model, prompts, **how: icl.measure(model, prompts, Confusion(layer=99), **how),
        lambda model, prompts, **how: icl.measure(model, prompts, **how),
        lambda model, prompts, **how: icl.measure(model, prompts, Flow(), memory="much", **how),
    ],
)
def test_what_is_refused_is_refused_in_the_same_words(model, prompts, refused):
    said = []
    for plan in (False, True):
        with pytest.raises((RunError, PromptError)) as error:
            refused(model, prompts, plan=plan, **QUIET)
        said.append(str(error.value))
    assert said[0] == said[1]


def test_a_prompt_that_is_too_long_is_refused_in_the_same_words(model):
    prompt = icl.Prompt.from_positions(
        [5] * 600, label_positions=[3, 9], label_classes=[0, 1], label_tokens=[10, 11], answer=0
    )
    for plan in (False, True):
        with WORDS.raises(PromptError, "prompt_too_long_refused", "600", "88"):
            icl.measure(model, icl.PromptBatch((prompt,)), Predict(), plan=plan, **QUIET)


def test_what_is_refused_after_passes_of_noise_is_refused_and_says_so(model, prompts):
    class Torn(Predict):
        def result(self, model, data, read):
            raise RunError("The numbers do not add up.")

    with WORDS.raises(RunError, "what_refused_after_passes"):
        icl.measure(model, prompts, Torn(), plan=True, **QUIET)


# --- what it says ---


def test_a_forecast_says_what_a_run_takes(model, prompts, tmp_path):
    found = icl.measure(model, prompts, Flow(), Confusion(layer=1), plan=True, **QUIET)
    (own,) = found.items
    assert own.prompts == len(prompts)
    assert own.longest == int(prompts.lengths.max())
    assert own.cpu_seconds > 0
    assert own.memory["cpu"] > own.needed > 0
    icl.measure(model, prompts, Flow(), Confusion(layer=1), **QUIET).save(tmp_path / "run")
    disk = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*.*"))
    assert abs(own.disk / disk - 1) < 0.1
    for word in (f"{own.rows['forward']:,} forward", "6 of", "fits", "1 run"):
        assert word in repr(found)
    assert found.to_dict()["items"][0]["rows"] == own.rows
    assert found.to_pandas().loc[0, "fits"]
    assert found.total("disk") == own.disk


def test_passes_that_depend_on_results_are_named(model, prompts):
    own = icl.measure(model, prompts, CompareCompression(), Predict(), plan=True, **QUIET).items[0]
    WORDS.exactly(own.notes, "typical_results", "CompareCompression")


def test_what_does_not_fit_is_said(model, prompts, monkeypatch):
    monkeypatch.setattr(forecasts, "in_use", lambda _: 0)
    monkeypatch.setattr(forecasts, "free_memory", lambda _: 1000)
    found = icl.measure(model, prompts, Flow(), path="whole", plan=True, **QUIET)
    assert not found.fits
    assert not found.to_dict()["items"][0]["fits"]
    assert "DOES NOT FIT" in repr(found)
    assert "to fit   " not in repr(found)


# A kept graph takes 10 bytes a row and block; 8 prompts of 100 tokens in 3 blocks, so 24 000.
COSTS = Costs({}, 1.0, (10.0, 0.0, 0.0), (1.0, 0.0), 4, 32, 500, 0.0)
GRADIENT = Load(Call("forward", 8, 100, 100, 3), "kept")
FORWARD = Load(Call("forward", 4, 100, 100, 3))


@pytest.mark.parametrize(
    ("held", "free", "options"),
    [
        # (24 000 * 1.2 + 1000 held: 29 800; 4 prompts: 15 400, one: 4600
        ({GRADIENT: 1000, FORWARD: 0}, 16_000, [("batch", "4"), ("length", "50%")]),
        ({GRADIENT: 1000, FORWARD: 0}, 15_000, [("length", "25%")]),
        # Held: 80 % of the prompts hold 16 000 + 480.
        ({FORWARD: 20_000}, 16_480, [("share", "80%")]),
        ({FORWARD: 20_000}, 5, []),
    ],
)
def test_options_are_named_that_make_it_fit(model, monkeypatch, held, free, options):
    monkeypatch.setattr(Ledger, "weights", -(10**9))
    ledger = Ledger(adapt(model), 0, held=held)
    assert forecasts._most(ledger, COSTS) > free
    found = [*forecasts._fitting(ledger, COSTS, free)]
    for option, (name, fact) in zip(found, options, strict=True):
        WORDS.exactly(option, name, fact)


def test_recomputed_blocks_and_a_narrower_dtype_are_options(model):
    load = Load(Call("forward", 1, 100, 100, 30), "kept")  # 30 000; made again 1000 + 384 000
    ledger = Ledger(adapt(model), 0, held={load: 0})
    narrow = Costs(
        {}, 1.0, (10.0, 0.0, 0.0), (1.0, 0.0), 4, 0, 500, 0.0
    )  # of residuals of no width
    found = [*forecasts._fitting(ledger, narrow, 20_000)]
    WORDS.exactly(found[0], "recomputed_blocks_narrower_dtype", "'1e-05GB'")
    assert found[-1] == "dtype='bfloat16'"


def test_a_prompt_that_cannot_fit_is_warned_of_or_refused(model, prompts, monkeypatch):
    monkeypatch.setattr(engine_memory, "free_memory", lambda _: 1000)
    with WORDS.warns(UserWarning, "prompt_cannot_fit_warned", "0.0"):
        icl.predict(model, prompts, **QUIET)
    with WORDS.raises(RunError, "prompt_cannot_fit_warned_2"):
        icl.predict(model, prompts, memory="1GB", **QUIET)


# --- trials ---


def test_factors_are_found_again():
    samples = {(1, n, n * c): 2.0 + 0.5 * n + 0.01 * n * c for n in (3, 50, 400) for c in (7, 90)}
    assert _fitted(samples) == pytest.approx([2.0, 0.5, 0.01], rel=1e-6)
    assert _fitted({(1, 5): 3.0, (1, 1): 3.0}) == pytest.approx([3.0, 0.0])
    assert _fitted({}) == ()


@pytest.mark.parametrize("memory", [None, 1])
def test_bytes_of_a_pass_are_those_it_allocates(model, memory):
    tokens = torch.randint(20, 90, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    prompt = icl.Prompt.from_positions(
        tokens, label_positions=[90, 300], label_classes=[0, 1], label_tokens=[10, 11], answer=0
    )
    long = icl.PromptBatch((prompt,))
    own = Stage()
    with rehearsing(own):
        icl.measure(model, long, SaliencyMaps(), memory=memory, **QUIET)
    (ledger,) = own.ledgers.values()
    ((load, _),) = [item for item in ledger.held.items() if item[0].call.rows == 400]
    assert load.graph == ("kept" if memory is None else "recomputed")
    with _Allocated() as seen:
        icl.measure(model, long, SaliencyMaps(), memory=memory, **QUIET)
    assert 0.7 < tried(ledger).bytes(load) / seen.most < 1.4


def test_a_stand_in_is_of_the_models_own_class_and_computes_nothing(model, monkeypatch):
    own = Stage()
    with rehearsing(own):
        stand_in = adapt(model)
        monkeypatch.setattr(type(model), "forward", lambda *_, **__: pytest.fail("it was run"))
        assert isinstance(stand_in, Rehearsed)
        assert isinstance(stand_in, type(own.ledgers[id(stand_in.ledger.model)].model))
        ids = torch.ones(2, 5).long()
        output = stand_in.forward(ids, ids.bool(), ids)
    assert output.residual.shape == (2, 5, stand_in.info.d_model)
    assert stand_in.ledger.rows("forward") == 2 * 5 * stand_in.info.n_layers
