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
        found: dict[str, Any] = {
            "shots": self.shots,
            "demonstrations": "shared" if self.shared else "per_prompt",
        }
        if self.given is not None:
            found = given_source(self.given)
        chosen = {} if self.choices is None else {"choices": [*self.choices]}
        asked: dict[str, Any] = {"split": self.split, "pool": len(getattr(task, self.split))}
        if self.asked is not None:
            asked = {"queries": "given", "query_texts": examples_digest(self.asked)}
        return {**found, **chosen, "seed": self.seed, **asked}


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
        PromptError: too few examples whose answers can be told apart by their first token, or chosen ones
            that cannot.
    """
    _check_choices(draw)
    for side in sides:
        check_setting(task, side, draw)
    other = draw.choices is not None or any(side.labels == "other" for side in sides)
    alone = score is None or score == "first"
    distinct = any(side.labels == "permuted" for side in sides)
    words = _Words(tokenizer, written.before, written.after, other, distinct, alone)
    demos, shown, foils = (np.random.default_rng([draw.seed, own]) for own in (2, 1, 3))
    chosen = list(draw.given or ())
    if draw.shared and draw.given is None:
        asked = draw.asked or ()
        chosen = words.drawn(without(_shuffled(task.train, demos), asked), draw.shots, asked)
    queries = _queries(task, draw, words, chosen)
    fillers = _shuffled([*task.train, *task.test], foils)
    count = draw.shots if draw.given is None else len(chosen)
    made: list[list[Prompt]] = [[] for _ in sides]
    orders, coins = shown.random((2, len(queries), max(count, 1)))
    for number, query in enumerate(queries):
        if not draw.shared:
            rest = without(_shuffled(task.train, demos), [query])
            chosen = words.drawn(rest, draw.shots, [query])
        choices, names = words.choices(query, chosen, fillers, draw.choices, queries)
        row = 0 if draw.shared else number
        for side, prompts in zip(sides, made, strict=True):
            displayed = _displayed(chosen, side, orders[row], coins[row])
            places = [choices.index(words.ids(word)) for word in displayed]
            shows = [*zip(chosen, displayed, strict=True)]
            prompts.append(
                assemble(
                    tokenizer,
                    written.pieces(shows, query),
                    Asked(names, names, written.after, query.answers, score),
                    label_classes=places,
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
    found = words.fitting(left, chosen, draw.choices or ())[: draw.n]
    if len(found) < draw.n:
        raise PromptError(
            f"Task {task.name!r} has {len(found)} {draw.split} examples whose answers begin with tokens of "
            f"their own beside the demonstrations' ({len(left)} in all), n={draw.n} asked for more. Take a "
            "smaller n, or fewer shots."
        )
    return found


def _check_choices(draw: OpenDraw) -> None:
    """Refuse chosen words that are no words, or that not every prompt could have."""
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
    twice = next((own for own in shown if shown.count(own) > 1), None)
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
        before: str,
        after: str,
        other: bool,
        distinct: bool,
        alone: bool,
    ) -> None:
        """What words go by.

        Args:
            tokenizer: Reads them.
            before: What the template writes before a word, from its last text on.
            after: What it writes after it.
            other: Those of another relation, too.
            distinct: No demonstration's answer comes twice.
            alone: Words of one prompt begin with different tokens.
        """
        self.tokenizer, self.before, self.after = tokenizer, f"a{before}", after
        self.other, self.distinct, self.alone = other, distinct, alone
        self._known: dict[str, Word] = {}

    def ids(self, word: str) -> Word:
        """The tokens of a word behind what the template writes."""
        if word not in self._known:
            self._known[word] = self._read(word)
        return self._known[word]

    def _read(self, word: str) -> Word:
        start, stop = len(self.before), len(self.before) + len(word)
        read = self.tokenizer.encode(self.before + word + self.after, [(start, stop)])
        found = tuple(
            token
            for token, (first, last) in zip(read.ids, read.offsets, strict=True)
            if first < stop and last > start
        )
        if not found:
            raise PromptError(
                f"The answer {word!r} has no token: the tokenizer drops all its characters."
            )
        return found

    def key(self, word: Word) -> Word:
        """What no two words of a prompt have in common."""
        return word[:1] if self.alone else word

    def of(self, example: Example) -> list[Word]:
        """What it may display: its answer, and that of the other relation."""
        own = [self.ids(example.answers[0])]
        return [*own, self.ids(example.other)] if self.other and example.other else own

    def taken(self, examples: Sequence[Example]) -> dict[Word, Word]:
        """Words by their keys."""
        return {self.key(word): word for example in examples for word in self.of(example)}

    def fits(self, example: Example, taken: dict[Word, Word]) -> bool:
        """True if its words differ in their first tokens from each other and from all others."""
        own = self.of(example)
        keys = {self.key(word) for word in own}
        return len(keys) == len(own) and all(taken.get(self.key(w), w) == w for w in own)

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
            wanted = 1 + any(own.other is not None for own in queries) + len(pool)
        found: dict[Word, str] = {}
        self._name(found, [query])
        for word, name in pool.items():
            found.setdefault(word, name)
        right = {self.key(self.ids(word)) for word in query.answers}
        for example in fillers:
            if len(found) >= wanted:
                break
            taken = {self.key(word): word for word in found}
            if self.fits(example, taken) and not right & {*map(self.key, self.of(example))}:
                self._name(found, [example])
        if len(found) < wanted:
            raise PromptError(
                f"A prompt has {len(found)} choices that begin with tokens of their own, {wanted} are "
                "needed. Give the task more examples."
            )
        found = dict([*found.items()][:wanted])
        self._refuse_alike(query, found)
        return [*found], [*found.values()]

    def _name(self, found: dict[Word, str], examples: Sequence[Example]) -> None:
        """Add the words of examples, by name."""
        for example in examples:
            names = [example.answers[0], example.other or ""]
            for word, name in zip(self.of(example), names, strict=False):
                found.setdefault(word, name)

    def _refuse_alike(self, query: Example, found: Mapping[Word, str]) -> None:
        """Refuse choices that cannot be told from another, or from a further right answer."""
        also = {self.key(self.ids(word)): f"{word[:40]} (right, too)" for word in query.answers[1:]}
        also.pop(self.key(self.ids(query.answers[0])), None)
        first: dict[Word, str] = {}
        for word, name in found.items():
            if other := first.get(self.key(word)) or also.get(self.key(word)):
                raise PromptError(
                    f"Before the query {query.text[:40]!r} the answers {other[:60]!r} and {name[:40]!r} "
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
    own = [example.answers[0] for example in chosen]
    count = len(chosen)
    if side.labels == "correct" or not count:
        return own
    ranks = np.argsort(order[:count], kind="stable")
    if side.labels == "other":
        false = [example.other or "" for example in chosen]
    elif side.labels == "shuffled":
        false = [own[rank] for rank in ranks]
    else:
        # One step along a random round: nobody keeps their own.
        false = list(own)
        for place, rank in enumerate(ranks):
            false[rank] = own[ranks[(place + 1) % count]]
    if side.share is None:
        return false
    return [f if c >= 1 - side.share else o for o, f, c in zip(own, false, coin, strict=False)]
