"""`Experiment`: what decides every number on the screen, as a frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from icl_mech.errors import RunError
from icl_mech.explorer.changes import Change
from icl_mech.prompts import PromptBatch, build_prompts
from icl_mech.tasks import Example, Task


@dataclass(frozen=True)
class Demo:
    """One demonstration.

    Attributes:
        text: Its text.
        shown: Class it displays; of open answers the number of its word.
        true: Class it has; of open answers 0.
        text2: Second text of a pair.
        words: Of open answers what it can display: its own answer, a false one, and what was typed in.
    """

    text: str
    shown: int
    true: int
    text2: str | None = None
    words: tuple[str, ...] = ()

    @property
    def example(self) -> Example:
        """As it is displayed."""
        if self.words:
            return Example(self.text, 0, self.text2, (self.words[self.shown],))
        return Example(self.text, self.shown, self.text2)


@dataclass(frozen=True)
class Query:
    """What is asked.

    Attributes:
        text: Its text.
        answer: Its true class; of open answers 0.
        number: Its number in the set; None: one of the user's own.
        text2: Second text of a pair.
        words: Of open answers the right one, and that of the other relation if the task has one.
        also: Further right answers.
    """

    text: str
    answer: int
    number: int | None = None
    text2: str | None = None
    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    @property
    def example(self) -> Example:
        """With its true class or answers."""
        if self.words:
            right, *other = self.words
            return Example(self.text, 0, self.text2, (right, *self.also), next(iter(other), None))
        return Example(self.text, self.answer, self.text2)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a number; equal ones give equal numbers.

    Attributes:
        demos: Demonstrations, in order.
        query: What is asked.
        changes: What is done to the model.
        choices: Of open answers the words scored besides the query's own: those of all that stands side by
            side (`History.scored`).
    """

    demos: tuple[Demo, ...]
    query: Query
    changes: tuple[Change, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def plain(self) -> "Experiment":
        """Without changes."""
        return replace(self, changes=())

    @property
    def all_true(self) -> bool:
        """True if every demonstration displays its class or own answer."""
        return all(demo.shown == demo.true for demo in self.demos)

    def relabelled(self, shift: int, classes: int) -> "Experiment":
        """Without changes, every demonstration displaying its class (or word) plus `shift`."""
        demos = tuple(
            replace(d, shown=(d.true + shift) % (len(d.words) or classes)) for d in self.demos
        )
        return replace(self, demos=demos, changes=())

    def asking(self, query: Query) -> "Experiment":
        """Before another query; a token of the old one is no longer isolated."""
        changes = tuple(c for c in self.changes if c.what != "token" or c.demo is not None)
        return replace(self, query=query, changes=changes)

    def opposite(self, classes: int) -> "Experiment":
        """With false labels where all are true, else with true ones."""
        return self.relabelled(int(self.all_true), classes)

    def title(self, start: "Experiment") -> str:
        """In words, against the start."""
        said = []
        false = sum(demo.shown != demo.true for demo in self.demos)
        if false:
            what = "answer" if self.query.words else "label"
            of = (
                f"all {what}s" if false == len(self.demos) else f"{false} {what}{'s' * (false > 1)}"
            )
            said.append(f"{of} false")
        if [d.text for d in self.demos] != [d.text for d in start.demos]:
            said.append("other demonstrations")
        said += [own.words(of_answers=bool(self.query.words)) for own in self.changes]
        return "; ".join(said) or "start"

    def prompts(
        self, task: Task, model: object, queries: Sequence[Query] | None = None
    ) -> PromptBatch:
        """Its prompt, or the same demonstrations before other queries.

        Raises:
            PromptError: too long for the model, or a query that a demonstration answers.
        """
        asked = [self.query] if queries is None else queries
        return build_prompts(
            task,
            model,
            demonstrations=[demo.example for demo in self.demos],
            queries=[own.example for own in asked],
            choices=self.choices if task.is_open else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """As a file has it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Experiment":
        """From a file.

        Raises:
            RunError: it is not one of an experiment.
        """
        try:
            changes = [
                Change(
                    **{
                        **own,
                        "layers": tuple(own["layers"]),
                        "heads": tuple((layer, head) for layer, head in own["heads"]),
                    }
                )
                for own in saved["changes"]
            ]
            demos = tuple(Demo(**_words(own)) for own in saved["demos"])
            choices = tuple(map(str, saved.get("choices", ())))
            return cls(demos, Query(**_words(saved["query"])), tuple(changes), choices)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"This is no saved experiment: {error!r}.") from None


def _words(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of words as tuples; files of before have none."""
    lists = {name: tuple(map(str, saved.get(name, ()))) for name in ("words", "also")}
    return {**saved, **{name: own for name, own in lists.items() if own or name in saved}}
