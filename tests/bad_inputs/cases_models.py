"""Models that cannot be loaded, and options that contradict each other."""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2Model

import icl_mech as icl
from icl_mech.errors import ModelError
from tests.bad_inputs.case import Bench, Case
from tests.tiny import tiny_hf, tiny_tokenizer


def saved(bench: Bench, config: dict | None = None, without: str = "") -> str:
    """A folder with a model, its config changed, some files removed."""
    folder = bench.folder / "model"
    tiny_hf("gpt2").save_pretrained(folder)
    tiny_tokenizer("bpe").save_pretrained(folder)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | (config or {})))
    for file in folder.glob(without) if without else ():
        file.unlink()
    return str(folder)


def written(bench: Bench, name: str, content: str) -> str:
    """A model folder with one file replaced."""
    folder = saved(bench)
    Path(folder, name).write_text(content)
    return folder


def with_weights(bench: Bench, change) -> str:
    """A model folder with changed weights."""
    folder = saved(bench)
    file = Path(folder, "model.safetensors")
    save_file(change(load_file(file)), file, {"format": "pt"})
    return folder


def encoder() -> BertForMaskedLM:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(**sizes, intermediate_size=32, vocab_size=300))


def half_precision(weights: dict) -> dict:
    """Values that overflow."""
    return {name: value * 1e38 * 10 for name, value in weights.items()}


def own(**options):
    return {"tokenizer": tiny_tokenizer("bpe"), **options}


def load(*arguments, **options):
    return lambda bench: icl.load_model(*arguments, **options)


def from_folder(**options):
    return lambda bench: icl.load_model(saved(bench), **options)


CASES = [
    Case("no model", load(None), ModelError, ("NoneType",)),
    Case("a number", load(3), ModelError, ("int",)),
    Case("a list of names", load(["gpt2"]), ModelError),
    Case("a class instead of a model", load(GPT2Model), ModelError, ("PreTrainedModel",)),
    Case("an empty name", load(""), ModelError),
    Case("a name with a slip", load("gtp2"), ModelError, ("'gpt2'",)),
    Case("a path to nothing", load("./nowhere"), ModelError, ("'./nowhere'",)),
    Case("a dtype that is none", from_folder(dtype="float31"), ModelError, ("float31", "bfloat16")),
    Case("a dtype of integers", from_folder(dtype=torch.int8), ModelError, ("int8", "float32")),
    Case("a dtype that is a number", from_folder(dtype=16), ModelError, ("'16'", "float16")),
    Case("a device that is none", from_folder(device="gpu"), ModelError, ("'gpu'", "'cuda'")),
    Case("a device that is a list", from_folder(device=["cpu"]), ModelError, ("['cpu']", "'cpu'")),
    Case("a device that is not there", from_folder(device="cuda:99"), ModelError, ("1 cpu",)),
    Case(
        "device and device_map",
        from_folder(device="cpu", device_map="auto"),
        ModelError,
        ("device='cpu'", "device_map='auto'"),
    ),
    Case(
        "limits without a map",
        from_folder(max_memory={"cpu": "1GB"}),
        ModelError,
        ("max_memory={'cpu': '1GB'}", "device_map='auto'"),
    ),
    Case(
        "a map that is a number", from_folder(device_map=3), ModelError, ("device_map=3", "'auto'")
    ),
    Case(
        "limits in a word", from_folder(device_map="auto", max_memory="8GB"), ModelError, ("'8GB'",)
    ),
    Case("a map to nowhere", from_folder(device_map="nowhere"), ModelError, ("'nowhere'",)),
    Case(
        "a map of unknown parts",
        from_folder(device_map={"x": "cpu"}),
        ModelError,
        ("'x'", "lm_head"),
    ),
    Case("an embedding on disk", from_folder(device_map={"": "disk"}), ModelError),
    Case(
        "weights of 3 bits", from_folder(quantization="3bit"), ModelError, ("3bit", "8bit", "4bit")
    ),
    Case(
        "quantised without the library",
        from_folder(quantization="8bit"),
        ModelError,
        ("bitsandbytes",),
    ),
    Case("an option of nobody", from_folder(devise="cpu"), ModelError, ("devise",)),
    Case(
        "attention of another kind", from_folder(attn_implementation="sdpa"), ModelError, ("eager",)
    ),
    Case("a revision of a folder", from_folder(revision="main"), ModelError),
    Case("a tokenizer beside a name", load("gpt2", **own()), ModelError, ("'gpt2'",)),
    Case(
        "a folder without tokenizer",
        lambda bench: icl.load_model(saved(bench, without="tokenizer*")),
        ModelError,
        ("save_pretrained",),
    ),
    Case(
        "a folder without config",
        lambda bench: icl.load_model(saved(bench, without="config.json")),
        ModelError,
    ),
    Case("an empty folder", lambda bench: icl.load_model(bench.folder), ModelError),
    Case(
        "a config of an unknown type",
        lambda bench: icl.load_model(saved(bench, {"model_type": "gpt9"})),
        ModelError,
        ("gpt9",),
    ),
    Case(
        "a config that is no JSON",
        lambda bench: icl.load_model(written(bench, "config.json", "{")),
        ModelError,
        ("config.json",),
    ),
    Case(
        "fewer layers than the weights",
        lambda bench: icl.load_model(saved(bench, {"n_layer": 2})),
        ModelError,
        ("transformer.h.2.attn",),
    ),
    Case(
        "more layers than the weights",
        lambda bench: icl.load_model(saved(bench, {"n_layer": 4})),
        ModelError,
    ),
    Case(
        "weights that are cut off",
        lambda bench: icl.load_model(written(bench, "model.safetensors", "short")),
        ModelError,
    ),
    Case(
        "infinite weights",
        lambda bench: icl.load_model(with_weights(bench, half_precision)),
        ModelError,
    ),
    Case("a file that is no GGUF", load("model.gguf"), ModelError),
    Case(
        "a model object without tokenizer",
        lambda bench: icl.load_model(tiny_hf("gpt2")),
        ModelError,
        ("GPT2LMHeadModel", "tokenizer=AutoTokenizer"),
    ),
    Case(
        "a tokenizer by name",
        lambda bench: icl.load_model(tiny_hf("gpt2"), tokenizer="gpt2"),
        ModelError,
        ("tokenizer='gpt2'", "AutoTokenizer.from_pretrained"),
    ),
    Case(
        "an encoder object",
        lambda bench: icl.load_model(encoder(), **own()),
        ModelError,
        ("BertForMaskedLM",),
    ),
    Case(
        "a model object with options of loading",
        lambda bench: icl.load_model(tiny_hf("gpt2"), **own(revision="main")),
        ModelError,
        ("revision",),
    ),
    Case(
        "a model object and a device map",
        lambda bench: icl.load_model(tiny_hf("gpt2"), **own(device_map="auto")),
        ModelError,
        ("device_map", "from_pretrained"),
    ),
    Case(
        "a bridge to be loaded",
        lambda bench: icl.load_model(bench.model, **own()),
        ModelError,
        ("already a TransformerBridge",),
    ),
    Case(
        "a body without head",
        lambda bench: icl.load_model(
            GPT2Model(GPT2Config(n_embd=32, n_head=2, n_layer=1)), **own()
        ),
        ModelError,
        ("GPT2Model",),
    ),
]
