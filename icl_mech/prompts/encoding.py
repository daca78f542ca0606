"""Tokenisation of whole texts with the model's own tokenizer, and the characters that each token covers.

Texts are not tokenised in pieces: concatenated tokens of pieces differ wherever a vocabulary merges
across a boundary (`.` and a line break are one token in Qwen, Llama 3 and Mistral's Tekken).
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from icl_mech.errors import PromptError

Interval = tuple[int, int]

_RARE = "𒐫 ꙮ ⵣ \U00100000"
"""Characters that are unknown to every tokenizer with an unknown token."""

_ANCHORS = ("\n", ".", "|", "a", "1", "\n\n", "?")
"""Characters that tokenizers usually do not merge with the text after them."""

SETTLED, BEFORE = 24, 8
"""Tokens compared at the end of a text, and tokens of context before them, when only the ending changes."""

SpecialTokens = Literal["text", "control", "refuse"]
"""Reading of `</s>` and the like written in a text: plain characters, the token, or an error."""


class Encoded(NamedTuple):
    """Tokens of a text.

    Attributes:
        ids: Token ids, without those that the tokenizer puts before every text.
        offsets: Half-open character interval of each token. Tokens that are parts of one character cover all of it.
    """

    ids: tuple[int, ...]
    offsets: tuple[Interval, ...]

    def behind(self, token: int, shift: int) -> "Encoded":
        """Tokens from `token` on, with offsets in a text that begins `shift` characters earlier."""
        moved = tuple((start + shift, stop + shift) for start, stop in self.offsets[token:])
        return Encoded(self.ids[token:], moved)

    def token_at(self, character: int) -> int | None:
        """Index of the token that begins at a character boundary between tokens; None if there is none."""
        token = next((t for t, (start, _) in enumerate(self.offsets) if start >= character), None)
        if token is None or self.offsets[token][0] != character:
            return None
        return token if not token or self.offsets[token - 1][1] <= character else None


@dataclass
class TextTokenizer:
    """A Hugging Face tokenizer and its treatment of special tokens written in texts.

    Special tokens written by a template are always read as tokens; `special_tokens` applies to
    those in texts and label words.
    """

    tokenizer: Any
    special_tokens: SpecialTokens = "text"

    def start_tokens(self, bos: bool | None) -> tuple[int, ...]:
        """Ids that the tokenizer puts before a text; `bos` forces (True) or forbids (False) a BOS token.

        Raises:
            PromptError: `bos=True` with a tokenizer that has no BOS token.
        """
        if bos is False:
            return ()
        if bos and not self._usual_start:
            if self.tokenizer.bos_token_id is None:
                raise PromptError("bos=True, but the tokenizer has no BOS token; leave bos=None.")
            return (int(self.tokenizer.bos_token_id),)
        return self._usual_start

    @cached_property
    def _usual_start(self) -> tuple[int, ...]:
        with_special = [int(i) for i in self.tokenizer("a", add_special_tokens=True)["input_ids"]]
        plain = list(self._call("a").ids)
        for start in range(len(with_special) - len(plain) + 1):
            if with_special[start : start + len(plain)] == plain:
                return tuple(with_special[:start])
        return ()

    def encode(self, text: str, letters: Sequence[Interval] = ()) -> Encoded:
        """Tokens of a whole text.

        Args:
            text: The whole text.
            letters: Half-open character intervals not written by a template: `special_tokens` applies to
                special tokens in them.

        Raises:
            PromptError: special tokens that are rejected or cannot be read as text, or a tokenizer whose
                tokens cannot be aligned with characters.
        """
        whole = self._call(text)
        written = [] if self.special_tokens == "control" else self._written(whole, letters)
        if not written:
            return whole
        names = ", ".join(dict.fromkeys(self.tokenizer.convert_ids_to_tokens(written)))
        if self.special_tokens == "refuse":
            self._refuse(
                text,
                letters,
                names,
                "would act as control tokens (special_tokens='refuse'). Use special_tokens='text' "
                "to read them as plain characters; prompts_from_text also accepts 'control', for "
                "texts written by a chat template",
            )
        return self._as_letters(text, whole, letters, names)

    def endings(
        self, text: str, words: Sequence[str], after: str, letters: Sequence[Interval] = ()
    ) -> tuple[Encoded, int, list[Encoded]]:
        """Tokens of a text continued by each of several words and then by `after`.

        Returns:
            Tokens of the text with the first word; the number of leading tokens that are certainly shared; and
            the tokens after these for each word.

        Tokens depend on few of the surrounding characters. So if tokenising only the end of the text gives
        the same tokens as the whole text for the first word, only this end is tokenised again for
        the other words; otherwise the whole text is.
        """

        def read(word: str, far: int = 0) -> Encoded:
            shifted = [(max(start - far, 0), stop - far) for start, stop in letters if stop > far]
            shifted.append((len(text) - far, len(text) - far + len(word)))
            return self.encode(text[far:] + word + after, shifted)

        first = read(words[0])
        end = next((t for t, (_, stop) in enumerate(first.offsets) if stop > len(text)), 0)
        start = end - SETTLED
        if start > BEFORE and first.token_at(first.offsets[start][0]) == start:
            far, near = first.offsets[start - BEFORE][0], first.offsets[start][0]
            tails = [read(word, far) for word in words]
            places = [tail.token_at(near - far) for tail in tails]
            rests = [t.behind(p, far) for t, p in zip(tails, places, strict=True) if p is not None]
            if len(rests) == len(tails) and rests[0] == first.behind(start, 0):
                return first, start, rests
        return first, 0, [first, *map(read, words[1:])]

    def words(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Text of each token, as inside a longer text; bytes that are not a whole character are written as `⟨E6⟩`."""
        tokens = self.tokenizer.convert_ids_to_tokens(list(ids))
        decoded = (self.tokenizer.decode([i], clean_up_tokenization_spaces=False) for i in ids)
        return tuple(
            f" {text}" if str(token).startswith("▁") and not text.startswith(" ") else text
            for token, text in zip(tokens, map(_with_bytes, map(str, tokens), decoded), strict=True)
        )

    @cached_property
    def _control(self) -> frozenset[int]:
        """Ids of special tokens, without the unknown token."""
        tokenizer = self.tokenizer
        added = getattr(tokenizer, "added_tokens_decoder", {}).items()
        control = {number for number, token in added if token.special}
        control |= set(getattr(tokenizer, "all_special_ids", ()))
        unknown = getattr(tokenizer, "unk_token_id", None)
        return frozenset(control - ({unknown} if unknown in self._call(_RARE).ids else set()))

    def _written(self, read: Encoded, letters: Sequence[Interval]) -> list[int]:
        """Special tokens outside of template text."""
        if not letters or self._control.isdisjoint(read.ids):
            return []
        return [
            token
            for token, (start, _) in zip(read.ids, read.offsets, strict=True)
            if token in self._control and _inside(start, letters)
        ]

    def _as_letters(
        self, text: str, whole: Encoded, letters: Sequence[Interval], names: str
    ) -> Encoded:
        """Tokens with special tokens in texts read as characters; only those of the template stay special."""
        control = [
            (token, interval)
            for token, interval in zip(whole.ids, whole.offsets, strict=True)
            if token in self._control and not _inside(interval[0], letters)
        ]
        ids: list[int] = []
        offsets: list[Interval] = []
        cuts = [(None, (0, 0)), *control, (None, (len(text), len(text)))]
        for (_, (_, start)), (token, (stop, end)) in pairwise(cuts):
            run = self._run(text, start, stop)
            if not self._control.isdisjoint(run.ids):
                self._refuse(text, letters, names, "cannot be written as text with this tokenizer")
            ids += run.ids
            offsets += run.offsets
            if token is not None:
                ids.append(token)
                offsets.append((stop, end))
        return Encoded(tuple(ids), tuple(offsets))

    def _run(self, text: str, start: int, stop: int) -> Encoded:
        """Tokens of a part of a text, read without special tokens; after an anchor unless it starts the text."""
        run = text[start:stop]
        if not start or not run:
            return self._call(run, split_special_tokens=True)
        for anchor in _ANCHORS:
            if anchor.isalnum() and run[:1].isalnum():
                continue  # both would merge into one word
            both = self._call(anchor + run, split_special_tokens=True)
            token = both.token_at(len(anchor))
            if token is not None:
                return both.behind(token, start - len(anchor))
        raise PromptError(
            f"The tokenizer merges {run!r} with whatever precedes it, so it cannot be read as "
            "plain text here. Remove the special tokens from the text."
        )

    def _refuse(self, text: str, letters: Sequence[Interval], names: str, why: str) -> None:
        shown = next(
            (
                text[start:stop]
                for start, stop in letters
                if not self._control.isdisjoint(self._call(text[start:stop]).ids)
            ),
            text,
        )
        raise PromptError(
            f"The text {shown.strip()[:60]!r} contains special tokens of the model, {names}, "
            f"which {why}."
        )

    def _call(self, text: str, **options: bool) -> Encoded:
        if not getattr(self.tokenizer, "is_fast", False):
            read = self.tokenizer(text, add_special_tokens=False, **options)
            ids = [int(i) for i in read["input_ids"]]
            return Encoded(tuple(ids), self._by_decoding(text, ids))
        # Prompts beyond the context are rejected when they are built; a warning would say it twice.
        read = self.tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False, **options
        )
        return Encoded(tuple(read["input_ids"]), _untrimmed(read["offset_mapping"]))

    def _by_decoding(self, text: str, ids: Sequence[int]) -> tuple[Interval, ...]:
        """Character offsets for tokenizers without them, by decoding tokens in order.

        Raises:
            PromptError: tokens do not decode to the text.
        """
        offsets: list[Interval] = []
        done, held = 0, 0
        for number in range(1, len(ids) + 1):
            read = self.tokenizer.decode(ids[held:number], clean_up_tokenization_spaces=False)
            start = done + len(text[done:]) - len(text[done:].lstrip())
            for place, words in ((done, read), (start, read.lstrip())):
                if words and "�" not in words and text.startswith(words, place):
                    offsets += [(place, place + len(words))] * (number - held)
                    done, held = place + len(words), number
                    break
        if held < len(ids):
            raise PromptError(
                f"The tokenizer ({type(self.tokenizer).__name__}) gives no character offsets, and "
                f"its tokens do not decode to the text from {text[done:][:40]!r} on. Use the fast "
                "tokenizer of the model (a tokenizer.json, AutoTokenizer.from_pretrained(..., "
                "use_fast=True))."
            )
        return tuple(offsets)


