"""When a text ends: at the model's end token, at words or tokens given, or at its longest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from icl_mech.errors import RunError
from icl_mech.models import LanguageModel

Stop = str | int | Sequence[str | int]

Ending = Literal["end", "stop", "length"]
"""The model's end token, one of the stops given, or the number of tokens allowed."""


@dataclass(frozen=True, eq=False)
class Stops:
    """What ends a text.

    Attributes:
        tokenizer: Of the model.
        ends: End tokens of the model.
        ids: Tokens given.
        words: Texts given.
    """

    tokenizer: Any
    ends: frozenset[int]
    ids: frozenset[int]
    words: tuple[str, ...]

    @classmethod
    def of(cls, model: LanguageModel, stop: Stop) -> "Stops":
        """Those of a model, and those given.

        Raises:
            RunError: a model without a tokenizer, an empty text, or a token the model does not have.
        """
        if model.tokenizer is None:
            raise RunError(
                f"{model.info.name!r} has no tokenizer, which is needed to write texts; load the model with "
                "its tokenizer."
            )
        given = [stop] if isinstance(stop, str | int) else list(stop)
        words = tuple(own for own in given if isinstance(own, str))
        ids = frozenset(own for own in given if isinstance(own, int))
        if "" in words:
            raise RunError("stop holds an empty text, at which nothing could be written.")
        outside = [own for own in ids if not 0 <= own < model.info.d_vocab]
        if outside:
            raise RunError(
                f"stop names token {outside[0]}; the vocabulary of {model.info.name!r} has "
                f"{model.info.d_vocab} tokens, counted from 0."
            )
        return cls(model.tokenizer, end_tokens(model), ids, words)

    def ending(self, tokens: Sequence[int]) -> Ending | None:
        """Whether what is written ends here, and why."""
        if tokens[-1] in self.ends:
            return "end"
        if tokens[-1] in self.ids:
            return "stop"
        if self.words and any(word in self.text(tokens) for word in self.words):
            return "stop"
        return None

    def text(self, tokens: Sequence[int]) -> str:
        """What was written, end tokens left out."""
        kept = [token for token in tokens if token not in self.ends]
        return decoded(self.tokenizer, kept)

    def shown(self, tokens: Sequence[int]) -> str:
        """The same up to a text given."""
        text = self.text(tokens)
        places = [text.find(word) for word in self.words if word in text]
        return text[: min(places)] if places else text


def end_tokens(model: LanguageModel) -> frozenset[int]:
    """Those of the model's own settings for generation, and of its tokenizer."""
    source = getattr(model.wrapped, "original_model", model.wrapped)
    settings = getattr(source, "generation_config", None)
    found: set[int] = set()
    for own in (getattr(settings, "eos_token_id", None), model.tokenizer.eos_token_id):
        found.update(own if isinstance(own, list | tuple) else () if own is None else (own,))
    return frozenset(int(token) for token in found)


def decoded(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Tokens as text, nothing tidied."""
    text: str = tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False)
    return text


def pieces(tokenizer: Any, tokens: Sequence[int]) -> tuple[str, ...]:
    """The text each token adds; together they are the whole text.

    A token that is only a part of a character adds nothing before the character is whole.
    """
    texts, before = [], ""
    for count in range(1, len(tokens) + 1):
        text = decoded(tokenizer, tokens[:count])
        whole = text.rstrip("\N{REPLACEMENT CHARACTER}") if count < len(tokens) else text
        texts.append(whole[len(before) :] if whole.startswith(before) else "")
        before = whole if whole.startswith(before) else before
    return tuple(texts)
