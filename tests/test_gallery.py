"""The gallery of figures: nothing is missing, and every snippet calls what there is."""

import ast
import inspect
import json
import re
import types
import typing
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import icl_mech as icl
from icl_mech import shapes
from icl_mech.plots import DRAW
from icl_mech.results.shown import look_of
from tests.said import Words

WORDS = Words(__file__)

pytest.importorskip("sphinx")

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = ("anchors", "baselines", "causal_heads", "cuts", "function_vector_by_demonstration", "gain", "generation", "lenses", "many_shots", "open_answers",
          "planted", "sweeps")  # fmt: skip
TRACES = {"Grid": "heatmap", "Grids": "heatmap", "LabelMatrix": "heatmap", "LabelMatrices": "heatmap",
          "LensTable": "heatmap", "TokenMatrix": "heatmap", "TokenStrips": "heatmap", "Table": "table"}  # fmt: skip
"""What figures of a shape are made of; all others of points and lines."""


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))


@pytest.fixture
def gallery(tools):
    import gallery

    return gallery


@pytest.fixture
def entries(gallery):
    return gallery.entries(DOCS)


class UnknownNameError(AssertionError):
    """A name that a snippet uses and nothing has."""


def kinds(annotation):
    """The classes that a value of this type may have; none where it is not known."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [own for part in typing.get_args(annotation) for own in kinds(part)]
    if typing.get_origin(annotation) is tuple:
        return [annotation]
    known = isinstance(annotation, type) and annotation is not typing.Any
    return [annotation] if known else []


def returned(function, given):
    """Types of what a call gives, whose keywords must be parameters."""
    own = inspect.signature(function)
    free = any(part.kind is part.VAR_KEYWORD for part in own.parameters.values())
    for name in given:
        if not free and name not in own.parameters:
            raise UnknownNameError(f"{function.__qualname__} has no option {name}")
    return kinds(own.return_annotation)


def attribute(owners, name):
    """What objects of these classes have under a name."""
    if not owners or any(hasattr(owner, "__getattr__") for owner in owners):
        return []
    found = []
    for owner in owners:
        if is_dataclass(owner) and name in {own.name for own in fields(owner)}:
            return []
        if hasattr(owner, name):
            found.append(inspect.getattr_static(owner, name))
    if not found:
        raise UnknownNameError(f"{owners} have no {name}")
    return [found[0]]


class Reader:
    """Follows the types of a snippet without running it."""

    def __init__(self, names):
        self.names = dict(names)
        self.plotted = []

    def read(self, code):
        for line in ast.parse(code).body:
            found = self.of(line.value)
            if isinstance(line, ast.Assign):
                self.bind(line.targets[0], found)

    def bind(self, target, found):
        if isinstance(target, ast.Name):
            self.names[target.id] = found
            return
        parts = typing.get_args(found[0]) if found else ()
        for i, own in enumerate(target.elts):
            self.bind(own, kinds(parts[i]) if i < len(parts) else [])

    def of(self, node):
        if isinstance(node, ast.Name):
            if node.id not in self.names:
                raise UnknownNameError(node.id)
            return self.names[node.id]
        if isinstance(node, ast.Attribute):
            return self.got(node)
        if isinstance(node, ast.Call):
            return self.called(node)
        if isinstance(node, ast.Subscript):
            return self.of(node.value)
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                self.of(part)
        return []

    def got(self, node):
        owner = self.of(node.value)
        if owner and isinstance(owner[0], types.ModuleType):
            module = owner[0]
            public = {*module.__all__, *getattr(module, "ELSEWHERE", ()), "measurements"}
            if node.attr not in public:
                raise UnknownNameError(f"{module.__name__}.{node.attr} is not public")
            return [getattr(module, node.attr)]
        found = attribute(owner, node.attr)
        if found and isinstance(found[0], property):
            return kinds(found[0].fget.__annotations__.get("return"))
        return found

    def called(self, node):
        for part in (*node.args, *(own.value for own in node.keywords)):
            self.of(part)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "plot":
            self.plotted.append(
                (self.of(node.func.value), [ast.literal_eval(own) for own in node.args])
            )
        found = self.of(node.func)
        given = [own.arg for own in node.keywords]
        if not found:
            return []
        if isinstance(found[0], type):
            returned(found[0], given)
            return [found[0]]
        return returned(found[0], given) if callable(found[0]) else []


def read(gallery, code):
    head = Reader({"icl": [icl]})
    head.read(gallery.HEAD.removeprefix("import icl_mech as icl"))
    own = Reader(head.names | {"range": []})
    own.read(code)
    return own


def test_every_shape_that_is_drawn_is_there(entries):
    assert {entry["shape"] for entry in entries.values()} == {kind.__name__ for kind in DRAW}
    assert {kind.__name__ for kind in DRAW} == {
        kind.__name__ for kind in typing.get_args(shapes.Shape)
    }


def test_every_figure_is_stored_and_of_its_shape(gallery, entries):
    for name, entry in entries.items():
        figure = gallery.figure_of(DOCS, entry)
        kinds_of = {trace["type"] for trace in figure["data"]}
        assert TRACES.get(entry["shape"], "scatter") in kinds_of, name
        assert kinds_of <= {"scatter", TRACES.get(entry["shape"], "scatter")}, name


def drawing_of(kind):
    """How results of a class are drawn: by its look, if its method has one."""
    return (look_of(kind.stem()) if hasattr(kind, "stem") else None) or kind.drawing


def test_every_snippet_has_few_lines_and_calls_what_there_is(gallery, entries):
    known = 0
    for name, entry in entries.items():
        lines = entry["code"].strip().splitlines()
        assert len(lines) <= 3, name
        assert re.search(r"\.plot\([^()]*\)$", lines[-1]), name
        reader = read(gallery, entry["code"])
        (owner, shown), *_ = reader.plotted
        known += bool(owner)
        assert all(hasattr(kind, "plot") for kind in owner), name
        assert not (owner and shown) or any(shown[0] in kind.shows for kind in owner), name
        drawn = [
            own
            for kind in owner
            for own in kinds(inspect.signature(drawing_of(kind)).return_annotation)
        ]
        assert not drawn or entry["shape"] in {own.__name__ for own in drawn}, name
    # Types do not tell of a sweep and of networks that learned nothing.
    assert known >= len(entries) - 2


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("icl.flow_score(model).plot()", "flow_score"),
        ("icl.flow_scores(model, texts, draw=1).plot()", "option draw"),
        ("icl.flow_scores(model, prompts).plot()", "prompts"),
        ("icl.flow_scores(model, texts).curve.plot()", "curve"),
    ],
)
def test_what_there_is_not_is_found(gallery, code, said):
    with WORDS.raises(UnknownNameError, said):
        read(gallery, code)


def test_the_page_leads_from_small_pictures_to_figures_and_on(gallery, entries):
    page = gallery.page(DOCS)
    for name, entry in entries.items():
        place = f"figure-{name.replace('_', '-')}"
        assert f'href="#{place}"' in page
        assert f"({place})=" in page
        assert f":::{{figure-live}} {name}\n" in page
        assert (DOCS / entry["guide"]).is_file(), entry["guide"]
        wrong, _, right = entry["wrongly"].partition("”")
        assert wrong.startswith("“"), name
        assert len(right.split()) > 5, name
    ways = (DOCS / "index.md").read_text(encoding="utf-8").partition("## Where to go")[2]
    assert "(gallery.md)" in ways.split("](explorer.md)")[0]


def test_a_figure_that_a_notebook_does_not_hold_is_refused(gallery):
    from sphinx.errors import ExtensionError

    with WORDS.raises(ExtensionError, "figure_notebook_hold_refused"):
        gallery.figure_of(DOCS, {"figure": ["4_overthinking", "Nothing"]})


def test_small_pictures_have_the_colours_of_their_theme(gallery, entries):
    from icl_mech.plots.style import LOOKS

    figure = gallery.figure_of(DOCS, entries["flow"])
    for theme in ("light", "dark"):
        text = gallery.small(figure, "LayerCurves", theme == "dark")
        assert text.startswith("<svg ")
        assert len(text) < 60_000
        assert getattr(LOOKS["label"], theme) in text
        other = {"light": "dark", "dark": "light"}[theme]
        assert getattr(LOOKS["label"], other) not in text


def test_small_pictures_can_be_read(gallery, entries):
    for name, entry in entries.items():
        text = gallery.small(gallery.figure_of(DOCS, entry), entry["shape"])
        assert f'width="{gallery.ACROSS}"' in text, name  # drawn at the size at which it is shown
        sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
        assert min(sizes, default=12) >= 10, name
        assert not any(
            title in text for title in gallery.titles(gallery.figure_of(DOCS, entry)) if title
        ), name


def test_small_pictures_show_one_panel_and_the_last_layers(gallery, entries):
    found = [
        gallery.small(gallery.figure_of(DOCS, entries[name]), entries[name]["shape"])
        for name in ("edge_cuts", "top_words")
    ]
    assert found[0].count(">early<") == 1
    assert ">␣stick<" in found[1]


PAPERS = {"label_words": ("lw", 6), "overthinking": ("ot", 8)}
"""Guides to the papers: their run, and how many figures they show."""


@pytest.mark.parametrize("name", PAPERS)
def test_guides_to_papers_show_the_figures_of_their_run(gallery, name):
    run, count = PAPERS[name]
    text = (DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")
    shown = re.findall(r":::\{figure-from\} guides/(\w+)\.json\n(.+?)\n:::", text, re.DOTALL)
    assert len(shown) == count
    assert {f"{own}.json" for own, _ in shown} == {
        path.name for path in (DOCS / "figures" / "guides").glob(f"{run}_*.json")
    }
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        plotted = len(re.findall(r"\.plot\(\)$", section, re.MULTILINE))
        assert section.count(":::{figure-from}") >= plotted, section.splitlines()[0]
        assert not section.startswith("Figure ") or plotted, section.splitlines()[0]
    numbers = json.loads((DOCS / "numbers.json").read_text(encoding="utf-8"))
    for own, _ in shown:
        figure = json.loads((DOCS / "figures" / "guides" / f"{own}.json").read_text())
        note = gallery.titles(figure)[1]
        assert re.match(
            rf"({numbers[run]['n']}|{numbers['ot']['zeroed_n']}) (pairs|prompts)|prompt 0|dark",
            note,
        )


def test_figures_of_guides_have_the_numbers_of_the_text(gallery):
    numbers = json.loads((DOCS / "numbers.json").read_text(encoding="utf-8"))
    layers, flow = (
        {
            trace["name"]: gallery.plain(trace)["y"]
            for trace in json.loads((DOCS / "figures" / "guides" / f"{own}.json").read_text())[
                "data"
            ]
            if "lines" in (trace.get("mode") or "") and trace.get("name")
        }
        for own in ("ot_layer_accuracy", "lw_flow")
    )
    for side in ("true", "false"):
        assert numbers["ot"][side].startswith(f"{layers[f'{side} demonstrations'][-1]:.2f} [")
    early, late = (
        next(flow[name] for name in flow if name.startswith(own)) for own in ("S_wp", "S_pq")
    )
    assert numbers["lw"]["wp_first"].startswith(f"{sum(early[:10]) / 10:.2f} [")
    assert numbers["lw"]["pq_last"].startswith(f"{sum(late[20:]) / 10:.2f} [")


@pytest.mark.parametrize("name", GUIDES)
def test_guides_have_a_figure_that_says_what_it_does_not_show(entries, name):
    text = (DOCS / "guides" / f"{name}.md").read_text(encoding="utf-8")
    found = re.findall(r":::\{figure-live\} (\w+)\n(.*?)\n:::", text, re.DOTALL)
    assert found
    for own, caption in found:
        assert own in entries
        assert caption.startswith("Shows")
        WORDS(" ".join(caption.split()), "guides_figure_says_what")


def test_what_is_measured_for_the_gallery_is_used(entries, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    from gallery_figures import MEASURED

    used = {str(entry["figure"]) for entry in entries.values()}
    for name in MEASURED:
        assert f"{name}.json" in used
        assert json.loads((DOCS / "figures" / f"{name}.json").read_text())["data"]
