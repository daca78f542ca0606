"""The tools behind the documentation: what they let through and what they find."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.said import Words

WORDS = Words(__file__)

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_ext"))
    monkeypatch.syspath_prepend(str(DOCS))


def faults(tmp_path, **pages):
    from check_site import Page, local_faults

    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text)
    paths = [(tmp_path / f"{name}.html").resolve() for name in pages]
    return local_faults({path: Page(path) for path in paths})


def test_a_sound_site_has_no_faults(tmp_path):
    one = '<a href="two.html#there">x</a><a href="https://example.org">y</a>{{"text": 1}}{{BibTeX}}'
    assert not faults(tmp_path, one=one, two='<p id="there">z</p>')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<a href="three.html">x</a>', "three html leads"),
        ('<a href="two.html#nowhere">x</a>', "two html nowhere"),
        ('<a href="#nowhere">x</a>', "nowhere leads place"),
        ('<script src="https://cdn.example.org/x.js"></script>', "loads https cdn"),
        ('<link rel="stylesheet" href="//cdn.example.org/x.css">', "cdn example org"),
        ('<img src="missing.png">', "missing png leads"),
        (
            "<code><span>{{</span> <span>ot.chosen_on</span> <span>}}</span></code>",
            "shows placeholder",
        ),
        ("<p>{% if x %}</p>", "shows statement"),
    ],
)
def test_every_fault_is_found(tmp_path, text, said):
    found = faults(tmp_path, one=text, two="<p>z</p>")
    assert len(found) == 1
    WORDS(found[0], said)


def test_plotly_outputs_become_figures_and_widgets_go():
    pytest.importorskip("sphinx")
    from notebooks import PLOTLY, WIDGET, shown

    figure = {"data": [{"y": [1, 2]}], "layout": {"title": {"text": "A <b>bold</b> title"}}}
    html = shown({"output_type": "display_data", "data": {PLOTLY: figure, "text/html": "<x>"}})
    text = html["data"]["text/html"]
    assert 'aria-label="A bold title"' in text
    assert json.loads(text.split('json">')[1].split("</script>")[0])["data"] == figure["data"]
    assert shown({"output_type": "display_data", "data": {WIDGET: {}}}) is None
    script = {"text/html": "<script>Plotly.newPlot()</script>", "image/png": "x"}
    assert shown({"output_type": "display_data", "data": script})["data"] == {"image/png": "x"}
    plain = {"output_type": "stream", "text": "x"}
    assert shown(plain) == plain


def test_a_text_in_a_figure_cannot_end_its_element():
    pytest.importorskip("sphinx")
    from figures import element

    html = element({"data": [{"text": "</script><script>alert(1)</script>"}]}, 'a "quoted" <b>')
    assert html.count("</script>") == 1
    assert 'aria-label="a &quot;quoted&quot; &lt;b&gt;"' in html


def test_names_of_functions_are_functions_and_modules_are_refused():
    pytest.importorskip("sphinx")
    from reference import directive
    from sphinx.errors import ExtensionError

    assert directive("icl_mech.isolation") == ".. autofunction:: icl_mech.isolation\n"
    assert directive("icl_mech.Isolate").startswith(".. autoclass::")
    with WORDS.raises(ExtensionError, "names_functions_functions_modules"):
        directive("icl_mech.measurements.isolation")


def reference():
    """All text of the reference, the pages of methods included."""
    pytest.importorskip("sphinx")
    from methods import pages

    by_hand = [path.read_text() for path in (DOCS / "reference").glob("*.md")]
    return "\n".join([*by_hand, *pages(DOCS).values()])


def test_everything_public_is_in_the_reference():
    import icl_mech as icl

    pages = reference()
    missing = [
        name for name in (*icl.__all__, *icl.ELSEWHERE) if f"\nicl_mech.{name}\n" not in pages
    ]
    assert set(missing) <= {"Measurement"}  # under its own module, with what one builds from it


def test_every_measurement_is_in_the_reference():
    from icl_mech import measurements

    pages = reference()
    aliases = {"AnyMeasurement", "Pair"}
    names = set(measurements.__all__) - aliases
    assert not [name for name in names if f"\nicl_mech.measurements.{name}\n" not in pages]


def test_fields_and_formulas_of_parents_reach_the_reference():
    pytest.importorskip("sphinx")
    from reference import complete
    from sphinx.ext.napoleon import Config

    from icl_mech.measurements.compression.compare_compression import CompareCompressionResult
    from icl_mech.measurements.saliency.flow import FlowScores

    app = SimpleNamespace(config=Config(napoleon_use_ivar=True))
    lines = [":ivar kept: Positions."]
    complete(app, "class", "", CompareCompressionResult, None, lines)
    text = "\n".join(lines)
    assert text.count(":ivar prompt_share:") == text.count(":vartype prompt_share:") == 1
    assert text.count(":ivar kept:") == 1
    assert ":ivar provenance:" not in text
    assert text.count(".. math::") == len(CompareCompressionResult.definitions)
    lines = []
    complete(app, "class", "", FlowScores, None, lines)
    assert any(line.startswith(".. math:: S_{wp} =") for line in lines)


def test_signatures_show_no_checks():
    pytest.importorskip("sphinx")
    from reference import shorten, written

    from icl_mech.checking import Count

    assert written(Count) == "int"
    given = "(n: Annotated[int, AtLeast(least=1)] = 5)"
    assert shorten(None, "class", "", int, None, given, None) == ("(n: int = 5)", None)


def test_formulas_become_mathml():
    pytest.importorskip("sphinx")
    from formulas import mathml

    found = mathml(r"S_{pq} = \frac{a}{b < c}", "block")
    assert found.startswith("<math ")
    assert "<mfrac>" in found
    assert "&lt; c" in found
    assert "<munder><mo>&#x02211;</mo><mi>h</mi></munder>" in mathml(r"\sum_h A", "block")
    assert mathml(r"\Big|x\Big|", "block").count("stretchy") == 2


def test_what_is_not_defined_is_said_to_be():
    from guide_numbers import r_sentence

    from icl_mech.metrics import Interval

    read = SimpleNamespace(cumulative_defined=False, denominator=Interval(-2.114, -4.18, -0.19))
    assert r_sentence(read).endswith("is −2.11 [−4.18,\N{NO-BREAK SPACE}−0.19]")


def test_numbers_are_written_as_on_pages():
    from guide_numbers import number, shown, table

    from icl_mech.metrics import Interval

    assert number(-0.5, signed=True) == "−0.50"
    assert number(0.0312) == "0.031"
    assert shown(Interval(0.25, 0.09, 0.53)) == "0.25 [0.090,\N{NO-BREAK SPACE}0.53]"
    assert shown(None) == "not defined"
    assert table(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_a_page_of_a_method_is_written_from_the_method():
    pytest.importorskip("sphinx")
    from methods import held_against, measurement_of, page, question_of

    import icl_mech as icl

    assert measurement_of(icl.isolation).__name__ == "Isolation"
    assert measurement_of(icl.early_exit).__name__ == "EarlyExit"
    which = "| Does it? | [`isolation`](#icl_mech.isolation) | that it does | why |"
    assert question_of("isolation", which) == ("Does it?", "that it does", "why")
    assert question_of("extraction", which) is None
    tests = DOCS.parent / "tests"
    assert any("golden" in path for path in held_against({"isolation"}, tests))
    cards = {"isolation": {"forward": 49.0, "backward": 0.0}}
    text = page({"title": "Isolation", "doors": ["isolation"]}, DOCS, cards)
    WORDS(text, "page_method_written_method", "49")
    WORDS(text, "page_method_written_method_2")
    assert "icl_mech.measurements.Isolation\n" in text
    assert ".IsolationResult\n" in text
    assert "`depths=None`" in text
    assert "| refuses | RunError: " in text


def test_notebooks_stand_in_the_order_of_their_numbers():
    pytest.importorskip("sphinx")
    from notebooks import number

    names = ["10_b.ipynb", "2_a.ipynb", "own.ipynb", "1_c.ipynb"]
    assert sorted(map(Path, names), key=number) == [
        Path(name) for name in ("1_c.ipynb", "2_a.ipynb", "10_b.ipynb", "own.ipynb")
    ]


FACTS = {
    "libraries": {"other": {"version": "1.0", "at": "https://x.org/", "read": "README"}},
    "rows": [
        {
            "row": "Flow",
            "own": ["flow_scores"],
            "peers": {"other": ["full", "flow.py", "all of it", "once"]},
        }
    ],
}


def with_row(**row):
    return {**FACTS, "rows": [{"row": "Flow", **row}]}


def test_the_table_of_other_libraries():
    pytest.importorskip("sphinx")
    from peers import table

    assert table(yaml.safe_load((DOCS / "peers.yaml").read_text()))
    lines = table(FACTS).splitlines()
    assert lines[0] == "|  | icl_mech | other |"
    WORDS.exactly(lines[2], "table_other_libraries")
    assert lines[-1] == "* **[other](https://x.org/)** 1.0: README."
    assert "| – | – |" in table(with_row(own_no=["no such thing"]))


@pytest.mark.parametrize(
    "row",
    [
        {"own": ["no_such_function"]},
        {"own_no": ["flow"]},
        {},
        {"own": ["flow_scores"], "peers": {"another": ["full", "a.py", "it"]}},
        {"own": ["flow_scores"], "peers": {"other": ["full", "a.py"]}},
        {"own": ["flow_scores"], "peers": {"other": ["none", "a.py", "it"]}},
    ],
)
def test_cells_that_are_not_true_or_have_no_source_are_refused(row):
    pytest.importorskip("sphinx")
    from peers import table
    from sphinx.errors import ExtensionError

    with pytest.raises(ExtensionError):
        table(with_row(**row))


def test_the_table_of_recipes_is_that_of_today():
    from make_recipes import PLACE, table

    assert PLACE.read_text(encoding="utf-8") == table(), "run python docs/make_recipes.py"
    assert {line.count(" | ") for line in table().splitlines()[2:]} == {3}


def test_rooms_stand_above_what_they_import():
    pytest.importorskip("sphinx")
    import rooms

    house = {
        "top": rooms.Room(3, frozenset({"middle", "base"}), "Above all."),
        "middle": rooms.Room(2, frozenset({"base"}), ""),
        "base": rooms.Room(1, frozenset(), "Below <all>."),
    }
    assert rooms.floors(house) == {"top": 2, "middle": 1, "base": 0}
    assert rooms.nearest(house) == [("top", "middle"), ("middle", "base")]
    drawn = rooms.drawing(house)
    assert drawn.count("<rect") == 3
    assert drawn.count("<path") == 2
    assert "Below &lt;all&gt;." in drawn


@pytest.mark.slow
def test_the_rooms_of_today_have_no_circle():
    pytest.importorskip("sphinx")
    import rooms

    house = rooms.rooms()
    level = rooms.floors(house)
    assert all(level[name] > level[other] for name, room in house.items() for other in room.uses)
    assert level["studies"] > level["measurements"] > level["engine"] > level["models"]


@pytest.mark.slow
def test_a_walk_goes_from_the_measurement_to_the_engine():
    pytest.importorskip("sphinx")
    import rooms

    import icl_mech as icl

    model = icl.planted_model()
    prompts = icl.build_prompts(icl.planted_task(), model, n=4)
    stops = rooms.walk(lambda: icl.flow_scores(model, prompts), model)
    files = [stop.file for stop in stops]
    assert files[0] == "measurements/base.py"
    assert files.index("measurements/saliency/flow.py") < files.index("engine/runs.py")
    assert all(stop.about for stop in stops)
