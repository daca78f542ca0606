"""`Item`: one cell of a sweep, as a value that knows where its results belong."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from icl_mech.errors import SweepError
from icl_mech.results import jsonable

DIMS = (
    "model", "task", "study", "labels", "false_share", "shots", "format", "demonstrations", "n",
    "seed",
)  # fmt: skip
"""What a sweep varies, from the outermost level to the innermost."""


@dataclass(frozen=True)
class Item:
    """One model on one set of prompts, and what is measured there; plain values only.

    Attributes:
        model: Its name.
        task: Its name.
        study: `label_words`, `overthinking`, `causal`, `default` or `measurements`.
        labels: Label setting of the demonstrations, of a pair that of the false ones.
        false_share: Probability of a false label; None: the setting's own.
        shots: Demonstrations per class.
        format: Number or pattern of the prompt format; empty: the task's own.
        demonstrations: `shared` or `per_prompt`.
        n: Number of prompts.
        seed: Of demonstrations, queries and random controls.
        pair: True and false demonstrations are compared.
        balanced: Queries with equally many true answers per class.
        measured: What is measured: names and variants, and the options of the run.
        sources: What recognises a model or task that was given as an object.
    """

    model: str
    task: str
    study: str
    labels: str
    false_share: float | None
    shots: int
    format: str
    demonstrations: str
    n: int
    seed: int
    pair: bool
    balanced: bool
    measured: Mapping[str, Any]
    sources: Mapping[str, str]

    def __hash__(self) -> int:
        """By its key."""
        return hash(self.key)

    @property
    def dims(self) -> dict[str, Any]:
        """Its place along every dimension."""
        return {name: getattr(self, name) for name in DIMS}

    @property
    def content(self) -> str:
        """Recognises what is measured, whatever is varied."""
        return _digest(self.measured)

    @property
    def key(self) -> str:
        """Name of its folder: a few words, and a digest of everything it holds."""
        share = "" if self.false_share is None else f"-{self.false_share:g}"
        words = (
            self.model.rstrip("/").split("/")[-1], self.task, self.study,
            f"{self.labels}{share}", f"{self.shots}shot", f"seed{self.seed}",
        )  # fmt: skip
        slug = "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", word).strip("._")[:24] for word in words)
        return f"{slug[:78]}-{_digest(self.to_dict())}"

    @property
    def title(self) -> str:
        """In words."""
        share = "" if self.false_share is None else f" ({self.false_share:g})"
        form = f", format {self.format}" if self.format else ""
        return (
            f"{self.model} on {self.task}: {self.study.replace('_', ' ')}, "
            f"{self.labels.replace('_', ' ')} labels{share}, {self.shots} per class{form}, "
            f"seed {self.seed}, n = {self.n}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file; see `from_dict`."""
        plain: dict[str, Any] = jsonable(
            {own.name: getattr(self, own.name) for own in fields(self)}
        )
        return plain

    @classmethod
    def from_dict(cls, values: Any) -> "Item":
        """The item that `to_dict` wrote.

        Raises:
            SweepError: other entries than those of an item.
        """
        names = {own.name for own in fields(cls)}
        if not isinstance(values, Mapping) or set(values) != names:
            raise SweepError(f"An item of a sweep has the entries {', '.join(sorted(names))}.")
        return cls(**values)


def _digest(values: Any) -> str:
    text = json.dumps(jsonable(values), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:10]
