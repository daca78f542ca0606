"""Rewriting prompts: label words of the demonstrations in another order, or no demonstrations at all.

A prompt stores its text and the role of every character, so it can be rewritten. The new tokens come from
tokenising the whole new text; query, candidates and correct answers stay the same. Prompts are only rewritten if
this is exact: the old text must give the old tokens, and every candidate must have the same tokens after the new
text as after the old one.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import dropwhile, groupby, takewhile
from typing import Any, NamedTuple

import numpy as np

from icl_mech.checking import Natural, checked
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import tokenizer_and_limit
from icl_mech.prompts.encoding import Encoded, SpecialTokens, TextTokenizer
from icl_mech.prompts.given import check_batch
from icl_mech.prompts.laying import RolePiece, aimed, joined, lay_out, letters_of
from icl_mech.prompts.roles import Span
from icl_mech.prompts.spans import Prompt

REST = 24
"""Characters after a label word that its last token may depend on, if the template writes none there."""


class Rewritten(NamedTuple):
    """Rewritten prompts, or the reason why they cannot be written.

    Attributes:
        prompts: The rewritten prompts, in the same order; None if one of them cannot be rewritten.
        why_not: The first such prompt and the reason; empty otherwise.
    """

    prompts: PromptBatch | None
    why_not: str = ""


class New(NamedTuple):
    """New content of a prompt.

    Attributes:
        pieces: Text with roles.
        classes: Classes that the demonstrations display.
    """

    pieces: list[RolePiece]
    classes: tuple[int, ...]


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def shuffled_labels(
    prompts: PromptBatch, model_or_tokenizer: object, seed: Natural = 0
) -> PromptBatch | None:
    """The same prompts with the label words (or answers) of their demonstrations in another order.

    Each label word is displayed as often as before, in a different sequence; with two different label
    words this is the reverse order. Texts, their order, query, candidates and correct answer stay the same. Prompts
    with the same demonstrations get the same order, whatever else is in the batch.

    Args:
        prompts: Prompts with demonstrations, from `build_prompts` or `prompts_from_text`.
        model_or_tokenizer: Model or tokenizer the prompts were made for.
        seed: Seed of the order.

    Returns:
        The prompts; None if all demonstrations of a prompt display the same label, or if a text, the roles of its
        characters or its candidates are unknown (bare positions, texts without label words).

    Raises:
        PromptError: no prompts, or no tokenizer.
    """
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    return shuffled(check_batch(prompts), tokenizer, seed).prompts


def shuffled(prompts: PromptBatch, tokenizer: object | None, seed: int) -> Rewritten:
    """Prompts of `shuffled_labels`, or the reason why they cannot be written."""
    source = {**prompts.source, "labels": "shuffled", "label_order": seed}
    source.pop("false_share", None)
    return written_anew(prompts, tokenizer, lambda prompt: _reordered(prompt, seed), source)


def relabelled_before(prompts: PromptBatch, tokenizer: object | None, demo: int) -> Rewritten:
    """The same prompts with other label words (or answers) in the demonstrations before number `demo`.

    Each of these takes the label of the next demonstration with a different label, cyclically; all texts and the
    remaining demonstrations stay the same.
    """
    source = {**prompts.source, "labels": "shuffled", "relabelled_before": demo}
    source.pop("false_share", None)
    return written_anew(prompts, tokenizer, lambda prompt: _relabelled(prompt, demo), source)


def zero_shot(prompts: PromptBatch, tokenizer: object | None) -> Rewritten:
    """The same queries without demonstrations; template, narrative and candidates stay the same."""
    count = "total" if "total" in prompts.source else "shots"
    return written_anew(
        prompts, tokenizer, _bare, {**prompts.source, count: 0, "labels": "correct"}
    )


def written_anew(
    prompts: PromptBatch,
    tokenizer: object | None,
    change: Callable[[Prompt], New],
    source: dict[str, Any],
) -> Rewritten:
    """Every prompt with new content, or the reason why one cannot be written."""
    if tokenizer is None:
        return Rewritten(None, "the model has no tokenizer")
    special: SpecialTokens = prompts.source.get("special_tokens", "text")
    reader = TextTokenizer(tokenizer, special)
    made: list[Prompt] = []
    try:
        for prompt in prompts:
            made.append(_written(prompt, reader, change(prompt)))  # noqa: PERF401 - their count names the next
    except PromptError as error:
        return Rewritten(None, f"prompt {len(made)}: {str(error).rstrip('.')}")
    return Rewritten(PromptBatch(tuple(made), source))


def _reordered(prompt: Prompt, seed: int) -> New:
    """The prompt with its label words in another order.

    Raises:
        PromptError: the label words are unknown, or all the same.
    """
    words, shown = _displayed(prompt)
    digest = hashlib.sha256(prompt.text[: words[-1].stop].encode()).digest()
    drawn = np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
    order = shown
    while order == shown:
        order = [shown[place] for place in drawn.permutation(len(shown))]
    return _displaying(prompt, order)


def _relabelled(prompt: Prompt, demo: int) -> New:
    """The prompt with other label words in the demonstrations before number `demo`.

    Raises:
        PromptError: the label words are unknown, or all the same.
    """
    _, shown = _displayed(prompt)
    order = [*shown]
    for place in range(min(demo, len(shown))):
        others = (*shown[place + 1 :], *shown[:place])
        order[place] = next(pair for pair in others if pair != shown[place])
    return _displaying(prompt, order)


def _displayed(prompt: Prompt) -> tuple[list[Span], list[tuple[str, int]]]:
    """Spans of the demonstrations' label words, and each label word with its class.

    Raises:
        PromptError: the label words are unknown, or all the same.
    """
    words = [span for span in known_parts(prompt) if span.role == "label_word"]
    if len(words) != len(prompt.label_classes):
        raise PromptError("not every demonstration displays one label word")
    texts = [prompt.text[span.start : span.stop] for span in words]
    shown = [*zip(texts, prompt.label_classes, strict=True)]
    if len({*shown}) < 2:
        raise PromptError("all its demonstrations display the same label")
    return words, shown


def _displaying(prompt: Prompt, order: Sequence[tuple[str, int]]) -> New:
    """The prompt with these label words and classes."""
    said = iter(order)
    pieces = [
        piece._replace(text=next(said)[0]) if piece.role == "label_word" else piece
        for piece in pieces_of(prompt)
    ]
    return New(pieces, tuple(label for _, label in order))


def _bare(prompt: Prompt) -> New:
    """The query in place of the first demonstration, after the template text that opens it.

    Raises:
        PromptError: the text is unknown.
    """
    known_parts(prompt)
    pieces = pieces_of(prompt)
    inside = [n for n, piece in enumerate(pieces) if piece.demo is not None]
    if not inside:
        raise PromptError("it has no demonstrations")
    start, stop = inside[0], inside[-1] + 1
    opening = [*takewhile(_written_by_template, pieces[start:stop])]
    query = [*dropwhile(_written_by_template, pieces[stop:])]
    if not query:
        raise PromptError("its query is unknown")
    return New([*pieces[:start], *(piece._replace(demo=None) for piece in opening), *query], ())


def _written_by_template(piece: RolePiece) -> bool:
    return piece.role == "format"


def known_parts(prompt: Prompt) -> tuple[Span, ...]:
    """The roles of a prompt's characters.

    Raises:
        PromptError: the roles or the candidates are unknown, or the text continues after the target.
    """
    if not prompt.parts or len(prompt.candidate_texts) != len(prompt.label_words):
        raise PromptError("it is unknown which characters are label words")
    if prompt.target != len(prompt) - 1:
        raise PromptError("its text continues after the target")
    return prompt.parts


def pieces_of(prompt: Prompt) -> list[RolePiece]:
    """The text of a prompt, in pieces with roles."""
    return [RolePiece(p.role, p.demo, prompt.text[p.start : p.stop]) for p in prompt.parts]


def _written(prompt: Prompt, reader: TextTokenizer, new: New) -> Prompt:
    """The prompt with a new text that ends like the old one.

    Raises:
        PromptError: the old text gives other tokens, or candidates have other tokens after the new text.
    """
    first = prompt.spans[0]
    put = first.stop if first.role == "bos" != prompt.parts[0].role else 0
    text, parts = joined(new.pieces)
    after = _after(prompt)
    old = reader.encode(prompt.text + prompt.candidate_texts[0] + after, letters_of(prompt.parts))
    end = len(prompt) - put
    if old.ids[:end] != prompt.tokens[put:]:
        raise PromptError("its tokens differ from those of its whole text")
    read = _read(prompt, reader, text, parts, after, old.offsets[:end])
    laid = lay_out(reader, text, parts, read, bos=put > 0)
    if laid.ids[: len(laid.ids) - len(read.ids)] != prompt.tokens[:put]:
        raise PromptError("the tokenizer now begins texts differently")
    return replace(
        prompt,
        tokens=laid.ids,
        spans=aimed(laid.spans),
        label_classes=new.classes,
        false_answer=None,
        pieces=laid.pieces,
        exact=True,
        sections=(),
        given_anchors=None,
        text=laid.text,
        parts=laid.parts,
    )


def _read(
    prompt: Prompt,
    reader: TextTokenizer,
    text: str,
    parts: Sequence[Span],
    after: str,
    offsets: Sequence[tuple[int, int]],
) -> Encoded:
    """Tokens of the new text up to the target, after which all candidates keep their tokens.

    Args:
        prompt: The old prompt.
        reader: Tokenizer.
        text: The new text.
        parts: Roles of its characters.
        after: Text after a candidate.
        offsets: Character offsets of the old tokens.

    Raises:
        PromptError: the candidates have other tokens.
    """
    shift = len(text) - len(prompt.text)
    alike = [t for t, interval in enumerate(offsets) if interval == offsets[-1]]
    target = tuple(end + shift for end in offsets[-1])
    # A candidate that is a prefix of another one includes a token of the text after it.
    cut = [_without(candidate, after) for candidate in prompt.candidate_texts]
    for words in (prompt.candidate_texts, cut):
        first, start, tails = reader.endings(text, words, after, letters_of(parts))
        same = [t for t, interval in enumerate(first.offsets) if interval == target]
        stop = same[len(alike) - 1] + 1 if len(same) >= len(alike) else 0
        if stop > start and all(
            tail.ids[: stop - start + len(word)] == (*first.ids[start:stop], *word)
            for tail, word in zip(tails, prompt.label_words, strict=True)
        ):
            return Encoded(first.ids[:stop], first.offsets[:stop])
    raise PromptError("its candidates have other tokens after the new text")


def _after(prompt: Prompt) -> str:
    """Text after the first label word, up to the next demonstration's text; a line break if none is displayed."""
    roles = [part.role for part in prompt.parts]
    if "label_word" not in roles:
        return "\n"
    behind = prompt.parts[roles.index("label_word") + 1 :]
    runs = groupby(behind, key=lambda part: part.role == "format")
    written, run = next(runs, (False, iter(())))
    if written:
        return "".join(prompt.text[part.start : part.stop] for part in run)
    return prompt.text[behind[0].start :][:REST] if behind else "\n"


def _without(word: str, after: str) -> str:
    """A candidate's text without the start of `after`, if it ends with it."""
    sizes = range(min(len(word), len(after)), 0, -1)
    size = next((n for n in sizes if word.endswith(after[:n])), 0)
    return word[: len(word) - size]
