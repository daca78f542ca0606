"""Convert GGUF files to folders in Hugging Face format, once, in the user's cache folder.

The weights are de-quantised to float32: four bytes of disk per parameter. `ICL_MECH_CACHE` names
another cache folder.
"""

import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from icl_mech._files import sync, write_synced
from icl_mech.bars import bar_for
from icl_mech.errors import ModelError
from icl_mech.model_sources import cache_folder
from icl_mech.models.stored import IN_CONFIG, of_gguf
from icl_mech.names import version

_CONVERSION = 2  # raised when `_convert` changes, so that older cached folders are not used
_ABANDONED_AFTER = 24 * 3600.0  # seconds
_MARKER = "icl_mech_files.json"
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it
FOLDER_PARTS = {
    "config.json": ("config.json",),
    "weights": ("*.safetensors", "pytorch_model*.bin"),
    "a tokenizer": (
        *("tokenizer.json", "vocab.json", "vocab.txt"),
        *("tokenizer.model", "spiece.model", "sentencepiece*.model", "*.tiktoken"),
    ),
}
LOAD_ERRORS = (
    *(OSError, ValueError, TypeError, LookupError, RuntimeError, ImportError),
    SafetensorError,
)
"""Exceptions that transformers raises for files it cannot read."""


_HARMLESS = re.compile(
    r"(\.(attn|attention)\.(masked_)?bias|inv_freq|(cos|sin)_cached|position_ids|causal_mask"
    r"|embed_positions\.weights|decoder\.version)$"
)
"""Masks, positions and versions that older files hold as buffers; they are computed now."""


def missing_parts(folder: Path) -> list[str]:
    """Parts that `folder` lacks to be loaded as a model."""
    return [
        part
        for part, patterns in FOLDER_PARTS.items()
        if not any(any(folder.glob(pattern)) for pattern in patterns)
    ]


def refuse_other_weights(name: str, info: dict[str, Any]) -> None:
    """Raise `ModelError` if `from_pretrained` had to initialise weights, or left some out.

    Args:
        name: Name of the model, for the message.
        info: Loading info that `from_pretrained(..., output_loading_info=True)` returned with the
            model, without keys that the model's class declares harmless.
    """
    invented = sorted([*info["missing_keys"], *(entry[0] for entry in info["mismatched_keys"])])
    if invented:
        raise ModelError(
            f"The files of {name!r} lack {len(invented)} weights of the model ({_some(invented)}) "
            "or contain them in another shape; transformers would initialise them at random. "
            "Give a complete checkpoint of a causal language model."
        )
    if left_out := sorted(key for key in info["unexpected_keys"] if not _HARMLESS.search(key)):
        raise ModelError(
            f"The files of {name!r} contain {len(left_out)} weights that do not belong to the "
            f"model in its config ({_some(left_out)}); it would be loaded without them. Check "
            "config.json (number of layers, architecture). To leave them out, load the model "
            "with transformers and pass it: load_model(model, tokenizer=...)."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def converted(*pieces: Path) -> Path:
    """The cached folder of a GGUF file, created now if there is none for its content.

    Args:
        *pieces: The file, or the pieces it was split into, in order.

    A folder gets its name only when complete, so a killed process leaves none that looks valid, and
    if several processes convert at once, all use the folder that is finished first. A folder that was
    changed since is created again: see `is_complete`.

    Raises:
        ModelError: the file cannot be read, or the folder cannot be written.
    """
    try:
        return _from_cache(pieces)
    except ModelError:
        raise
    except LOAD_ERRORS as error:
        raise ModelError(
            f"Cannot convert {pieces[0].name!r} into {cache_folder()}: {type(error).__name__}: "
            f"{error} Expected a GGUF file of an architecture that transformers reads, and a "
            "writable folder with four bytes per parameter free; set ICL_MECH_CACHE to use "
            "another folder."
        ) from error


def _from_cache(pieces: Sequence[Path]) -> Path:
    target = cache_folder() / f"{_stem(pieces)}-{_fingerprint(pieces)}"
    if is_complete(target):
        return target
    begun = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    begun.mkdir(parents=True)
    try:
        _remove_abandoned(target)
        with _whole(pieces, begun) as gguf:
            _convert(gguf, begun)
        _mark(begun)
        _publish(begun, target)
    finally:
        shutil.rmtree(begun, ignore_errors=True)
    return target


def _stem(pieces: Sequence[Path]) -> str:
    return pieces[0].name.rpartition(".gguf")[0] or pieces[0].stem


def _remove_abandoned(target: Path) -> None:
    """Remove partial folders of processes that were killed while converting."""
    for folder in target.parent.iterdir():
        begun = folder.name.startswith(f".{target.name}-")
        if begun and time.time() - folder.stat().st_mtime > _ABANDONED_AFTER:
            shutil.rmtree(folder, ignore_errors=True)


def _fingerprint(pieces: Sequence[Path]) -> str:
    digest = hashlib.blake2b(f"{version('transformers')} {_CONVERSION}".encode(), digest_size=8)
    for piece in pieces:
        with piece.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def _whole(pieces: Sequence[Path], folder: Path) -> Iterator[Path]:
    """Context in which a GGUF file that was split into pieces is one file."""
    if len(pieces) == 1:
        yield pieces[0]
        return
    joined = folder / f"{_stem(pieces)}.gguf"
    with joined.open("wb") as target:
        for piece in pieces:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, target, 1 << 20)
    yield joined
    joined.unlink()


