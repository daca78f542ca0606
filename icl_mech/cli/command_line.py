"""The command that was typed, as it can be copied: in full, but without what goes without saying."""

import shlex
from pathlib import Path
from typing import Any

ABOUT_OUTPUT = frozenset({"out", "overwrite", "resume", "again", "json", "quiet"})
"""Options that change where results go and not what they are."""


def command_line(context: Any) -> str:
    """The command with the options that are not at their defaults, quoted for a shell."""
    names: list[str] = []
    above: Any = context
    while above is not None and above.parent is not None:
        names.insert(0, str(above.info_name))
        above = above.parent
    words = ["icl-mech", *names]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in ABOUT_OUTPUT or value is None or value == parameter.default:
            continue
        if parameter.param_type_name == "argument":
            words += map(without_place, value if isinstance(value, list | tuple) else [value])
            continue
        option = max(parameter.opts, key=len)
        if isinstance(value, bool):
            words.append(option if value else max(parameter.secondary_opts, key=len))
        else:
            words += [option, without_place(value)]
    return shlex.join(words)


def without_place(value: Any) -> str:
    """A value of the command; of a path what does not tell where on this machine it lies.

    Pages that are shared print the command: a file or folder is named as seen from where the command
    was given, or by its last part alone.
    """
    text = str(value)
    path = Path(text)
    if not (path.is_absolute() and path.exists()):
        return text
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name
