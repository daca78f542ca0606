"""The first prompts of a set, each as text that opens and closes without a script."""

from collections.abc import Sequence
from hashlib import sha256
from html import escape
from typing import Protocol, runtime_checkable

from icl_mech.plots.prompt_view import PromptLike, prompt_html, style

SHOWN = 4
"""Prompts of a set that are shown."""

TOKENS = 400
"""Tokens of each that are shown."""


@runtime_checkable
class AnsweredPrompt(PromptLike, Protocol):
    """What a line above a prompt says of it."""

    @property
    def answer(self) -> int | None:
        """Class of the true answer."""

    @property
    def false_answer(self) -> int | None:
        """Class that followers of the demonstrations give."""


def batch_html(prompts: Sequence[AnsweredPrompt], about: str) -> str:
    """The first prompts below one another, the first one open; opening one closes the others.

    Args:
        prompts: All of them.
        about: What they are, in one line.
    """
    group = sha256(about.encode("utf-8", "replace")).hexdigest()[:8]
    parts = [
        f'<details name="icl-{group}"{" open" * (number == 0)}>'
        f"<summary>{escape(_line(prompts[number], number, len(prompts)))}</summary>"
        f"{prompt_html(prompts[number], limit=TOKENS, legend=number == 0)}</details>"
        for number in range(min(SHOWN, len(prompts)))
    ]
    rest = len(prompts) - SHOWN
    are = "prompt is" if rest == 1 else "prompts are"
    more = f"{rest} more {are} not shown here; prompts[{SHOWN}] is the next one."
    foot = f'<p class="icl-note">{more}</p>' if rest > 0 else ""
    return (
        f'<style>{style(levels=False)}</style><div class="icl-prompt">'
        f'<p class="icl-note">{escape(about)}</p>{"".join(parts)}{foot}</div>'
    )


def _line(prompt: AnsweredPrompt, number: int, count: int) -> str:
    said = [f"Prompt {number + 1} of {count}", f"{len(prompt.tokens)} tokens"]
    if prompt.answer is not None:
        said.append(f"true answer: {prompt.labels[prompt.answer]}")
    if prompt.false_answer is not None:
        said.append(f"answer after the demonstrations: {prompt.labels[prompt.false_answer]}")
    return ", ".join(said)
