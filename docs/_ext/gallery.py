"""The gallery: every type of figure listed in `docs/gallery.yaml`, and single figures in guides.

Figures are stored in `docs/figures` and in notebooks; thumbnails are drawn from the same data when the
site is built, so that the two cannot differ. A guide includes a figure by its name,

    :::{figure-live} suppression
    What it shows, and what it does not.
    :::

with the text as its caption.
"""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import yaml
from docutils import nodes
from figures import FigureFrom, titles
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from icl_mech.plots.still import still
from icl_mech.plots.style import dark_colours
from notebooks import PLOTLY, write

HEAD = """import icl_mech as icl

model = icl.load_model()  # SmolLM2-135M-Instruct, offline
planted, known = icl.planted_model(), icl.planted_task()  # a model whose circuit is known
texts = ["He kept a diary. He died in May. It was found under the stairs."]"""

INTRODUCTION = f"""# Gallery

Every type of figure that the package draws: its data, the code that makes it, and common misreadings. Figures are
interactive, here as in a notebook. Each shows one run; the model and the prompts are named below it. For what can be
concluded from such a run, see [Which measurement answers my question?](which.md). All code starts with

```python
{HEAD}
```

and takes seconds to a few minutes on a laptop.
"""


ACROSS, HIGH = 320, 190
"""Size of a thumbnail in pixels, about that at which it is shown."""

LETTERS = 48
"""Letters of names that an axis of a thumbnail has room for."""

CROPPED = {"LensTable": (5, 7), "TokenStrips": (40, 7)}
"""Columns and rows of words that a thumbnail has room for: the last of a table by token and layer, the first of a prompt."""


def entries(docs: Path) -> dict[str, dict[str, Any]]:
    """The entries of `gallery.yaml` by name, each with its section."""
    sections = yaml.safe_load((docs / "gallery.yaml").read_text(encoding="utf-8"))
    return {
        own["name"]: {**own, "section": title}
        for title, all_of in sections.items()
        for own in all_of
    }


def figure_of(docs: Path, entry: dict[str, Any]) -> dict[str, Any]:
    """The stored figure of an entry.

    Raises:
        ExtensionError: the notebook has no figure with that title.
    """
    place = entry["figure"]
    if isinstance(place, str):
        found: dict[str, Any] = json.loads((docs / "figures" / place).read_text(encoding="utf-8"))
        return found
    stem, title = place
    path = docs.parent / "notebooks" / f"{stem}.ipynb"
    known = [
        output["data"][PLOTLY]
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]
        for output in cell.get("outputs", ())
        if PLOTLY in output.get("data", {})
    ]
    for figure in known:
        if titles(figure)[0] == title:
            return {name: figure[name] for name in ("data", "layout", "frames") if name in figure}
    has = ", ".join(f"“{titles(figure)[0]}”" for figure in known)
    raise ExtensionError(
        f"{path.name} has no figure “{title}”, only {has}; correct docs/gallery.yaml."
    )


def plain(value: Any) -> Any:
    """Arrays that plotly stores as bytes, as lists."""
    if isinstance(value, dict):
        if "bdata" not in value:
            return {name: plain(own) for name, own in value.items()}
        found = np.frombuffer(base64.b64decode(value["bdata"]), dtype=value["dtype"])
        shape = str(value.get("shape", len(found))).split(",")
        return found.reshape([int(own) for own in shape]).tolist()
    return [plain(own) for own in value] if isinstance(value, list) else value


def in_the_dark(text: str) -> str:
    """The text with the dark theme's colours in place of the light theme's; the two have none in common."""
    dark = dark_colours()
    return re.sub(r"#[0-9a-fA-F]{6}\b", lambda own: dark.get(own[0].lower(), own[0]), text)


def small(figure: dict[str, Any], shape: str, dark: bool = False) -> str:
    """A thumbnail as SVG: the first panel of a figure, without the names in it; its entry's title is shown below."""
    text = json.dumps(figure)
    own = plain(json.loads(in_the_dark(text) if dark else text))
    layout = own["layout"]
    kept = {
        name: layout.get(name) for name in ("font", "template", "paper_bgcolor", "plot_bgcolor")
    }
    kept |= {"width": ACROSS, "height": HIGH, "margin": {"l": 40, "r": 12, "t": 10, "b": 28}}
    traces = [
        trace
        for trace in own["data"]
        if trace.get("visible", True) is True
        and (trace.get("xaxis", "x"), trace.get("yaxis", "y")) == ("x", "y")
    ]
    if shape == "Table":
        traces = [first_rows(traces[0])]
        kept["margin"] = dict.fromkeys("lrtb", 4)
    else:
        x, y = (tidy(layout[f"{side}axis"], side) for side in "xy")
        if shape in CROPPED:
            across, high = CROPPED[shape]
            right, bottom = x["range"][1], y["range"][0]
            if shape == "LensTable":
                x["range"], y["range"] = [max(right - across, -0.5), right], [bottom, bottom - high]
            else:
                x["range"], y["range"] = [-0.5, across], [min(bottom, high), -0.6]
            x["showticklabels"] = y["showticklabels"] = False
            kept["margin"] = dict.fromkeys("lrtb", 4)
        shapes = [
            part for part in layout.get("shapes", ()) if part.get("xref", "x") in ("x", "x domain")
        ]
        kept |= {"xaxis": x, "yaxis": y, "shapes": shapes}
    for trace in traces:
        if trace["type"] == "heatmap":
            trace["showscale"] = False
            if shape not in CROPPED and len(trace["z"][0]) > 6:
                trace.pop("texttemplate", None)
    found = still(go.Figure({"data": traces, "layout": kept}), "")
    return in_the_dark(found) if dark else found


