"""Prompts whose answers are open: words of the vocabulary, which every example brings itself.

An answer is scored against the prompt's own *choices*, which begin with different tokens: the right
answer, what another relation would answer (where false demonstrations display it), what the
demonstrations display, and answers of other examples up to a fixed number: 1 + max(shots, 3), twice as
many with another relation. So chance changes with the number of demonstrations, and with the label
setting. Examples whose answers begin alike are not put into one prompt; which ones fit depends on what
is displayed, so that other label settings may draw other texts.

False demonstrations (Todd et al. 2024): `permuted` displays the answers of the demonstrations so that
none keeps its own, and nobody's answer follows from it; `other` displays those of another relation over
the same texts, and who follows gives that relation's answer.
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
"""What demonstrations with open answers can display."""

FEWEST = 4
"""Choices of a prompt with few demonstrations, without those of another relation."""

Word = tuple[int, ...]


class OpenSide(NamedTuple):
    """One set of prompts over the same texts.

    Attributes:
        labels: What the demonstrations display.
        share: Probability with which each of them displays it; None: always.
    """

    labels: LabelSetting
    share: float | None = None


class OpenDraw(NamedTuple):
    """How demonstrations and queries are drawn, or which ones were chosen.

    Attributes:
        shots: Demonstrations in all.
        n: Number of prompts.
        seed: Same seed, same texts.
        shared: One set of demonstrations for all prompts.
        split: Where queries come from.
        given: Chosen demonstrations.
        asked: Chosen queries.
        choices: Words scored besides the query's own; None: see above.
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
        """As prompts of the task record it."""
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
    """The prompts of each side, over the same queries, texts and choices.

    Raises:
        TaskError: a setting open answers do not have.
        PromptError: too few examples whose answers begin with different tokens, or chosen ones that do not.
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
    """Chosen ones, or drawn ones that fit the shared demonstrations.

    Raises:
        PromptError: fewer than asked for.
    """
    if draw.asked is not None:
        return draw.asked
    order = _shuffled(getattr(task, draw.split), np.random.default_rng([draw.seed, 0]))
    left = without(order, chosen)
    queries = words.fitting(left, chosen, draw.choices or ())[: draw.n]
    if len(queries) < draw.n:
        raise PromptError(
            f"Task {task.name!r} has {len(queries)} {draw.split} examples whose answers begin with tokens of "
            f"their own beside the demonstrations' ({len(left)} in all), n={draw.n} asked for more. Take a "
            "smaller n, or fewer shots."
        )
    return queries


def _check(task: Task, draw: OpenDraw, sides: Sequence[OpenSide]) -> None:
    """Refuse label settings, chosen words that are no words, or that not every prompt could have."""
    for side in sides:
        check_setting(task, side, draw)
    words = [*(draw.choices or ())]
    for number, word in enumerate(words):
        if fault := text_fault(word) or f"({word!r}) is named twice" * (words.count(word) > 1):
            raise PromptError(f"choices[{number}] {fault}.")
    if draw.choices is not None and not draw.shared:
        raise PromptError(
            "choices= are the same in all prompts, which then need the same demonstrations; leave "
            "demonstrations='per_prompt' and total= out."
        )


def check_setting(task: Task, side: OpenSide, draw: OpenDraw) -> None:
    """Refuse label settings that open answers do not have.

    Raises:
        TaskError: names those there are.
        PromptError: fewer demonstrations than an order can be changed of.
    """
    if side.labels not in SETTINGS:
        raise TaskError(
            f"Task {task.name!r} has open answers, of which labels={side.labels!r} is not defined. "
            f"{near_matches(side.labels, SETTINGS)}"
        )
    if side.share is not None and side.labels in ("correct", "shuffled"):
        raise TaskError(
            f"false_share={side.share} with labels={side.labels!r}, which has no share."
        )
    shown = [example.answers[0] for example in draw.given or ()]
    if side.labels == "permuted" and (draw.shots if draw.given is None else len(shown)) == 1:
        raise PromptError(
            "labels='permuted' gives every demonstration the answer of another one, and there is one "
            "only. Take shots >= 2, or labels='other'."
        )
    twice = next((answer for answer in shown if shown.count(answer) > 1), None)
    if side.labels == "permuted" and twice is not None:
        raise PromptError(
            f"labels='permuted' leaves no demonstration its own answer, and {twice!r} is the answer of two. "
            "Choose others."
        )
    examples = (*task.train, *task.test, *(draw.given or ()), *(draw.asked or ()))
    lacking = [e.text for e in examples if e.other is None]
    if side.labels == "other" and lacking:
        raise TaskError(
            f"labels='other' displays what another relation would answer, which {len(lacking)} examples "
            f"of {task.name!r} lack, such as {lacking[0]!r}. Name its column with other_answers=."
        )


class _Words:
    """Answers as tokens, and which of them can stand in one prompt."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        written: Writing,
        task: Task,
        other: bool,
        distinct: bool,
        alone: bool,
    ) -> None:
        """What words go by.

        Args:
            tokenizer: Reads them.
            written: What stands around them.
            task: Whose words they are.
            other: Those of another relation, too.
            distinct: No demonstration's answer comes twice.
            alone: Words of one prompt begin with different tokens.
        """
        self.tokenizer, self.written = tokenizer, written
        self.other, self.distinct, self.alone = other, distinct, alone
        self._known: dict[str, Word] = {}
        words = [self.ids(example.answers[0]) for example in (*task.train, *task.test)]
        # A blank that is a token of its own before every word is none of theirs.
        self._blank = len({word[0] for word in words}) == 1 < len({*words})

    def ids(self, word: str) -> Word:
        """The tokens of a word behind what the template writes, with a blank before it."""
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
        """What no two words of a prompt have in common."""
        return word[self._blank : self._blank + 1] if self.alone else word

    def of(self, example: Example) -> list[Word]:
        """What it may display: its answer, and that of the other relation."""
        words = [self.ids(example.answers[0])]
        return [*words, self.ids(example.other)] if self.other and example.other else words

    def taken(self, examples: Sequence[Example]) -> dict[Word, Word]:
        """Words by their keys."""
        return {self.key(word): word for example in examples for word in self.of(example)}

    def fits(self, example: Example, taken: dict[Word, Word]) -> bool:
        """True if its words differ in their first tokens from each other and from all others."""
        words = self.of(example)
        keys = {self.key(word) for word in words}
        return len(keys) == len(words) and all(taken.get(self.key(w), w) == w for w in words)

    def also(self, query: Example) -> set[Word]:
        """Keys of the answers of a query that are accepted, too, but not displayed."""
        right, *others = (self.key(self.ids(word)) for word in query.answers)
        return {*others} - {right}

    def fitting(
        self, queries: Sequence[Example], chosen: Sequence[Example], more: Sequence[str]
    ) -> list[Example]:
        """Queries of which no accepted answer begins like another word of the prompt."""
        taken = self.taken(chosen) | {self.key(word): word for word in map(self.ids, more)}
        return [
            e
            for e in queries
            if self.fits(e, taken) and not self.also(e) & {*taken, *self.taken([e])}
        ]

    def drawn(
        self, order: Sequence[Example], count: int, queries: Sequence[Example]
    ) -> list[Example]:
        """The first examples of an order that can stand together, and beside queries."""
        chosen: list[Example] = []
        taken = self.taken(queries)
        for query in queries:
            # No word of an example is empty, so nothing may begin like what is accepted, too.
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
                f"{len(chosen)} of {len(order)} training examples have answers that begin with tokens "
                f"of their own, {count} demonstrations were asked for."
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
        """The words an answer is scored against and their names, as many in every prompt."""
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
                f"A prompt has {len(choices)} choices that begin with tokens of their own, {wanted} are "
                "needed. Give the task more examples."
            )
        choices = dict([*choices.items()][:wanted])
        self._refuse_alike(query, choices)
        return [*choices], [*choices.values()]

    def _name(self, choices: dict[Word, str], examples: Sequence[Example]) -> None:
        """Add the words of examples, by name."""
        for example in examples:
            names = [example.answers[0], example.other or ""]
            for word, name in zip(self.of(example), names, strict=False):
                choices.setdefault(word, name)

    def _refuse_alike(self, query: Example, choices: Mapping[Word, str]) -> None:
        """Refuse choices that cannot be told from another, or from a further right answer."""
        also = {self.key(self.ids(word)): f"{word[:40]} (right, too)" for word in query.answers[1:]}
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
        # One step along a random round: nobody keeps their own.
        false = list(right)
        for place, rank in enumerate(ranks):
            false[rank] = right[ranks[(place + 1) % count]]
    if side.share is None:
        return false
    return [f if c >= 1 - side.share else o for o, f, c in zip(right, false, coin, strict=False)]
