"""What analyses of demonstrations share: which are seen, that they are there, if they are shared."""

from typing import Any

from icl_mech.errors import PromptError
from icl_mech.prompts import Prompt, PromptBatch


def seen_labels(prompt: Prompt) -> tuple[tuple[int, int], ...]:
    """Position and class of the label words before the target, in prompt order."""
    pairs = zip(prompt.label_positions, prompt.label_classes, strict=True)
    return tuple((position, label) for position, label in pairs if position < prompt.target)


def displayed(prompt: Prompt) -> set[int]:
    """Classes the demonstrations before the target display."""
    return {label for _, label in seen_labels(prompt)}


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
