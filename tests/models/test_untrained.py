"""Networks that learned nothing: drawn as configured, or shuffled, and nothing else changed."""

import pytest
import torch
from torch.testing import assert_close

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt
from tests.tiny import FAMILIES, tiny_model


@pytest.fixture(scope="module", params=sorted({*FAMILIES, "llama", "neox"}))
def model(request):
    return tiny_model(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["untrained", "shuffled"])
def test_seeds_repeat_and_differ_and_the_model_stays(model, kind):
    prompts = icl.build_prompts("reviews", model, shots=1, n=2)
    before, mark = icl.predict(model, prompts).label_logits, adapt(model).fingerprint(exact=True)
    state = torch.random.get_rng_state()
    one, same, other = (icl.untrained(model, seed, kind) for seed in (0, 0, 1))
    assert torch.equal(state, torch.random.get_rng_state())
    logits = [icl.predict(own, prompts).label_logits for own in (one, same, other)]
    assert_close(logits[0], logits[1], rtol=0, atol=0)
    assert not torch.equal(logits[0], logits[2])
    assert not torch.equal(logits[0], before)
    assert_close(icl.predict(model, prompts).label_logits, before, rtol=0, atol=0)
    assert adapt(model).fingerprint(exact=True) == mark
    assert adapt(one).fingerprint() not in (mark, adapt(other).fingerprint())
    assert adapt(one).info.name.endswith(f"({kind}, seed 0)")


def test_weights_are_drawn_as_the_configuration_says():
    model = tiny_model("llama")
    inner = icl.untrained(model).original_model
    spread = inner.config.initializer_range
    weight = inner.get_input_embeddings().weight.detach()
    assert float(weight.std()) == pytest.approx(spread, rel=0.05)
    assert float(weight.mean()) == pytest.approx(0, abs=spread / 10)


def test_shuffling_keeps_every_tensors_entries(model):
    found = icl.untrained(model, kind="shuffled")
    for (name, own), (_, shuffled) in zip(
        model.named_parameters(), found.named_parameters(), strict=True
    ):
        own, shuffled = own.detach(), shuffled.detach()
        assert_close(shuffled.flatten().sort().values, own.flatten().sort().values, rtol=0, atol=0)
        if own.numel() > 100 and float(own.std()) > 0:
            assert not torch.equal(shuffled, own), name


def test_tied_tensors_stay_tied():
    model = tiny_model("gpt2")
    assert model.original_model.config.tie_word_embeddings
    for kind in ("untrained", "shuffled"):
        found = icl.untrained(model, kind=kind)
        embedded = found.original_model.get_input_embeddings().weight
        read = found.W_U.T if found.W_U.shape[1] == embedded.shape[0] else found.W_U
        assert_close(read, embedded, rtol=0, atol=0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("given", "told"), [({"seed": -1}, "seed"), ({"kind": "noise"}, "kind")])
def test_other_choices_are_refused(given, told):
    with pytest.raises(ModelError, match=told):
        icl.untrained(tiny_model("gpt2"), **given)
