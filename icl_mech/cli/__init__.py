"""The command line: a thin layer over the Python functions of the same names.

One command a file. Options are checked before anything is loaded; results go to standard output,
everything else to standard error.
"""

from icl_mech.cli.app import app, main

__all__ = ["app", "main"]
