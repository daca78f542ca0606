"""`write_rationales`: rationales written by the model itself, in place of those at the queries."""

from itertools import takewhile

from typing_extensions import Unpack

from icl_mech.errors import PromptError
from icl_mech.measurements.doors import with_options
from icl_mech.measurements.generation.generate import Generate
from icl_mech.measurements.passes import How
from icl_mech.prompts import Prompt, PromptBatch, check_batch, with_rationales
from icl_mech.prompts.rationales import check_rationales, open_rationale


@with_options
def write_rationales(
    model: object,
    prompts: PromptBatch,
    *,
    max_new_tokens: int = 48,
    do_sample: bool = False,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 0,
    **how: Unpack[How],
) -> PromptBatch:
    """The same prompts with rationales that the model writes after its queries.

    The text up to the rationale is continued by `Generate`, until it writes what follows a rationale in the
    template (or its first line break), ends, or has `max_new_tokens` tokens. The prompt with the written text is then
    tokenised as a whole; where the model writes nothing, the query has no rationale.

    Args:
        model: The model.
        prompts: Prompts with rationales; those at the queries are not shown to the model.
        max_new_tokens: Maximum length of a rationale.
        do_sample: Sample tokens; else the top token is written (greedy).
        temperature: Temperature the logits are divided by for sampling.
        top_k: Sample only from this many top tokens.
        top_p: Sample from the top tokens that together have this probability.
        seed: Seed of the draws.

    Raises:
        PromptError: prompts without rationales, or that cannot be rewritten; nothing written after any query.
        RunError: as `generate`.
    """
    prompts = check_batch(prompts)
    check_rationales(prompts, "write_rationales")
    opened = PromptBatch(tuple(open_rationale(prompt) for prompt in prompts), prompts.source)
    stops = tuple(dict.fromkeys(map(_end, prompts)))
    writing = Generate(
        max_new_tokens, do_sample, temperature, top_k, top_p, seed, stop=stops, attention=False
    )
    texts = [text.strip() for text in writing(model, opened, **how).texts]
    if not any(texts):
        raise PromptError(
            f"The model writes no rationale after any of the {len(prompts)} queries; give a larger max_new_tokens=, "
            "do_sample=True, or texts (with_rationales)."
        )
    return with_rationales(prompts, model, texts)


def _end(prompt: Prompt) -> str:
    """The text that ends a rationale: what the template writes after it, or its first line break."""
    rest = prompt.text[max(p.stop for p in prompt.parts if p.role == "rationale") :]
    breaks = "".join(takewhile(str.isspace, rest))
    return "\n" if "\n" in breaks else rest.rstrip()
