"""Rewording of sentences about label words for free-form answers and texts.

Results write their sentences for demonstrations with classes. For prompts with another kind of answer,
recorded in the provenance, the same sentences are reworded for that kind. A table applies from top to
bottom; text in quotation marks comes from the prompts and stays.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache, wraps
from typing import Any, TypeVar

Words = Sequence[tuple[str, str]]

_SINGLE = (
    r"\b(whose top|the top|only the top|whose likeliest|the likeliest|only the likeliest|one preferred|whose"
    r"|prefers one|towards a|in which no) label word\b(?!s)"
)
_SEVERAL = r"\b(among the|over the|accuracy over|answer in|the C|the other|are the) label words"
_FIRST: Words = (
    (
        r"\b(?:other label word(?!s)|label word (?:taught|demonstrated) for the (?:query|last text))",
        "label word",
    ),
    (r"\bclass whose label word it", "class it"),
    (r"^label loyalty$", "answer loyalty"),
)

_LABEL_WORDS: Mapping[str, Words] = {
    "choices": (
        *_FIRST,
        (r"\beach of the (\d+) label words", r"each of the \1 choices"),
        (r"label words are bold", "choices are bold"),
        (r"\ball label words", "all choices"),
        (r"\bthe label word with the largest", "the choice with the largest"),
        (_SEVERAL, r"\1 choices"),
        (_SINGLE, r"\1 choice"),
        (r"\b(?:true|right|correct) label word", "right answer"),
        (r"\bwrong label word", "wrong answer"),
        (r"\blabel word", "displayed answer"),
    ),
    "vocabulary": (
        (r"^label loyalty$", "token loyalty"),
        *_FIRST,
        (r"^text (\d+)$", r"span \1"),
        (r"\beach of the (\d+) label words", r"each of the \1 tokens"),
        (r"label words are bold", "the two tokens are bold"),
        (r"\ball label words", "the two tokens"),
        (r"\bthe label word with the largest", "the token with the largest"),
        (r"\bthe other label words", "the other token"),
        (r"\bthe C label words", "the two tokens"),
        (r"\b(accuracy over|answer in) label words", r"\1 the two tokens"),
        (_SEVERAL, r"\1 two tokens"),
        (_SINGLE, r"\1 token"),
        (r"\bright above the wrong label word", "followed token above its rival"),
        (r"\btexts (→|to) label words", r"spans \1 anchors"),
        (r"\blabel words read texts", "anchors read spans"),
        (r"\b(?:true|right|correct) label word", "followed token"),
        (r"\ba label word", "an anchor"),
        (r"\blabel word", "anchor"),
    ),
}
"""Label words as tokens of a prompt, and as the options an answer is chosen from."""

_BY_CLASS: Words = (
    (
        r"\bcannot be judged: no prompt has demonstrations both of the query's class and of others; ",
        "leaving one out, ",
    ),
    (r"; separately for demonstrations of the query's class and all others", ""),
    (r" \([^)]* of this on matching ones\)", ""),
)
"""Sentences about demonstrations of the query's class, for prompts without such demonstrations."""

_OTHERS: Mapping[str, Words] = {
    "choices": (
        (
            r"\bdo demonstrations of the query's class help most\?",
            "which demonstrations help most?",
        ),
        *_BY_CLASS,
        (r"\btrue and predicted classes", "right and predicted choices"),
        (r"\btrue class\b", "right choice"),
        (r"\b(?:true|correct) label(s?)\b", r"right answer\1"),
        (r"\bdemonstrated label(s?)\b", r"taught answer\1"),
        (r"\bfalse label(s?)\b", r"taught answer\1"),
        (r"\blabel loyalty", "answer loyalty"),
        (r"\blabels kept", "answers kept"),
        (r"\blabel(s?)\b", r"answer\1"),
        (r"\bclasses\b", "choices"),
        (r"\bclass\b", "choice"),
    ),
    "vocabulary": (
        (r"\bdo demonstrations of the query's class help most\?", "which spans help most?"),
        *_BY_CLASS,
        (r"\btrue and predicted classes", "followed and predicted tokens"),
        (r"\bprompts with true labels\b", "the texts as they are"),
        (r"\bprompts( p̃)? with (other|shuffled) labels\b", r"texts\1 with \2 anchors"),
        (r"\btrue (label|class)\b", "followed token"),
        (
            r"\blabel that (?:the )?(?:false )?demonstrations teach(?: for the query)?",
            "token that follows the false text",
        ),
        (
            r"\b(?:label taught|(?:taught|demonstrated) label|false label\b)",
            "token that follows the false text",
        ),
        (r"\bfalse labels\b", "false texts"),
        (r"\b(?:right|correct) label\b", "followed token"),
        (r"\bwrong label\b", "rival token"),
        (r"\blabel loyalty", "token loyalty"),
        (r"\blabels kept", "answers kept"),
        (r"\blabel(s?)\b", r"token\1"),
        (r"\bclasses\b", "tokens"),
        (r"\bclass\b", "token"),
        (r"\b(true and false|true|false) demonstrations", r"\1 texts"),
        (r"\bprompts without demonstrations", "other texts"),
        (r"\bprompts with demonstrations", "texts"),
        (r"\bdemonstration(s?)\b", r"span\1"),
        (r"^texts$", "spans"),
        (
            r"\bthe remaining attention goes to template and text\b",
            "the remaining attention goes to other tokens",
        ),
        (r"\btexts feed\b", "spans feed"),
        (r"\btexts (?=[\d.]*\d(?: |,|\[))", "spans "),
        (r"\btemplate tokens\b", "tokens between spans"),
        (r"\banchors and template\b", "anchors and the tokens between spans"),
        (r"^template$", "between spans"),
    ),
}
"""Classes, labels and demonstrations."""

