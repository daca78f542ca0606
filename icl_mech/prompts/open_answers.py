"""Prompts with free-form answers: words of the vocabulary, given by each example.

An answer is scored against the prompt's own *choices*, which begin with different tokens: the correct
answer, the answer of another relation (if false demonstrations display it), the answers that the
demonstrations display, and answers of other examples up to a fixed number: 1 + max(shots, 3), twice as
many with another relation. So chance depends on the number of demonstrations and on the label
setting. Examples whose answers begin with the same token are not put into one prompt; which examples fit depends on
what is displayed, so different label settings may draw different texts.

False demonstrations (Todd et al. 2024): `permuted` permutes the answers of the demonstrations so that
none keeps its own, and implies no answer for the query; `other` displays the answers of another relation over
the same texts, and following it gives that relation's answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from icl_mech.corruption import LabelSetting
from icl_mech.errors import PromptError, TaskError, near_matches
from icl_mech.prompts.drawing import examples_digest, given_source, without
from icl_mech.prompts.encoding import TextTokenizer
from icl_mech.prompts.laying import Asked, assemble
from icl_mech.prompts.spans import Prompt, WordScore
from icl_mech.prompts.writing import Writing
from icl_mech.tasks import Example, Task
from icl_mech.tasks.types import text_fault

SETTINGS: tuple[LabelSetting, ...] = ("correct", "permuted", "shuffled", "other")
"""Label settings of demonstrations with free-form answers."""

FEWEST = 4
"""Minimum number of choices of a prompt, without those of another relation."""

Word = tuple[int, ...]


class OpenSide(NamedTuple):
    """One set of prompts over the same texts.

    Attributes:
        labels: Label setting of the demonstrations.
        share: Probability with which it applies to each demonstration; None: always.
    """

    labels: LabelSetting
    share: float | None = None


class OpenDraw(NamedTuple):
    """Sampling options of demonstrations and queries, or the chosen ones.

    Attributes:
        shots: Demonstrations in all.
        n: Number of prompts.
        seed: The same seed gives the same texts.
        shared: One set of demonstrations for all prompts.
        split: Split that queries come from.
        given: Chosen demonstrations.
        asked: Chosen queries.
        choices: Words scored in addition to the query's own; None: see above.
    """

    shots: int
    n: int
    seed: int
    shared: bool
    split: Literal["test", "train"]
    given: Sequence[Example] | None = None
    asked: Sequence[Example] | None = None
    choices: Sequence[str] | None = None

    def source(self, task: Task) -> dict[str, Any]:
        """Provenance of prompts of the task."""
        record: dict[str, Any] = {
            "shots": self.shots,
            "demonstrations": "shared" if self.shared else "per_prompt",
        }
        if self.given is not None:
            record = given_source(self.given)
        chosen = {} if self.choices is None else {"choices": [*self.choices]}
        asked: dict[str, Any] = {"split": self.split, "pool": len(getattr(task, self.split))}
        if self.asked is not None:
            asked = {"queries": "given", "query_texts": examples_digest(self.asked)}
        return {**record, **chosen, "seed": self.seed, **asked}


def open_prompts(
    tokenizer: TextTokenizer,
    task: Task,
    written: Writing,
    draw: OpenDraw,
    sides: Sequence[OpenSide],
    bos: bool | None,
    score: WordScore | None = None,
) -> list[list[Prompt]]:
    """Prompts of each side, over the same queries, texts and choices.

    Raises:
        TaskError: a label setting that free-form answers do not support.
        PromptError: too few examples whose answers begin with different tokens, or chosen ones that conflict.
    """
    _check(task, draw, sides)
    shown_as = {side.labels for side in sides}
    needs_other, distinct = draw.choices is not None or "other" in shown_as, "permuted" in shown_as
    words = _Words(tokenizer, written, task, needs_other, distinct, score in (None, "first"))
    demos, shown, foils = (np.random.default_rng([draw.seed, substream]) for substream in (2, 1, 3))
    chosen, asked = list(draw.given or ()), draw.asked or ()
    if draw.shared and draw.given is None:
        chosen = words.drawn(without(_shuffled(task.train, demos), asked), draw.shots, asked)
    queries, fillers = (
        _queries(task, draw, words, chosen),
        _shuffled([*task.train, *task.test], foils),
    )
    count = max(draw.shots if draw.given is None else len(chosen), 1)
    made: list[list[Prompt]] = [[] for _ in sides]
    orders, coins = shown.random((2, len(queries), count))
    for number, query in enumerate(queries):
        if not draw.shared:
            rest = without(_shuffled(task.train, demos), [query])
            chosen = words.drawn(rest, draw.shots, [query])
        choices, names = words.choices(query, chosen, fillers, draw.choices, queries)
        row = 0 if draw.shared else number
        for side, prompts in zip(sides, made, strict=True):
            displayed = _displayed(chosen, side, orders[row], coins[row])
            prompts.append(
                assemble(
                    tokenizer,
                    written.pieces([*zip(chosen, displayed, strict=True)], query),
                    Asked(names, names, written.after, query.answers, score),
                    label_classes=[choices.index(words.ids(word)) for word in displayed],
                    answer=0,
                    false_answer=1 if side.labels == "other" else None,
                    bos=written.bos(bos),
                )
            )
    return made


def _queries(
    task: Task, draw: OpenDraw, words: "_Words", chosen: Sequence[Example]
) -> Sequence[Example]:
    """Chosen queries, or drawn queries that fit the shared demonstrations.

    Raises:
        PromptError: fewer than requested.
    """
    if draw.asked is not None:
        return draw.asked
    order = _shuffled(getattr(task, draw.split), np.random.default_rng([draw.seed, 0]))
    left = without(order, chosen)
    queries = words.fitting(left, chosen, draw.choices or ())[: draw.n]
    if len(queries) < draw.n:
        raise PromptError(
            f"Task {task.name!r} has {len(queries)} {draw.split} examples (of {len(left)}) whose "
            "answers can be told apart from those of the demonstrations, fewer than the "
            f"requested n={draw.n}. Use a smaller n, or fewer shots."
        )
    return queries


def _check(task: Task, draw: OpenDraw, sides: Sequence[OpenSide]) -> None:
    """Reject unsupported label settings, invalid choices, and choices without shared demonstrations."""
    for side in sides:
        check_setting(task, side, draw)
    words = [*(draw.choices or ())]
    for number, word in enumerate(words):
        if fault := text_fault(word) or f"({word!r}) is given twice" * (words.count(word) > 1):
            raise PromptError(f"choices[{number}] {fault}.")
    if draw.choices is not None and not draw.shared:
        raise PromptError(
            "choices= sets the same choices for all prompts, which therefore need the same "
            "demonstrations; leave demonstrations='per_prompt' and total= out."
        )


def check_setting(task: Task, side: OpenSide, draw: OpenDraw) -> None:
    """Reject label settings that free-form answers do not support.

    Raises:
        TaskError: lists the supported settings, or names what they lack.
        PromptError: demonstrations whose answers cannot be permuted.
    """
    if side.labels not in SETTINGS:
        raise TaskError(
            f"Task {task.name!r} has free-form answers, for which labels={side.labels!r} is not "
            f"defined. {near_matches(side.labels, SETTINGS)}"
        )
    if side.share is not None and side.labels in ("correct", "shuffled"):
        raise TaskError(
            f"false_share={side.share} has no effect with labels={side.labels!r}; leave it out."
        )
    shown = [example.answers[0] for example in draw.given or ()]
    if side.labels == "permuted" and (draw.shots if draw.given is None else len(shown)) == 1:
        raise PromptError(
            "labels='permuted' gives every demonstration the answer of another one, but there is "
            "only one. Use shots >= 2, or labels='other'."
        )
    twice = next((answer for answer in shown if shown.count(answer) > 1), None)
    if side.labels == "permuted" and twice is not None:
        raise PromptError(
            f"labels='permuted' lets no demonstration keep its own answer, but {twice!r} is the "
            "answer of two. Choose other demonstrations."
        )
    examples = (*task.train, *task.test, *(draw.given or ()), *(draw.asked or ()))
    lacking = [e.text for e in examples if e.other is None]
    if side.labels == "other" and lacking:
        raise TaskError(
            f"labels='other' displays the answers of another relation, which {len(lacking)} "
            f"examples of {task.name!r} lack, such as {lacking[0]!r}. Name their column with "
            "other_answers=."
        )


class _Words:
    """Answers as tokens, and rules for combining them in one prompt."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        written: Writing,
        task: Task,
        other: bool,
        distinct: bool,
        alone: bool,
    ) -> None:
        """Set the tokenizer, the context of words and the rules.

        Args:
            tokenizer: Tokenizer of the words.
            written: Rendering of the text around them.
            task: Task that the words belong to.
            other: Include words of another relation.
            distinct: No two demonstrations share an answer.
            alone: Words of one prompt begin with different tokens.
        """
        self.tokenizer, self.written = tokenizer, written
        self.other, self.distinct, self.alone = other, distinct, alone
        self._known: dict[str, Word] = {}
        words = [self.ids(example.answers[0]) for example in (*task.train, *task.test)]
        # A space that is a separate token before every word does not distinguish words.
        self._blank = len({word[0] for word in words}) == 1 < len({*words})

    def ids(self, word: str) -> Word:
        """Tokens of a word in the context of the template, with the space before it."""
        if word not in self._known:
            self._known[word] = self._read(word)
        return self._known[word]

    def _read(self, word: str) -> Word:
        before = f"a{self.written.before}"
        stop = len(before) + len(word)
        start = len(before.rstrip(" "))
        read = self.tokenizer.encode(before + word + self.written.after, [(len(before), stop)])
        ids = tuple(
            token
            for token, (first, last) in zip(read.ids, read.offsets, strict=True)
            if first < stop and last > start
        )
        if not ids:
            raise PromptError(
                f"The answer {word!r} has no token: the tokenizer drops all its characters."
            )
        return ids

    def key(self, word: Word) -> Word:
        """Tokens in which any two words of a prompt must differ."""
        return word[self._blank : self._blank + 1] if self.alone else word

    def of(self, example: Example) -> list[Word]:
        """Words that an example may display: its answer, and that of the other relation."""
        words = [self.ids(example.answers[0])]
        return [*words, self.ids(example.other)] if self.other and example.other else words

    def taken(self, examples: Sequence[Example]) -> dict[Word, Word]:
        """Words by their keys."""
        return {self.key(word): word for example in examples for word in self.of(example)}

    def fits(self, example: Example, taken: dict[Word, Word]) -> bool:
        """True if the keys of the example's words differ from each other and from those of all other words."""
        words = self.of(example)
        keys = {self.key(word) for word in words}
        return len(keys) == len(words) and all(taken.get(self.key(w), w) == w for w in words)

    def also(self, query: Example) -> set[Word]:
        """Keys of further accepted answers of a query, which are not displayed."""
        right, *others = (self.key(self.ids(word)) for word in query.answers)
        return {*others} - {right}

    def fitting(
        self, queries: Sequence[Example], chosen: Sequence[Example], more: Sequence[str]
    ) -> list[Example]:
        """Queries of which no accepted answer shares its key with another word of the prompt."""
        taken = self.taken(chosen) | {self.key(word): word for word in map(self.ids, more)}
        return [
            e
            for e in queries
            if self.fits(e, taken) and not self.also(e) & {*taken, *self.taken([e])}
        ]

    def drawn(
        self, order: Sequence[Example], count: int, queries: Sequence[Example]
    ) -> list[Example]:
        """The first `count` examples of an order that fit together, and with the queries."""
        chosen: list[Example] = []
        taken = self.taken(queries)
        for query in queries:
            # No word of an example is empty, so `()` blocks every word with the key of a further accepted answer.
            taken |= dict.fromkeys(self.also(query), ())
        for example in order:
            if len(chosen) == count:
                break
            again = self.distinct and example.answers[0] in [e.answers[0] for e in chosen]
            if self.fits(example, taken) and not again:
                chosen.append(example)
                taken |= self.taken([example])
        if len(chosen) < count:
            raise PromptError(
                f"Only {len(chosen)} of {len(order)} training examples have answers that can be "
                f"told apart, but {count} demonstrations were requested."
            )
        return chosen

    def choices(
        self,
        query: Example,
        chosen: Sequence[Example],
        fillers: Sequence[Example],
        given: Sequence[str] | None,
        queries: Sequence[Example],
    ) -> tuple[list[Word], list[str]]:
        """Words an answer is scored against and their names, equally many in every prompt."""
        pool = {self.ids(word): word for word in given or ()}
        self._name(pool, chosen)
        each = 2 if self.other else 1
        wanted = each * (1 + max(len(chosen), FEWEST - 1))
        if given is not None:
            wanted = 1 + any(asked.other is not None for asked in queries) + len(pool)
        choices: dict[Word, str] = {}
        self._name(choices, [query])
        for word, name in pool.items():
            choices.setdefault(word, name)
        right = {self.key(self.ids(word)) for word in query.answers}
        for example in fillers:
            if len(choices) >= wanted:
                break
            taken = {self.key(word): word for word in choices}
            if self.fits(example, taken) and not right & {*map(self.key, self.of(example))}:
                self._name(choices, [example])
        if len(choices) < wanted:
            raise PromptError(
                f"A prompt has only {len(choices)} choices that can be told apart, but {wanted} "
                "are needed. Give the task more examples."
            )
        choices = dict([*choices.items()][:wanted])
        self._refuse_alike(query, choices)
        return [*choices], [*choices.values()]

    def _name(self, choices: dict[Word, str], examples: Sequence[Example]) -> None:
        """Add the words of examples with their names."""
        for example in examples:
            names = [example.answers[0], example.other or ""]
            for word, name in zip(self.of(example), names, strict=False):
                choices.setdefault(word, name)

    def _refuse_alike(self, query: Example, choices: Mapping[Word, str]) -> None:
        """Reject choices that cannot be distinguished from another, or from a further correct answer."""
        also = {
            self.key(self.ids(word)): f"{word[:40]} (also correct)" for word in query.answers[1:]
        }
        also.pop(self.key(self.ids(query.answers[0])), None)
        first: dict[Word, str] = {}
        for word, name in choices.items():
            if rival := first.get(self.key(word)) or also.get(self.key(word)):
                raise PromptError(
                    f"Before the query {query.text[:40]!r} the answers {rival[:60]!r} and {name[:40]!r} "
                    f"begin with the same token (id {word[0]}), so one prediction cannot tell them apart. "
                    "Score whole words, with score='sum' or score='mean', or choose another answer, demonstration "
                    "or query."
                )
            first[self.key(word)] = name


def _shuffled(examples: Sequence[Example], generator: np.random.Generator) -> list[Example]:
    return [examples[i] for i in generator.permutation(len(examples))]


def _displayed(
    chosen: Sequence[Example], side: OpenSide, order: NDArray[np.float64], coin: NDArray[np.float64]
) -> list[str]:
    """The answer each demonstration displays."""
    right = [example.answers[0] for example in chosen]
    count = len(chosen)
    if side.labels == "correct" or not count:
        return right
    ranks = np.argsort(order[:count], kind="stable")
    if side.labels == "other":
        false = [example.other or "" for example in chosen]
    elif side.labels == "shuffled":
        false = [right[rank] for rank in ranks]
    else:
        # One step along a random cycle: no demonstration keeps its own answer.
        false = list(right)
        for place, rank in enumerate(ranks):
            false[rank] = right[ranks[(place + 1) % count]]
    if side.share is None:
        return false
    return [f if c >= 1 - side.share else o for o, f, c in zip(right, false, coin, strict=False)]
