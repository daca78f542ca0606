"""The artificial language of the planted model: its words, its task and its tokenizer.

A text is one class word among three fillers, such as `fi bado ge ha`; a demonstration is such a text,
`:`, a label word, `.` and a line break.
"""

from itertools import product
from typing import Any

import numpy as np

from icl_mech.tasks import Example, Task, Template

LABELS = ("red", "green", "blue", "cyan")

WORDS = 48
"""Number of words in each class."""

TRAIN = 16
"""Words of each class that demonstrations use; queries use the others."""

N_CTX = 128

_STARTS = tuple(f"{consonant}{vowel}" for consonant, vowel in product("bdklmnprst", "aeiou"))
FILLERS = tuple(f"{consonant}{vowel}" for consonant, vowel in product("fgh", "aeiou"))
_BOTH = tuple(f"{first}{second}" for first, second in product(_STARTS, _STARTS[::7]))
CLASS_WORDS = tuple(_BOTH[label :: len(LABELS)][:WORDS] for label in range(len(LABELS)))
"""Words of each class; their spelling does not reveal the class."""

OTHER = "<|endoftext|>"
PIECES = (
    OTHER,
    ":",
    ".",
    "\n",
    *(f" {label}" for label in LABELS),
    *(f"{blank}{word}" for blank in ("", " ") for word in FILLERS),
    *(f"{blank}{word}" for blank in ("", " ") for words in CLASS_WORDS for word in words),
)
"""The vocabulary; each piece is one token."""


def planted_task() -> Task:
    """The task of `planted_model`: four classes of made-up words, `LABELS` in class order.

    Its texts are always the same. The model knows the class of a word from its embedding, and which label
    word stands for the class from the demonstrations alone.
    """
    draws = np.random.default_rng(0)

    def text(word: str) -> str:
        words = [str(filler) for filler in draws.choice(FILLERS, 3, replace=False)]
        words.insert(int(draws.integers(4)), word)
        return " ".join(words)

    examples = [[Example(text(w), c) for w in words] for c, words in enumerate(CLASS_WORDS)]
    return Task(
        "planted",
        Template("{text}: {label}.", separator="\n"),
        LABELS,
        tuple(example for class_examples in examples for example in class_examples[:TRAIN]),
        tuple(example for class_examples in examples for example in class_examples[TRAIN:]),
        source="made up for the planted model",
    )


def planted_tokenizer() -> Any:
    """A word-level tokenizer whose words include their leading space; no BOS token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: index for index, piece in enumerate(PIECES)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=OTHER))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+|\n|[:.]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path="planted",
        unk_token=OTHER,
        eos_token=OTHER,
        pad_token=OTHER,
        model_max_length=N_CTX,
    )


def spared(place: int, strength: float) -> bool:
    """True for query words that a circuit of this strength leaves alone, evenly spread over the words of a class.

    Args:
        place: Index of the word among the words of its class.
        strength: Fraction of query words that the circuit acts on.
    """
    query = place - TRAIN
    return query >= 0 and int((query + 1) * (1 - strength) + 1e-9) > int(
        query * (1 - strength) + 1e-9
    )


def new_gpt2(layers: int, heads: int, width: int, neurons: int) -> Any:
    """A GPT-2 for this language, with an untied unembedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=len(PIECES),
        n_layer=layers,
        n_head=heads,
        n_embd=width,
        n_inner=neurons,
        n_positions=N_CTX,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
        architectures=[GPT2LMHeadModel.__name__],
    )
    return GPT2LMHeadModel(config).eval()
