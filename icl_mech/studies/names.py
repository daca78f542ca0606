"""Names of the studies, and which compare true with false demonstrations."""

from typing import Literal

Study = Literal["label_words", "overthinking", "anchors", "causal"]

PAIRED = ("overthinking", "causal")
"""These take the pair (true, false) of `build_prompt_pairs`."""
