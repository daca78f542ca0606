"""`History`: undo, redo and kept states, as lists of experiments."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from icl_mech.errors import RunError
from icl_mech.explorer.experiment import Experiment, Query


@dataclass
class History:
    """Undo, redo and named states; at least one experiment is present.

    Attributes:
        past: Experiments so far, the present one last.
        future: What was undone, the next one last.
        named: Kept experiments, by name.
        reference: Number of the kept experiment the present one is compared with; None: the start.
        tried: Digests of the changes that were measured over all queries, by the digest of the queries.
        turned: Name of the reference before (while undone: after) a step that also changed it, by the number of the step.
    """

    past: list[Experiment]
    future: list[Experiment] = field(default_factory=list)
    named: list[tuple[str, Experiment]] = field(default_factory=list)
    reference: int | None = None
    tried: dict[str, list[str]] = field(default_factory=dict)
    turned: dict[int, str | None] = field(default_factory=dict)

    @property
    def now(self) -> Experiment:
        """The present experiment."""
        return self.scored(self.past[-1])

    @property
    def start(self) -> Experiment:
        """The first experiment."""
        return self.scored(self.past[0])

    @property
    def compared(self) -> Experiment:
        """The experiment the present one is compared with, with the present query."""
        return self.beside(self.against)

    @property
    def against(self) -> Experiment:
        """The experiment the present one is compared with, with the query it was kept with."""
        return self.past[0] if self.reference is None else self.named[self.reference][1]

    def beside(self, own: Experiment) -> Experiment:
        """Another experiment with the present query."""
        return self.scored(own.asking(self.past[-1].query))

    def scored(self, own: Experiment, now: Experiment | None = None) -> Experiment:
        """The experiment; for free-form answers, with the choices of all experiments shown side by side, in one order.

        The choices are the words of the start, the kept experiments and the present one (or `now`), so that
        flipping a label or dropping a demonstration does not change what an answer is compared with.
        """
        rows = (self.past[0], *(kept for _, kept in self.named), now or self.past[-1])
        words = dict.fromkeys(word for row in rows for demo in row.demos for word in demo.words)
        return replace(own, choices=tuple(words))

    def push(self, experiment: Experiment, *, over: bool = False) -> None:
        """Make another experiment the present one.

        Args:
            experiment: The experiment.
            over: Replace the last step, as all positions of a bar that is dragged are one step.
        """
        bare = replace(experiment, choices=())
        if over and len(self.past) > 1:
            self.past.pop()
        if bare != self.past[-1]:
            self.past.append(bare)
            self.future.clear()
        self.turned = {step: name for step, name in self.turned.items() if step < len(self.past)}

    def open(self, experiment: Experiment, reference: Experiment) -> None:
        """Make a shared experiment the present one, and keep what it is compared with, unless it is there."""
        name, steps = self._referred(), len(self.past)
        self.push(experiment)
        sides = [
            (row.demos, row.changes) for row in (self.past[0], *(own for _, own in self.named))
        ]
        if (side := (reference.demos, reference.changes)) not in sides:
            free = (f"shared{f' {i}' if i > 1 else ''}" for i in range(1, len(sides) + 1))
            name_of_row = next(own for own in free if own not in dict(self.named))
            self.named.append((name_of_row, reference))
            sides.append(side)
        self.reference = sides.index(side) - 1 if sides.index(side) else None
        if len(self.past) > steps and self._referred() != name:
            self.turned[len(self.past)] = name

    def _referred(self) -> str | None:
        return None if self.reference is None else self.named[self.reference][0]

    def _turn(self) -> None:
        """Undo or redo what the last step did to the reference."""
        if (step := len(self.past)) in self.turned:
            names, to = [name for name, _ in self.named], self.turned[step]
            self.turned[step] = self._referred()
            self.reference = names.index(to) if to in names else None

    def undo(self) -> None:
        """Go one step back, if there is one."""
        if len(self.past) > 1:
            self._turn()
            self.future.append(self.past.pop())

    def redo(self) -> None:
        """Go one step forward, if there is one."""
        if self.future:
            self.past.append(self.future.pop())
            self._turn()

    def keep(self, name: str | None = None) -> None:
        """Keep the present experiment, under a letter if no name is given.

        Raises:
            RunError: another kept experiment has that name.
        """
        if name in dict(self.named):
            raise RunError(f"There is a kept state {name!r} already; give another name.")
        free = (chr(ord("A") + i) for i in range(26) if chr(ord("A") + i) not in dict(self.named))
        self.named.append((name or next(free, f"{len(self.named) + 1}"), self.past[-1]))

    def forget(self, number: int) -> None:
        """Remove a kept experiment."""
        self.named.pop(number)
        if self.reference is not None and self.reference >= number:
            self.reference = None if self.reference == number else self.reference - 1

    def count(
        self, before: Experiment, after: Experiment, queries: Sequence[Query]
    ) -> tuple[int, int]:
        """Number of this change among the different ones measured over these queries, and how many there are so far.

        If nothing was changed, the number is 0, and nothing is counted.
        """
        known = self.tried.setdefault(_digest(queries), [])
        sides = [(side.demos, side.changes) for side in (before, after)]
        if sides[0] == sides[1]:
            return 0, len(known)
        if (digest := _digest(sides)) not in known:
            known.append(digest)
        return known.index(digest) + 1, len(known)

    def to_dict(self) -> dict[str, Any]:
        """The history as saved in a file."""
        return {
            "past": [experiment.to_dict() for experiment in self.past],
            "future": [experiment.to_dict() for experiment in self.future],
            "named": [[name, experiment.to_dict()] for name, experiment in self.named],
            "reference": self.reference,
            "tried": self.tried,
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> "History":
        """Read a saved history.

        Raises:
            RunError: it is not a saved history.
        """
        try:
            past, future = (
                [*map(Experiment.from_dict, saved[name])] for name in ("past", "future")
            )
            named = [
                (str(name), Experiment.from_dict(experiment)) for name, experiment in saved["named"]
            ]
            reference, tried = saved["reference"], dict(saved.get("tried", {}))
            tried = {str(key): [*map(str, digests)] for key, digests in tried.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"This is not a saved history ({error!r}); give one that an explorer saved."
            ) from None
        if not past or reference not in (None, *range(len(named))):
            raise RunError(
                "A saved history needs at least one experiment, and a reference that is one of its kept states."
            )
        return cls(past, future, named, reference, tried)


def _digest(value: object) -> str:
    # For classes the same text as before free-form answers had words, so that counts in older files stay valid.
    text = repr(value)
    for added in ("words=()", "also=()", "rationale=None"):
        text = text.replace(f", {added}", "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]
