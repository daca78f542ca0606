"""Tokenising piece by piece, so that spans are exact with every tokenizer.

A piece is tokenised behind an *anchor* - a sign the tokenizer never merges with what
follows - and the anchor's ids are cut off. So a SentencePiece tokenizer adds no dummy
space inside the prompt, and first tokens of label words are read in context. A piece that
ends in line breaks also gets a *tail*, since tokenizers split breaks by what follows them.
"""

from dataclasses import dataclass, field
from typing import Any

from icl_mech.errors import PromptError

_ANCHORS = ("\n", ".", "|", "a", "1", "\n\n", "?")


@dataclass
class PieceTokenizer:
    """Wraps a Hugging Face tokenizer; caches pieces, which repeat in every prompt."""

    tokenizer: Any
    _cache: dict[tuple[str, bool, str], tuple[int, ...]] = field(default_factory=dict)

    def start_tokens(self, bos: bool | None) -> tuple[int, ...]:
        """Ids the tokenizer puts before a text; `bos` forces (True) or forbids (False) one.

        Raises:
            PromptError: `bos=True` with a tokenizer that has no BOS token.
        """
        if bos is False:
            return ()
        with_special = list(self.tokenizer("a", add_special_tokens=True)["input_ids"])
        plain = self._encode("a")
        for start in range(len(with_special) - len(plain) + 1):
            if with_special[start : start + len(plain)] == plain:
                own = tuple(with_special[:start])
                break
        else:
            own = ()
        if bos and not own:
            if self.tokenizer.bos_token_id is None:
                raise PromptError("bos=True, but the tokenizer has no BOS token; leave bos=None.")
            return (int(self.tokenizer.bos_token_id),)
        return own

    def piece(self, text: str, *, first: bool, following: str = "") -> tuple[int, ...]:
        """Ids of one piece, at the start of the text or inside it.

        Args:
            text: The piece.
            first: Nothing stands before it.
            following: What comes next, if anything.

        Raises:
            PromptError: if no anchor separates from this piece.
        """
        breaks = text[-1:].isspace() and following
        tail = (" a" if following[0] == " " else "a") if breaks else ""
        key = (text, first, tail)
        if key not in self._cache:
            encode = self._encode if first else self._inside
            ids = encode(text + tail)
            end = self._inside(tail) if tail else []
            fits = not tail or ids[-len(end) :] == end
            self._cache[key] = tuple(ids[: len(ids) - len(end)] if fits else encode(text))
        return self._cache[key]

    def whole(self, text: str) -> tuple[int, ...]:
        """Ids of a text tokenised at once, without special tokens."""
        return tuple(self._encode(text))

    def words(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """The text of each token, as it reads in the prompt."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        decoded = (self.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)
        return tuple(
            f" {text}" if str(token).startswith("▁") and not text.startswith(" ") else text
            for token, text in zip(tokens, decoded, strict=True)
        )

    def _encode(self, text: str) -> list[int]:
        return [int(i) for i in self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def _inside(self, text: str) -> list[int]:
        for anchor in _ANCHORS:
            before = self._encode(anchor)
            both = self._encode(anchor + text)
            if both[: len(before)] == before and len(both) > len(before):
                return both[len(before) :]
        raise PromptError(f"The tokenizer merges {text!r} with every sign before it.")
