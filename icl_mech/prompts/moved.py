"""`moved_anchors`: label words before their texts, a control for claims that label words aggregate information."""

from collections.abc import Sequence
from itertools import groupby

from icl_mech.checking import checked
from icl_mech.errors import PromptError
from icl_mech.prompts.batch import PromptBatch
from icl_mech.prompts.build import finished, tokenizer_and_limit
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.given import check_batch
from icl_mech.prompts.laying import Asked, RolePiece, assemble, template_pieces
from icl_mech.tasks import Template


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def moved_anchors(prompts: PromptBatch, model_or_tokenizer: object) -> PromptBatch:
    r"""The same prompts with each label word before its text; queries still end where the label follows.

    `Review: {text}\nLabel: {label}` becomes `Label: {label}\nReview: {text}` in demonstrations. A label word then
    cannot aggregate its own text, which comes after it, although the prompt has the same content.

    If the template has a line break before `{label}`, the line with the label moves. Otherwise the text between
    `{text}` and `{label}` moves with the label, if it begins with white space or nothing comes before `{text}`
    (`{text}: {label}` becomes `{label}: {text}`).

    Args:
        prompts: Prompts of `build_prompts`, with classes.
        model_or_tokenizer: Model or tokenizer they were built with.

    Raises:
        PromptError: prompts of another kind, a chat, a template that cannot be reordered, or a prompt
            longer than the model's context.
    """
    prompts = check_batch(prompts)
    task = prompts.source.get("task", {})
    if "template" not in task or "chat" in prompts.source or not prompts.has_classes:
        raise PromptError(
            "Moving label words requires the template of a task with classes; give prompts that "
            "build_prompts makes for such a task, without chat=True."
        )
    template, labels = Template.recorded(task), task["labels"]
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    reader = TextTokenizer(tokenizer)
    names = tuple(label.strip() for label in labels)
    asked = Asked(labels, names, template.closing, score=prompts.score)
    moved = []
    for prompt in prompts:
        shown, query = prompt.examples()
        demonstrations = [(example, labels[example.label]) for example in shown]
        pieces = template_pieces(template, demonstrations, query)
        moved.append(
            assemble(
                reader,
                _turned(pieces, template),
                asked,
                label_classes=prompt.label_classes,
                answer=prompt.answer,
                false_answer=prompt.false_answer,
                bos=prompts.source["bos"],
            )
        )
    named = {**task, "name": f"{task['name']}, labels before texts"}
    return finished(
        moved, {**prompts.source, "task": named, "moved_anchors": True}, tokenizer, limit
    )


def _turned(pieces: Sequence[RolePiece], template: Template) -> list[RolePiece]:
    """Pieces with the label word of each demonstration, and the text that introduces it, moved to the front."""
    turned: list[RolePiece] = []
    for demo, group in groupby(pieces, key=lambda piece: piece.demo):
        members = list(group)
        if demo is None:
            turned += members
            continue
        label = next(n for n, piece in enumerate(members) if piece.role == "label_word")
        joint, opening = _divided(members[label - 1].text, members[1].role == "format", template)
        first, before, between = members[0], members[1 : label - 1], members[label + 1 :]
        turned += [first, RolePiece("format", demo, opening), members[label]]
        turned += [RolePiece("format", demo, joint), *before, *between]
    return turned


def _divided(between: str, opened: bool, template: Template) -> tuple[str, str]:
    """Split the text between input and label: the part that follows the moved label, and the part that introduces it.

    Raises:
        PromptError: there is no place to split it.
    """
    line = between.rfind("\n") + 1
    if line:
        return between[:line], between[line:]
    if not opened:
        return between, between[len(between.rstrip()) :]
    rest = between.lstrip()
    if rest == between:
        raise PromptError(
            f"Template {template.pattern!r} cannot be reordered: the text that follows {{text}} "
            "cannot be told apart from the text that introduces the label. Write a space or a "
            "line break right after {text}."
        )
    return between[: len(between) - len(rest)], rest
