"""TransformerLens 3: `HookedTransformer`, raw and processed, and the bridge give the same numbers."""

from dataclasses import dataclass

import pytest
import torch

import icl_mech as icl
from tests.families.compare import Both, gap
from tests.families.configs import BY_NAME
from tests.said import Words

WORDS = Words(__file__)

pytestmark = [
    pytest.mark.hooked,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated:DeprecationWarning"),
]

CLOSE = 2e-5
ROTARY = {"positional_embedding_type": "rotary", "rotary_adjacent_pairs": False}
OWN = {
    "GPT-2": {"normalization_type": "LN", "act_fn": "gelu_new", "d_mlp": 128},
    "GPT-NeoX": {
        **ROTARY, "normalization_type": "LN", "act_fn": "gelu", "rotary_dim": 2,
        "parallel_attn_mlp": True,
    },
    "Llama": {
        **ROTARY, "normalization_type": "RMS", "act_fn": "silu", "rotary_dim": 8,
        "final_rms": True, "gated_mlp": True, "n_key_value_heads": 2,
    },
}  # fmt: skip


def hooked(both, *, processed):
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained import weight_conversions

    plain = both.plain
    options = OWN[both.family.name]
    name = {"GPT-2": "gpt2", "GPT-NeoX": "neox", "Llama": "llama"}[both.family.name]
    eps = "rms_norm_eps" if name == "llama" else "layer_norm_eps" if name == "neox" else None
    config = HookedTransformerConfig(
        **{"n_layers": 2, "d_model": 32, "n_ctx": 256, "d_head": 8, "n_heads": 4, "d_mlp": 48}
        | {"d_vocab": plain.config.vocab_size, "model_name": both.family.name, "device": "cpu"}
        | {"eps": getattr(plain.config, eps or "layer_norm_epsilon")}
        | options
    )
    model = HookedTransformer(config)
    model.load_and_process_state_dict(
        getattr(weight_conversions, f"convert_{name}_weights")(plain, config),
        fold_ln=processed,
        center_writing_weights=processed and name != "llama",  # RMSNorm does not centre
        center_unembed=processed,
        fold_value_biases=processed,
    )
    return model.eval()


@dataclass
class Case:
    both: Both
    model: object
    processed: bool


@pytest.fixture(scope="module", params=[(name, kind) for name in OWN for kind in (False, True)])
def case(request):
    name, processed = request.param
    both = Both(BY_NAME[name])
    return Case(both, hooked(both, processed=processed), processed)


def test_log_probabilities(case):
    found = icl.predict(case.model, case.both.prompts).log_probs
    assert gap(found, icl.predict(case.both.bridge, case.both.prompts).log_probs) < CLOSE


def test_flow(case):
    """Folded value biases change saliency; Llama has none, but there too it is warned of."""
    if case.processed:
        with WORDS.warns(UserWarning, "flow"):
            found = icl.flow_scores(case.model, case.both.prompts).per_prompt
        if case.both.family.name != "Llama":
            return
    else:
        found = icl.flow_scores(case.model, case.both.prompts).per_prompt
    expected = icl.flow_scores(case.both.bridge, case.both.prompts).per_prompt
    assert float((found - expected).abs().max() / expected.abs().max()) < 5 * CLOSE


def test_every_entry_of_the_lens(case):
    found = icl.logit_lens(case.model, case.both.prompts)
    expected = icl.logit_lens(case.both.bridge, case.both.prompts)
    assert torch.isfinite(found.probs).all()
    assert gap(found.probs.log(), expected.probs.log()) < CLOSE


def test_label_words_isolated(case):
    changes = [icl.Isolate([0, 1])]
    found, expected = (
        icl.predict(model, case.both.prompts, interventions=changes).log_probs
        for model in (case.model, case.both.bridge)
    )
    assert gap(found, expected) < CLOSE
