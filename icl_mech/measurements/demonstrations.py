"""What analyses of demonstrations share: they must be there, and notes say if they are shared."""

from typing import Any

from icl_mech.errors import PromptError
from icl_mech.prompts import PromptBatch


def check_demonstrations(prompts: PromptBatch, what: str) -> None:
    """Refuse prompts without a label word before their target.

    Raises:
        PromptError: names the first such prompt.
    """
    for number, prompt in enumerate(prompts):
        if not any(position < prompt.target for position in prompt.label_positions):
            raise PromptError(
                f"Prompt {number} has no demonstration before its target; {what} needs label words "
                "there. Build the prompts with shots >= 1."
            )


def conditions(count: int, origin: dict[str, Any]) -> str:
    """What the intervals of a result over `count` prompts rest on."""
    shared = origin.get("conditional_on_demonstrations")
    given = ", given their shared demonstrations" if shared else ""
    return f"{count} prompts, 95 % intervals over prompts{given}"
