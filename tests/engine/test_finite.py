"""NaN and infinite numbers are refused on every path, with prompt, block and what to do."""

import copy
import warnings
from dataclasses import dataclass

import pytest
import torch
from transformer_lens.model_bridge import TransformerBridge

import icl_mech as icl
from icl_mech.engine import Work, prepare, run, run_variants
from icl_mech.errors import ModelError, RunError
from icl_mech.interventions import Intervention, Isolate, Reweight, ZeroHeads
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from icl_mech.models import Site, adapt
from icl_mech.segments import Segment
from tests.engine.cases import EdgeReading, ragged
from tests.engine.test_paths import TASK
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

WORDS = Words(__file__)

PREDICTION = [PredictionReading()]
VARIANTS = {
    "late": [[], [Isolate([2])], [Isolate([1, 2])]],
    "target": [[], [ZeroHeads([(2, 0)])], [ZeroHeads([(1, 1)])]],
}
PATHS = {
    "whole": lambda m, p, _: run(m, p, PREDICTION, path="whole"),
    "whole with gradients": lambda m, p, _: run(m, p, [FlowReading()], path="whole"),
    "recomputed": lambda m, p, _: run(m, p, [FlowReading()], memory=1),
    "shared": lambda m, p, _: run(m, p, PREDICTION),
    "shared with gradients": lambda m, p, _: run(m, p, [FlowReading()]),
    "shared variants": lambda m, p, _: run_variants(m, p, PREDICTION, VARIANTS["late"]),
    "target only": lambda m, p, _: run_variants(m, p, PREDICTION, VARIANTS["target"]),
    "preparing": lambda m, p, _: prepare(m, p),
    "prepared before": lambda m, _, prepared: run(m, prepared, PREDICTION),
    "a beginning": lambda m, p, _: Work([], [], checkpoint=False).begin(Segment.whole(adapt(m), p)),
    "compression": lambda m, p, _: icl.compress_demonstrations(m, p),
    "re-weighting": lambda m, p, _: icl.fit_reweighting(m, p, epochs=1),
    "losses": lambda _, __, prepared: Work([], [], False).losses(prepared.segments[0], "label"),
    "isolation": lambda m, p, _: icl.isolation(m, p),
    "lens": lambda m, p, _: icl.logit_lens(m, p),
    "confusion": lambda m, p, _: icl.diagnose_confusion(m, p, layer=1),
    "heads": lambda m, p, _: icl.extraction(m, p),
}


@pytest.fixture(scope="module")
def spoilt():
    """A model one of whose weights became NaN after its first use; prompts prepared before."""
    model = tiny_model("llama")
    prompts = icl.build_prompts(TASK, model, shots=2, n=4)
    prepared = prepare(model, prompts)
    with torch.no_grad():
        model.original_model.model.layers[1].mlp.down_proj.weight[3, 3] = torch.nan
    return model, prompts, prepared


@pytest.mark.parametrize("path", PATHS)
def test_a_weight_that_became_nan(spoilt, path):
    message = "changed" if path == "prepared before" else "became_nan"
    with WORDS.raises(RunError, message):
        PATHS[path](*spoilt)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize(
    ("number", "options"), [(2, {}), (2, {"batch_size": 1}), (3, {"path": "whole"})]
)
def test_the_prompt_is_named_by_its_number(value, number, options):
    """Prompt 2 is the longest, and so the first of a batch; prompt 3 is not."""
    model, prompts = tiny_model("gpt2"), ragged()
    adapt(model)
    healthy = [row for row in range(len(prompts)) if row != number]
    others = {token for row in healthy for token in prompts[row].tokens}
    own = next(token for token in prompts[number].tokens if token not in others)
    with torch.no_grad():
        model.original_model.transformer.wte.weight[own, 5] = value
    for study in (icl.flow_scores, icl.predict):
        with WORDS.raises(RunError, "named_by_its_number", number):
            study(model, prompts, **options)
    rest = prompts[healthy]
    assert bool(icl.flow_scores(model, rest).per_prompt.isfinite().all())


def half_model(*, position=0.0, bias=0.0, gain=1.0):
    """float16; position 12, which only prompt 2 of `ragged` has, and block 1 are large."""
    hf = tiny_hf("gpt2")
    with torch.no_grad():
        hf.transformer.wpe.weight[12] += position
        hf.transformer.h[1].mlp.c_proj.bias += bias
        hf.transformer.ln_f.weight *= gain
    return TransformerBridge.boot_transformers(
        "tiny-gpt2",
        hf_model=hf.half(),
        tokenizer=copy.deepcopy(tiny_tokenizer("bpe")),
        dtype=torch.float16,
        device="cpu",
    )


