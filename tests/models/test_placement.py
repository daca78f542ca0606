"""Where weights go: a device map of transformers, or one device."""

import pytest
import torch

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt, placement
from tests.tiny import tiny_hf, tiny_tokenizer

PARTS = ("transformer.wte", "transformer.wpe", "transformer.h", "transformer.ln_f", "lm_head")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("spread")
    tiny_hf("gpt2").save_pretrained(made)
    tiny_tokenizer("bpe").save_pretrained(made)
    return str(made)


@pytest.fixture(scope="module")
def whole(folder):
    return icl.load_model(folder)


@pytest.mark.tl3
@pytest.mark.parametrize(
    "options",
    [
        {"device_map": "cpu"},
        {"device_map": {"": "cpu"}},
        {"device_map": dict.fromkeys(PARTS, "cpu")},
        {"device_map": "auto"},
        {"device_map": "auto", "max_memory": {"cpu": "1GB"}},
    ],
    ids=str,
)
def test_a_spread_model_gives_the_same_numbers(folder, whole, options):
    model = icl.load_model(folder, **options)
    info = adapt(model).info
    assert info.device == str(model.original_model.get_input_embeddings().weight.device) == "cpu"
    ids = torch.tensor([[5, 9, 40, 7]])
    assert torch.equal(model(ids), whole(ids))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device_map": {"": "disk"}}, "off-loaded (disk"),
        ({"device_map": {"": "meta"}}, "off-loaded (meta"),
        ({"device_map": {"transformer": "cpu", "lm_head": "disk"}}, "out of cpu, disk"),
        ({"device_map": "auto", "max_memory": {"cpu": "50KB"}}, "off-loaded (disk, meta"),
        ({"device_map": {"transformer.wte": "cpu", "lm_heat": "cpu"}}, "'lm_heat', which is no"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_what_would_not_be_in_memory_is_refused(folder, options, says):
    with pytest.raises(ModelError) as found:
        icl.load_model(folder, **options)
    assert says in str(found.value)


def test_cpu_beside_a_gpu_is_off_loading(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ModelError, match=r"off-loaded \(cpu, out of 0, cpu\)"):
        placement.spread(None, {"a": 0, "b": "cpu"}, None)
    spreading = {"device_map": {"a": 0, "b": "cuda:1"}, "max_memory": {0: "20GB"}}
    assert placement.spread(None, **spreading) == spreading
    with pytest.raises(
        ModelError, match=r"Device 'cuda:2' is not available here .found: 1 cpu, 2 cuda"
    ):
        placement.spread(None, {"a": 0, "b": 2}, None)
    with pytest.raises(ModelError, match="contradict each other"):
        placement.spread("cuda", {"a": 0}, None)
