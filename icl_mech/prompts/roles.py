"""Roles of tokens, and `Span`: a run of tokens of one role."""

from dataclasses import dataclass
from typing import Literal, get_args

Role = Literal[
    "bos", "narrative", "format", "demo_text", "label_word", "query_text", "target", "unknown", "span"
]  # fmt: skip
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True)
class Span:
    """Tokens `start` to `stop` (half-open) with one role.

    `demo` counts the demonstrations from 0, in texts without demonstrations their spans (role
    `span`); it is None outside of these (narrative, query, tokens between spans).
    """

    role: Role
    demo: int | None
    start: int
    stop: int
