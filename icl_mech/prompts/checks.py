"""Checks of arguments that several ways to prompts share."""

from collections.abc import Sequence
from typing import Any, get_args

from icl_mech.errors import PromptError, near_matches
from icl_mech.tasks.types import is_index


def check_count(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number of at least `least`.

    Raises:
        PromptError: says what was given.
    """
    if not is_index(value) or value < least:
        raise PromptError(f"{name}={value!r}; it must be a whole number, at least {least}.")


def check_choice(name: str, value: Any, literal: Any) -> None:
    """Refuse what is none of the values of a `Literal`.

    Raises:
        PromptError: near matches are listed.
    """
    if value not in get_args(literal):
        raise PromptError(f"{name}={value!r}. {near_matches(str(value), get_args(literal))}")


def check_flag(name: str, value: Any, *allowed: bool | None) -> None:
    """Refuse what is neither True nor False (nor another value that is `allowed`).

    Raises:
        PromptError: says what was given.
    """
    choices = (True, False, *allowed)
    if not any(value is choice for choice in choices):
        raise PromptError(f"{name}={value!r}; expected {', '.join(map(str, choices))}.")


def whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    """Ids, positions or classes as plain numbers; a tensor of one axis will do.

    Raises:
        PromptError: one of them is no whole number.
    """
    plain = getattr(values, "tolist", lambda: values)()
    if isinstance(plain, str) or not isinstance(plain, Sequence):
        raise PromptError(f"{name}={values!r}; expected a list of whole numbers.")
    for number, value in enumerate(plain):
        if not is_index(value):
            raise PromptError(f"{name}[{number}] is {value!r}; expected a whole number.")
    return tuple(int(value) for value in plain)
