"""The architecture page, drawn from the code: `{rooms}` shows packages and imports, `{walk}` the path of one call.

Both are read from the code when the site is built (the walk by making the call), so neither can differ from it.
"""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGE = Path(__file__).parents[2] / "icl_mech"

WIDE, HIGH, GAP, LANE = 118, 40, 40, 14
"""Width and height of a box, the space between two rows, and the width of a lane for a line, in the drawing's units."""

MOST = 6
"""Maximum number of boxes in a row."""


class Room(NamedTuple):
    """A folder or file directly inside the package.

    Attributes:
        lines: Number of lines of Python.
        uses: Rooms that it imports.
        about: First line of its docstring.
    """

    lines: int
    uses: frozenset[str]
    about: str


def _room_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("icl_mech."):
            yield str(node.module).split(".")[1]
        elif isinstance(node, ast.ImportFrom) and node.module == "icl_mech":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("icl_mech."))


def rooms(package: Path = PACKAGE) -> dict[str, Room]:
    """All rooms by name, except the entry points (`__init__`, `__main__`)."""
    files: dict[str, list[Path]] = {}
    for path in sorted(package.rglob("*.py")):
        name = _room_of(path, package)
        if not name.startswith("__"):
            files.setdefault(name, []).append(path)
    made = {}
    for name, paths in files.items():
        texts = {path: path.read_text(encoding="utf-8") for path in paths}
        trees = {path: ast.parse(text) for path, text in texts.items()}
        uses = {target for tree in trees.values() for target in _imported(tree)}
        door = next((p for p in paths if p.name == "__init__.py"), paths[0])
        about = (ast.get_docstring(trees[door]) or "").partition("\n")[0]
        lines = sum(text.count("\n") for text in texts.values())
        made[name] = Room(lines, frozenset(uses & files.keys() - {name}), about)
    return made


def floors(house: dict[str, Room]) -> dict[str, int]:
    """The floor of each room: one above the highest of those it imports."""

    @cache
    def floor(name: str) -> int:
        return 1 + max((floor(other) for other in house[name].uses), default=-1)

    return {name: floor(name) for name in house}


def nearest(house: dict[str, Room]) -> list[tuple[str, str]]:
    """Imports that no longer chain of imports implies."""

    @cache
    def reached(name: str) -> frozenset[str]:
        return house[name].uses.union(*map(reached, house[name].uses))

    return [
        (name, target)
        for name, room in house.items()
        for target in sorted(room.uses)
        if not any(target in reached(other) for other in room.uses - {target})
    ]


class Lane(NamedTuple):
    """The place where the line of one import passes between boxes of a row."""

    start: str
    end: str
    row: int


def _rows(house: dict[str, Room]) -> list[list[str]]:
    """Rooms from the highest floor to the lowest, floors with many rooms in several rows."""
    level = floors(house)
    rows = []
    for floor in range(max(level.values()), -1, -1):
        names = sorted((n for n in house if level[n] == floor), key=lambda n: -house[n].lines)
        rows += [names[start : start + MOST] for start in range(0, len(names), MOST)]
    return rows


def _laid(house: dict[str, Room]) -> tuple[list[list[str | Lane]], list[list[str | Lane]]]:
    """Rows with a lane wherever a line passes a row, and the stations of each line.

    Each row is ordered by the mean place of its neighbours, a few times down and up (Sugiyama's method).
    """
    rows: list[list[str | Lane]] = [list(names) for names in _rows(house)]
    number = {name: i for i, names in enumerate(rows) for name in names if isinstance(name, str)}
    lines: list[list[str | Lane]] = []
    joined: dict[str | Lane, list[str | Lane]] = {name: [] for name in house}
    for start, end in nearest(house):
        lanes = [Lane(start, end, row) for row in range(number[start] + 1, number[end])]
        for lane in lanes:
            rows[lane.row].append(lane)
        line = [start, *lanes, end]
        lines.append(line)
        for first, second in pairwise(line):
            joined.setdefault(first, []).append(second)
            joined.setdefault(second, []).append(first)
    for _ in range(12):
        for order in (range(len(rows)), range(len(rows) - 1, -1, -1)):
            for row in order:
                middle = _middles(rows)
                rows[row].sort(
                    key=lambda node: (
                        sum(middle[m] for m in joined[node]) / max(1, len(joined[node]))
                    )
                )
    return rows, lines


def _middles(rows: list[list[str | Lane]]) -> dict[str | Lane, float]:
    """The middle of each box and lane across; rows are centred at 0."""
    middles = {}
    for row in rows:
        widths = [WIDE + 16 if isinstance(node, str) else LANE for node in row]
        left = -sum(widths) / 2
        for node, width in zip(row, widths, strict=True):
            middles[node] = left + width / 2
            left += width
    return middles