def _with_bytes(token: str, text: str) -> str:
    """The text of a token; if it holds a part of a character, with the bytes of that part."""
    if "\N{REPLACEMENT CHARACTER}" not in text:
        return text
    if fallback := re.fullmatch("<0x([0-9A-F]{2})>", token):
        return f"⟨{fallback[1]}⟩"
    if not _BYTES.keys() >= {*token}:
        return text
    read = bytes(_BYTES[letter] for letter in token).decode(errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda byte: f"⟨{ord(byte[0]) - 0xDC00:02X}⟩", read)


def _letters_of_bytes() -> dict[str, int]:
    """Bytes by the letters that stand for them in byte-level vocabularies: printable ones for themselves."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    letters = [*map(chr, plain), *(chr(256 + number) for number in range(len(rest)))]
    return dict(zip(letters, [*plain, *rest], strict=True))


_BYTES = _letters_of_bytes()


def _untrimmed(offsets: Sequence[Interval]) -> tuple[Interval, ...]:
    """Offsets in which empty intervals are extended over the white space that was trimmed from them."""
    widened: list[Interval] = []
    end = 0
    for start, stop in offsets:
        widened.append((min(start, end), stop) if start == stop else (start, stop))
        end = max(end, stop)
    return tuple(widened)


def _inside(character: int, intervals: Sequence[Interval]) -> bool:
    place = bisect_right(intervals, (character, float("inf"))) - 1
    return place >= 0 and intervals[place][0] <= character < intervals[place][1]
