"""Prompts with their demonstrations, without them and with shuffled labels, split into a training and a held-out half."""

from typing import NamedTuple

from icl_mech.errors import PromptError
from icl_mech.measurements.demonstrations import check_once, without_demonstrations
from icl_mech.metrics.layers import stratified_halves
from icl_mech.models import LanguageModel
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rewriting import shuffled, zero_shot


class Contexts(NamedTuple):
    """The prompts in each context, and their parts.

    Attributes:
        full: With demonstrations.
        bare: The queries alone.
        shuffled: With shuffled labels; None where these cannot be built.
        quarters: The training half in two parts.
        test: The held-out half.
        notes: Why a context is missing.
    """

    full: PromptBatch
    bare: PromptBatch
    shuffled: PromptBatch | None
    quarters: tuple[list[int], list[int]]
    test: list[int]
    notes: tuple[str, ...]


def in_contexts(model: LanguageModel, data: PromptBatch, seed: int) -> Contexts:
    """The prompts in each context, and their parts.

    Raises:
        PromptError: queries that cannot be separated, repeated ones, or too few.
    """
    alone = zero_shot(data, model.tokenizer)
    bare = alone.prompts or without_demonstrations(data)
    if bare is None:
        raise PromptError(
            "The queries of these prompts cannot be separated from their demonstrations "
            f"({alone.why_not}). Build the prompts with build_prompts or prompts_from_text, and "
            "load the model with its tokenizer."
        )
    check_once(data, "the vector could be tested on a query it was computed from")
    training, test = (part.tolist() for part in stratified_halves(data.answers, seed))
    first, second = (
        [training[place] for place in part.tolist()]
        for part in stratified_halves(data.answers[training], seed)
    )
    if len(data) < 4 or not (first and second and test):
        raise PromptError(
            f"The vector is computed and chosen on half of the prompts and tested on the "
            f"others, but there are {len(data)}; give at least four."
        )
    order = shuffled(data, model.tokenizer, seed)
    notes = () if order.prompts else (f"There is no shuffled-label vector ({order.why_not}).",)
    return Contexts(data, bare, order.prompts, (first, second), test, notes)
