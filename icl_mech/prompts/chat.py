"""A template written as a chat: every demonstration is a turn of the user and one of the model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from icl_mech.errors import PromptError
from icl_mech.prompts.build import tokenizer_and_limit
from icl_mech.tasks import Template
from icl_mech.tasks.types import text_fault

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MARKS = {"text": "QxTEXTxQ", "text2": "QxTWOxQ", "label": "QxLABELxQ"}


def chat_template(
    model_or_tokenizer: object,
    user: str = "{text}",
    assistant: str = "Answer:{label}",
    *,
    system: str | None = None,
) -> Template:
    r"""The tokenizer's chat template as a `Template`, for `load_task(..., template=...)`.

    Each demonstration becomes a user turn and an assistant turn, the query a user turn and the
    beginning of the assistant's. The special tokens of the chat are the template's own, so they
    stay control tokens; those written in texts do not.

    Args:
        model_or_tokenizer: Model or tokenizer with a chat template.
        user: What the user says, with `{text}` (and `{text2}` for pairs).
        assistant: What the model answers, ending in `{label}`. Label words bring their own
            leading space, so a sign stands before it.
        system: What the system says, for chat templates that allow it.

    Raises:
        PromptError: no chat template, or one that does not write all turns alike.
        TaskError: a placeholder is missing or unknown.
    """
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    _check(tokenizer, user=user, assistant=assistant, system=system or "-")
    asked = {"role": "user", "content": user.format(**_MARKS)}
    turns = [asked, {"role": "assistant", "content": assistant.format(**_MARKS)}]
    opening = [] if system is None else [{"role": "system", "content": system}]
    closing = _render(tokenizer, [*opening, *turns]).rpartition(_MARKS["label"])[2]
    none, one, two = (
        _render(tokenizer, [*opening, *n * turns, asked], generate=True) for n in range(3)
    )
    end = one.find(_MARKS["label"] + closing) + len(_MARKS["label"] + closing)
    start = end - (len(one) - len(none))
    opened, turn, query = one[:start], one[start:end], one[end:]
    answer = assistant.format(**_MARKS).partition(_MARKS["label"])[0]
    alike = turn.startswith(query) and turn[len(query) :].lstrip(" ").startswith(answer)
    if not alike or none != opened + query or two != opened + turn + turn + query:
        raise PromptError(
            f"The chat template of {getattr(tokenizer, 'name_or_path', '')!r} does not write every "
            "turn alike, or changes what is said in it. Write the turns into a Template yourself, "
            "or give finished texts: prompts_from_text(texts, ..., special_tokens='control')."
        )
    pattern = turn.replace("{", "{{").replace("}", "}}")
    for name, mark in _MARKS.items():
        pattern = pattern.replace(mark, f"{{{name}}}")
    return Template(pattern, separator="", narrative=opened)


def _check(tokenizer: object, **said: str) -> None:
    if not getattr(tokenizer, "chat_template", None):
        raise PromptError(
            f"The tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template; write "
            "the turns into a Template yourself, or take the tokenizer of an instruct model."
        )
    for name, text in said.items():
        if fault := text_fault(text):
            raise PromptError(f"{name}= {fault}.")
    # Placeholders are checked before they are replaced.
    Template(f"{said['user']}\n{said['assistant']}")


def _render(
    tokenizer: "PreTrainedTokenizerBase", turns: Sequence[dict[str, str]], generate: bool = False
) -> str:
    from jinja2 import TemplateError

    try:
        text = tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=generate
        )
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        raise PromptError(
            f"The chat template of {getattr(tokenizer, 'name_or_path', '')!r} refuses these turns: "
            f"{error}. Leave system= out, or write the turns into a Template yourself."
        ) from error
    return str(text)
