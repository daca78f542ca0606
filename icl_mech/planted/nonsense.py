"""`nonsense_labels`: a task with meaningless label words, a negative control for claims about label words.

It is used like the planted networks: a claim that rests on the meaning of label words must not be *supported*
under it.
"""

from dataclasses import replace
from itertools import chain

import numpy as np

from icl_mech.checking import Natural, checked
from icl_mech.errors import TaskError
from icl_mech.planted.words import CLASS_WORDS, FILLERS, LABELS
from icl_mech.tasks import Task, as_task

_FIRST, _VOWELS = tuple("bdfgklmnprstvz"), tuple("aiou")
_ENDS = tuple(f"{consonant}{vowel}" for vowel in _VOWELS for consonant in "bdfgklmnpvxz")


@checked(TaskError, but=["task"])
def nonsense_labels(task: str | Task, seed: Natural = 0) -> Task:
    """The task with made-up label words that have nothing to do with its classes, in random order.

    White space around label words is kept. A model that reads demonstrations can still learn which word stands
    for which class, but prior knowledge of the words does not help. Words have two syllables (`buvi`) and
    occur in no text of the task; up to 14 begin with distinct letters, so that their first tokens differ. A task in
    the planted language takes filler words of that language, one token each; these also occur in texts.

    Args:
        task: The task, or its name.
        seed: Seed of the words and their order.

    Raises:
        TaskError: unknown task, or one with free-form answers, which has no label words.
    """
    task = as_task(task)
    if task.is_open:
        raise TaskError(
            f"Task {task.name!r} has free-form answers, so it has no label words to replace. Give "
            "a task with classes."
        )
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
            f"Task {task.name!r} has {len(task.labels)} classes, but there are only {len(words)} "
            "meaningless words to use as labels."
        )
    return replace(task, name=f"{task.name}, nonsense labels", labels=labels)


def _is_planted(task: Task) -> bool:
    """True if all words of its texts and its label words belong to the planted language."""
    known = {*FILLERS, *chain(*CLASS_WORDS)}
    texts = [example.text for example in (*task.train, *task.test)]
    return {*task.names} <= {*LABELS, *FILLERS} and {*" ".join(texts).split()} <= known


def _made_up(task: Task, draws: np.random.Generator) -> list[str]:
    """Two-syllable words that do not occur in the task; first letters repeat as late as possible."""
    texts = [
        text
        for example in (*task.train, *task.test)
        for text in (example.text, example.text2 or "")
    ]
    vocabulary = " ".join([*texts, *task.labels]).lower()
    first, vowels, ends = (draws.permutation(letters) for letters in (_FIRST, _VOWELS, _ENDS))
    starts = [f"{consonant}{vowel}" for vowel in vowels for consonant in first]
    rounds = [
        f"{start}{ends[(place + turn) % len(ends)]}"
        for turn in range(len(ends))
        for place, start in enumerate(starts)
    ]
    return [word for word in rounds if word not in vocabulary]
