"""Identity of a tokenizer: its name and a fingerprint of everything its tokens depend on."""

import hashlib
import json
from collections.abc import Sized
from os.path import exists
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

_KNOWN: WeakKeyDictionary[Any, tuple[int, dict[str, str]]] = WeakKeyDictionary()


def tokenizer_identity(tokenizer: object) -> dict[str, str] | None:
    """Name and fingerprint of a tokenizer, as recorded with prompts; None if it cannot be determined.

    The fingerprint covers vocabulary, merges and their options, added tokens, normaliser and
    pre-tokeniser: equal fingerprints give equal tokens. It leaves out settings that do not change the tokens
    of a text: BOS, padding, truncation, decoding.
    """
    if not isinstance(tokenizer, Sized):  # a user's object that only resembles a tokenizer
        return None
    size = len(tokenizer)
    try:
        known = _KNOWN.get(tokenizer)
    except TypeError:  # not hashable or weakly referenceable
        return None
    if known is None or known[0] != size:
        content = _content(tokenizer)
        if content is None:
            return None
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        name = str(getattr(tokenizer, "name_or_path", "")) or type(tokenizer).__name__
        name = Path(name).name if exists(name) else name  # keep local paths out of the record
        known = (size, {"name": name, "fingerprint": digest[:16]})
        _KNOWN[tokenizer] = known
    return dict(known[1])


def _content(tokenizer: object) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # Model libraries may add a padding token, which no prompt contains.
    roles = {getattr(tokenizer, f"{role}_token", None) for role in ("bos", "eos", "unk")}
    padding = {getattr(tokenizer, "pad_token", None)} - roles
    if backend is not None and hasattr(backend, "to_str"):
        written = json.loads(backend.to_str())
        added = [token for token in written["added_tokens"] if token["content"] not in padding]
        model = {key: value for key, value in written["model"].items() if value}
        return [model, added, written["normalizer"], written["pre_tokenizer"]]
    if hasattr(tokenizer, "get_vocab"):
        vocabulary = {k: v for k, v in tokenizer.get_vocab().items() if k not in padding}
        return [type(tokenizer).__name__, vocabulary]
    return None
