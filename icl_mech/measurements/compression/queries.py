"""New query texts written behind demonstrations that are known as tokens only."""

from collections.abc import Iterator, Sequence
from typing import Any

from icl_mech.checking import conformed, shown
from icl_mech.errors import ModelError, PromptError
from icl_mech.prompts import Span
from icl_mech.prompts.assemble import RolePiece, lay_out, template_pieces, tidy_pieces
from icl_mech.prompts.tokenise import PieceTokenizer
from icl_mech.tasks import Example, Template


def behind_demonstrations(
    tokens: tuple[int, ...],
    spans: tuple[Span, ...],
    texts: Sequence[str | tuple[str, str]],
    task: dict[str, Any],
    tokenizer: Any,
) -> Iterator[tuple[tuple[int, ...], tuple[Span, ...]]]:
    """Tokens and spans of whole prompts, one per text, as `build_prompts` would lay them.

    Args:
        tokens: Everything before the query.
        spans: Roles of these tokens.
        texts: Query texts, or pairs of texts.
        task: Its template, as prompts record it.
        tokenizer: Hugging Face tokenizer.

    Raises:
        TaskError: an empty text, or one text where the template shows two.
        PromptError: what is no list of texts.
        ModelError: what is no tokenizer.
    """
    texts = conformed("texts", texts, Sequence[str | tuple[str, str]], PromptError)
    if not callable(tokenizer):
        raise ModelError(f"Expected a model or its tokenizer, got {shown(tokenizer)}.")
    template = Template(task["template"], task["separator"])
    pieces = PieceTokenizer(tokenizer)
    for text in texts:
        first, second = (text, None) if isinstance(text, str) else text
        query = template_pieces(template, [], Example(first, 0, second))
        # The separator may end in a blank that belongs to the query's first piece.
        tidy = tidy_pieces([RolePiece("format", 0, template.separator), *query])
        own = [piece for piece in tidy if piece.demo is None]
        yield lay_out(pieces, own, tokens, spans)
