"""Tokenising piece by piece, so that spans are exact with every tokenizer.

A piece is tokenised behind an *anchor* - a sign the tokenizer never merges with what
follows - and the anchor's ids are cut off. So a SentencePiece tokenizer adds no dummy
space inside the prompt, and first tokens of label words are read in context. A piece that
ends in line breaks also gets a *tail*, since tokenizers split breaks by what follows them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from icl_mech.errors import PromptError

_ANCHORS = ("\n", ".", "|", "a", "1", "\n\n", "?")

_RARE = "𒐫 ꙮ ⵣ \U00100000"
"""Unknown to every tokenizer that has unknown characters."""

SpecialTokens = Literal["text", "control", "refuse"]
"""What becomes of `</s>` and the like written in a text: its letters, the token, an error."""


@dataclass
class PieceTokenizer:
    """Wraps a Hugging Face tokenizer; caches pieces, which repeat in every prompt.

    Special tokens that a template writes always are the tokens themselves; `special_tokens` says
    what those in texts and label words are.
    """

    tokenizer: Any
    special_tokens: SpecialTokens = "text"
    _cache: dict[tuple[str, bool, str, bool], tuple[int, ...]] = field(default_factory=dict)

    def start_tokens(self, bos: bool | None) -> tuple[int, ...]:
        """Ids the tokenizer puts before a text; `bos` forces (True) or forbids (False) one.

        Raises:
            PromptError: `bos=True` with a tokenizer that has no BOS token.
        """
        if bos is False:
            return ()
        with_special = list(self.tokenizer("a", add_special_tokens=True)["input_ids"])
        plain = self._plain("a")
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

    def begun(self, text: str, bos: bool | None, *, template: bool) -> int:
        """How many BOS tokens, which would be put before it, a text writes itself."""
        if bos is False or not (template or self.special_tokens == "control"):
            return 0
        start = self.start_tokens(bos)
        return len(start) if tuple(self._plain(text)[: len(start)]) == start else 0

    def piece(
        self, text: str, *, first: bool, following: str = "", template: bool = False
    ) -> tuple[int, ...]:
        """Ids of one piece, at the start of the text or inside it; none for what is normalised away.

        Args:
            text: The piece.
            first: Nothing stands before it.
            following: What comes next, if anything.
            template: It is the template's own.

        Raises:
            PromptError: if no anchor separates from this piece, or it holds special tokens that
                are refused or cannot be written as text.
        """
        breaks = text[-1:].isspace() and following
        tail = (" a" if following[0] == " " else "a") if breaks else ""
        key = (text, first, tail, template)
        if key not in self._cache:
            encode = self._encode if first else self._inside
            ids = encode(text + tail, template)
            end = self._inside(tail) if tail else []
            fits = not tail or (end and ids[-len(end) :] == end)
            self._cache[key] = tuple(ids[: len(ids) - len(end)] if fits else encode(text, template))
        return self._cache[key]

    def gives(self, ids: Sequence[int], pieces: Sequence[tuple[str, bool]]) -> bool:
        """True if the text as a whole is tokenised as `ids`, without what begins every text.

        `pieces` are its texts, and for each whether it is the template's own.
        """
        if self._plain("".join(text for text, _ in pieces)) == list(ids):
            return True
        if self.special_tokens == "control" or not self._control:
            return False
        # Texts may write special tokens: only those of the template divide what is read at once.
        special = sorted(self.tokenizer.convert_ids_to_tokens(list(self._control)), key=len)
        pattern = re.compile(f"({'|'.join(map(re.escape, reversed(special)))})")
        runs = [""]
        for text, template in pieces:
            start, *others = pattern.split(text) if template else [text]
            runs = [*runs[:-1], runs[-1] + start, *others]
        whole = self._encode(runs[0])
        for number, run in enumerate(runs[1:], start=1):
            control = number % 2 == 1
            whole += [self.tokenizer.convert_tokens_to_ids(run)] if control else self._inside(run)
        return whole == list(ids)

    def words(self, ids: tuple[int, ...]) -> tuple[str, ...]:
        """The text of each token, as it reads in the prompt."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        decoded = (self.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)
        return tuple(
            f" {text}" if str(token).startswith("▁") and not text.startswith(" ") else text
            for token, text in zip(tokens, decoded, strict=True)
        )

    @cached_property
    def _control(self) -> frozenset[int]:
        """Ids of special tokens, without one that unknown characters become."""
        tokenizer = self.tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {}).items()
        control = {number for number, token in added if token.special}
        control |= set(getattr(tokenizer, "all_special_ids", ()))
        return frozenset(control - {self._unknown})

    @cached_property
    def _unknown(self) -> int | None:
        """Id of unknown characters, which may run together; None if there are none."""
        unknown = getattr(self.tokenizer, "unk_token_id", None)
        return unknown if unknown in self._plain(_RARE) else None

    def _encode(self, text: str, template: bool = False) -> list[int]:
        ids = self._plain(text)
        if template or self.special_tokens == "control" or self._control.isdisjoint(ids):
            return ids
        written = [i for i in ids if i in self._control]
        if self.special_tokens == "text":
            ids = self._plain(text, split_special_tokens=True)
            if self._control.isdisjoint(ids):
                return ids
        names = ", ".join(dict.fromkeys(self.tokenizer.convert_ids_to_tokens(written)))
        why = "cannot be written as text with this tokenizer"
        if self.special_tokens == "refuse":
            why = (
                "would steer the model (special_tokens='refuse'). Take special_tokens='text' to "
                "read their letters; prompts_from_text also takes 'control', for texts laid out "
                "by a chat template"
            )
        raise PromptError(
            f"The text {text.strip()[:60]!r} holds special tokens of the model, {names}, which {why}."
        )

    def _plain(self, text: str, **options: bool) -> list[int]:
        found = self.tokenizer(text, add_special_tokens=False, **options)["input_ids"]
        return [int(i) for i in found]

    def _inside(self, text: str, template: bool = False) -> list[int]:
        vanishes = False
        for anchor in _ANCHORS:
            if anchor.isalnum() and text[:1].isalnum():
                continue  # they would be one word
            before = self._plain(anchor)
            both = self._encode(anchor + text, template)
            if before and self._unknown not in before and both[: len(before)] == before:
                if len(both) > len(before):
                    return both[len(before) :]
                vanishes = True
        if vanishes:
            return []
        raise PromptError(f"The tokenizer merges {text!r} with every sign before it.")
