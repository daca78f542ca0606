"""Prompts of a split by demonstration: which can be split, halves that choose heads, and queries alone."""

import torch

from icl_mech._typing import Float, Int, Tensor
from icl_mech.errors import PromptError, RunError
from icl_mech.measurements.causal.answers import check_answers
from icl_mech.measurements.demonstrations import (
    Pair,
    check_same_count,
    query,
    without_demonstrations,
)
from icl_mech.measurements.same_model import check_own_weights
from icl_mech.metrics.layers import stratified_halves
from icl_mech.models import LanguageModel, Site
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.rewriting import shuffled, zero_shot


def check_parted(model: LanguageModel, prompts: PromptBatch, what: str) -> None:
    """Reject prompts whose demonstrations, and models whose heads, do not have parts.

    Raises:
        PromptError: no answers, different numbers of demonstrations, a single one, or one of unknown extent; queries
            that cannot stand alone.
        RunError: processed weights, or a model that normalises the sum of its heads.
        ModelError: blocks without attention patterns or values.
    """
    check_answers(prompts, what)
    check_same_count(prompts, what)
    for number, prompt in enumerate(prompts):
        if not prompt.has_text_roles or prompt.label_positions[-1] > prompt.target:
            raise PromptError(
                f"Prompt {number} was built from bare positions or continues after its target, so it is unknown which "
                "tokens belong to its demonstrations. Build the prompts with build_prompts or prompts_from_text."
            )
        if len(prompt.label_positions) < 2:
            raise PromptError(
                f"Prompt {number} has a single demonstration, which has no context to be cut from. Build the prompts "
                "with at least two demonstrations."
            )
    _ = bare_queries(model, prompts)
    check_own_weights(model, what)
    layers = range(model.info.n_layers)
    model.refuse_missing([Site(name, layer) for layer in layers for name in ("v", "pattern")])
    if any(model.attention_norm(layer) is not None for layer in layers):
        raise RunError(
            f"{model.info.name!r} normalises the sum of its heads before adding it to the residual stream, so the part "
            "of a demonstration is undefined. Use leave_one_out or edge_cuts, which need no parts."
        )


def bare_queries(model: LanguageModel, prompts: PromptBatch) -> PromptBatch:
    """The queries without demonstrations.

    Raises:
        PromptError: they cannot be separated from the demonstrations.
    """
    bare = zero_shot(prompts, model.tokenizer).prompts or without_demonstrations(prompts)
    if bare is None:
        raise PromptError(
            "The queries cannot be separated from their demonstrations, so vectors cannot be added to them alone. "
            "Build the prompts with build_prompts, with a query that is not one of the demonstrations."
        )
    return bare


def halves_of(
    model: LanguageModel, data: PromptBatch, seed: int
) -> tuple[Pair, Int[Tensor, " half"]]:
    """Prompts that choose heads, with true and with shuffled label words, and the numbers of the others.

    Raises:
        PromptError: a repeated query, fewer than two prompts, or label words that cannot be shuffled.
    """
    queries = [query(prompt) for prompt in data]
    repeated = [n for n, texts in enumerate(queries) if texts and texts in queries[:n]]
    choosing, tested = stratified_halves(data.answers, seed)
    wrong = shuffled(data, model.tokenizer, seed)
    if repeated or not len(tested) or wrong.prompts is None:
        why = f"query {repeated[0]} repeats an earlier one" if repeated else wrong.why_not
        raise PromptError(
            "Heads are chosen on half of the prompts, with true and with shuffled label words, and measured on "
            f"the other half, but {why or 'there is only one prompt'}. Give heads= chosen on other prompts, for "
            "example head_mediation(...).top(5, 'difference')."
        )
    numbers = choosing.tolist()
    return (data[numbers], wrong.prompts[numbers]), tested


def of_other_queries(prompts: PromptBatch) -> Float[Tensor, "batch batch"]:
    """Equal weights, for every prompt, of the prompts with other queries.

    Raises:
        PromptError: all prompts have the same query.
    """
    queries = [query(prompt) for prompt in prompts]
    weights = torch.tensor([[float(x != y) for y in queries] for x in queries]).double()
    if not bool(weights.any(1).all()):
        raise PromptError(
            "All prompts have the same query, but vectors are means over prompts with other queries. Give prompts "
            "with several queries."
        )
    return weights / weights.sum(1, keepdim=True)
