"""What measurements of demonstrations share: there must be some."""

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
