"""`write_rationales`: rationales written by the model itself, in place of those at the queries."""

from itertools import takewhile
from typing import Any

from icl_mech.checking import Count, checked
from icl_mech.errors import PromptError
from icl_mech.measurements.generation.generate import Generate
from icl_mech.prompts import Prompt, PromptBatch, check_batch, with_rationales
from icl_mech.prompts.rationales import check_rationales, open_rationale


@checked(PromptError, but=["model", "prompts"])
def write_rationales(
    model: object, prompts: PromptBatch, *, max_new_tokens: Count = 48, **options: Any
) -> PromptBatch:
    """The same prompts with rationales that the model writes after its queries.

    The text up to the rationale is continued by `Generate`, until it writes what follows a rationale in the
    template (or its first line break), ends, or has `max_new_tokens` tokens. The prompt with the written text is then
    tokenised as a whole; where the model writes nothing, the query has no rationale.

    Args:
        model: The model.
        prompts: Prompts with rationales; those at the queries are not shown to the model.
        max_new_tokens: Maximum length of a rationale.
        **options: Further fields of `Generate` (`do_sample`, `temperature`, `seed`, ...), and options of a run.

    Raises:
        PromptError: prompts without rationales, or that cannot be rewritten.
        RunError: as `generate`.
    """
    prompts = check_batch(prompts)
    check_rationales(prompts, "write_rationales")
    opened = PromptBatch(tuple(open_rationale(prompt) for prompt in prompts), prompts.source)
    fields = {name: options.pop(name) for name in list(options) if name in _FIELDS}
    stops = tuple(dict.fromkeys(map(_end, prompts)))
    writing = Generate(max_new_tokens=max_new_tokens, attention=False, stop=stops, **fields)
    written = writing(model, opened, **options)
    return with_rationales(prompts, model, [text.strip() for text in written.texts])


_FIELDS = ("do_sample", "temperature", "top_k", "top_p", "seed")


def _end(prompt: Prompt) -> str:
    """The text that ends a rationale: what the template writes after it, or its first line break."""
    rest = prompt.text[max(p.stop for p in prompt.parts if p.role == "rationale") :]
    breaks = "".join(takewhile(str.isspace, rest))
    return "\n" if "\n" in breaks else rest.rstrip()
