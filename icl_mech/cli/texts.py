"""Texts from a file, as prompts with spans."""

import json
from pathlib import Path
from typing import Any

import icl_mech as icl
from icl_mech.checking import shown
from icl_mech.cli.options import TextOptions
from icl_mech.cli.wording import in_options
from icl_mech.errors import PromptError

TEXT_WORDS = {"texts": "--texts", "spans": "--spans"}

DIVIDER = "---"


def built_texts(model_or_tokenizer: Any, options: TextOptions) -> icl.PromptBatch:
    """The texts of a file as prompts.

    Raises:
        PromptError: in the words of the command line.
    """
    assert options.texts is not None
    found = read_texts(options.texts)
    with in_options(TEXT_WORDS):
        return icl.texts(found, model_or_tokenizer, spans=options.spans)


def read_texts(file: Path) -> list[str]:
    """Texts of a .json list, of the lines of a .jsonl file (strings, or objects with `text`), or of
    any other file, divided by lines of `---`.

    Raises:
        PromptError: a file that cannot be read, or holds something else.
    """
    listed: Any
    try:
        content = file.read_text(encoding="utf-8")
        if file.suffix == ".json":
            listed = json.loads(content)
        elif file.suffix == ".jsonl":
            listed = [json.loads(line) for line in content.splitlines() if line.strip()]
        else:
            return _divided(content)
    except (OSError, ValueError) as error:
        raise PromptError(f"--texts {str(file)!r} cannot be read: {error}.") from error
    if not isinstance(listed, list):
        raise PromptError(f"--texts {str(file)!r} holds {shown(listed)}; expected a list of texts.")
    found: list[Any] = [own.get("text") if isinstance(own, dict) else own for own in listed]
    return found


def _divided(content: str) -> list[str]:
    parts: list[list[str]] = [[]]
    for line in content.splitlines():
        if line.strip() == DIVIDER:
            parts.append([])
        else:
            parts[-1].append(line)
    texts = ("\n".join(lines).strip() for lines in parts)
    return [text for text in texts if text]
