"""Prompts under which label words do another thing than usual: nulls for claims about them, for any model.

They stand beside the planted networks because they are used like these: what a claim says must be true of
the prompts too, and is not called *supported* where these take it away.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby

import numpy as np

from icl_mech.checking import Natural, checked
from icl_mech.errors import PromptError, TaskError
from icl_mech.planted.words import CLASS_WORDS, FILLERS, LABELS
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.build import finished, tokenizer_and_limit
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.given import check_batch
from icl_mech.prompts.laying import Asked, RolePiece, assemble, template_pieces
from icl_mech.tasks import Task, Template, as_task

_FIRST, _VOWELS = tuple("bdfgklmnprstvz"), tuple("aiou")
_ENDS = tuple(f"{consonant}{vowel}" for vowel in _VOWELS for consonant in "bdfgklmnpvxz")


@checked(TaskError, but=["task"])
def nonsense_labels(task: str | Task, seed: Natural = 0) -> Task:
    """The task with made-up label words that have nothing to do with its classes, in a random order.

    White space around label words stays. A model that reads demonstrations can still learn which word stands
    for which class; one that knows the words' meaning cannot use it. Words are of two syllables (`buvi`) and
    stand in no text; up to 14 begin with letters of their own, so that their first tokens differ. A task in the planted language
    takes words of that language that say nothing, each one token; they stand in texts, too.

    Args:
        task: The task, or its name.
        seed: Of the words and of their order.

    Raises:
        TaskError: unknown task, or one with open answers, which has no label words.
    """
    task = as_task(task)
    if task.is_open:
        raise TaskError(f"Task {task.name!r} has open answers, so no label words to replace.")
    draws = np.random.default_rng(seed)
    words = (
        [str(word) for word in draws.permutation(FILLERS)]
        if _is_planted(task)
        else _made_up(task, draws)
    )
    labels = tuple(
        old.replace(old.strip(), new) for old, new in zip(task.labels, words, strict=False)
    )
    if len(labels) < len(task.labels):
        raise TaskError(
            f"Task {task.name!r} has {len(task.labels)} classes; there are {len(words)} words without a meaning."
        )
    return replace(task, name=f"{task.name}, nonsense labels", labels=labels)


def _is_planted(task: Task) -> bool:
    """True if all words of its texts and label words are of the planted language."""
    known = {*FILLERS, *chain(*CLASS_WORDS)}
    texts = [own.text for own in (*task.train, *task.test)]
    return {*task.names} <= {*LABELS, *FILLERS} and {*" ".join(texts).split()} <= known


def _made_up(task: Task, draws: np.random.Generator) -> list[str]:
    """Words of two syllables that the task does not hold; first letters repeat as late as can be."""
    texts = [text for own in (*task.train, *task.test) for text in (own.text, own.text2 or "")]
    held = " ".join([*texts, *task.labels]).lower()
    first, vowels, ends = (draws.permutation(own) for own in (_FIRST, _VOWELS, _ENDS))
    starts = [f"{consonant}{vowel}" for vowel in vowels for consonant in first]
    rounds = [
        f"{start}{ends[(place + turn) % len(ends)]}"
        for turn in range(len(ends))
        for place, start in enumerate(starts)
    ]
    return [word for word in rounds if word not in held]


@checked(PromptError, but=["prompts", "model_or_tokenizer"])
def moved_anchors(prompts: PromptBatch, model_or_tokenizer: object) -> PromptBatch:
    r"""The same prompts with each label word before its text; the query asks at its end, as before.

    `Review: {text}\nLabel: {label}` becomes `Label: {label}\nReview: {text}` in demonstrations. A label word can
    then collect nothing of its own text, which comes after it, though the prompt says the same.

    Where the template has a line break before `{label}`, the line with the label moves; else what stands
    between text and label does where it begins with white space, or where nothing stands before the text
    (`{text}: {label}` becomes `{label}: {text}`).

    Args:
        prompts: Of `build_prompts`, with classes.
        model_or_tokenizer: As given there.

    Raises:
        PromptError: prompts of another kind, a chat, a template that cannot be turned round, or a prompt
            longer than the model's context.
    """
    prompts = check_batch(prompts)
    task = prompts.source.get("task", {})
    if "template" not in task or "chat" in prompts.source or not prompts.has_classes:
        raise PromptError(
            "Label words are moved by the template of a task with classes; give what build_prompts returns for "
            "one, without chat=True."
        )
    template, labels = Template.recorded(task), task["labels"]
    tokenizer, limit = tokenizer_and_limit(model_or_tokenizer)
    reader = TextTokenizer(tokenizer)
    names = tuple(label.strip() for label in labels)
    asked = Asked(labels, names, template.closing, score=prompts.score)
    moved = []
    for prompt in prompts:
        shown, query = prompt.examples()
        demonstrations = [(own, labels[own.label]) for own in shown]
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
    """Pieces of whole demonstrations with the label word, and what introduces it, in front."""
    found: list[RolePiece] = []
    for demo, group in groupby(pieces, key=lambda piece: piece.demo):
        own = list(group)
        if demo is None:
            found += own
            continue
        label = next(n for n, piece in enumerate(own) if piece.role == "label_word")
        joint, opening = _divided(own[label - 1].text, own[1].role == "format", template)
        first, before, between = own[0], own[1 : label - 1], own[label + 1 :]
        found += [first, RolePiece("format", demo, opening), own[label]]
        found += [RolePiece("format", demo, joint), *before, *between]
    return found


def _divided(between: str, opened: bool, template: Template) -> tuple[str, str]:
    """What stood between text and label: what then follows the label, and what introduces it.

    Raises:
        PromptError: there is no place to divide it.
    """
    line = between.rfind("\n") + 1
    if line:
        return between[:line], between[line:]
    if not opened:
        return between, between[len(between.rstrip()) :]
    rest = between.lstrip()
    if rest == between:
        raise PromptError(
            f"Template {template.pattern!r} cannot be turned round: what it writes behind the text cannot be told "
            "from what introduces the label. Write a blank or a line break right behind {text}."
        )
    return between[: len(between) - len(rest)], rest
