"""Imports go down only, and what else holds for every module of the package.

The modules are read, not imported: an import inside a function, or one that only type
checkers see, counts like any other.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.said import Words

WORDS = Words(__file__)

SOURCE = Path(__file__).parent.parent / "icl_mech"

# From top to bottom: what stands lower must not import what stands higher or beside it.
ORDER = (
    {"__main__"},
    {"cli"},
    {"__init__", "exporting"},
    {"lenses", "loading", "own"},
    {"recipes", "atlas"},
    {"sweeps", "explorer"},
    {"studies"},
    {"looks"},
    {"measurements", "reports"},
    {"engine"},
    {"interventions"},
    {"segments"},
    {"prompts"},
    {"corruption", "planted"},
    {"tasks"},
    {"demo", "models", "results"},
    {"plots", "metrics"},
    {"names", "shapes", "checking", "at_home", "documents", "model_sources", "hub", "bars"},
    {"_files", "export_text", "frontend"},
    {"_typing", "errors"},
)
LEVEL = {name: len(ORDER) - depth for depth, names in enumerate(ORDER) for name in names}

TEXT_HALF = {"tasks", "corruption", "prompts"}
MODEL_HALF = {"models"}

# All that these may import, apart from the standard library.
ONLY = {
    "metrics": {"_typing", "checking", "errors", "numpy", "scipy", "torch", "einops"},
    "plots": {
        "_files",
        "_typing",
        "checking",
        "errors",
        "shapes",
        "plotly",
        "numpy",
        "IPython",
        "kaleido",
    },
    "shapes": {"_typing"},
}

NOT_AT_IMPORT = (
    "plotly", "transformer_lens", "dask", "datasets", "nnsight", "pandas", "transformers", "xarray",
    "scipy",
)  # fmt: skip


@dataclass(frozen=True)
class Import:
    """One import statement: the full name of what it imports, and where it stands."""

    target: str
    line: int
    lazy: bool

    @property
    def inside(self) -> list[str]:
        """The parts of the name after `icl_mech`; empty for other packages."""
        root, *rest = self.target.split(".")
        return (rest or ["__init__"]) if root == "icl_mech" else []

    @property
    def unit(self) -> str:
        """The top-level module of `icl_mech`, or the other package."""
        return self.inside[0] if self.inside else self.target.split(".")[0]


@dataclass(frozen=True)
class Module:
    """One file of the package: its path inside it, its syntax tree and its imports."""

    path: Path
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)
    lines: int = 0

    @property
    def name(self) -> str:
        """Its dotted name inside the package."""
        return ".".join(self.path.with_suffix("").parts).removesuffix(".__init__")

    @property
    def unit(self) -> str:
        """The top-level module or package it belongs to."""
        return self.path.parts[0].removesuffix(".py")

    def at(self, line: int) -> str:
        return f"{self.path.as_posix()}:{line}"


def parse(root: Path) -> list[Module]:
    """All modules below `root`, the folder of the package."""
    modules = []
    for file in sorted(root.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text, str(file))
        path = file.relative_to(root)
        imports = list(imports_of(tree, path, root))
        modules.append(Module(path, tree, imports, text.count("\n")))
    return modules


def imports_of(tree: ast.Module, path: Path, root: Path) -> Iterator[Import]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    ahead: list[tuple[ast.AST, bool]] = [(tree, False)]
    for node, lazy in ahead:  # grows meanwhile
        lazy = lazy or isinstance(node, functions)
        ahead += [(child, lazy) for child in ast.iter_child_nodes(node)]
        for target in targets_of(node, path, root):
            yield Import(target, node.lineno, lazy)


def targets_of(node: ast.AST, path: Path, root: Path) -> list[str]:
    """Full names of what one node imports; `import_module("name")` is an import too."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        package = ["icl_mech", *path.parts[:-1]]
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        return list({submodule_or_base(base, alias.name, root): None for alias in node.names})
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in {"import_module", "__import__", "lazy_import"}:
            return [str(node.args[0].value)]
    return []


def submodule_or_base(base: str, name: str, root: Path) -> str:
    """`from icl_mech import errors` imports the module `errors`, `import run` only a name."""
    first, *rest = base.split(".")
    folder = root.joinpath(*rest)
    if first == "icl_mech" and ((folder / f"{name}.py").exists() or (folder / name).is_dir()):
        return f"{base}.{name}"
    return base


# Each rule yields one message per violation.


