"""The text files of methods and studies: every block is used, and no sentence or figure stands in a measurement."""

import ast
import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch
from jaxtyping import Float

import icl_mech
from icl_mech.results import Result
from icl_mech.results.record import known_kinds
from icl_mech.results.shown import PARTS, look_of
from icl_mech.results.words import FOLDER, Words, _template

PACKAGE = Path(icl_mech.__file__).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.jinja") if path.stem != "shared")
CODE = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.jinja")}
NOT_IN_MEASUREMENTS = {"figures", "drawing", "summary", "title"}


def results():
    """Classes of results by the name of their text file."""
    return {kind.stem(): kind for kind in known_kinds().values() if hasattr(kind, "stem")}


def said(stem):
    """Blocks that somebody asks for by name: the page, another block, or code."""
    kind = results().get(stem)
    if kind is not None:
        yield from ("title", "summary")
        for show in (*kind.shows, ""):
            yield from (f"{show}_{part}" if show else part for part in PARTS)
    yield from re.findall(r"self\.(\w+)\(", TEXTS[stem])
    for text in (CODE, *TEXTS.values()):
        yield from (
            name
            for names in re.findall(r"\.say\(([^)]*)", text)
            for name in re.findall(r"""["'](\w+)["']""", names)
        )
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if re.search(rf'(sentences|headline|File)\(\s*"{stem}"', text):
            for name in re.findall(r'"(\w+)"', text):
                yield from (name, f"{name}_brief")
            yield from ("headline_question", "headline_answer")


@pytest.mark.parametrize("stem", FILES)
def test_every_block_is_asked_for(stem):
    template = _template(stem)
    assert template is not None
    assert sorted(template.blocks.keys() - set(said(stem))) == []


@pytest.mark.parametrize("stem", FILES)
def test_every_file_is_of_a_method_or_a_study(stem):
    assert stem in results() or re.search(rf'"{stem}"', CODE)


@pytest.mark.parametrize("stem", sorted(path.stem for path in (PACKAGE / "looks").glob("*.py")))
def test_every_look_is_of_a_method_or_shared(stem):
    assert stem in results() or f"icl_mech.looks.{stem} import" in CODE or stem == "__init__"


def test_methods_are_taken_at_their_word():
    """A file need not be there, nor a block that is optional; one that is named has to be. A look may be absent."""
    assert Words("no_such_method").optional("title") == ""
    assert "no_block" not in Words("flow_scores")
    for stem in ("no_such_method", "flow_scores"):
        with pytest.raises(KeyError, match=stem):
            Words(stem).say("no_block")
    assert look_of("no_such_method") is None


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "measurements").rglob("*.py")), ids=lambda path: path.stem
)
def test_no_sentence_and_no_figure_stands_in_a_measurement(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            names |= {str(getattr(item, "target", "")) for item in node.body}
            assert not names & NOT_IN_MEASUREMENTS, f"{node.name}: {names & NOT_IN_MEASUREMENTS}"
        if isinstance(node, ast.ImportFrom):
            assert not {alias.name for alias in node.names} & {
                "Figure",
                "LayerCurves",
                "Grid",
                "Table",
            }


def test_a_result_that_extends_one_of_the_package_keeps_its_sentences_and_figure():
    model = icl_mech.planted_model()
    found = icl_mech.predict(model, icl_mech.build_prompts(icl_mech.planted_task(), model, n=12))

    @dataclass(frozen=True, eq=False, kw_only=True)
    class Extended(type(found)):
        pass

    values = {own.name: getattr(found, own.name) for own in fields(found) if own.init}
    extended = Extended(**values)
    assert extended.summary() == found.summary()
    assert extended.figures() == found.figures()
    assert type(extended.drawing()) is type(found.drawing())


def test_a_result_of_ones_own_takes_no_sentences_of_the_package():
    @dataclass(frozen=True, eq=False, kw_only=True)
    class Gain(Result):
        x: Float[torch.Tensor, "batch layer"]

    alone = Gain(x=torch.rand(12, 3))
    assert (alone.page_title, alone.summary()) == ("Gain", "x: layer, 12 prompts")
    assert [figure.answer for figure in alone.figures()] == [alone.summary()]
    assert alone.drawing().title == "x"