def drawing(house: dict[str, Room]) -> str:
    """Rooms on their floors as SVG, each above those it imports."""
    rows, lines = _laid(house)
    middles = _middles(rows)
    half = max(abs(x) for x in middles.values()) + WIDE / 2 + 8
    x = {node: middle + half for node, middle in middles.items()}
    top = {node: 8 + i * (HIGH + GAP) for i, row in enumerate(rows) for node in row}
    parts = []
    for line in lines:
        points = [(x[line[0]], top[line[0]] + HIGH)]
        for lane in line[1:-1]:
            points += [(x[lane], top[lane]), (x[lane], top[lane] + HIGH)]
        points.append((x[line[-1]], top[line[-1]]))
        way = " L".join(f"{across:.0f} {down:.0f}" for across, down in points)
        parts.append(f'<path class="line" d="M{way}"/>')
    for name, room in house.items():
        parts.append(
            f"<g><title>{escape(room.about)}</title>"
            f'<rect x="{x[name] - WIDE / 2:.0f}" y="{top[name]}" width="{WIDE}" height="{HIGH}" rx="4"/>'
            f'<text class="mid" x="{x[name]:.0f}" y="{top[name] + 17}">{escape(name)}</text>'
            f'<text class="small mid" x="{x[name]:.0f}" y="{top[name] + 33}">{room.lines:,} lines</text></g>'
        )
    high = 16 + len(rows) * (HIGH + GAP) - GAP
    return (
        f'<svg class="data-flow rooms" viewBox="0 0 {2 * half:.0f} {high}" role="img" '
        f'aria-label="Packages of icl_mech, each above those it imports">{"".join(parts)}</svg>'
    )


class Stop(NamedTuple):
    """A file that receives the model during a call.

    Attributes:
        file: Its path in the package.
        function: The first function there that receives the model.
        about: First line of its docstring.
    """

    file: str
    function: str
    about: str


def walk(call: Callable[[], object], model: object) -> list[Stop]:
    """Files in which a function receives the model during a call, in order."""
    from icl_mech.models import LanguageModel

    code: dict[str, Any] = {}

    def watch(frame: Any, event: str, _: object) -> None:
        body = frame.f_code
        path = Path(body.co_filename)
        if event != "call" or PACKAGE not in path.parents or str(path) in code:
            return
        names = body.co_varnames[: body.co_argcount + body.co_kwonlyargcount]
        given = [frame.f_locals.get(name) for name in names if name != "self"]
        if any(value is model or isinstance(value, LanguageModel) for value in given):
            code[str(path)] = body

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [_stop(Path(path), body) for path, body in code.items()]


def _stop(path: Path, body: Any) -> Stop:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        known = isinstance(node, ast.FunctionDef) and node.name == body.co_name
        # A decorated function starts at the line of its decorator.
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) if known else 0
        if known and first == body.co_firstlineno:
            about = inspect.cleandoc(ast.get_docstring(node) or "").partition("\n")[0]
            return Stop(path.relative_to(PACKAGE).as_posix(), body.co_name, about)
    return Stop(path.relative_to(PACKAGE).as_posix(), body.co_name, "")


class Rooms(SphinxDirective):
    """`{rooms}`: the drawing."""

    def run(self) -> list[nodes.Node]:
        """Draw them."""
        return [nodes.raw("", drawing(rooms()), format="html")]


class Walk(SphinxDirective):
    """`{walk}`: the path of `flow_scores` on a planted model."""

    def run(self) -> list[nodes.Node]:
        """Make the call, and list its stops."""
        import icl_mech as icl

        model = icl.planted_model()
        prompts = icl.build_prompts(icl.planted_task(), model, n=4)
        icl.flow_scores(model, prompts)  # once before: a model is checked at its first use
        stops = walk(lambda: icl.flow_scores(model, prompts), model)
        rows = "".join(
            f"<tr><td>{number}</td><td><code>{escape(stop.file)}</code></td>"
            f"<td><code>{escape(stop.function)}</code></td><td>{escape(stop.about)}</td></tr>"
            for number, stop in enumerate(stops, 1)
        )
        head = "<tr><th></th><th>file</th><th>function</th><th>what it does</th></tr>"
        table = f'<div class="table-wrapper"><table class="docutils"><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
        return [nodes.raw("", table, format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Add both directives."""
    app.add_directive("rooms", Rooms)
    app.add_directive("walk", Walk)
    return {"parallel_read_safe": True}
