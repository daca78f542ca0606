"""Sampling of demonstrations and queries: drawn by seed, or given.

There are three ways to choose demonstrations. *Per class*: equally many of each class, in random order (Wang et al.
2023). *In all*: the class of each demonstration is drawn independently and uniformly, then a text of that class that
the prompt does not show yet; redrawn for every prompt (Halawi et al. 2023, §2). *Chosen*: given examples, in the given
order.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Annotated, Any, Literal

import numpy as np

from icl_mech.checking import Called, Natural
from icl_mech.errors import PromptError
from icl_mech.tasks import Example, Task
from icl_mech.tasks.types import text_fault

Demonstrations = Literal["shared", "per_prompt"]
Split = Literal["test", "train"]
Total = Annotated[
    Natural | Literal["max"], Called("a number of demonstrations, at least 0, or 'max'")
]

QUERIES, SHOWN, DEMONSTRATIONS, IN_ALL, SHOWN_IN_ALL = range(5)
"""Separate random streams of a seed, so that shared demonstrations are the same for any n and split."""

PER_CLASS = 1
"""Default number of demonstrations per class."""

PROMPTS = 50
"""Default number of prompts."""


def stream(seed: int, kind: int, *more: int) -> np.random.Generator:
    """One of the random streams of a seed."""
    return np.random.default_rng([seed, kind, *more])


@dataclass
class PerClass:
    """`shots` demonstrations of every class, in random order."""

    task: Task
    shots: int
    shared: bool
    queries: tuple[Example, ...]
    split: Split
    seed: int

    def __post_init__(self) -> None:
        """Set up the streams that all prompts draw from in turn."""
        self._demos = stream(self.seed, DEMONSTRATIONS)
        self._shown = stream(self.seed, SHOWN)

    def source(self) -> dict[str, Any]:
        """Provenance: demonstrations per class."""
        return {"shots": self.shots, "demonstrations": "shared" if self.shared else "per_prompt"}

    def labels(self, number: int) -> np.random.Generator:
        """One stream for all prompts."""
        return self._shown

    def draw(self, number: int, query: Example | None) -> list[Example]:
        """The next demonstrations of the stream.

        Raises:
            PromptError: a class has too few examples.
        """
        others = self.queries if self.shared else _apart(query, self.queries, self.split)
        chosen: list[Example] = []
        for label, group in enumerate(self.task.by_class("train")):
            left = without(group, others)
            if self.shots > len(left):
                besides = " besides the query" if len(left) < len(group) else ""
                raise PromptError(
                    f"Task {self.task.name!r} has {len(left)} training examples of "
                    f"{self.task.labels[label]!r}{besides}, fewer than the requested "
                    f"shots={self.shots}. Use fewer shots."
                )
            chosen += [left[i] for i in self._demos.permutation(len(left))[: self.shots]]
        return [chosen[i] for i in self._demos.permutation(len(chosen))]


@dataclass
class InAll:
    """`total` demonstrations in all, the class of each drawn independently.

    Every prompt has its own random streams: for a fixed seed, smaller sets of demonstrations are prefixes of larger
    ones, with the same shift of labels.
    """

    task: Task
    total: int | Literal["max"]
    queries: tuple[Example, ...]
    split: Split
    seed: int
    shared: bool = False
    bound: str = ""
    groups: tuple[tuple[Example, ...], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Sort the examples by class once."""
        self.groups = self.task.by_class("train")

    def source(self) -> dict[str, Any]:
        """Provenance: demonstrations in all; for `max` also the limit that applied, `context` or `texts`."""
        bound = {"total_bound": self.bound} if self.bound else {}
        return {"total": self.total, **bound, "demonstrations": "per_prompt"}

    def labels(self, number: int) -> np.random.Generator:
        """A stream for each prompt."""
        return stream(self.seed, SHOWN_IN_ALL, number)

    def draw(self, number: int, query: Example | None) -> list[Example]:
        """Demonstrations of one prompt.

        Raises:
            PromptError: a class has too few examples.
        """
        assert self.total != "max"
        demonstrations, ended = self.sequence(number, query, self.total)
        if ended is None:
            return demonstrations
        raise PromptError(
            f"Task {self.task.name!r} has {sum(e.label == ended for e in demonstrations)} "
            f"training examples of {self.task.labels[ended]!r} that prompt {number} can show, but "
            f"the classes drawn for total={self.total} need more. Use a smaller total, or 'max'."
        )

    def sequence(
        self, number: int, query: Example | None, most: int
    ) -> tuple[list[Example], int | None]:
        """Up to `most` demonstrations of one prompt, and the class that ran out of texts first, if any."""
        generator = stream(self.seed, IN_ALL, number)
        others = _apart(query, self.queries, self.split)
        left = []
        for group in self.groups:
            examples = without(group, others)
            # A lazy map: only a few of the permuted examples are taken.
            left.append(map(examples.__getitem__, generator.permutation(len(examples))))
        demonstrations: list[Example] = []
        shown: set[tuple[str, ...]] = set()
        for label in generator.integers(len(left), size=most).tolist():
            example = next((e for e in left[label] if e.keys not in shown), None)
            if example is None:
                return demonstrations, label
            shown.add(example.keys)
            demonstrations.append(example)
        return demonstrations, None

    def fit(
        self,
        queries: Sequence[Example],
        limit: int | None,
        length: Callable[[Sequence[Example], Example], int],
    ) -> None:
        """Resolve `max`: the largest number of demonstrations with which every prompt fits the context.

        Args:
            queries: Queries of all prompts.
            limit: Context length in tokens.
            length: Length of a prompt with these demonstrations before a query, whatever labels they show.

        Raises:
            PromptError: the context length is unknown.
        """
        if limit is None:
            raise PromptError(
                "total='max' means as many demonstrations as fit the model's context, whose "
                "length this tokenizer does not record; give the model, or a number."
            )
        best, self.bound = limit // 2, "context"  # a text and a label are two tokens at least
        for number, query in enumerate(queries):
            demonstrations, ended = self.sequence(number, query, best)
            if ended is not None:
                best, self.bound = len(demonstrations), "texts"

            def fits(
                count: int, shown: Sequence[Example] = demonstrations, query: Example = query
            ) -> bool:
                return length(shown[:count], query) <= limit

            if not fits(best):
                best, self.bound = largest(fits, best - 1), "context"
        self.total = best
        if self.bound == "texts":
            warnings.warn(
                f"total='max': more than {best} demonstrations would fit the context, but task "
                f"{self.task.name!r} has no more texts of the classes drawn.",
                stacklevel=4,
            )


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to `most` that fits, searched from below; 0 if none fits."""
    step = 1
    while step < most and fits(step):
        step *= 2
    low, high = step // 2, min(step, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


@dataclass
class Chosen:
    """The same given demonstrations in every prompt."""

    task: Task
    examples: list[Example]
    seed: int
    shared: bool = True

    def source(self) -> dict[str, Any]:
        """Provenance of given demonstrations: their number and fingerprint."""
        return given_source(self.examples)

    def labels(self, number: int) -> np.random.Generator:
        """The label stream of shared demonstrations."""
        return stream(self.seed, SHOWN)

    def draw(self, number: int, query: Example | None) -> list[Example]:
        """The given demonstrations, in order."""
        return self.examples


Way = PerClass | InAll | Chosen
"""Ways of choosing demonstrations."""


def way_of(
    task: Task,
    *,
    shots: int | None,
    total: int | Literal["max"] | None,
    demonstrations: Demonstrations | Sequence[Example] | None,
    queries: Sequence[Example],
    split: Split,
    seed: int,
) -> Way:
    """The way of choosing demonstrations, from the options of `build_prompts`.

    Raises:
        PromptError: several ways at once, or examples that do not fit the task.
    """
    given = chosen_demonstrations(task, demonstrations, shots, total)
    if given is not None:
        return Chosen(task, given, seed)
    left = tuple(queries)
    if total is None:
        count = PER_CLASS if shots is None else shots
        return PerClass(task, count, demonstrations != "per_prompt", left, split, seed)
    if shots is not None:
        raise PromptError(
            f"shots={shots} counts demonstrations per class and total={total!r} counts them in "
            "all; give only one of them."
        )
    if demonstrations == "shared":
        raise PromptError(
            f"total={total!r} redraws classes and texts for every prompt, which excludes "
            "demonstrations='shared'; leave that out, or use shots=."
        )
    return InAll(task, total, left, split, seed)


def chosen_demonstrations(
    task: Task,
    demonstrations: Demonstrations | Sequence[Example] | None,
    shots: int | None,
    total: Total | None,
) -> list[Example] | None:
    """Given demonstrations; None if they are drawn.

    Raises:
        PromptError: `shots` or `total` is given too, or examples do not fit the task.
    """
    if demonstrations is None or isinstance(demonstrations, str):
        return None
    if drawn := [f"{k}={v}" for k, v in (("shots", shots), ("total", total)) if v is not None]:
        ways = f"{drawn[0]} draws demonstrations, but demonstrations= gives chosen ones"
        raise PromptError(f"{ways}; leave one of them out.")
    return check_examples(task, demonstrations, "demonstrations")


# --- queries ---


def chosen_queries(
    task: Task, queries: Sequence[Example], n: int | None, shown: Sequence[Example]
) -> list[Example]:
    """Given queries, checked; `shown` are the chosen demonstrations.

    Raises:
        PromptError: no queries, not `n` of them, examples that do not fit the task, or a query
            that the chosen demonstrations answer.
    """
    chosen = check_examples(task, queries, "queries")
    if not chosen:
        raise PromptError("queries is empty; give at least one Example, or leave it out.")
    if n not in (None, len(chosen)):
        raise PromptError(
            f"n={n}, but {len(chosen)} queries are given; leave n out if you give queries."
        )
    for number, query in enumerate(chosen):
        if len(without([query], shown)) < 1:
            raise PromptError(
                f"Query {number} ({query.text[:40]!r}) is among the demonstrations, which would "
                "answer it; remove it from the queries or from the demonstrations."
            )
    return chosen


def draw_queries(
    task: Task, n: int, balanced: bool, split: Split, others: Sequence[Example], seed: int
) -> list[Example]:
    """Queries drawn from a split that share no text with `others`.

    Raises:
        PromptError: too few examples.
    """
    generator = stream(seed, QUERIES)
    groups = [without(group, others) for group in task.by_class(split)]
    split_name = "test" if split == "test" else "training"
    besides = " besides the demonstrations" if others else ""
    if not balanced:
        examples = without(getattr(task, split), others)
        if n > len(examples):
            raise PromptError(
                f"Task {task.name!r} has {len(examples)} {split_name} examples{besides}, fewer "
                f"than the requested n={n}. Use a smaller n."
            )
        return [examples[i] for i in generator.permutation(len(examples))[:n]]
    order = generator.permutation(len(groups))
    queries: list[Example] = []
    for rank, label in enumerate(order):
        wanted = n // len(groups) + (rank < n % len(groups))
        if wanted > len(groups[label]):
            fits = min(len(group) for group in groups) * len(groups)
            raise PromptError(
                f"Task {task.name!r} has {len(groups[label])} {split_name} examples of "
                f"{task.labels[label]!r}{besides}, but n={n} balanced prompts need {wanted}. "
                f"Use n <= {fits} or balanced=False."
            )
        queries += [groups[label][i] for i in generator.permutation(len(groups[label]))[:wanted]]
    return [queries[i] for i in generator.permutation(len(queries))]


def without(examples: Sequence[Example], others: Sequence[Example]) -> list[Example]:
    """The examples that share no text with the others."""
    taken = {key for example in others for key in example.keys}
    return [e for e in examples if taken.isdisjoint(e.keys)] if taken else [*examples]


def said_demonstrations(source: Mapping[str, Any]) -> str:
    """Number of demonstrations in words, from the provenance of prompts; empty if it is not recorded."""
    if "shots" in source:
        of = "in all" if source.get("answers") == "open" else "per class"
        return f"{source['shots']} {of}"
    if "total" in source:
        most = {"context": " (as many as fit)", "texts": " (as many as there are texts)"}
        return f"{source['total']} in all{most.get(source.get('total_bound', ''), '')}"
    return f"{source['given']} chosen ones" if "given" in source else ""


def _apart(query: Example | None, queries: Sequence[Example], split: Split) -> Sequence[Example]:
    """Examples that the demonstrations of one prompt must not show; other splits share no texts anyway."""
    return [query] if query is not None and (split == "train" or queries) else ()


def check_examples(task: Task, given: Sequence[Example], what: str) -> list[Example]:
    """Given examples, checked against the task.

    Raises:
        PromptError: a label that the task does not have, a missing text, a missing free-form answer, or a
            free-form answer in a task with classes.
    """
    names = task.template.texts
    for number, example in enumerate(given):
        if fault := task.fault(example):
            raise PromptError(f"{what}[{number}] ({str(example.text)[:40]!r}): {fault}.")
        for name in names:
            if fault := text_fault(getattr(example, name)):
                raise PromptError(f"{what}[{number}]: its {name} {fault}.")
    return list(given)


def given_source(examples: Sequence[Example]) -> dict[str, Any]:
    """Provenance of chosen demonstrations."""
    texts = examples_digest(examples)
    return {"demonstrations": "given", "given": len(examples), "given_texts": texts}


def examples_digest(examples: Sequence[Example]) -> str:
    """Fingerprint of examples: texts and labels, in order."""
    # Examples without a rationale keep the fingerprint they had before there were rationales.
    plain = [astuple(example)[: 5 + (example.rationale is not None)] for example in examples]
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]
