"""What measurements of demonstrations share: which are seen, and that there are some."""

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
        if not seen_labels(prompt):
            raise PromptError(
                f"Prompt {number} has no demonstration before its target; {what} needs label words "
                "there. Build the prompts with shots >= 1."
            )
