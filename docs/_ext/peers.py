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
SHOWN = {"full": "**Yes**", "part": "*partly*", "none": "–"}


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
        return SHOWN["none"]
    return f"{SHOWN['part']} ({row['own_part']})" if "own_part" in row else SHOWN["full"]


def _cell(mark: Any) -> str:
    mark, *words = [mark] if isinstance(mark, str) else mark
    return SHOWN[mark] + "".join(f" ({own})" for own in words)


def table(facts: dict[str, Any]) -> str:
    """Marks of all libraries, followed by the sources for each, in Markdown.

    Raises:
        ExtensionError: a row lacks marks for libraries, or a cell on this package is wrong.
    """
    order, lines = facts["order"], []
    for row in facts["rows"]:
        if len(row["peers"]) != len(order):
            raise ExtensionError(
                f"{FACTS.name}, {row['row']}: {len(row['peers'])} marks; expected {len(order)}."
            )
        lines.append([row["row"], own_cell(row), *map(_cell, row["peers"])])
    heads = ["", "icl_mech", *order]
    sources = [
        f"* **{name}** {own['version']}, read {own['read']}: {own['looked_at']}."
        for name, own in facts["libraries"].items()
    ]
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), "", "Sources:", "", *sources])


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