def _convert(gguf: Path, folder: Path) -> None:
    from tokenizers import pre_tokenizers
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from icl_mech.models.gguf_reader import parsed_once

    with parsed_once(gguf, partial(_shown, f"Converting {gguf.name}, once")) as header:
        splitting, weights_format = header.get_field("tokenizer.ggml.pre"), of_gguf(header.tensors)
        # Each of the three loaders goes through the whole header.
        config = AutoConfig.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        for field in ("tokens", "scores", "token_type", "merges"):
            header.fields.pop(f"tokenizer.ggml.{field}", None)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            config=config,
            gguf_file=gguf.name,
            dtype=torch.float32,
            output_loading_info=True,
        )
    if splitting is not None and bytes(splitting.parts[splitting.data[0]]) == b"smollm":
        # transformers drops this rule: without it spaces before a digit are tokenized differently.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    model, info = loaded
    refuse_other_weights(gguf.name, info)
    # The weights are de-quantised now; transformers would not save a model marked as quantised.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None
    setattr(model.config, IN_CONFIG, weights_format)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _shown(title: str, tensors: Iterable[Any]) -> Iterator[Any]:
    """Tensors one by one, with a progress bar by their size."""
    tensors = list(tensors)
    total = sum(tensor.n_elements for tensor in tensors)
    bar, done = bar_for(None), 0
    bar.start(title)
    try:
        for tensor in tensors:
            bar.show(title, done / total, f"{100 * done / total:.0f} %")
            yield tensor
            done += int(tensor.n_elements)
    finally:
        bar.stop()


def is_complete(folder: Path) -> bool:
    """True if a converted folder is unchanged since it was created.

    Weights must have their recorded size and header, all other files their recorded content. Flipped
    bits inside the weights are not detected: reading gigabytes would take as long as loading them.
    """
    try:
        files = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
        return bool(files) and all(_described(folder / name) == of for name, of in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def _mark(folder: Path) -> None:
    """Record the files of a finished folder, once they are on disk."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        sync(file)
    about = {file.relative_to(folder).as_posix(): _described(file) for file in files}
    write_synced(folder / _MARKER, json.dumps(about, indent=1).encode())
    sync(folder)


def _described(file: Path) -> list[Any]:
    """Size and checksum of a file; for weights the checksum of the header."""
    with file.open("rb") as stream:
        start = stream.read(8) if file.suffix == ".safetensors" else b""
        # The header's length is not trusted: it may be damaged.
        length = min(int.from_bytes(start, "little"), _LONGEST_HEADER) if start else -1
        content = start + stream.read(length)
    return [file.stat().st_size, hashlib.sha256(content).hexdigest()]


def _publish(partial: Path, target: Path) -> None:
    """Give a finished folder its name; another process may have been first."""
    try:
        partial.rename(target)
    except OSError:
        if not os.path.lexists(target):
            raise
        if not is_complete(target):
            # Renamed before it is removed, so that nobody takes half of it for the whole.
            broken = partial.with_name(f"{partial.name}-broken")
            target.rename(broken)
            partial.rename(target)
            _remove(broken)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
