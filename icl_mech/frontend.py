"""Where output goes: a notebook, or a terminal."""

import importlib
import sys
import warnings


def in_notebook() -> bool:
    """True if a notebook is there to show things; the shell of IPython is none."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


def without_widgets() -> None:
    """Let tqdm, which others use, choose its plain bar in silence where ipywidgets is missing."""
    if in_notebook():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("tqdm.auto")
