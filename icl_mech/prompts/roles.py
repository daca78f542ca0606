"""Token roles, and spans that tile a prompt: from positions of label words, or from spans of a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from icl_mech.errors import PromptError

Role = Literal[
    "bos",
    "narrative",
    "format",
    "demo_text",
    "rationale",
    "label_word",
    "query_text",
    "target",
    "unknown",
    "span",
]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Span:
    """Tokens `start` to `stop` (half-open) with one role.

    `demo` numbers the demonstrations from 0, or in texts without demonstrations the spans (role
    `span`); it is None elsewhere (narrative, query, tokens between spans). A rationale has one span for each
    sentence.
    """

    role: Role
    demo: int | None
    start: int
    stop: int


def lay_labels(
    count: int, label_positions: Sequence[int], lengths: Sequence[int], target: int
) -> tuple[Span, ...]:
    """Spans of label words and target; everything else is `unknown`.

    Raises:
        PromptError: positions out of order or range, one of them at the target.
    """
    marks: list[tuple[int, int, Role, int | None]] = [
        (start, start + length, "label_word", demo)
        for demo, (start, length) in enumerate(zip(label_positions, lengths, strict=True))
    ]
    marks.append((target, target + 1, "target", None))
    ascending = list(label_positions) == sorted(label_positions)
    spans: list[Span] = []
    end = 0
    for start, stop, role, demo in sorted(marks, key=lambda mark: mark[:2]):
        if not ascending or start < end or stop > count:
            raise PromptError(
                f"Label positions {list(label_positions)} and target {target} must be ascending, "
                f"without overlap and inside the prompt of {count} tokens."
            )
        if start > end:
            spans.append(Span("unknown", None, end, start))
        spans.append(Span(role, demo, start, stop))
        end = stop
    if end < count:
        spans.append(Span("unknown", None, end, count))
    return tuple(spans)


def lay_spans(
    count: int, spans: Sequence[tuple[int, int]], target: int | None = None, *, bos: int = 0
) -> tuple[Span, ...]:
    """Numbered spans of a text and its target, which keeps the number of the span that contains it.

    Args:
        count: Number of tokens.
        spans: Half-open intervals.
        target: Position whose next token is predicted; None: the last one.
        bos: Number of tokens at the beginning that the tokenizer puts before any text.

    Raises:
        PromptError: no spans, or spans that are empty, overlap or leave the text; a target outside
            of the text or before the end of the first span.
    """
    check_spans(count, spans, "token")
    target = count - 1 if target is None else target
    if not 0 <= target < count:
        raise PromptError(f"Target {target} lies outside a text of {count} tokens.")
    if target < spans[0][1] - 1:
        raise PromptError(
            f"Target {target} lies before the end of the first span ({spans[0][0]} to "
            f"{spans[0][1]}), so no span can influence what follows it. Choose a later target."
        )
    laid: list[Span] = []
    end = 0

    def add(role: Role, number: int | None, start: int, stop: int) -> None:
        cuts = [start, *(p for p in (target, target + 1) if start < p < stop), stop]
        for a, b in pairwise(cuts):
            laid.append(Span("target" if a == target else role, number, a, b))

    if 0 < bos <= spans[0][0]:
        add("bos", None, 0, bos)
        end = bos
    for number, (start, stop) in enumerate(spans):
        if start > end:
            add("unknown", None, end, start)
        add("span", number, start, stop)
        end = stop
    if end < count:
        add("unknown", None, end, count)
    return tuple(laid)


def check_spans(
    count: int, spans: Sequence[tuple[int, int]], unit: str, text: str = "", what: str = "span"
) -> None:
    """Reject intervals that are not valid spans of a text.

    Args:
        count: Number of tokens or characters of the text.
        spans: The intervals.
        unit: Unit of the intervals, `token` or `character`.
        text: The text in messages, such as ` of text 3`; empty if there is only one.
        what: Name of the intervals in messages.

    Raises:
        PromptError: no intervals, or intervals that are empty, overlap or leave the text.
    """
    if not spans:
        raise PromptError(f"There are no {what}s{text}; give at least one, as (start, stop).")
    end = 0
    for number, (start, stop) in enumerate(spans):
        description = f"{what.capitalize()} {number}{text} ({start} to {stop})"
        if stop <= start:
            raise PromptError(f"{description} is empty; stop must be greater than start.")
        if start < 0 or stop > count:
            raise PromptError(f"{description} extends beyond the text, which has {count} {unit}s.")
        if start < end:
            raise PromptError(
                f"{description} overlaps or precedes the one before it, which ends at {end}; "
                f"{what}s must be ascending and must not overlap."
            )
        end = stop
