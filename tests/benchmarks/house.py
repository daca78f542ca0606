"""How large and how tidy the package is: one table, read from the files.

    python -m tests.benchmarks.house                # the working tree
    python -m tests.benchmarks.house --root OTHER   # another checkout

What each figure counts stands in `ABOUT`. `tests/test_house.py` holds the caps: a figure that grows
fails there.
"""

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

from tests import test_architecture

ROOT = Path(__file__).parents[2]
PACKAGE = "icl_mech"

RUN = 6
"""Code lines that stand twice in the same words are a duplicate from so many on."""

ABOUT = {
    "code lines": "neither empty, nor a comment, nor a string that stands alone (docstrings)",
    "files": "*.py",
    "import circles": "groups of modules that import each other, exemptions in the test counted",
    "exempted arrows": "entries of CIRCLES in tests/test_architecture.py",
    "public names": "icl_mech.__all__",
    "public names of metrics": "icl_mech.metrics.__all__",
    "names of a measurement": "imported from this package by a file of icl_mech/measurements that makes a function (`door`), median",
    "Any parameters": "annotated exactly `Any`; `*args` and `**kwargs` are not counted",
    "fmt: skip": "how often it stands there",
    "type: ignore": "how often it stands there",
    "duplicate pairs": f"pairs of places with {RUN} or more like code lines in a row, imports left out",
}


def figures(root: Path = ROOT) -> dict[str, int]:
    """The figures of `ABOUT` for the package in the folder `root`."""
    package = root / PACKAGE
    texts = read(package)
    trees = {name: ast.parse(text) for name, text in texts.items()}
    code = {name: code_lines(text, trees[name]) for name, text in texts.items()}
    functions = [
        node
        for tree in trees.values()
        for node in statements(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    return {
        "code lines": sum(map(len, code.values())),
        "files": len(texts),
        "import circles": len(circles(package)),
        "exempted arrows": exempted(root),
        "public names": public_names(trees["__init__.py"]),
        "public names of metrics": public_names(trees["metrics/__init__.py"]),
        "names of a measurement": names_of_measurements(texts, trees),
        "Any parameters": sum(map(any_parameters, functions)),
        "fmt: skip": sum(text.count("fmt: skip") for text in texts.values()),
        "type: ignore": sum(text.count("type: ignore") for text in texts.values()),
        "duplicate pairs": len(duplicates({k: without_imports(v, trees[k]) for k, v in code.items()})),
    }  # fmt: skip


def read(package: Path) -> dict[str, str]:
    """Text of each file, by its path inside the package."""
    files = sorted(package.rglob("*.py"))
    return {own.relative_to(package).as_posix(): own.read_text(encoding="utf-8") for own in files}


def code_lines(text: str, tree: ast.Module) -> dict[int, str]:
    """Number -> line without its indentation, of the lines that are code."""
    alone = {
        line
        for node in statements(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, node.end_lineno + 1)
    }
    lines = ((number, line.strip()) for number, line in enumerate(text.split("\n"), 1))
    return {n: line for n, line in lines if line and line[0] != "#" and n not in alone}


def without_imports(code: Mapping[int, str], tree: ast.Module) -> dict[int, str]:
    imports = {
        line
        for node in statements(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for line in range(node.lineno, node.end_lineno + 1)
    }
    return {number: line for number, line in code.items() if number not in imports}


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Every statement of a file, those inside others too, without a look into expressions."""
    ahead: list[ast.AST] = list(tree.body)
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            ahead += getattr(node, name, ())


def any_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    its = function.args
    every = (*its.posonlyargs, *its.args, *its.kwonlyargs)
    return sum(isinstance(own.annotation, ast.Name) and own.annotation.id == "Any" for own in every)


def public_names(tree: ast.Module) -> int:
    """Length of the literal `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return len(ast.literal_eval(node.value))
    raise SystemExit("no literal __all__ in a module that the table counts the names of")


def names_of_measurements(texts: Mapping[str, str], trees: Mapping[str, ast.Module]) -> int:
    """The median number of names that a measurement imports from the package."""
    counts = [
        sum(
            len(node.names)
            for node in trees[name].body
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE)
        )
        for name, text in texts.items()
        if name.startswith("measurements/") and re.search(r"^\w+ = door\(", text, re.MULTILINE)
    ]
    return round(median(counts)) if counts else 0


def exempted(root: Path) -> int:
    tree = ast.parse((root / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CIRCLES":
            return len(getattr(node.value, "elts", ()))
    return 0


def circles(package: Path) -> list[set[str]]:
    """Groups of modules each of which imports every other, if by way of others."""
    modules = test_architecture.parse(package)
    names = {module.name for module in modules}
    graph = {m.name: {".".join(i.inside) for i in m.imports} & names - {m.name} for m in modules}
    reached = {name: _reached(graph, name) for name in names}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in names
        if name in reached[name]
    }
    return [set(group) for group in groups]


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


Place = tuple[str, int]


def duplicates(code: Mapping[str, Mapping[int, str]]) -> list[tuple[Place, Place, int]]:
    """Pairs of places, file and line, where the same code lines stand, and how many.

    Each run is as long as it can be. Runs of brackets and single words alone are no duplicates.
    """
    lines = {name: list(own.values()) for name, own in code.items()}
    numbers = {name: list(own) for name, own in code.items()}
    starts: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for name, own in lines.items():
        for i in range(len(own) - RUN + 1):
            window = tuple(own[i : i + RUN])
            if sum(bool(re.search(r"\w\W+\w", line)) for line in window) >= RUN // 2:
                starts[window].append((name, i))
    found = []
    for places in starts.values():
        for (one, i), (other, j) in _pairs(places):
            goes_on = i and j and lines[one][i - 1] == lines[other][j - 1]
            if not goes_on and (one != other or j - i >= RUN):
                length = _length(lines[one][i:], lines[other][j:])
                found.append(((one, numbers[one][i]), (other, numbers[other][j]), length))
    return sorted(found, key=lambda pair: (-pair[2], pair))


def _pairs(places: Sequence[Place]) -> Iterator[tuple[Place, Place]]:
    for k, one in enumerate(places):
        for other in places[k + 1 :]:
            yield one, other


def _length(one: Sequence[str], other: Sequence[str]) -> int:
    for k, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return k
    return min(len(one), len(other))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of another checkout")
    parser.add_argument("--duplicates", action="store_true", help="list them, the longest first")
    given = parser.parse_args()
    if given.duplicates:
        code = {}
        for name, text in read(given.root / PACKAGE).items():
            tree = ast.parse(text)
            code[name] = without_imports(code_lines(text, tree), tree)
        for (one, i), (other, j), length in duplicates(code):
            print(f"{length:4}  {one}:{i}  {other}:{j}")
        return
    print(f"| {'figure':24} | {'now':>7} | counted |\n|---|---:|---|")
    for name, value in figures(given.root).items():
        print(f"| {name:24} | {value:7,} | {ABOUT[name]} |")


if __name__ == "__main__":
    main()
