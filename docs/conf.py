"""Sphinx settings: `make docs` builds into `site/`, readable from disk without a network."""

import json
import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "icl_mech"
author = "icl_mech contributors"
copyright = "icl_mech contributors, MIT licence"  # noqa: A001 - Sphinx's name
release = version = installed("icl-mech")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "figures",
    "gallery",
    "formulas",
    "notebooks",
    "peers",
    "methods",
    "reference",
    "rooms",
]

# --- Markdown and notebooks ---
myst_enable_extensions = [
    "amsmath",
    "colon_fence",
    "deflist",
    "dollarmath",
    "attrs_inline",
    "substitution",
]
myst_substitutions = json.loads((HERE / "numbers.json").read_text(encoding="utf-8"))
myst_heading_anchors = 3
nb_execution_mode = "off"  # shown as stored; tests/test_notebooks.py runs them
exclude_patterns = [
    "_ext",
    "_static",
    "_templates",
    "figures",
    "claims_table.md",
    "benchmarks/real_models_table.md",
    "formats_table.md",
    "results/*",
    "power_table.md",
    "recipes_table.md",
    "untrained_measures.md",
    "untrained_table.md",
]

# --- Reference ---
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
add_module_names = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # docs/_ext/reference.py writes types without modules
# Types in signatures come from many packages, and some are private. Links written by hand are
# checked by MyST, which warns whatever this setting is.
nitpick_ignore_regex = [("py:.*", ".*")]

# --- Pages ---
html_theme = "furo"
html_title = "icl_mech"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b57a4",
        "color-brand-content": "#0b57a4",
        "color-brand-visited": "#6b3fa0",
        "color-background-primary": "#fdfdfc",
        "color-background-secondary": "#f5f6f7",
        "color-foreground-primary": "#1b1d21",
        "color-foreground-secondary": "#59616d",
        "color-foreground-muted": "#59616d",
        "color-highlight-on-target": "#fff3d6",
    },
    "dark_css_variables": {
        "color-brand-primary": "#7fbcff",
        "color-brand-content": "#7fbcff",
        "color-brand-visited": "#c9a7f5",
        "color-background-primary": "#14171b",
        "color-background-secondary": "#1d2228",
        "color-foreground-primary": "#eceff3",
        "color-foreground-secondary": "#a9b2bd",
        "color-foreground-muted": "#a9b2bd",
        "color-highlight-on-target": "#3a3320",
    },
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_exclude = ".linenos, .gp, .go"
