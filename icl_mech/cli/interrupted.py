"""Ctrl-C: one line that says what is kept and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from icl_mech.cli.console import note

EXIT_CODE = 130
"""After Ctrl-C, as shells have it."""


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Ctrl-C ends the command with this line.

    Raises:
        typer.Exit: instead of `KeyboardInterrupt`.
    """
    try:
        yield
    except KeyboardInterrupt:
        note(f"Interrupted. {kept}")
        raise typer.Exit(EXIT_CODE) from None
