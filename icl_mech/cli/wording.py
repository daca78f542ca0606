"""Errors in the words of the command line: `--label-words`, not `labels=`.

Messages of the package write an argument as `name=`, alone or with its value. Whoever calls a
function knows which option each argument came from, and says so here.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from icl_mech.errors import IclMechError


@contextmanager
def in_options(options: Mapping[str, str]) -> Iterator[None]:
    """Errors name the options that arguments came from.

    Args:
        options: Option of each argument, such as `{"labels": "--label-words"}`.
    """
    try:
        yield
    except IclMechError as error:
        raise type(error)(reworded(str(error), options)) from error


def reworded(message: str, options: Mapping[str, str]) -> str:
    """The message with `labels=['a']` written as `--label-words ['a']`.

    >>> reworded("so test_split= would have no effect", {"test_split": "--test-split"})
    'so --test-split would have no effect'
    >>> call = "load a file: load_task('my.csv', template='sst2', ...)."
    >>> reworded(call, {"name_or_path": "--task", "template": "--template"})
    "load a file: --task 'my.csv' --template 'sst2' ..."
    """
    if "name_or_path" in options:
        message = _CALL.sub(
            lambda call: f"{options['name_or_path']} {call[1].replace(', ', ' ')}", message
        )
    for name, option in options.items():
        message = re.sub(rf"(?<![\w.-]){name}=(?!=)(?=[\w'\"\[({{.-])", f"{option} ", message)
        message = re.sub(rf"(?<![\w.-]){name}=(?!=)", option, message)
    return message


_CALL = re.compile(r"load_task\(('[^'()]*'(?:, [^()]*)?)\)")
"""A call in a message, whose first argument is a word."""
