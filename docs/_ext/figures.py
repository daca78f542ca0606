"""Plotly figures that render offline: one copy of plotly.js for the whole site.

A figure is a `<div class="plotly-figure">` with its title, its note and its JSON inside; `_static/figures.js`
draws it in the colours of the theme at the width of its cell. Notebooks contain figures as outputs; Markdown
pages include them with

    :::{figure-from} guides/flow.json
    What it shows, as caption and text alternative.
    :::
"""

import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from icl_mech.plots.style import untitle

CLASS = "plotly-figure"


SCRIPTS = ("plotly.min.js", "colours.js", "narrow.js", "figures.js")
"""In the order in which a page loads them; the pages of studies use the third, too."""


def titles(figure: dict[str, Any]) -> tuple[str, str]:
    """The title of a figure and the note below it, without tags."""
    title = (figure.get("layout") or {}).get("title") or {}
    parts = (title, "") if isinstance(title, str) else (
        title.get("text"), (title.get("subtitle") or {}).get("text")
    )  # fmt: skip
    lines = (re.sub(r"(?<=-)<br>", "", part or "") for part in parts)  # wrapped at a hyphen
    text, note = (" ".join(re.sub(r"<[^>]+>", " ", own).split()) for own in lines)
    return text, note


def element(figure: dict[str, Any], said: str) -> str:
    """HTML of one figure; `said` is its text alternative."""
    kept = {name: figure[name] for name in ("data", "layout", "frames") if figure.get(name)}
    layout = kept["layout"] = dict(kept.get("layout") or {})
    heads = zip(("title", "note"), titles(figure), strict=True)
    head = "".join(f'<p class="figure-{own}">{escape(text)}</p>' for own, text in heads if text)
    untitle(layout)
    # "</script>" and "<!--" in a text must not end or change the element.
    text = json.dumps(kept, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    height = int(layout.get("height") or 420)
    return (
        f'<div class="{CLASS}" role="group" aria-label="figure">{head}<div class="keys" hidden></div>'
        f'<div class="drawn" role="img" aria-label="{escape(said)}" style="min-height:{height}px"></div>'
        f'<script type="application/json">{text}</script></div>'
    )


class FigureFrom(SphinxDirective):
    """A figure from a JSON file in `docs/figures`; the content of the directive becomes its caption."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """The figure as raw HTML, and its caption."""
        path = Path(self.env.srcdir, "figures", self.arguments[0])
        self.env.note_dependency(str(path))
        return self.captioned(json.loads(path.read_text(encoding="utf-8")))

    def captioned(self, figure: dict[str, Any], title: str = "") -> list[nodes.Node]:
        """The figure, with its caption below; the title is that of a figure without one."""
        said = f"{titles(figure)[0] or title}. {' '.join(self.content)}"
        caption = nodes.container(classes=["caption-below"])
        self.state.nested_parse(self.content, self.content_offset, caption)
        plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", said)
        return [nodes.raw("", element(figure, plain), format="html"), caption]


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Load plotly only on pages that draw."""
    if tree is not None and f'class="{CLASS}"' in context.get("body", ""):
        for script in SCRIPTS:
            app.add_js_file(script, loading_method="defer")


def copy_plotly(app: Sphinx, error: Exception | None) -> None:
    """Add plotly.js, the colours of the dark theme and what pages of studies share to the static files."""
    if error is not None or app.builder.format != "html":
        return
    from plotly.offline import get_plotlyjs

    from icl_mech.plots.style import dark_colours

    static = Path(app.outdir, "_static")
    (static / "plotly.min.js").write_text(get_plotlyjs(), encoding="utf-8")
    colours = json.dumps(dark_colours())
    (static / "colours.js").write_text(f"window.darkColours = {colours};\n", encoding="utf-8")
    shared = files("icl_mech.reports").joinpath("narrow.js").read_text(encoding="utf-8")
    (static / "narrow.js").write_text(shared, encoding="utf-8")


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