_QUOTED = re.compile(r"“[^”]*”|(?<!\w)'[^']*'(?!\w)")

_NAMES = frozenset({"rows", "columns", "groups", "order"})
"""Fields that may hold words of prompts: only label words are replaced in them."""

_NO_WORDS = frozenset(
    {"show", "meanings", "tokens", "roles", "segments", "bold", "formula", "source"}
)
"""Fields that hold keys or words of prompts, and are never reworded."""

T = TypeVar("T")


def answer_kind(provenance: Mapping[str, Any]) -> str:
    """The kind of answers behind a result, `classes` if none is recorded."""
    prompts = provenance.get("prompts")
    kind = prompts.get("answer_kind") if isinstance(prompts, Mapping) else None
    return kind if isinstance(kind, str) and kind in _OTHERS else "classes"


def in_words_of(kind: str, found: T, *, named: bool = False) -> T:
    """Reword a text, or a value that holds texts, for a kind of answer.

    Args:
        kind: `classes` (nothing changes), `choices` or `vocabulary`.
        found: A text, a shape, figure or definition, or a tuple or list of them.
        named: Replace label words only, because texts may come from prompts.
    """
    content: Any = found
    if kind not in _OTHERS:
        return found
    if isinstance(content, str):
        content = _reworded(content, kind, named)
    elif isinstance(content, tuple | list):
        content = type(content)(in_words_of(kind, part, named=named) for part in content)
    elif is_dataclass(content) and not isinstance(content, type):
        changed = {
            field.name: in_words_of(kind, value, named=field.name in _NAMES)
            for field in fields(content)
            if field.name not in _NO_WORDS
            and isinstance(value := getattr(content, field.name), str | tuple | list)
            # The table of a lens holds words of the model.
            and not (field.name == "words" and isinstance(value, tuple))
        }
        content = replace(content, **changed)
    result: T = content
    return result


def handed_out(method: Callable[..., T]) -> Callable[..., T]:
    """Wrap a method of a result so that its texts are reworded for the result's kind of answer."""

    @wraps(method)
    def worded(self: Any, *given: Any, **named: Any) -> T:
        return in_words_of(answer_kind(self.provenance), method(self, *given, **named))

    return worded


@lru_cache(4096)
def _reworded(text: str, kind: str, named: bool) -> str:
    """The text reworded outside quotation marks; initial capitals are kept."""
    words = _LABEL_WORDS[kind] if named else (*_LABEL_WORDS[kind], *_OTHERS[kind])
    kept: list[str] = []
    end = 0
    for quoted in _QUOTED.finditer(text):
        kept += [_replaced(text[end : quoted.start()], words), quoted.group()]
        end = quoted.end()
    return "".join([*kept, _replaced(text[end:], words)])


def _replaced(text: str, words: Words) -> str:
    for pattern, replacement in words:

        def put(match: re.Match[str], replacement: str = replacement) -> str:
            new = match.expand(replacement)
            if match.group()[:1].isupper():
                return new[:1].upper() + new[1:]
            return new

        text = re.sub(pattern, put, text, flags=re.IGNORECASE)
    return text
