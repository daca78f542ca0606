"""The number format weights were stored in: read from files, kept by models, told by results."""

from types import SimpleNamespace

import pytest
import torch
from gguf import GGUFReader

import icl_mech as icl
from icl_mech.models import adapt
from icl_mech.models.stored import of_files, of_gguf, of_model
from tests.engine.cases import ragged
from tests.models.test_loading import tiny_llama, write_gguf
from tests.said import Words
from tests.tiny import tiny_hf, tiny_model, tiny_tokenizer

WORDS = Words(__file__)

STORED = [(torch.bfloat16, "BF16"), (torch.float16, "F16"), (torch.float32, "F32")]


@pytest.fixture
def folder(tmp_path):
    def saved(dtype, **options):
        path = tmp_path / str(dtype)
        tiny_hf("gpt2").to(dtype).save_pretrained(path, **options)
        tiny_tokenizer("bpe").save_pretrained(path)
        return path

    return saved


@pytest.mark.parametrize(("dtype", "name"), STORED)
def test_a_folder(folder, dtype, name):
    loaded = icl.load_model(str(folder(dtype)))
    info = adapt(loaded).info
    assert (info.weights_format, info.dtype) == (name, "float32")
    assert adapt(loaded.to(torch.float64)).info.weights_format == name
    WORDS(repr(adapt(loaded)), "folder", name)


def test_a_folder_in_several_files(folder):
    path = folder(torch.bfloat16, max_shard_size="20KB")
    assert len(list(path.glob("*.safetensors"))) > 1
    assert adapt(icl.load_model(str(path))).info.weights_format == "BF16"


def test_the_larger_part_counts(tmp_path):
    from safetensors.torch import save_file

    many = {f"small{i}": torch.zeros(2, dtype=torch.float32) for i in range(3)}
    large = {"large": torch.zeros(7, dtype=torch.float16)}
    save_file({**many, **large}, tmp_path / "model.safetensors")
    assert of_files("folder", str(tmp_path), SimpleNamespace(), {}) == "F16"


def test_a_converted_file_says_what_was_in_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ICL_MECH_CACHE", str(tmp_path / "cache"))
    file = write_gguf(tiny_llama(), tmp_path / "tiny.gguf")
    assert of_gguf(GGUFReader(file).tensors) == "F32"
    for _ in range(2):  # converted, then taken from the cache
        assert adapt(icl.load_model(str(file))).info.weights_format == "F32"


def test_types_of_a_gguf_file(tmp_path):
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(tmp_path / "mixed.gguf", "llama")
    kinds = gguf.GGMLQuantizationType
    for number, (rows, kind) in enumerate([(1, kinds.F32), (1, kinds.F32), (4, kinds.Q4_1)]):
        plain = np.ones((rows, 64), dtype=np.float32)
        packed = gguf.quantize(plain, kind)
        writer.add_tensor(f"t{number}", packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert of_gguf(GGUFReader(tmp_path / "mixed.gguf").tensors) == "Q4_1"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq 4-bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes int8"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            "bitsandbytes nf4",
        ),
        ({"quant_method": "fp8"}, "fp8"),
        (None, ""),
    ],
)
def test_quantised_models_say_how(given, name, tmp_path):
    config = SimpleNamespace(quantization_config=given)
    held = torch.nn.Module()
    held.config = config
    assert of_model(held) == name
    assert of_files("folder", str(tmp_path), config, {}) == name


def test_what_is_not_known_is_empty(tmp_path):
    assert of_files("folder", str(tmp_path / "none"), SimpleNamespace(dtype=None), {}) == ""
    assert of_files("hub", "nobody/nothing", SimpleNamespace(), {}) == ""
    options = {"variant": "fp16"}
    assert of_files("hub", "nobody/nothing", SimpleNamespace(dtype=torch.float16), options) == ""
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    declared = SimpleNamespace(dtype=torch.bfloat16)
    assert of_files("folder", str(tmp_path), declared, {}) == "BF16"
    info = adapt(tiny_model("gpt2")).info
    assert info.weights_format == ""
    assert "stored" not in info.summary()


def test_results_say_it(folder):
    loaded = icl.load_model(str(folder(torch.bfloat16)))
    found = icl.predict(loaded, ragged())
    assert found.provenance["model"]["weights_format"] == "BF16"


@pytest.mark.slow
def test_the_offline_model():
    loaded = icl.load_model()
    info = adapt(loaded).info
    assert (info.weights_format, info.dtype) == ("Q4_1", "float32")
