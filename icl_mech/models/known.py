"""The short names of well known models."""

from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class KnownModel:
    """A short name that `load_model` knows."""

    name: str
    hub_id: str
    parameters: str
    note: str = ""


_GATED = "licence to accept on the hub"
KNOWN = {
    name: KnownModel(name, hub_id, parameters, note)
    for name, hub_id, parameters, note in (
        (DEFAULT_MODEL, "HuggingFaceTB/SmolLM2-135M-Instruct", "135M", "default; works offline"),
        ("smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "360M", ""),
        ("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", "1.7B", ""),
        ("gpt2", "openai-community/gpt2", "124M", ""),
        ("gpt2-medium", "openai-community/gpt2-medium", "355M", ""),
        ("gpt2-large", "openai-community/gpt2-large", "774M", ""),
        ("gpt2-xl", "openai-community/gpt2-xl", "1.5B", "label words are anchors"),
        ("gpt-j-6b", "EleutherAI/gpt-j-6b", "6B", "label words; overthinking the truth"),
        ("gpt-neox-20b", "EleutherAI/gpt-neox-20b", "20B", "overthinking the truth"),
        ("pythia-70m", "EleutherAI/pythia-70m", "70M", ""),
        ("pythia-160m", "EleutherAI/pythia-160m", "160M", ""),
        ("pythia-410m", "EleutherAI/pythia-410m", "410M", ""),
        ("pythia-1b", "EleutherAI/pythia-1b", "1B", ""),
        ("pythia-1.4b", "EleutherAI/pythia-1.4b", "1.4B", ""),
        ("pythia-2.8b", "EleutherAI/pythia-2.8b", "2.8B", ""),
        ("pythia-6.9b", "EleutherAI/pythia-6.9b", "6.9B", ""),
        ("pythia-12b", "EleutherAI/pythia-12b", "12B", ""),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf", "7B", _GATED),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", "8B", _GATED),
        ("llama-3.2-1b", "meta-llama/Llama-3.2-1B", "1B", _GATED),
        ("gemma-3-1b", "google/gemma-3-1b-pt", "1B", _GATED),
        ("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B", "0.5B", ""),
        ("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B", "1.5B", ""),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B", "7B", ""),
        ("opt-125m", "facebook/opt-125m", "125M", ""),
        ("opt-1.3b", "facebook/opt-1.3b", "1.3B", ""),
    )
}


def known_models() -> list[KnownModel]:
    """The short names that `load_model` knows, the offline default first."""
    return list(KNOWN.values())
