"""Detect where output goes: a notebook or a terminal."""

import importlib
import sys
import warnings


def in_notebook() -> bool:
    """True if a notebook displays the output; the IPython shell does not count."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def without_widgets() -> None:
    """Let tqdm, which other libraries use, fall back to its plain bar without a warning if ipywidgets is missing."""
    if in_notebook():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("tqdm.auto")
