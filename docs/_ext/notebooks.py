"""Adds `notebooks/*.ipynb` to the site as they are stored, with a gallery.

Plotly outputs become figures that render offline; outputs that only a running Jupyter
can show (progress bars, scripts that request plotly) are left out if there is another form.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from figures import element, titles
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


def text_of(source: str | list[str]) -> str:
    """A cell's or output's text, which notebooks store as one string or as lines."""
    return source if isinstance(source, str) else "".join(source)


def shown(output: dict[str, Any]) -> dict[str, Any] | None:
    """One output as the site shows it; None: it is not shown."""
    data = output.get("data")
    if data is None:
        return output
    if PLOTLY in data:
        figure = data[PLOTLY]
        return {**output, "data": {"text/html": element(figure, titles(figure)[0] or "A figure")}}
    kept = {kind: value for kind, value in data.items() if kind != WIDGET}
    html = text_of(kept.get("text/html", ""))
    if "Plotly" in html or ("plotly" in html and "<script" in html):
        kept.pop("text/html")
    return {**output, "data": kept} if kept else None


def converted(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with outputs that the site can show and links that work in it."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [own for each in cell["outputs"] if (own := shown(each)) is not None]
        else:
            text = text_of(cell["source"])
            cell["source"] = re.sub(r"\]\(\.\./docs/([^)]+)\)", r"](../\1)", text)
    return notebook


def heading(notebook: dict[str, Any]) -> tuple[str, str]:
    """The title and the first paragraph after it."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            found = re.match(r"#\s+(.+?)\s*\n+(.*)", text_of(cell["source"]) + "\n", re.DOTALL)
            if found:
                first = found[2].strip().split("\n\n")[0]
                return found[1], " ".join(first.split())
    raise ExtensionError("A notebook has no heading in its first text cell; add one.")


def card(path: Path, notebook: dict[str, Any], pictures: Path) -> str:
    """Its entry in the gallery."""
    title, first = heading(notebook)
    first = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", first)
    picture = pictures / f"{path.stem}.png"
    lines = [f":::{{container}} card\n**[{title}]({path.name})**\n"]
    if picture.is_file():
        lines.append(f"![A figure of this notebook](../images/notebooks/{picture.name})\n")
    return "\n".join([*lines, first, ":::\n"])


def number(path: Path) -> tuple[int, str]:
    """Its position in the gallery: the number at the start of its name."""
    digits = re.match(r"\d+", path.name)
    return (int(digits[0]) if digits else sys.maxsize, path.name)


def write(path: Path, text: str) -> None:
    """Write a file only if its text changed, so that a second build is fast."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def bring(app: Sphinx, config: Any) -> None:
    """Write `docs/notebooks`, before Sphinx looks for pages."""
    source, target = Path(app.srcdir).parent / "notebooks", Path(app.srcdir, "notebooks")
    paths = sorted(source.glob("*.ipynb"), key=number)
    target.mkdir(exist_ok=True)
    for old in set(target.glob("*.ipynb")) - {target / path.name for path in paths}:
        old.unlink()
    cards = []
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cards.append(card(path, notebook, Path(app.srcdir, "images", "notebooks")))
        write(target / path.name, json.dumps(converted(notebook), ensure_ascii=False, indent=1))
    names = "\n".join(path.stem for path in paths)
    page = (
        "# Notebooks\n\nEvery notebook runs from top to bottom with the offline model on two CPU "
        "cores; each cell is shown with its output. The files are in the folder "
        "`notebooks` of the repository.\n\n::::{container} gallery\n"
        + "\n".join(cards)
        + f"::::\n\n```{{toctree}}\n:hidden:\n{names}\n```\n"
    )
    write(target / "index.md", page)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the notebooks once the settings are known."""
    app.connect("config-inited", bring)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
