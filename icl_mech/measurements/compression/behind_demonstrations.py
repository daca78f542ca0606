"""Whole prompts built from tokenised demonstrations: new queries appended to their tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from icl_mech.checking import conformed, shown
from icl_mech.errors import ModelError, PromptError
from icl_mech.prompts import Span
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.laying import Asked, assemble, template_pieces
from icl_mech.tasks import Example, Template


def behind_demonstrations(
    tokens: tuple[int, ...],
    spans: tuple[Span, ...],
    texts: Sequence[str | tuple[str, str]],
    task: dict[str, Any],
    tokenizer: Any,
    last: str | None = None,
) -> Iterator[tuple[tuple[int, ...], tuple[Span, ...]]]:
    """Tokens and spans of whole prompts, one per text, as `build_prompts` would give them.

    Args:
        tokens: Everything before the query.
        spans: Roles of these tokens.
        texts: Query texts, or pairs of texts.
        task: The template, as prompts record it.
        tokenizer: Hugging Face tokenizer.
        last: The label word that the last demonstration displays.

    Raises:
        TaskError: an empty text, or one text where the template shows two.
        PromptError: `texts` is not a list of texts.
        ModelError: `tokenizer` is not a tokenizer.
    """
    texts = conformed("texts", texts, Sequence[str | tuple[str, str]], PromptError)
    if not callable(tokenizer):
        raise ModelError(f"Expected a model or its tokenizer, got {shown(tokenizer)}.")
    template = replace(Template.recorded(task), narrative="")
    reader = TextTokenizer(tokenizer)
    words = task["labels"] or ("a", "b")
    asked = Asked(words, words, template.closing, score="sum")
    # A demonstration before the query, since tokens depend on the text before them.
    before = [(Example("a", 0, "a"), last or words[0])]
    for text in texts:
        first, second = (text, None) if isinstance(text, str) else text
        pieces = template_pieces(template, before, Example(first, 0, second))
        made = assemble(reader, pieces, asked, label_classes=(0,), answer=None, bos=False)
        start = next(span.start for span in made.spans if span.demo is None)
        shift = len(tokens) - start
        behind = [replace(s, start=s.start + shift, stop=s.stop + shift) for s in made.spans]
        yield (*tokens, *made.tokens[start:]), (*spans, *(s for s in behind if s.demo is None))
