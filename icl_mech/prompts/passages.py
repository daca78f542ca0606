"""Short passages of plain English, or given texts, as prompts in which every token is predicted."""

from collections.abc import Sequence

from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.spans import Prompt

NEUTRAL = (
    "The river rises in the hills to the north and flows for about ninety kilometres before it reaches the sea. "
    "Most of the valley is used for grazing, and a railway line follows the eastern bank.",
    "To make the dough, mix the flour and the salt in a large bowl, add the water slowly and knead for ten minutes. "
    "Cover it with a cloth and leave it in a warm place until it has doubled in size.",
    "The library opens at nine in the morning on weekdays and at ten on Saturdays. Books can be borrowed for three "
    "weeks, and most of them can be renewed twice unless another reader has asked for them.",
    "Bees communicate the direction of flowers by moving in a particular pattern inside the hive. The angle of the "
    "movement corresponds to the position of the sun, and its length to the distance.",
    "She took the early train and read for most of the journey. When she arrived, the streets were still wet, and the "
    "only shop that was open sold newspapers, stamps and coffee in paper cups.",
    "The bridge was built in the nineteenth century from local stone. It has five arches, of which the central one is "
    "the widest, and it was closed to heavy vehicles after the road to the south was finished.",
    "Water expands when it freezes, which is why pipes may burst in winter. Ice is therefore less dense than liquid "
    "water and floats on it, so that lakes freeze from the surface downwards.",
    "The meeting began with a short report on the repairs to the roof. After that the members discussed the plan for "
    "the garden, agreed on a date for planting the trees and thanked the treasurer for her work.",
)
"""Passages of plain English on unrelated subjects, written for this package."""

MOST_UNKNOWN = 0.1
"""Largest fraction of unknown tokens in a text of the tokenizer's language."""


def passages(tokenizer: object | None, texts: Sequence[str] | None = None) -> PromptBatch | None:
    """Texts as prompts whose target is their first token; None: `NEUTRAL`, if the tokenizer knows English.

    Returns:
        The prompts; None without texts, or if most of `NEUTRAL` would be unknown tokens.

    Raises:
        PromptError: a text of fewer than two tokens, or no tokenizer.
    """
    if texts is not None and not texts:
        return None
    if tokenizer is None:
        if texts is None:
            return None
        raise PromptError(
            "The model has no tokenizer to read texts with; load it with its tokenizer, or use texts=[]."
        )
    reader = TextTokenizer(tokenizer, "text")
    start = reader.start_tokens(None)
    rows = [
        (*start, *reader.encode(text, [(0, len(text))]).ids)
        for text in (NEUTRAL if texts is None else texts)
    ]
    unknown = getattr(tokenizer, "unk_token_id", None)
    if texts is None and sum(row.count(unknown) for row in rows) > MOST_UNKNOWN * sum(
        map(len, rows)
    ):
        return None
    short = [number for number, row in enumerate(rows) if len(row) < 2]
    if short:
        raise PromptError(
            f"Text {short[0]} has {len(rows[short[0]])} tokens, but a next-token loss needs at least two; give "
            "longer texts."
        )
    made = [
        Prompt.from_positions(
            row, label_positions=[], label_classes=[], label_tokens=[0, 1], target=0
        )
        for row in rows
    ]
    return PromptBatch(tuple(made), {"texts": "neutral" if texts is None else "given"})
