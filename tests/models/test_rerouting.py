"""Re-routed attention: same logits as before, hooks inside the computation.

Identities, with scores s, pattern p and values v at the hooks of one layer:

    p = softmax(s)        z = p v        dL/ds = p * (dL/dp - sum_src p dL/dp)

and dL/dp equals the gradient of the attentions that Hugging Face's eager model returns.
"""

from functools import lru_cache
from typing import Any

import pytest
import torch
from transformer_lens.model_bridge.generalized_components import AttentionBridge
from transformers import DynamicCache, OPTForCausalLM
from transformers.models.gptj.modeling_gptj import GPTJAttention

from icl_mech.errors import ModelError
from icl_mech.models import repairs
from icl_mech.models.repairs import reroute_attention
from tests.tiny import N_HEADS, N_LAYERS, REROUTED_FAMILIES, tiny_hf, tiny_model

POS = 14
PREFIX = 9
PADDING = {
    "none": torch.ones(2, POS, dtype=torch.long),
    "left": torch.tensor([[1] * POS, [0] * 5 + [1] * (POS - 5)]),
    "right": torch.tensor([[1] * POS, [1] * (POS - 5) + [0] * 5]),
}
ALL_HOOKS = [
    f"blocks.{layer}.attn.hook_{hook}"
    for layer in range(N_LAYERS)
    for hook in ("attn_scores", "pattern")
]

each_family = pytest.mark.parametrize("family", REROUTED_FAMILIES)
each_padding = pytest.mark.parametrize("padding", PADDING)


@lru_cache
def plain(family):
    return tiny_model(family)


@lru_cache
def rerouted(family):
    bridge = tiny_model(family)
    assert reroute_attention(bridge)
    return bridge


def tokens():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, 400, (2, POS), generator=generator)


def hook_name(layer, hook):
    return f"blocks.{layer}.attn.hook_{hook}"


def record(bridge, names, *, edits=(), **inputs):
    """Logits, and what `names` held after `edits`, in the order of firing."""
    seen: list[tuple[str, torch.Tensor]] = []
    recording = [(name, lambda x, hook: seen.append((hook.name, x))) for name in names]
    with bridge.hooks(fwd_hooks=[*edits, *recording]):
        logits = bridge(inputs.pop("input", tokens()), **inputs)
    return logits, seen


def real(values: torch.Tensor, padding: str) -> torch.Tensor:
    return values[PADDING[padding].bool()]


@each_family
@each_padding
def test_logits_are_unchanged(family, padding):
    mask = PADDING[padding]
    with torch.no_grad():
        expected = plain(family)(tokens(), attention_mask=mask)
        found = rerouted(family)(tokens(), attention_mask=mask)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@each_family
@each_padding
def test_logits_with_a_cache_are_unchanged(family, padding):
    mask = PADDING[padding]
    with torch.no_grad():
        whole = plain(family)(tokens(), attention_mask=mask)
        parts = []
        for bridge in (plain(family), rerouted(family)):
            cache = DynamicCache()
            for part in (slice(0, PREFIX), slice(PREFIX, POS)):
                logits = bridge(
                    tokens()[:, part],
                    attention_mask=mask[:, : part.stop],
                    past_key_values=cache,
                    use_cache=True,
                )
            parts.append(logits)
    torch.testing.assert_close(parts[1], parts[0], atol=1e-5, rtol=0)
    if padding == "none":  # else the positions of the second part are not those of the whole
        torch.testing.assert_close(parts[1], whole[:, PREFIX:], atol=1e-5, rtol=0)


@each_family
def test_bfloat16(family):
    before, after = (tiny_model(family).to(torch.bfloat16) for _ in range(2))
    reroute_attention(after)
    edit = (hook_name(1, "pattern"), lambda pattern, hook: pattern.float() * 0.5)
    with torch.no_grad():
        expected = before(tokens(), attention_mask=PADDING["left"])
        found = after(tokens(), attention_mask=PADDING["left"])
        _, seen = record(after, [hook_name(1, "pattern")])
        edited, _ = record(after, [], edits=[edit], attention_mask=PADDING["left"])
    assert found.dtype == seen[0][1].dtype == torch.bfloat16
    # XGLM itself takes the softmax in bfloat16.
    tolerance = 0.07 if family == "xglm" else 0.0
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert (edited - found).abs().max() > 0.1


