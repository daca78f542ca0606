"""From pieces of text to a `Prompt`, so that spans are exact with every tokenizer; and which tokenizer it was.

A piece is tokenised after an *anchor* - a sign the tokenizer never merges with what
follows - and the anchor's ids are cut off. So a SentencePiece tokenizer adds no dummy
space inside the prompt, and first tokens of label words are read in context. A piece that
ends in line breaks also gets a *tail*, since tokenizers split breaks by what follows them. The prompt's
tokens are checked against those of the whole text.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from icl_mech.errors import PromptError
from icl_mech.prompts.spans import Prompt, Role, Span
from icl_mech.tasks import Example, Template

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


_KNOWN: WeakKeyDictionary[Any, tuple[int, dict[str, str]]] = WeakKeyDictionary()


def tokenizer_identity(tokenizer: object) -> dict[str, str] | None:
    """Name and fingerprint of a tokenizer, as prompts record them; None if it cannot be known.

    The fingerprint covers vocabulary, merges and their options, added tokens, normaliser and
    pre-tokeniser: equal ones give equal tokens. What it leaves out changes no text's tokens: BOS,
    padding, truncation, decoding.
    """
    if not isinstance(tokenizer, Sized):  # something of the user's that only looks like a tokenizer
        return None
    size = len(tokenizer)
    try:
        known = _KNOWN.get(tokenizer)
    except TypeError:  # it cannot be remembered
        return None
    if known is None or known[0] != size:
        content = _content(tokenizer)
        if content is None:
            return None
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        name = str(getattr(tokenizer, "name_or_path", "")) or type(tokenizer).__name__
        name = Path(name).name if Path(name).exists() else name  # no path of this machine
        known = (size, {"name": name, "fingerprint": digest[:16]})
        _KNOWN[tokenizer] = known
    return dict(known[1])


def _content(tokenizer: object) -> Any:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # A model library may give a tokenizer a token for padding, which no prompt holds.
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


OWN: tuple[Role, ...] = ("format", "narrative")
"""Roles of what the template writes itself."""


class RolePiece(NamedTuple):
    """A stretch of text with its role and demonstration number."""

    role: Role
    demo: int | None
    text: str


ROLE_OF: dict[str, Role] = {"format": "format", "text": "demo_text", "label": "label_word"}
"""Of the parts of a demonstration."""


def template_pieces(
    template: Template, demonstrations: Sequence[tuple[Example, str]], query: Example
) -> list[RolePiece]:
    """The pieces of a whole prompt; demonstrations come with the label word they display."""
    pieces: list[RolePiece] = []
    if template.narrative:
        pieces.append(RolePiece("narrative", None, template.narrative + template.separator))
    for demo, (example, word) in enumerate(demonstrations):
        for kind, text in template.pieces(example, word):
            pieces.append(RolePiece(ROLE_OF[kind], demo, text))
        pieces.append(RolePiece("format", demo, template.separator))
    for kind, text in template.pieces(query, None):
        pieces.append(RolePiece("query_text" if kind == "text" else "format", None, text))
    return pieces


def tidy_pieces(pieces: Iterable[RolePiece]) -> list[RolePiece]:
    """Move blanks at the end of a piece to the next one, and join format pieces.

    Tokenizers tie a blank to the word after it, so `"Review: "` + `"a dull film"` becomes
    `"Review:"` + `" a dull film"`.
    """
    tidy: list[RolePiece] = []
    carried = ""
    for role, demo, text in pieces:
        text = carried + text
        stripped = text.rstrip(" ")
        carried = text[len(stripped) :] if stripped and role in ("format", "narrative") else ""
        text = text[: len(text) - len(carried)]
        if tidy and role == "format" == tidy[-1].role and demo == tidy[-1].demo:
            tidy[-1] = RolePiece(role, demo, tidy[-1].text + text)
        elif text:
            tidy.append(RolePiece(role, demo, text))
    return tidy


def assemble(
    tokenizer: PieceTokenizer,
    pieces: Iterable[RolePiece],
    *,
    label_classes: Sequence[int],
    label_words: Sequence[tuple[int, ...]],
    labels: Sequence[str],
    answer: int | None,
    false_answer: int | None = None,
    bos: bool | None = None,
    accepted: Sequence[tuple[int, ...]] = (),
) -> Prompt:
    """Tokenise the pieces and lay the spans; the last token becomes the target.

    Raises:
        PromptError: no pieces, one that has no tokens, or a displayed label word whose ids differ
            from its class's.
    """
    tidy = tidy_pieces(pieces)
    if not tidy:
        raise PromptError("The prompt is empty; it needs at least a query.")
    begun = tokenizer.begun(tidy[0].text, bos, template=tidy[0].role in OWN)
    start = () if begun else tokenizer.start_tokens(bos)
    before = [Span("bos", None, 0, len(start))] if start else []
    ids, spans = lay_out(tokenizer, tidy, start, before, first=True)
    if begun:
        rest = replace(spans[0], start=begun)
        spans = (Span("bos", None, 0, begun), *(rest,) * (rest.stop > begun), *spans[1:])
    for span, label in zip(
        (span for span in spans if span.role == "label_word"), label_classes, strict=True
    ):
        if ids[span.start : span.stop] != label_words[label]:
            raise PromptError(
                f"The label word {labels[label]!r} is tokenised as {list(ids[span.start : span.stop])} "
                f"in the prompt but {list(label_words[label])} was expected for its class."
            )
    read = [(piece.text, piece.role in OWN) for piece in tidy]
    return Prompt(
        ids,
        spans,
        tuple(label_classes),
        tuple(label_words),
        answer=answer,
        false_answer=false_answer,
        labels=tuple(labels),
        pieces=tokenizer.words(ids),
        exact=tokenizer.gives(ids[len(start) :], read),
        kind="choices" if accepted else None,
        accepted=tuple(accepted),
    )


def lay_out(
    tokenizer: PieceTokenizer,
    pieces: Sequence[RolePiece],
    ids: Sequence[int] = (),
    spans: Sequence[Span] = (),
    *,
    first: bool = False,
) -> tuple[tuple[int, ...], tuple[Span, ...]]:
    """Tokens and spans with tidy pieces added after; the last token becomes the target.

    What a tokenizer drops of the template (line breaks, say) has no span.

    Raises:
        PromptError: a text or label word without any token.
    """
    tokens, laid = list(ids), list(spans)
    for number, (role, demo, text) in enumerate(pieces):
        following = pieces[number + 1].text if number + 1 < len(pieces) else ""
        own = role in OWN
        new = tokenizer.piece(text, first=first and number == 0, following=following, template=own)
        if new:
            laid.append(Span(role, demo, len(tokens), len(tokens) + len(new)))
            tokens += new
        elif not own:
            raise PromptError(
                f"The {role.replace('_', ' ')} {text.strip(' ')!a} has no token: all its characters are "
                "dropped by the tokenizer. Leave the example out, or write it in other characters."
            )
    last = laid.pop()
    if last.stop - last.start > 1:
        laid.append(Span(last.role, last.demo, last.start, last.stop - 1))
    return tuple(tokens), (*laid, Span("target", None, last.stop - 1, last.stop))
