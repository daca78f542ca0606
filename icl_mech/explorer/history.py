"""`History`: undo, redo and kept states, as lists of experiments."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icl_mech.errors import RunError
from icl_mech.explorer.experiment import Experiment, Query


@dataclass
class History:
    """Undo, redo, and states that were kept by name; at least one is there.

    Attributes:
        past: Experiments so far, the present one last.
        future: What was undone, the next one last.
        named: Kept ones.
        reference: Number of the kept one that the present one is compared with; None: the start.
        tried: Digests of the changes that were measured over all queries, by the digest of the queries.
    """

    past: list[Experiment]
    future: list[Experiment] = field(default_factory=list)
    named: list[tuple[str, Experiment]] = field(default_factory=list)
    reference: int | None = None
    tried: dict[str, list[str]] = field(default_factory=dict)

    @property
    def now(self) -> Experiment:
        """The present one."""
        return self.scored(self.past[-1])

    @property
    def start(self) -> Experiment:
        """The first one."""
        return self.scored(self.past[0])

    @property
    def compared(self) -> Experiment:
        """What the present one is compared with, before the present query."""
        own = self.past[0] if self.reference is None else self.named[self.reference][1]
        return self.beside(own)

    def beside(self, own: Experiment) -> Experiment:
        """Another one before the present query."""
        return self.scored(own.asking(self.past[-1].query))

    def scored(self, own: Experiment, now: Experiment | None = None) -> Experiment:
        """Of open answers: with the choices of all that stands side by side, always in the same order.

        They are the words of the start, of the kept ones and of the present one (or `now`), so that no label
        that is flipped and no demonstration that is dropped changes what an answer is compared with.
        """
        rows = (self.past[0], *(kept for _, kept in self.named), now or self.past[-1])
        words = dict.fromkeys(word for row in rows for demo in row.demos for word in demo.words)
        return replace(own, choices=tuple(words))

    def push(self, experiment: Experiment) -> None:
        """Go on to another one."""
        bare = replace(experiment, choices=())
        if bare != self.past[-1]:
            self.past.append(bare)
            self.future.clear()

    def undo(self) -> None:
        """One step back, if there is one."""
        if len(self.past) > 1:
            self.future.append(self.past.pop())

    def redo(self) -> None:
        """One step forth, if there is one."""
        if self.future:
            self.past.append(self.future.pop())

    def keep(self, name: str | None = None) -> None:
        """Keep the present one, by a letter unless it is named.

        Raises:
            RunError: another one has that name.
        """
        if name in dict(self.named):
            raise RunError(f"There is a kept state {name!r} already; take another name.")
        free = (chr(ord("A") + i) for i in range(26) if chr(ord("A") + i) not in dict(self.named))
        self.named.append((name or next(free, f"{len(self.named) + 1}"), self.past[-1]))

    def forget(self, number: int) -> None:
        """Let go of a kept one."""
        self.named.pop(number)
        if self.reference is not None and self.reference >= number:
            self.reference = None if self.reference == number else self.reference - 1

    def count(
        self, before: Experiment, after: Experiment, queries: Sequence[Query]
    ) -> tuple[int, int]:
        """Which of the different changes measured over these queries this is, and how many they are by now.

        What is no change is number 0, and not counted.
        """
        known = self.tried.setdefault(_digest(queries), [])
        sides = [(own.demos, own.changes) for own in (before, after)]
        if sides[0] == sides[1]:
            return 0, len(known)
        if (own := _digest(sides)) not in known:
            known.append(own)
        return known.index(own) + 1, len(known)

    def to_dict(self) -> dict[str, Any]:
        """As a file has it."""
        return {
            "past": [own.to_dict() for own in self.past],
            "future": [own.to_dict() for own in self.future],
            "named": [[name, own.to_dict()] for name, own in self.named],
            "reference": self.reference,
            "tried": self.tried,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "History":
        """From a file.

        Raises:
            RunError: it is not one of a history.
        """
        try:
            past, future = ([*map(Experiment.from_dict, saved[own])] for own in ("past", "future"))
            named = [(str(name), Experiment.from_dict(own)) for name, own in saved["named"]]
            reference, tried = saved["reference"], dict(saved.get("tried", {}))
            tried = {str(key): [*map(str, own)] for key, own in tried.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"This is no saved history: {error!r}.") from None
        if not past or reference not in (None, *range(len(named))):
            raise RunError(
                "A saved history has one experiment at least, and a reference among its own."
            )
        return cls(past, future, named, reference, tried)


def _digest(value: object) -> str:
    # Of classes as it was before open answers had words: counts of earlier files go on.
    text = repr(value).replace(", words=()", "").replace(", also=()", "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]
