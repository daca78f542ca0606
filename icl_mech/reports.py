"""One self-contained HTML page from figures and the sentences they show."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icl_mech.checking import conformed
from icl_mech.errors import ResultError
from icl_mech.results import Folder, given_path, jsonable, sealed_page

if TYPE_CHECKING:
    import plotly.graph_objects as go

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1060px; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; text-transform: capitalize; }
p.shows { background: #f4f6f9; padding: .6rem .9rem; border-left: 4px solid #1f77b4; }
details { margin: .5rem 0 1.5rem; } pre { font-size: 12px; overflow-x: auto; background: #f8f8f8; padding: .7rem; }
</style>
{{ script }}
</head>
<body>
<h1>{{ title }}</h1>
{% if lead %}<p>{{ lead }}</p>{% endif %}
{% for section in sections %}
<section>
<h2>{{ section.name }}</h2>
<p class="shows">{{ section.sentence }}</p>
{{ section.html }}
<details><summary>Provenance</summary><pre>{{ section.provenance }}</pre></details>
</section>
{% endfor %}
</body>
</html>
"""


@dataclass(frozen=True)
class Section:
    """One figure of a page, the sentence it shows and where its numbers come from."""

    name: str
    sentence: str
    figure: "go.Figure"
    provenance: dict[str, Any]


def write_page(
    path: str | Path,
    title: str,
    sections: Sequence[Section],
    *,
    lead: str = "",
    offline: bool = True,
    overwrite: bool = False,
) -> Path:
    """Write the page, all or nothing.

    Its last line is a checksum, so that a page nobody edited is recognised and replaced.

    Args:
        path: Of the page.
        title: Its heading.
        sections: Figures with their sentences.
        lead: What stands above them.
        offline: Put the plotly script into the page.
        overwrite: Replace whatever file is there.

    Raises:
        ResultError: the page cannot be written, or there is a file that is no unchanged page.
    """
    conformed("offline", offline, bool, ResultError)
    file = given_path(path, "page")
    if file.is_dir():
        raise ResultError(f"{str(path)!r} is a folder; give the path of a page in it.")
    content = page_bytes(title, sections, lead=lead, offline=offline)
    with Folder(file.parent, beside=True, files=() if overwrite else [file.name]) as place:
        place.replace(file.name, content)
    return Path(path).expanduser()


def page_bytes(
    title: str, sections: Sequence[Section], *, lead: str = "", offline: bool = True
) -> bytes:
    """What is written: `render_page` and the line by which it is recognised."""
    return sealed_page(render_page(title, sections, lead=lead, offline=offline))


def render_page(
    title: str, sections: Sequence[Section], *, lead: str = "", offline: bool = True
) -> str:
    """The page as text; the plotly script stands in it once."""
    from jinja2 import Environment
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs, get_plotlyjs_version

    if offline:
        script = f"<script>{get_plotlyjs()}</script>"
    else:
        address = f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"
        script = f'<script src="{address}" charset="utf-8"></script>'
    shown = [
        {
            "name": section.name,
            "sentence": section.sentence,
            "html": Markup(section.figure.to_html(full_html=False, include_plotlyjs=False)),
            "provenance": json.dumps(jsonable(section.provenance), indent=1, ensure_ascii=False),
        }
        for section in sections
    ]
    environment = Environment(autoescape=True)
    return environment.from_string(_PAGE).render(
        title=title, lead=lead, sections=shown, script=Markup(script)
    )