def every_module_has_its_place(modules: list[Module]) -> Iterator[str]:
    for unit in sorted({module.unit for module in modules} - LEVEL.keys()):
        yield (
            f"icl_mech/{unit} is in no level of ORDER in tests/test_architecture.py. Place it in "
            "the order: above everything it imports, below everything that imports it."
        )


def imports_go_down(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        if module.unit not in LEVEL:
            continue
        for found in module.imports:
            if not found.inside or found.unit == module.unit:
                continue
            if found.unit not in LEVEL:
                yield f"{module.at(found.line)} imports {found.target}, which is not in ORDER"
            elif LEVEL[found.unit] >= LEVEL[module.unit]:
                where = "beside" if LEVEL[found.unit] == LEVEL[module.unit] else "above"
                yield f"{module.at(found.line)} imports {found.target}, which stands {where} it"


def imports_make_no_circle(modules: list[Module]) -> Iterator[str]:
    """Files of one folder may import each other, but not in circles."""
    names = {module.name for module in modules}
    graph = {
        module.name: {
            target
            for found in module.imports
            if (target := ".".join(found.inside)) in names - {module.name}
        }
        for module in modules
    }
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> Iterator[str]:
        if name in way:
            yield " imports ".join((*way[way.index(name) :], name)) + ": a circle"
        elif name not in done:
            for target in sorted(graph[name]):
                yield from visit(target, (*way, name))
            done.add(name)

    for name in sorted(graph):
        yield from visit(name, ())


def text_and_model_halves_are_separate(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for one, other in ((TEXT_HALF, MODEL_HALF), (MODEL_HALF, TEXT_HALF)):
            for found in module.imports:
                if module.unit in one and found.inside and found.unit in other:
                    yield f"{module.at(found.line)} imports {found.target} of the other half"


def some_modules_import_only_what_is_listed(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for found in module.imports if module.unit in ONLY else ():
            known = ONLY[module.unit] | {module.unit}
            if not found.inside:
                known |= sys.stdlib_module_names
            if found.unit not in known:
                listed = ", ".join(sorted(ONLY[module.unit]))
                yield f"{module.at(found.line)} imports {found.target}, not only {listed}"


def only_models_import_runtimes(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for found in module.imports:
            if found.unit in {"transformer_lens", "nnsight"} and module.unit != "models":
                yield f"{module.at(found.line)} imports {found.target}; only models/ may"


def only_the_command_line_prints(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for node in ast.walk(module.tree) if module.unit != "cli" else ():
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print":
                yield f"{module.at(node.lineno)} prints; return or raise what there is to say"


def every_module_has_a_docstring(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        if not ast.get_docstring(module.tree):
            yield f"{module.at(1)} has no module docstring"


Rule = Callable[[list[Module]], Iterator[str]]
RULES: tuple[Rule, ...] = (
    every_module_has_its_place,
    imports_go_down,
    imports_make_no_circle,
    text_and_model_halves_are_separate,
    some_modules_import_only_what_is_listed,
    only_models_import_runtimes,
    only_the_command_line_prints,
    every_module_has_a_docstring,
)


def loaded_by_import(folder: Path) -> set[str]:
    """Which of `NOT_AT_IMPORT` a fresh process has after importing `folder`/icl_mech."""
    code = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); import icl_mech; "
        f"sys.stdout.write(' '.join(set({NOT_AT_IMPORT}) & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    found = parse(SOURCE)
    assert found
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_follows(rule: Rule, modules: list[Module]):
    assert list(rule(modules)) == []


def test_importing_the_package_imports_no_heavy_library():
    assert loaded_by_import(SOURCE.parent) == set()


# The rules themselves are tested on small packages that break or keep them.


def write_package(folder: Path, files: dict[str, str]) -> Path:
    root = folder / "icl_mech"
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return root


BROKEN = [
    (every_module_has_its_place, {"novelty.py": ""}, "icl_mech/novelty"),
    (every_module_has_its_place, {"novelty/__init__.py": ""}, "level of ORDER"),
    (imports_go_down, {"engine.py": "import icl_mech.studies"}, "stands above"),
    (imports_go_down, {"engine.py": "import icl_mech"}, "stands above"),
    (imports_go_down, {"engine.py": "from icl_mech.reports import x"}, "stands above"),
    (imports_go_down, {"errors.py": "def f():\n    import icl_mech._typing"}, "errors.py:2"),
    (imports_go_down, {"models/a.py": "from ..sweeps import sweep"}, "icl_mech.sweeps"),
    (imports_go_down, {"sweeps.py": "", "tasks.py": "from icl_mech import sweeps"}, "mech.sweeps"),
    (imports_go_down, {"tasks.py": "from icl_mech.novelty import x"}, "not in ORDER"),
    (imports_go_down, {"results.py": "from icl_mech.models import Site"}, "stands beside"),
    (imports_go_down, {"tasks.py": "import_module('icl_mech.engine')"}, "icl_mech.engine"),
    (
        imports_make_no_circle,
        {
            "measurements/a.py": "from icl_mech.measurements.b import x",
            "measurements/b.py": "def f():\n    import icl_mech.measurements.a",
        },
        "measurements.b imports measurements.a",
    ),
    (text_and_model_halves_are_separate, {"prompts.py": "import icl_mech.models"}, "other half"),
    (text_and_model_halves_are_separate, {"models/a.py": "import icl_mech.tasks"}, "other half"),
    (some_modules_import_only_what_is_listed, {"metrics.py": "import pandas"}, "pandas"),
    (some_modules_import_only_what_is_listed, {"metrics.py": "import icl_mech.results"}, "results"),
    (some_modules_import_only_what_is_listed, {"plots.py": "import torch"}, "torch"),
    (some_modules_import_only_what_is_listed, {"plots.py": "import icl_mech.metrics"}, "metrics"),
    (
        only_models_import_runtimes,
        {"engine.py": "def f():\n    from transformer_lens.utils import g"},
        "engine.py:2",
    ),
    (only_models_import_runtimes, {"__init__.py": "import transformer_lens"}, "only mod"),
    (only_models_import_runtimes, {"engine.py": "import nnsight"}, "imports nnsight"),
    (only_the_command_line_prints, {"engine.py": "if 1:\n    print(1)"}, "engine.py:2"),
    (every_module_has_a_docstring, {"models/__init__.py": "x = 1"}, "models/__init__.py"),
]

SOUND = {
    "__init__.py": '"""D."""\nfrom icl_mech.studies import analyze',
    "__main__.py": '"""D."""\nfrom icl_mech.cli import main',
    "cli/__init__.py": '"""D."""\nimport icl_mech\nprint(icl_mech)',
    "studies.py": '"""D."""\nimport icl_mech.measurements\nfrom icl_mech import errors',
    "measurements/__init__.py": '"""D."""\nfrom icl_mech.measurements.flow import f',
    "measurements/flow.py": '"""D."""\nfrom icl_mech.measurements import sums\nimport pandas',
    "measurements/sums.py": '"""D."""\nfrom icl_mech.engine import run',
    "engine.py": '"""D."""\nfrom icl_mech.models.interface import Site',
    "errors.py": '"""D: print(1)."""',
    "metrics.py": '"""D."""\nimport math\nimport torch\nfrom icl_mech._typing import Float',
    "models/a.py": '"""D."""\nfrom icl_mech.models.b import c\nimport transformer_lens',
    "plots.py": '"""D."""\nimport plotly.graph_objects\nfrom icl_mech.shapes import Table',
    "results.py": '"""D."""\ndef plot():\n    from icl_mech.plots import draw',
}


@pytest.mark.parametrize(("rule", "files", "message"), BROKEN)
def test_a_rule_finds_a_violation(rule: Rule, files: dict[str, str], message: str, tmp_path: Path):
    (found,) = rule(parse(write_package(tmp_path, files)))
    assert message in found


def test_every_rule_has_a_violation_to_find():
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_sound_package_breaks_no_rule(rule: Rule, tmp_path: Path):
    assert list(rule(parse(write_package(tmp_path, SOUND)))) == []


@pytest.mark.parametrize("heavy", NOT_AT_IMPORT)
def test_a_heavy_import_is_found(heavy: str, tmp_path: Path):
    write_package(
        tmp_path, {"__init__.py": "import icl_mech.engine", "engine.py": f"import {heavy}"}
    )
    (tmp_path / f"{heavy}.py").touch()
    assert loaded_by_import(tmp_path) == {heavy}


def test_the_top_level_holds_what_it_should():
    listed = subprocess.run(["git", "ls-files"], cwd=SOURCE.parent, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    folders = {path.split("/")[0] for path in listed.stdout.splitlines() if "/" in path}
    assert folders == {".ci", ".github", "docs", "icl_mech", "notebooks", "tests"}
