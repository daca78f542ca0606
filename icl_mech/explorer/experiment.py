"""`Experiment`: everything that determines the numbers on the screen, as a frozen value."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from icl_mech.errors import RunError
from icl_mech.explorer.changes import Change
from icl_mech.explorer.free_text import Texts
from icl_mech.prompts import PromptBatch, build_prompts
from icl_mech.tasks import Example, Task


@dataclass(frozen=True)
class Demo:
    """One demonstration.

    Attributes:
        text: Its text.
        shown: Class it displays; for free-form answers, the number of its word.
        true: Its true class; for free-form answers, 0.
        text2: Second text of a pair.
        words: For free-form answers, those it can display: the correct one, a false one, and those typed in.
        rationale: Reasons for the answer, if the task's template shows them.
    """

    text: str
    shown: int
    true: int
    text2: str | None = None
    words: tuple[str, ...] = ()
    rationale: str | None = None

    @property
    def example(self) -> Example:
        """The demonstration as displayed."""
        answers = (self.words[self.shown],) if self.words else ()
        label = 0 if self.words else self.shown
        return Example(self.text, label, self.text2, answers, rationale=self.rationale)


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes:
        text: Its text.
        answer: Its true class; for free-form answers, 0.
        number: Its number in the set; None if typed in.
        text2: Second text of a pair.
        words: For free-form answers, the right one, and that of the other relation if the task has one.
        also: Further right answers.
        rationale: As in `Demo`.
    """

    text: str
    answer: int
    number: int | None = None
    text2: str | None = None
    words: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    rationale: str | None = None

    @property
    def example(self) -> Example:
        """The query with its true class or answers."""
        right, rest = self.words[:1], self.words[1:]
        label, other = 0 if self.words else self.answer, next(iter(rest), None)
        answers = (*right, *self.also)
        return Example(self.text, label, self.text2, answers, other, self.rationale)


@dataclass(frozen=True)
class Experiment:
    """Everything that determines a number; equal experiments give equal numbers.

    Attributes:
        demos: Demonstrations, in order.
        query: The query.
        changes: Interventions on the model.
        choices: For free-form answers, the words scored besides the query's own: those of all experiments shown side
            by side (`History.scored`).
    """

    demos: tuple[Demo, ...]
    query: Query
    changes: tuple[Change, ...] = ()
    choices: tuple[str, ...] = ()

    @property
    def plain(self) -> "Experiment":
        """The experiment without changes."""
        return replace(self, changes=())

    @property
    def all_true(self) -> bool:
        """True if every demonstration displays its true class or correct answer."""
        return all(demo.shown == demo.true for demo in self.demos)

    def relabelled(self, shift: int, classes: int) -> "Experiment":
        """The experiment without changes, every demonstration displaying its true class (or word) plus `shift`."""
        demos = tuple(
            replace(d, shown=(d.true + shift) % (len(d.words) or classes)) for d in self.demos
        )
        return replace(self, demos=demos, changes=())

    def asking(self, query: Query) -> "Experiment":
        """The experiment with another query; tokens and spans of the old one are no longer changed."""
        changes = tuple(c for c in self.changes if not c.of_query)
        return replace(self, query=query, changes=changes)

    def opposite(self, classes: int) -> "Experiment":
        """The experiment without changes, with false labels if all are true, else with true ones."""
        return self.relabelled(int(self.all_true), classes)

    def title(self, start: "Experiment") -> str:
        """Description of how it differs from the start."""
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
        said += [change.words(of_answers=bool(self.query.words)) for change in self.changes]
        return "; ".join(said) or "start"

    def prompts(
        self, task: Task | Texts, model: object, queries: Sequence[Query] | None = None
    ) -> PromptBatch:
        """The experiment's prompt, or its demonstrations before other queries.

        Raises:
            PromptError: a prompt is too long for the model, or a demonstration has the text of a query.
        """
        asked = [self.query] if queries is None else queries
        if isinstance(task, Texts):
            return task.prompts([(query.text, query.number) for query in asked])
        return build_prompts(
            task,
            model,
            demonstrations=[demo.example for demo in self.demos],
            queries=[query.example for query in asked],
            choices=self.choices if task.is_open else None,
        )

    def to_dict(self) -> dict[str, Any]:
        """The experiment as saved in a file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "Experiment":
        """Read a saved experiment.

        Raises:
            RunError: it is not a saved experiment.
        """
        try:
            changes = [
                Change(
                    **{
                        **change,
                        "layers": tuple(change["layers"]),
                        "heads": tuple((layer, head) for layer, head in change["heads"]),
                    }
                )
                for change in saved["changes"]
            ]
            demos = tuple(Demo(**_words(demo)) for demo in saved["demos"])
            choices = tuple(map(str, saved.get("choices", ())))
            return cls(demos, Query(**_words(saved["query"])), tuple(changes), choices)
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"This is not a saved experiment ({error!r}); give one that an explorer saved."
            ) from None


def _words(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of words as tuples; older files have none."""
    lists = {name: tuple(map(str, saved.get(name, ()))) for name in ("words", "also")}
    return {**saved, **{name: words for name, words in lists.items() if words or name in saved}}