@each_family
def test_each_hook_fires_once_inside_the_computation(family):
    mask = PADDING["left"]
    with torch.no_grad():
        _, seen = record(rerouted(family), ALL_HOOKS, attention_mask=mask)
    assert [name for name, _ in seen] == ALL_HOOKS
    causal = torch.ones(POS, POS).tril().bool()
    masked = ~(causal & mask[1].bool())[5:]  # rows of padding may attend anywhere
    for (_, scores), (_, pattern) in zip(seen[::2], seen[1::2], strict=True):
        assert scores.shape == pattern.shape == (2, N_HEADS, POS, POS)
        torch.testing.assert_close(pattern, scores.softmax(-1))
        assert (scores[1, :, 5:][:, masked] < -1e30).all()
        assert (pattern[1, :, 5:][:, masked] == 0).all()


@each_family
def test_shapes_with_a_cache(family):
    cache = DynamicCache()
    with torch.no_grad():
        rerouted(family)(tokens()[:, :PREFIX], past_key_values=cache, use_cache=True)
        _, seen = record(
            rerouted(family),
            [hook_name(0, "attn_scores"), hook_name(2, "pattern")],
            input=tokens()[:, PREFIX:],
            past_key_values=cache,
            use_cache=True,
        )
        _, whole = record(rerouted(family), [hook_name(2, "pattern")])
    assert [tuple(x.shape) for _, x in seen] == [(2, N_HEADS, POS - PREFIX, POS)] * 2
    torch.testing.assert_close(seen[1][1], whole[0][1][:, :, PREFIX:], atol=1e-5, rtol=0)


@each_family
def test_an_edited_pattern_weights_the_values(family):
    row = torch.rand(POS, generator=torch.Generator().manual_seed(2))

    def edit(pattern, hook):
        pattern = pattern.clone()
        pattern[:, 1, -3] = row
        return pattern

    names = [hook_name(1, hook) for hook in ("v", "pattern", "z")]
    with torch.no_grad():
        unedited, _ = record(rerouted(family), names)
        logits, seen = record(rerouted(family), names, edits=[(hook_name(1, "pattern"), edit)])
    values, pattern, z = (x for _, x in seen)
    torch.testing.assert_close(pattern[:, 1, -3], row.expand(2, -1))
    direct = torch.einsum("bhds,bshe->bdhe", pattern, values.view(2, POS, N_HEADS, -1))
    torch.testing.assert_close(z.view_as(direct), direct, atol=1e-5, rtol=1e-5)
    # The edit reaches its own position and later ones, and no earlier one.
    assert torch.equal(logits[:, :-3], unedited[:, :-3])
    assert ((logits - unedited)[:, -3:].abs().amax(-1) > 1e-3).all()


@each_family
def test_scores_of_minus_infinity_leave_a_one_hot_pattern(family):
    kept = 3

    def edit(scores, hook):
        removed = torch.arange(POS) != kept
        removed = removed & (torch.arange(N_HEADS) == 2)[:, None, None]
        return scores.masked_fill(removed & (torch.arange(POS) == POS - 1)[:, None], -torch.inf)

    names = [hook_name(0, hook) for hook in ("v", "pattern", "z")]
    with torch.no_grad():
        _, seen = record(rerouted(family), names, edits=[(hook_name(0, "attn_scores"), edit)])
    values, pattern, z = (x.reshape(2, -1, *x.shape[2:]) for _, x in seen)
    one_hot = torch.nn.functional.one_hot(torch.tensor(kept), POS).float()
    torch.testing.assert_close(pattern[:, 2, -1], one_hot.expand(2, -1))
    heads = (2, POS, N_HEADS, -1)
    torch.testing.assert_close(z.view(heads)[:, -1, 2], values.view(heads)[:, kept, 2])


