"""The same queries in other contexts: without demonstrations, and behind the same demonstrations with shuffled labels."""

from typing import NamedTuple

from icl_mech.measurements.demonstrations import without_demonstrations
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rewriting import shuffled, zero_shot


class Contexts(NamedTuple):
    """Prompts with the same queries.

    Attributes:
        prompts: By name: `demonstrations`, and of `zero_shot` and `shuffled` those that can be built.
        notes: Why one is missing.
    """

    prompts: dict[str, PromptBatch]
    notes: tuple[str, ...]


def contexts_of(prompts: PromptBatch, tokenizer: object | None, seed: int) -> Contexts:
    """Prompts, their queries alone, and the same demonstrations with their label words in another order."""
    bare, order = zero_shot(prompts, tokenizer), shuffled(prompts, tokenizer, seed)
    alone = bare.prompts or without_demonstrations(prompts)
    built, notes = {"demonstrations": prompts}, []
    for name, batch, why_not in (
        ("zero_shot", alone, bare.why_not),
        ("shuffled", order.prompts, order.why_not),
    ):
        if batch is None:
            notes.append(f"There are no {name.replace('_', '-')} prompts ({why_not}).")
        else:
            built[name] = batch
    return Contexts(built, tuple(notes))
