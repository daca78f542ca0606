"""Tiny tokenizers of every kind, and what each makes of a text before it cuts it up."""

import copy
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from tests.tiny import OTHER_TEXT, WHOLE_WORDS, tiny_tokenizer

# Sixteen times five syllables: each label word is one token of its own.
SYLLABLES = [c + v for c in "bcdfghjklmnprstv" for v in "aeiou"]
MANY = tuple(f"{one}{two}" for one, two in zip(SYLLABLES, reversed(SYLLABLES), strict=True))[:77]


@dataclass(frozen=True)
class Kind:
    """A tokenizer.

    Attributes:
        tokenizer: It.
        reads: A text as the tokenizer reads it, for comparison with decoded tokens.
    """

    tokenizer: Any
    reads: Callable[[str], str]

    def decode(self, ids: Any) -> str:
        """The text of some tokens, unknown characters as one sign."""
        text = self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        return self.reads(text)

    @property
    def unknown(self) -> int | None:
        """Id of unknown characters, if there are any."""
        unknown = self.tokenizer.unk_token_id
        return unknown if unknown in self.tokenizer("\U0010ffff 𒐫")["input_ids"] else None


@lru_cache
def kinds() -> dict[str, Kind]:
    """All kinds by name."""
    lower = normalizers.Lowercase()
    nfkc = normalizers.NFKC()
    llama = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    breaks = pre_tokenizers.Split("\n", "isolated")
    always, never = (
        pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=way) for way in ("always", "never")
    )
    return {
        "byte-level": Kind(tiny_tokenizer("bpe"), str),
        "byte-level, lower case": Kind(_changed("bpe", normalizer=lower), lower.normalize_str),
        "byte-level, NFKC": Kind(_changed("bpe", normalizer=nfkc), nfkc.normalize_str),
        "byte-level, joining signs": Kind(joining(), str),
        "byte-level, blanks trimmed": Kind(_trimmed(), str),
        "bytes, slow": Kind(ByT5Tokenizer(), str),
        "pieces": Kind(tiny_tokenizer("sentencepiece"), _blanks),
        "pieces, without first blank": Kind(_changed("sentencepiece", pre_tokenizer=never), _blanks),
        "pieces, blank everywhere": Kind(_changed("sentencepiece", pre_tokenizer=always), _blanks),
        "pieces, as in Llama": Kind(
            _changed("sentencepiece", normalizer=llama, pre_tokenizer=breaks), _blanks
        ),
        "unigram, NFKC": Kind(_unigram(), lambda text: _blanks(nfkc.normalize_str(text))),
        "words": Kind(_words(), _letters),
    }  # fmt: skip


@lru_cache
def joining() -> PreTrainedTokenizerFast:
    """Byte-level as in Qwen 3, Llama 3 and Tekken: a full stop and line breaks after it are one token."""
    letters = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    signs = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(letters + signs), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        min_frequency=2, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    ends = [
        "a.\n",
        "a.\n\n",
        "a!\n",
        "a)\n",
        'a".\n',
        "a:\n",
        "a(positive",
        "正面。负面。\n",
        "a  \n",
    ] * 4
    tokenizer.train_from_iterator([*_lines(), *ends], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def _trimmed() -> PreTrainedTokenizerFast:
    """Byte-level as in GPT-2's own files: offsets leave out the blank that a token begins with."""
    tokenizer = copy.deepcopy(tiny_tokenizer("bpe"))
    tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


@lru_cache
def many_words() -> PreTrainedTokenizerFast:
    """Byte-level, with the words of `MANY`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=2000, min_frequency=1, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([f"x {word}" for word in MANY], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _changed(kind: Any, **parts: Any) -> PreTrainedTokenizerFast:
    tokenizer = copy.deepcopy(tiny_tokenizer(kind))
    for name, part in parts.items():
        setattr(tokenizer.backend_tokenizer, name, part)
    return tokenizer


def _lines() -> list[str]:
    return [". | ? {x} => !", *(f": {word}" for word in WHOLE_WORDS.split()), *OTHER_TEXT] * 5


def _unigram() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="first")
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_lines(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")


def _words() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", "[SEP]"], show_progress=False
    )
    tokenizer.train_from_iterator(_lines(), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]", sep_token="[SEP]")


def _blanks(text: str) -> str:
    """Blanks at the edges belong to the marks of pieces."""
    return text.replace("▁", " ").strip(" ")


def _letters(text: str) -> str:
    """Lower case without accents, white space and control characters."""
    text = normalizers.BertNormalizer(lowercase=True).normalize_str(text)
    return "".join(unicodedata.normalize("NFD", text).split())