def tidy(axis: dict[str, Any], side: str) -> dict[str, Any]:
    """An axis of a thumbnail: over its whole width, with names only where they are short enough."""
    own = {**axis, "title": None, "domain": [0, 1], "scaleanchor": None}
    names = [re.sub("<[^>]+>", "", name) for name in own.get("ticktext") or ()]
    letters = (
        sum(map(len, names)) if side == "x" else 8 * len(names)
    )  # a line is as high as that is wide
    if letters > LETTERS:
        own |= {"showticklabels": False, "ticktext": None, "automargin": False}
    elif names:
        own["ticktext"] = [name if len(name) <= 12 else f"{name[:11]}…" for name in names]
    return own


def first_rows(table: dict[str, Any], columns: int = 3, rows: int = 5) -> dict[str, Any]:
    """The upper left corner of a table."""
    cells, header = table["cells"], table["header"]
    return {
        **table,
        "columnwidth": table["columnwidth"][:columns],
        "header": {**header, "values": header["values"][:columns]},
        "cells": {**cells, "values": [own[:rows] for own in cells["values"][:columns]]},
    }


def pictures(app: Sphinx, *_: Any) -> None:
    """Write thumbnails of all entries to the static files."""
    if app.builder.format != "html":
        return
    docs, folder = Path(app.srcdir), Path(app.outdir, "_static", "gallery")
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in entries(docs).items():
        figure = figure_of(docs, entry)
        for theme in ("light", "dark"):
            (folder / f"{name}-{theme}.svg").write_text(
                small(figure, entry["shape"], theme == "dark"), encoding="utf-8"
            )


def place(entry: dict[str, Any]) -> str:
    """The anchor of its figure."""
    return f"figure-{entry['name']}".replace("_", "-")


def card(entry: dict[str, Any]) -> str:
    """A thumbnail that links to the figure, with the title of its entry."""
    both = "".join(
        f'<img class="only-{theme}" src="_static/gallery/{entry["name"]}-{theme}.svg" alt="" loading="lazy">'
        for theme in ("light", "dark")
    )
    return f'<a class="card" href="#{place(entry)}">{both}<span>{entry["title"]}</span></a>'


def called(code: str) -> list[str]:
    """Public functions of the package that a snippet calls, the measuring ones last to first."""
    names = re.findall(r"\bicl\.(\w+)\(", code)
    plainly = {
        "build_prompts",
        "build_prompt_pairs",
        "load_task",
        "load_model",
        "planted_model",
        "texts",
    }
    return [name for name in dict.fromkeys(names) if name not in plainly]


def shown(entry: dict[str, Any]) -> Iterator[str]:
    """The section of the page on one figure."""
    yield f"({place(entry)})="
    yield f"### {entry['title']}\n"
    yield f":::{{figure-live}} {entry['name']}\n{entry['about']}\n:::\n"
    yield f"```python\n{entry['code'].strip()}\n```\n"
    yield f"**Common misreading:** {entry['wrongly']}\n"
    links = [f"[`{name}`](#icl_mech.{name})" for name in called(entry["code"])]
    if not isinstance(entry["figure"], str):
        links.append(f"[the run it shows](notebooks/{entry['figure'][0]}.ipynb)")
    yield f"More: [guide]({entry['guide']}), {', '.join(links)}.\n"


def page(docs: Path) -> str:
    """The gallery as Markdown: thumbnails by section, then the figures."""
    lines, below = [INTRODUCTION], []
    by_section: dict[str, list[dict[str, Any]]] = {}
    for entry in entries(docs).values():
        by_section.setdefault(entry["section"], []).append(entry)
    for section, own in by_section.items():
        lines += [f"**{section}**\n", "```{raw} html", '<div class="gallery thumbnails">']
        lines += [*map(card, own), "</div>", "```\n"]
        below += [f"## {section}\n", *(line for entry in own for line in shown(entry))]
    return "\n".join([*lines, *below])


class FigureLive(FigureFrom):
    """A figure of the gallery, by its name."""

    def run(self) -> list[nodes.Node]:
        """The figure as raw HTML, and its caption."""
        docs, name = Path(self.env.srcdir), self.arguments[0]
        found = entries(docs)
        if name not in found:
            raise self.error(f"docs/gallery.yaml has no figure {name!r}; it has {', '.join(found)}")
        entry = found[name]
        self.env.note_dependency(str(docs / "gallery.yaml"))
        if isinstance(entry["figure"], str):
            self.env.note_dependency(str(docs / "figures" / entry["figure"]))
        return self.captioned(figure_of(docs, entry), entry["title"])


def bring(app: Sphinx, config: Any) -> None:
    """Write `docs/gallery.md`, before Sphinx looks for pages."""
    docs = Path(app.srcdir)
    write(docs / "gallery.md", page(docs))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive; write the page once the settings are known."""
    app.add_directive("figure-live", FigureLive)
    app.connect("config-inited", bring)
    app.connect("build-finished", pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
