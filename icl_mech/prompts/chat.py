"""`chat_template`: a tokenizer's chat template as a `Template`, to edit or to store with a task."""

from icl_mech.errors import PromptError
from icl_mech.prompts.build import tokenizer_and_limit
from icl_mech.prompts.writing import check_chat, render
from icl_mech.tasks import Template

_MARKS = {"text": "QxTEXTxQ", "text2": "QxTWOxQ", "rationale": "QxREASONxQ", "label": "QxLABELxQ"}


def chat_template(
    model_or_tokenizer: object,
    user: str = "{text}",
    assistant: str = "Answer: {label}",
    *,
    system: str | None = None,
    today: str | None = None,
) -> Template:
    """The tokenizer's chat template as a `Template`, for `load_task(..., template=...)`.

    Each demonstration becomes a user turn and an assistant turn, the query a user turn and the
    beginning of the assistant's. `build_prompts(..., chat=True)` renders the turns of every prompt
    instead, so it also supports chat templates that render turns differently.

    Args:
        model_or_tokenizer: Model or tokenizer with a chat template.
        user: The user's message, with `{text}` (and `{text2}`).
        assistant: The model's answer, with some text before `{label}`.
        system: The system message, for chat templates that allow one.
        today: Date written by chat templates that contain one.

    Raises:
        PromptError: no chat template, or one that renders turns differently.
        TaskError: a placeholder is missing or unknown.
    """
    tokenizer, _ = tokenizer_and_limit(model_or_tokenizer)
    check_chat(tokenizer, user=user, assistant=assistant, system=system or "-")
    Template(f"{user}\n{assistant}")  # placeholders are checked before they are replaced
    asked = {"role": "user", "content": user.format(**_MARKS)}
    turns = [asked, {"role": "assistant", "content": assistant.format(**_MARKS)}]
    opening = [] if system is None else [{"role": "system", "content": system}]
    closing = render(tokenizer, [*opening, *turns], today=today).rpartition(_MARKS["label"])[2]
    none, one, two = (
        render(tokenizer, [*opening, *n * turns, asked], True, today) for n in range(3)
    )
    end = one.find(_MARKS["label"] + closing) + len(_MARKS["label"] + closing)
    start = end - (len(one) - len(none))
    opened, turn, query = one[:start], one[start:end], one[end:]
    answer = assistant.format(**_MARKS).partition(_MARKS["label"])[0]
    alike = turn.startswith(query) and turn.removeprefix(query).lstrip(" ").startswith(answer)
    if not alike or none != opened + query or two != opened + turn + turn + query:
        raise PromptError(
            f"The chat template of {getattr(tokenizer, 'name_or_path', '')!r} does not render all "
            "turns alike, or changes their content. Build prompts with chat=True, write the "
            "turns into a Template yourself, or give finished texts: prompts_from_text(texts, "
            "..., special_tokens='control')."
        )
    pattern = turn.replace("{", "{{").replace("}", "}}")
    for name, mark in _MARKS.items():
        pattern = pattern.replace(mark, f"{{{name}}}")
    return Template(pattern, separator="", narrative=opened)