def test_activations_that_overflow():
    model = half_model(position=6.5e4, bias=5e3)
    for study in (icl.flow_scores, icl.predict, icl.logit_lens):
        with WORDS.raises(RunError, "activations_overflow", "2", "1", "65504", "'bfloat16'"):
            study(model, ragged())


def test_gradients_that_overflow_after_a_finite_forward_pass():
    model = half_model(position=6.5e4)
    assert bool(icl.predict(model, ragged()).label_logits.isfinite().all())
    with WORDS.raises(RunError, "gradients_overflow_after_finite", "2", "0"):
        icl.flow_scores(model, ragged())


def test_a_model_that_overflows_at_once():
    with WORDS.raises(ModelError, "model_overflows_once", "16"):
        adapt(half_model(gain=3e4))


@pytest.mark.parametrize("study", [icl.flow_scores, icl.predict])
def test_an_intervention_that_overflows(study):
    model = tiny_model("gpt2")
    change = Reweight(torch.full((3, 4, 3), 200.0))
    with WORDS.raises(
        RunError, "intervention_overflows", "block 0 of GPT2LMHeadModel", "Reweight("
    ):
        study(model, ragged(), interventions=[change])


@dataclass(frozen=True, eq=False)
class SpoilGradients(Intervention):
    """Changes nothing where block 2 begins, with a slope that is not a number."""

    def hooks(self, segment):
        return [(Site("resid_pre", 2), lambda x: x + (0 * x).sqrt())]


def test_the_block_nearest_to_the_loss_is_named():
    with WORDS.raises(RunError, "nearest_to_the_loss", "block 1"):
        icl.flow_scores(tiny_model("gpt2"), ragged(), interventions=[SpoilGradients()])


@dataclass
class Odd(EdgeReading):
    """Divides by zero."""

    finite: bool = True
    sign: int = 1

    def reduce(self, site, activation, segment):
        return super().reduce(site, activation, segment) * self.sign / 0


@pytest.mark.parametrize("sign", [1, -1])
def test_what_a_reading_makes_of_finite_activations(sign):
    model = tiny_model("gpt2")
    with WORDS.raises(RunError, "what_reading_makes_finite", "'pattern'", "1"):
        run(model, ragged(), [Odd(1, 2, 1, sign=sign)])
    (values,) = run(model, ragged(), [Odd(1, 2, 1, finite=False)])
    assert not bool(values.isfinite().any())


@dataclass
class Scores(EdgeReading):
    """One score of every head."""

    def sites(self, info):
        return [Site("scores", self.layer)]


@pytest.mark.filterwarnings("ignore:The weights of .* are processed:UserWarning")
@pytest.mark.parametrize("processed", [False, True])
def test_masked_scores_may_be_infinite(processed):
    model = tiny_model("gpt2")
    if processed:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.enable_compatibility_mode(disable_warnings=True)
    (later, earlier) = run(model, ragged(), [Scores(1, 1, 2), Scores(1, 2, 1)])
    assert bool((later < -1e30).all())
    assert bool(earlier.isfinite().all())
    (isolated,) = run(model, ragged(), [Scores(1, 2, 0)], [Isolate([1])])
    assert bool(isolated[0].isneginf().all())


@dataclass(frozen=True, eq=False)
class SpoilPadding(Intervention):
    """Infinite residuals at padding, after everything that could spread them."""

    def hooks(self, segment):
        padding = (segment.dest < 0)[..., None]
        return [(Site("resid_post", 2), lambda x: x.masked_fill(padding, torch.nan))]


def test_padding_may_be_anything():
    model = tiny_model("gpt2")
    plain, spoilt = (
        icl.predict(model, ragged(), interventions=i).label_logits for i in ([], [SpoilPadding()])
    )
    assert torch.equal(plain, spoilt)


@dataclass(frozen=True, eq=False)
class SpoilOneNumber(Intervention):
    """One component of one row of prompt 3, where nothing can spread it any more."""

    def hooks(self, segment):
        def spoil(stream):
            spoilt = stream.clone()
            for row, index in enumerate(segment.indices):
                column = segment.column(row, 2)
                if index == 3 and column is not None:
                    spoilt[row, column, 7] = torch.nan
            return spoilt

        return [(Site("resid_post", 2), spoil)]


def test_one_number_of_one_row_is_noticed():
    with WORDS.raises(RunError, "number_row_noticed", "3", "0"):
        icl.predict(tiny_model("gpt2"), ragged(), interventions=[SpoilOneNumber()])
