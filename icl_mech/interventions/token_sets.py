"""Sets of tokens of a prompt, by role, demonstration, span or position, or drawn at random.

A set consists of *groups*: a demonstration, a span, a stretch of one role, or a token.
"""

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from icl_mech.checking import Natural, check_fields
from icl_mech.errors import PromptError, RunError
from icl_mech.prompts import Prompt, PromptBatch

Redraw = Literal["set", "prompt", "layer"]

Interval = tuple[int, int]

Group = range | tuple[int, ...]
"""Positions, ascending; those of `all` have no end, because tokens may be generated after a prompt."""

LAST = 1 << 31
"""A number above every position."""

Name = Literal[
    "all", "before", "after", "anchors", "units", "spans", "query", "target", "random", "label_word",
    "demo_text", "query_text", "rationale", "query_rationale", "format", "narrative", "bos",
]  # fmt: skip
"""Tokens of a role, or

* `anchors`: the tokens that aggregate demonstrations or spans, see `Prompt.anchors`;
* `units`: demonstrations, or spans of a text before the target, with their anchors; the first token of
  the prompt is in none of them;
* `spans`: all spans of a text;
* `query`: the tokens between the last unit and the target;
* `rationale`: the rationales, a group for each sentence; `query_rationale`: the whole rationale of the query, one group;
* `random`: as many random tokens as there are anchors;
* `all`, also called `before` as a source: everything before each row; `after`, as a destination: the
  rows after each group of the source.
"""


@dataclass(frozen=True)
class TokenSet:
    """Some tokens of every prompt.

    Attributes:
        at: A name, or several.
        units: Only tokens of the demonstrations (or spans of a text) with these numbers, from 0.
        positions: Given positions instead: for each prompt of the run a list of positions, or of
            intervals (start, stop).
        redraw: `random`: one draw per demonstration `set` (among the demonstrations' tokens, not
            the first token), per `prompt` (among `0 < i < q - 1`), or per prompt and `layer` (may
            draw position 0).
        seed: Seed of the draw.
    """

    at: Name | Sequence[Name] = "all"
    units: Sequence[Natural] | None = None
    positions: Sequence[Sequence[Natural | Interval]] | None = None
    redraw: Redraw = "set"
    seed: Natural = 0

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: unknown names, no units, invalid intervals, or `random`, `before` or `after` among other names.
        """
        check_fields(self)
        if self.units is not None and not self.units:
            raise RunError(
                "units=() selects no demonstration or span; to select all of them use None."
            )
        alone = {"all", "before", "after", "random"}.intersection(self.names)
        if alone and (len(self.names) > 1 or self.units is not None):
            raise RunError(
                f"{min(alone)!r} cannot be combined with other names or with units=; give it alone."
            )
        for start, stop in (
            p for given in self.positions or () for p in given if isinstance(p, tuple)
        ):
            if not 0 <= start < stop:
                raise RunError(
                    f"The interval from {start} to {stop} is not valid: it must start at 0 or "
                    "later and stop after its start."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The names given."""
        return (self.at,) if isinstance(self.at, str) else tuple(self.at)

    @property
    def by_layer(self) -> bool:
        """True if different tokens are drawn in each layer."""
        return self.positions is None and self.at == "random" and self.redraw == "layer"

    def check(self, prompts: PromptBatch) -> None:
        """Reject positions given for a different number of prompts.

        Raises:
            RunError: names both numbers.
        """
        if self.positions is not None and len(self.positions) != len(prompts):
            raise self._other_number(str(len(prompts)))

    def _other_number(self, count: str) -> RunError:
        assert self.positions is not None
        intervals = any(isinstance(p, tuple) for given in self.positions for p in given)
        return RunError(
            f"{'Intervals' if intervals else 'Positions'} are given for {len(self.positions)} "
            f"prompts, but the run has {count}. Give one list per prompt, in the order of the "
            "prompts."
        )

    def groups(self, prompt: Prompt, index: int, layer: int) -> list[Group]:
        """The tokens of one prompt (number `index` of the run) in one layer.

        Raises:
            PromptError: the prompt has no unit of that number, or too few tokens to draw from.
            RunError: the prompt has no such position.
        """
        if self.positions is not None:
            return self._given(prompt, index)
        if self.at == "random":
            return [random_positions(prompt, self.redraw, self.seed, layer)]
        named = [pair for name in self.names for pair in _named(prompt, name)]
        missing = set(self.units or ()) - {number for number, _ in named}
        if missing:
            raise PromptError(
                f"Prompt {index} has no number {min(missing)} among its {' and '.join(map(repr, self.names))}: it has "
                f"{len({number for number, _ in named if number is not None})} of them, counted from 0."
            )
        return [group for number, group in named if self.units is None or number in self.units]

    def _given(self, prompt: Prompt, index: int) -> list[Group]:
        assert self.positions is not None
        if index >= len(self.positions):
            raise self._other_number("more")
        given = self.positions[index]
        groups: list[Group] = [range(*p) for p in given if isinstance(p, tuple)]
        stop = max((group.stop for group in groups if isinstance(group, range)), default=0)
        if stop > len(prompt):
            raise PromptError(
                f"An interval ends at token {stop} of prompt {index}, which has only {len(prompt)} "
                "tokens."
            )
        single = tuple(sorted({p for p in given if isinstance(p, int)}))
        if single and single[-1] >= len(prompt):
            raise RunError(
                f"Position {single[-1]} is out of range in prompt {index}, which has {len(prompt)} "
                "tokens; positions count from 0."
            )
        groups += [single] if single else []
        return groups

    def __str__(self) -> str:
        """The set in words, for messages."""
        if self.positions is not None:
            return "given positions"
        names = " and ".join(repr(name) for name in self.names)
        return f"{names} of units {list(self.units)}" if self.units is not None else names


