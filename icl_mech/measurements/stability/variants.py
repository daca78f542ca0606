"""Variants of prompts that should not change a conclusion: other draws, templates, label words and subsets."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from string import ascii_uppercase
from typing import Literal, NamedTuple

import numpy as np

from icl_mech.errors import IclMechError, PromptError
from icl_mech.measurements.passes import Prompts
from icl_mech.models import LanguageModel
from icl_mech.planted import nonsense_labels
from icl_mech.prompts import PromptBatch
from icl_mech.prompts.given import drawn_again
from icl_mech.tasks import Task, Template

Axis = Literal["seed", "template", "label set", "subset"]

TEMPLATES = (
    "Input: {text}\nOutput: {label}",
    "Text: {text}\nLabel: {label}",
    "{text}\nAnswer: {label}",
    "{text} => {label}",
)
"""Templates that say the same in other words."""

LABEL_SETS = ("letters", "numbers", "nonsense")
"""Label words without meaning: A, B, C; 1, 2, 3; or made up."""

ORIGINAL = "original"
"""Name of the given prompts along an axis of templates or label sets."""


class Variant(NamedTuple):
    """Prompts that differ from the given ones in one respect.

    Attributes:
        over: What differs; empty for the given prompts.
        name: Its value.
        prompts: The prompts.
    """

    over: Axis | Literal[""]
    name: str
    prompts: Prompts


def variants_of(
    data: Prompts,
    model: LanguageModel,
    over: Sequence[Axis],
    *,
    seeds: int,
    templates: Sequence[str],
    label_sets: Sequence[str | Sequence[str]],
    subsets: int,
) -> list[Variant]:
    """The given prompts and their variants, axis by axis.

    Equal prompts agree by construction: of the usual templates and label sets, those that give the prompts of an
    earlier variant are left out.

    Raises:
        PromptError: prompts that were not drawn from a task, a template or label words that the task does not take,
            listed ones that give equal prompts, usual ones that all do, or fewer prompts than subsets.
    """
    first = data[0] if isinstance(data, tuple) else data
    variants = [Variant("", ORIGINAL, data)]
    for axis in over:
        if axis == "subset":
            variants += _subsets(data, subsets)
            continue
        made: list[tuple[str, Callable[[], Prompts]]] = []
        redraw = partial(drawn_again, data, model, len(first))
        if axis == "seed":
            start = int(first.source.get("seed") or 0)
            made = [(str(s), partial(redraw, seed=s)) for s in range(start + 1, start + seeds)]
        elif axis == "template":
            made = [
                (_title(pattern), partial(redraw, rewrite=partial(_rewritten, pattern=pattern)))
                for pattern in templates
            ]
        else:
            made = [
                (_name(words), partial(redraw, rewrite=partial(relabelled, words=words)))
                for words in label_sets
            ]
        drawn = [Variant(axis, name, _drawn(draw, axis, name)) for name, draw in made]
        listed = tuple(templates) != TEMPLATES if axis == "template" else label_sets != LABEL_SETS
        variants += drawn if axis == "seed" else _differing(variants[0], drawn, listed=listed)
    return variants


def _differing(original: Variant, drawn: Sequence[Variant], *, listed: bool) -> list[Variant]:
    """Variants along an axis without those whose tokens and label words are those of an earlier one.

    Raises:
        PromptError: there are such, and they were `listed`; or no others.
    """
    first: dict[object, str] = {_content(original.prompts): "the given prompts"}
    repeated, differing = [], []
    for variant in drawn:
        content = _content(variant.prompts)
        if content in first:
            repeated.append(
                f"those of {variant.over} {variant.name!r} are those of {first[content]}"
            )
            continue
        first[content] = repr(variant.name)
        differing.append(variant)
    if repeated and (listed or not differing):
        axis = drawn[0].over
        raise PromptError(
            f"Equal prompts would agree by construction: {', '.join(repeated)}. Leave them out of "
            f"{axis.replace(' ', '_')}s=, or {axis!r} out of over=."
        )
    return differing


def _content(data: Prompts) -> object:
    """What prompts with equal results have in common."""
    batches = data if isinstance(data, tuple) else (data,)
    return tuple((prompt.tokens, prompt.labels) for batch in batches for prompt in batch)


def _drawn(draw: Callable[[], Prompts], axis: str, name: str) -> Prompts:
    try:
        return draw()
    except IclMechError as error:
        raise PromptError(
            f"The prompts cannot be drawn with {axis} {name!r}: {error} Or leave {axis!r} out of over=."
        ) from error


def _rewritten(task: Task, pattern: str) -> Task:
    old = task.template
    return replace(task, template=Template(pattern, old.separator, old.narrative))


def relabelled(task: Task, words: str | Sequence[str]) -> Task:
    """The task with other label words: one of `LABEL_SETS`, or as given, in class order.

    White space around the task's own label words is kept.

    Raises:
        PromptError: free-form answers, or not one word for each class.
    """
    if task.is_open:
        raise PromptError(f"task {task.name!r} has free-form answers and no label words.")
    if words == "nonsense":
        return replace(nonsense_labels(task), name=task.name)
    count = len(task.labels)
    if words == "letters":
        words = tuple(ascii_uppercase[:count])
    elif words == "numbers":
        words = tuple(str(number) for number in range(1, count + 1))
    if isinstance(words, str) or len(words) != count:
        raise PromptError(
            f"{words!r} are no label words for the {count} classes of {task.name!r}; give one word for each class, "
            f"or {', '.join(map(repr, LABEL_SETS))}."
        )
    labels = (old.replace(old.strip(), new) for old, new in zip(task.labels, words, strict=True))
    return replace(task, labels=tuple(labels))


def _subsets(data: Prompts, count: int) -> list[Variant]:
    """The prompts in random disjoint parts of nearly equal size and, for classes, of nearly the same true answers."""
    first = data[0] if isinstance(data, tuple) else data
    if len(first) < count:
        raise PromptError(
            f"{len(first)} prompts cannot be divided into {count} subsets; give more prompts, or fewer subsets=."
        )
    order = np.random.default_rng(0).permutation(len(first))
    # Parts of a balanced whole with random classes would have opposite classes, and opposite rankings of heads.
    order = order[np.argsort(first.answers.numpy()[order], kind="stable")]
    parts = [sorted(order[number::count].tolist()) for number in range(count)]
    return [
        Variant("subset", f"{number} of {count}", _part(data, part))
        for number, part in enumerate(parts, 1)
    ]


def _part(data: Prompts, numbers: list[int]) -> Prompts:
    if isinstance(data, PromptBatch):
        return data[numbers]
    true, false = data
    return true[numbers], false[numbers]


def _title(pattern: str) -> str:
    """A template in one line."""
    return pattern.replace("\n", " / ")


def _name(words: str | Sequence[str]) -> str:
    return words if isinstance(words, str) else ", ".join(words)
