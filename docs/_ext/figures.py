"""Plotly figures that render offline: one copy of plotly.js for the whole site.

A figure is a `<div class="plotly-figure">` with its JSON inside; `_static/figures.js` draws it in
the colours of the theme. Notebooks contain figures as outputs; Markdown pages include them with

    :::{figure-from} flow.json
    What it shows, as alternative text.
    :::
"""

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

CLASS = "plotly-figure"


def element(figure: dict[str, Any], said: str) -> str:
    """HTML of one figure; `said` is its text alternative."""
    kept = {name: figure[name] for name in ("data", "layout", "frames") if figure.get(name)}
    # "</script>" and "<!--" in a text must not end or change the element.
    text = json.dumps(kept, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    label = said.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    height = int((figure.get("layout") or {}).get("height") or 420)
    return (
        f'<div class="{CLASS}" tabindex="0" role="group" aria-label="figure">'
        f'<div class="drawn" role="img" aria-label="{label}" style="min-height:{height}px"></div>'
        f'<script type="application/json">{text}</script></div>'
    )


class FigureFrom(SphinxDirective):
    """A figure from a JSON file in `docs/figures`."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The figure as raw HTML."""
        path = Path(self.env.srcdir, "figures", self.arguments[0])
        self.env.note_dependency(str(path))
        html = element(json.loads(path.read_text(encoding="utf-8")), " ".join(self.content))
        return [nodes.raw("", html, format="html")]


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Load plotly only on pages that draw."""
    if tree is not None and f'class="{CLASS}"' in context.get("body", ""):
        app.add_js_file("plotly.min.js", loading_method="defer")
        app.add_js_file("colours.js", loading_method="defer")
        app.add_js_file("figures.js", loading_method="defer")


def copy_plotly(app: Sphinx, error: Exception | None) -> None:
    """Add plotly.js and the colours of the dark theme to the static files."""
    if error is not None or app.builder.format != "html":
        return
    from plotly.offline import get_plotlyjs

    from icl_mech.plots.style import dark_colours

    static = Path(app.outdir, "_static")
    (static / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    colours = json.dumps(dark_colours())
    (static / "colours.js").write_text(f"window.darkColours = {colours};\n", encoding="utf-8")


def declare(app: Sphinx) -> None:
    """Also write the generated scripts early, since Sphinx computes checksums of linked files."""
    if app.builder.format == "html":
        Path(app.outdir, "_static").mkdir(parents=True, exist_ok=True)
        copy_plotly(app, None)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive and the scripts."""
    app.add_directive("figure-from", FigureFrom)
    app.connect("builder-inited", declare)
    app.connect("html-page-context", add_scripts)
    app.connect("build-finished", copy_plotly)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
