"""The table of other libraries, from `docs/peers.yaml`; the cells on `icl_mech` are checked against the package.

:::{peers}
:::
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

FACTS = Path(__file__).parents[1] / "peers.yaml"
SHOWN = {"full": "**Yes**", "part": "*partly*"}
NONE = "–"


def public_names() -> set[str]:
    """Every public name of the package."""
    own = import_module("icl_mech")
    return {name for name in dir(own) if not name.startswith("_")}


def _exists(name: str) -> bool:
    module, _, last = f"icl_mech.{name}".rpartition(".")
    return hasattr(import_module(module), last)


def own_cell(row: dict[str, Any]) -> str:
    """The mark of this package, checked against its public names.

    Raises:
        ExtensionError: a name does not exist, or exists although the cell says no.
    """
    if missing := [name for name in row.get("own", ()) if not _exists(name)]:
        raise ExtensionError(
            f"{FACTS.name}, {row['row']}: the package has no {missing}; correct it."
        )
    built = {
        name for name in public_names() for word in row.get("own_no", ()) if word in name.lower()
    }
    if built or ("own" in row) == ("own_no" in row):
        raise ExtensionError(
            f"{FACTS.name}, {row['row']}: says no, but there is {sorted(built)}; correct it."
        )
    if "own_no" in row:
        return NONE
    return f"{SHOWN['part']} ({row['own_part']})" if "own_part" in row else SHOWN["full"]


def cell(row: dict[str, Any], library: str, place: str) -> str:
    """The mark of a library, linked to the file it rests on; what is there appears on hover.

    Raises:
        ExtensionError: a mark without a file, or an unknown mark.
    """
    entry = row.get("peers", {}).get(library)
    if entry is None:
        return NONE
    if len(entry) not in (3, 4) or entry[0] not in SHOWN:
        raise ExtensionError(
            f"{FACTS.name}, {row['row']}, {library}: {entry}; expected a mark ({', '.join(SHOWN)}), a file, what is "
            "there, and optionally words for the cell."
        )
    mark, file, what, *words = entry
    return f'[{SHOWN[mark]}]({place}{file} "{what}")' + "".join(f" ({word})" for word in words)


def table(facts: dict[str, Any]) -> str:
    """Marks of all libraries, followed by what was read of each, in Markdown.

    Raises:
        ExtensionError: a mark for an unknown library, or a cell that is wrong.
    """
    libraries, lines = facts["libraries"], []
    for row in facts["rows"]:
        if unknown := set(row.get("peers", ())) - set(libraries):
            raise ExtensionError(f"{FACTS.name}, {row['row']}: unknown libraries {unknown}.")
        cells = (cell(row, name, library["at"]) for name, library in libraries.items())
        lines.append([row["row"], own_cell(row), *cells])
    heads = ["", "icl_mech", *libraries]
    sources = [
        f"* **[{name}]({library['at']})** {library['version']}: {library['read']}."
        for name, library in libraries.items()
    ]
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", "Read:", "", *sources])


class Peers(SphinxDirective):
    """The table in a page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The table and its sources."""
        self.env.note_dependency(str(FACTS))
        text = table(yaml.safe_load(FACTS.read_text(encoding="utf-8")))
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("peers", Peers)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
