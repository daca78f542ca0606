"""Training and test examples that share no text."""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from icl_mech.errors import TaskError
from icl_mech.tasks.types import Example, grouped

Overlap = Literal["avoid", "keep", "refuse"]
"""Treatment of texts that occur in both training and test examples."""


class Parts(NamedTuple):
    """Training and test examples, and a note on omitted examples, for provenance."""

    train: tuple[Example, ...]
    test: tuple[Example, ...]
    note: str = ""


def divide(
    examples: Sequence[Example],
    n_classes: int,
    *,
    origin: str,
    test_fraction: float,
    seed: int,
    overlap: Overlap = "avoid",
) -> Parts:
    """Random stratified split; equal texts stay in one part.

    Raises:
        TaskError: the fraction is not between 0 and 1, one of the parts would be empty, or
            texts repeat and `overlap="refuse"`.
    """
    if not 0 < test_fraction < 1:
        raise TaskError(
            f"test_fraction={test_fraction} is not valid; give the fraction of rows to keep for testing, "
            "between 0 and 1."
        )
    generator = np.random.default_rng(seed)
    groups = _sharing_texts(examples)
    repeats = len(examples) - len(groups)
    if overlap == "refuse" and repeats:
        raise TaskError(
            f"{repeats} of the {len(examples)} examples in {origin} repeat the text of another example, "
            f"such as {_repeated(groups)!r}; drop them, or give overlap='avoid' to keep equal texts in one part."
        )
    pairs = any(example.text2 for example in examples)
    if overlap == "keep" or not (repeats or pairs):
        train, test = _split_classes(examples, n_classes, test_fraction, generator)
    else:
        train, test = _split_groups(groups, test_fraction, generator)
    if not train or not test:
        together = " Examples that share a text stay in one part." if repeats else ""
        raise TaskError(
            f"test_fraction={test_fraction} leaves no {'test' if train else 'training'} examples "
            f"among the {len(examples)} in {origin}.{together} Give more rows, another test_fraction= "
            "or, for files, a test file with test_path=."
        )
    _warn_of_contradictions(examples, origin)
    if repeats and not pairs and overlap == "avoid":  # pairs often share a text, by design
        warnings.warn(
            f"{repeats} of the {len(examples)} examples in {origin} repeat the text of another "
            f"example, such as {_repeated(groups)!r}; equal texts were kept in one part, so that no "
            "query's text appears among the demonstrations.",
            stacklevel=3,
        )
    return Parts(tuple(train), tuple(test))


def apart(
    train: Sequence[Example], test: Sequence[Example], *, origin: str, overlap: Overlap = "avoid"
) -> Parts:
    """Given parts, without training examples that share a text with the test part.

    Raises:
        TaskError: no training example would be left, or texts are shared and `overlap="refuse"`.
    """
    tested = set() if overlap == "keep" else {key for example in test for key in example.keys}
    shared = [example for example in train if not tested.isdisjoint(example.keys)]
    if shared:
        what = (
            f"{len(shared)} of the {len(train)} training examples of {origin} have a text that also occurs "
            f"in the test examples, such as {shared[0].text[:60]!r}"
        )
        if overlap == "refuse" or len(shared) == len(train):
            raise TaskError(
                f"{what}; remove the shared texts from one part, or give overlap='keep' to use the parts as they are."
            )
        warnings.warn(
            f"{what}; these training examples were left out, so that no query's text appears among the "
            "demonstrations (overlap='keep' keeps them).",
            stacklevel=3,
        )
    left = tuple(example for example in train if tested.isdisjoint(example.keys))
    _warn_of_contradictions([*left, *test], origin)
    note = f"{len(shared)} training examples with test texts left out" if shared else ""
    return Parts(left, tuple(test), note)


def _warn_of_contradictions(examples: Sequence[Example], origin: str) -> None:
    """Warn of texts that have contradictory labels."""
    labels: dict[tuple[str, ...], int] = {}
    differing = {
        example.keys
        for example in examples
        if labels.setdefault(example.keys, example.label) != example.label
    }
    if torn := [keys for keys in labels if keys in differing]:
        warnings.warn(
            f"{len(torn)} of the {len(labels)} different texts in {origin} occur with contradictory labels, "
            f"such as {torn[0][0][:60]!r}, so that the right answer depends on the row; keep one label per text.",
            stacklevel=4,
        )


def _split_classes(
    examples: Sequence[Example], n_classes: int, fraction: float, generator: np.random.Generator
) -> tuple[list[Example], list[Example]]:
    train: list[Example] = []
    test: list[Example] = []
    for members in grouped(examples, n_classes):
        order = generator.permutation(len(members))
        n_test = round(fraction * len(members))
        test += [members[i] for i in order[:n_test]]
        train += [members[i] for i in order[n_test:]]
    return train, test


def _split_groups(
    groups: Sequence[Sequence[Example]], fraction: float, generator: np.random.Generator
) -> tuple[list[Example], list[Example]]:
    counts = Counter(example.label for group in groups for example in group)
    room = {label: round(fraction * count) for label, count in counts.items()}
    train: list[Example] = []
    test: list[Example] = []
    for group in (groups[i] for i in generator.permutation(len(groups))):
        needed = Counter(example.label for example in group)
        if all(needed[label] <= room[label] for label in needed):
            test += group
            for label, count in needed.items():
                room[label] -= count
        else:
            train += group
    return train, test


def _sharing_texts(examples: Sequence[Example]) -> list[list[Example]]:
    """Groups of examples that share a text, directly or through others, in order of appearance."""
    texts = {text for example in examples for text in example.keys}
    if len(texts) == sum(len(example.keys) for example in examples):
        return [[example] for example in examples]
    tied: dict[str, str] = {}

    def root(key: str) -> str:
        while tied.setdefault(key, key) != key:
            tied[key] = key = tied[tied[key]]
        return key

    for first, *others in (example.keys for example in examples):
        for other in others:
            tied[root(other)] = root(first)
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(root(example.keys[0]), []).append(example)
    return list(groups.values())


def _repeated(groups: Sequence[Sequence[Example]]) -> str:
    return max(groups, key=len)[0].text[:60]
