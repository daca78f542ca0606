"""`HookedTransformer` gives what the bridge gives on the same weights."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForCausalLM

from icl_mech import flow_scores
from icl_mech.engine import prepare, run, run_variants
from icl_mech.engine.layouts import WORTH_SHARING, common_prefix
from icl_mech.errors import RunError
from icl_mech.interventions import Isolate, Reweight, ZeroHeads, ZeroLayers
from icl_mech.measurements.reading import PredictionReading
from icl_mech.measurements.saliency.flow import FlowReading
from tests.golden_data import LABEL_WORDS, arrays, golden_model, label_words_prompts

pytestmark = [
    pytest.mark.hooked,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]

VARIANTS = {
    "plain": [],
    "first": [Isolate([0, 1])],
    "last": [Isolate([2, 3])],
    "head": [ZeroHeads([(1, 2)])],
    "layers": [ZeroLayers(2)],
    "beta": [Reweight(torch.linspace(-1, 1, 64).reshape(4, 4, 4))],
}


def hooked(*, processed: bool):
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights

    source = AutoModelForCausalLM.from_pretrained(LABEL_WORDS / "tiny_gpt2").eval()
    config = source.config
    lens_config = HookedTransformerConfig(
        n_layers=config.n_layer, d_model=config.n_embd, n_ctx=config.n_positions,
        d_head=config.n_embd // config.n_head, n_heads=config.n_head, d_vocab=config.vocab_size,
        act_fn="gelu_new", normalization_type="LN", eps=config.layer_norm_epsilon,
        model_name="tiny_gpt2", device="cpu",
    )  # fmt: skip
    model = HookedTransformer(lens_config)
    model.load_and_process_state_dict(
        convert_gpt2_weights(source, lens_config),
        fold_ln=processed,
        center_writing_weights=processed,
        center_unembed=processed,
        fold_value_biases=processed,
    )
    return model.eval()


@pytest.fixture(scope="module")
def models():
    return hooked(processed=False), golden_model("label_words", "tiny_gpt2")


@pytest.mark.parametrize("prompt_set", ["sst2_s1", "agnews_s2"])
def test_flow_goldens(models, prompt_set):
    golden = torch.from_numpy(arrays("label_words", "saliency.npz")[f"{prompt_set}_S"])
    for model in models:
        scores = flow_scores(model, label_words_prompts(f"saliency/{prompt_set}"))
        assert_close(scores.per_prompt, golden.double(), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", VARIANTS)
def test_flow_behind_a_common_beginning(models, name):
    prompts = label_words_prompts("icl/agnews_s1")
    changes, (own, bridge) = VARIANTS[name], models
    (expected,) = run(bridge, prompts, [FlowReading()], changes, path="whole")
    assert common_prefix(prompts) >= WORTH_SHARING
    for model in (own, bridge):
        (found,) = run(model, prompts, [FlowReading()], changes)
        assert_close(found, expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_all_paths(models, name):
    prompts = label_words_prompts("icl/agnews_s1")
    changes, readings = VARIANTS[name], [PredictionReading()]
    own, bridge = models
    ((expected, log_probs, *_),) = run(bridge, prompts, readings, changes, path="whole")
    ((whole, own_log_probs, *_),) = run(own, prompts, readings, changes, path="whole")
    assert_close(whole, expected, atol=2e-5, rtol=0)
    assert_close(own_log_probs, log_probs, atol=2e-5, rtol=0)
    ((shared, *_),) = run(own, prompts, readings, changes)
    (((variant, *_),),) = run_variants(own, prompts, readings, [changes])
    ((prepared, *_),) = run(own, prepare(own, prompts), readings, changes)
    for fast in (shared, variant, prepared):
        assert_close(fast, whole, atol=2e-5, rtol=0)


def test_processed_weights(models):
    """Log-probabilities agree; what is defined on the checkpoint's weights is refused."""
    prompts = label_words_prompts("icl/agnews_s1")
    folded = hooked(processed=True)
    ((_, expected, *_),) = run(models[1], prompts, [PredictionReading()])
    ((_, log_probs, *_),) = run(folded, prompts, [PredictionReading()])
    assert_close(log_probs, expected, atol=5e-5, rtol=0)
    with pytest.raises(RunError, match="processed"):
        run(folded, prompts, [PredictionReading()], [ZeroHeads([(0, 0)])])