def up_to(group: Group, length: int) -> Group:
    """The positions below a length."""
    return group[: bisect_left(group, length)]


def members(prompt: Prompt) -> list[range]:
    """Each unit with its anchor: a demonstration, or a span of a text."""
    stops: dict[int | None, int] = {}
    for span in prompt.spans:
        stops[span.demo] = span.stop
    numbers = [span.demo for span in prompt.label_spans] or list(range(len(prompt.text_spans)))
    return [range(start, stops[n]) for n, (start, _) in zip(numbers, prompt.units, strict=False)]


def _named(prompt: Prompt, name: str) -> Iterator[tuple[int | None, Group]]:
    """Groups with a name, with the number of their demonstration or span."""
    if name in ("all", "before", "after"):
        yield None, range(LAST)
    elif name == "anchors":
        yield from ((n, (position,)) for n, position in enumerate(prompt.anchors))
    elif name == "units":
        yield from enumerate(members(prompt))
    elif name == "spans":
        yield from ((n, range(*span)) for n, span in enumerate(prompt.text_spans))
    elif name == "query":
        ends = [unit.stop for unit in members(prompt)]
        if ends and ends[-1] < prompt.target:
            yield None, range(ends[-1], prompt.target)
    elif name == "query_rationale":
        own = [s for s in prompt.spans if s.role == "rationale" and s.demo is None]
        if own:
            yield None, range(own[0].start, own[-1].stop)
    else:
        spans = [span for span in prompt.spans if span.role == name]
        yield from ((span.demo, range(span.start, span.stop)) for span in spans)


def random_positions(prompt: Prompt, redraw: Redraw, seed: int, layer: int) -> tuple[int, ...]:
    """Random positions, as many as the prompt has anchors, none of them an anchor or inside a label word.

    Raises:
        PromptError: too few other tokens.
    """
    taken = {i for span in prompt.label_spans for i in range(span.start, span.stop)}
    taken |= set(prompt.anchors)
    end = max(taken, default=-1) + 1
    # Tokens after the target, such as label words that are scored there, must not change the draw.
    asked = prompt.tokens[: prompt.target + 1]
    if redraw == "set":
        pool, drawn_from, salt = range(1, end), prompt.tokens[:end], 0
    elif redraw == "prompt":
        pool, drawn_from, salt = range(1, prompt.target - 1), asked, 0
    else:
        pool, drawn_from, salt = range(prompt.target - 1), asked, layer + 1
    candidates = [i for i in pool if i not in taken]
    count = len(prompt.anchors)
    if count > len(candidates):
        raise PromptError(
            f"{count} random tokens are needed, but only {len(candidates)} tokens lie outside "
            "label words."
        )
    generator = draw_of(drawn_from, seed, salt)
    return tuple(sorted(int(i) for i in generator.choice(candidates, count, replace=False)))


def draw_of(tokens: Sequence[int], *seed: int) -> np.random.Generator:
    """Random generator seeded by the tokens, so that equal prompts get equal draws in any batch."""
    fingerprint = zlib.crc32(np.asarray(tokens, dtype=np.int64).tobytes())
    return np.random.default_rng([*seed, fingerprint])