@each_family
def test_gradients_are_those_of_the_eager_model(family):
    logits, seen = record(rerouted(family), ALL_HOOKS)
    gradients = torch.autograd.grad(logits[:, -1, 7].sum(), [x for _, x in seen])

    eager = tiny_hf(family)(tokens(), output_attentions=True)
    expected = torch.autograd.grad(eager.logits[:, -1, 7].sum(), eager.attentions)
    for layer in range(N_LAYERS):
        pattern = seen[2 * layer + 1][1]
        torch.testing.assert_close(pattern, eager.attentions[layer], atol=1e-5, rtol=0)
        by_scores, by_pattern = gradients[2 * layer : 2 * layer + 2]
        assert by_pattern.abs().max() > 1e-3
        torch.testing.assert_close(by_pattern, expected[layer], atol=1e-4, rtol=1e-3)
        mean = (pattern * by_pattern).sum(-1, keepdim=True)
        torch.testing.assert_close(by_scores, pattern * (by_pattern - mean), atol=1e-5, rtol=1e-4)


@each_family
def test_attentions_are_still_returned(family):
    with torch.no_grad():
        expected = plain(family).original_model(tokens(), output_attentions=True)
        found = rerouted(family).original_model(tokens(), output_attentions=True)
    torch.testing.assert_close(found.attentions, expected.attentions, atol=1e-5, rtol=0)


def needs_rerouting(bridge):
    """Hooks on scores or pattern fire after the fact in this family, re-routed or not."""
    return any(map(repairs._fires_afterwards, repairs._attention_components(bridge)))


@each_family
def test_rerouting_twice_is_rerouting_once(family):
    bridge = tiny_model(family)
    assert needs_rerouting(bridge)
    hooks_before = set(bridge.hook_dict)
    parameters_before = [name for name, _ in bridge.named_parameters()]
    assert reroute_attention(bridge)
    assert reroute_attention(bridge)
    assert needs_rerouting(bridge)
    with torch.no_grad():
        logits, seen = record(bridge, [hook_name(1, "pattern")])
    assert len(seen) == 1
    torch.testing.assert_close(logits, plain(family)(tokens()), atol=1e-5, rtol=0)
    assert set(bridge.hook_dict) == hooks_before
    assert [name for name, _ in bridge.named_parameters()] == parameters_before


@pytest.mark.parametrize("family", ["gpt2", "neox", "llama", "gemma3"])
def test_other_families_are_left_alone(family):
    bridge = tiny_model(family)
    component = type(bridge.blocks[0].attn)
    assert not needs_rerouting(bridge)
    assert not reroute_attention(bridge)
    assert type(bridge.blocks[0].attn) is component


def test_an_unknown_attention_module_is_refused_before_anything_changes():
    class OtherAttention(GPTJAttention):
        pass

    bridge = tiny_model("gptj")
    bridge.blocks[2].attn.original_component.__class__ = OtherAttention
    assert needs_rerouting(bridge)
    with pytest.raises(ModelError) as error:
        reroute_attention(bridge)
    for fragment in ("GPTJForCausalLM", "OtherAttention", "afterwards", "OPTAttention"):
        assert fragment in str(error.value)
    assert all(type(block.attn) is AttentionBridge for block in bridge.blocks)


def test_a_model_sharing_the_config_still_works():
    bridge: Any = tiny_model("opt")
    reroute_attention(bridge)
    other = OPTForCausalLM(bridge.original_model.config).eval()
    other.load_state_dict(tiny_hf("opt").state_dict())
    with torch.no_grad():
        expected = plain("opt")(tokens(), attention_mask=PADDING["left"])
        found = other(tokens(), attention_mask=PADDING["left"]).logits
    torch.testing.assert_close(real(found, "left"), real(expected, "left"), atol=1e-5, rtol=0)
