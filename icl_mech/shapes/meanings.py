"""What a series is about."""

from typing import Literal, get_args

Meaning = Literal["text", "label", "other", "query", "target", "true", "false", "reference"]
"""It decides colour, line and marker in every figure."""

MEANINGS: tuple[Meaning, ...] = get_args(Meaning)
