"""Pages: one file that holds everything, texts as text, written all or nothing."""

import base64
import csv
import gzip
import io
import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from icl_mech.errors import ResultError
from icl_mech.metrics import Interval
from icl_mech.plots import figure
from icl_mech.plots.pieces import in_text
from icl_mech.plots.style import INK, LINK, LOOKS, PAGE, PANEL, QUIET
from icl_mech.prompts.spans import ROLES
from icl_mech.reports import (
    Fact,
    Finding,
    Origin,
    Page,
    PromptText,
    Section,
    render_page,
    rendering,
    write_page,
)
from icl_mech.reports.markup import mathml, origin_rows, text_html
from icl_mech.reports.model import STATUSES
from icl_mech.reports.rendering import ROLE_NAMES, colours
from icl_mech.reports.tables import FIRST, LONGEST, frame_table, shape_tables, written
from icl_mech.results import Definition
from icl_mech.results.wording import said
from icl_mech.shapes import (
    Grid,
    Grids,
    LabelMatrix,
    LayerCurves,
    Panel,
    Scatter,
    Table,
    TokenMatrix,
    TokenSegment,
    TokenStrips,
)
from tests.said import Words

WORDS = Words(__file__)

RISKY = "<script>alert('x')</script> & co"


@pytest.fixture(scope="module")
def sections():
    return [
        Section("flow", "It flows.", go.Figure(go.Scatter(y=[1.5, 2.5])), {"seed": 3}),
        Section(RISKY, RISKY, go.Figure(go.Bar(y=[4.0])), {"name": RISKY, "nan": float("nan")}),
    ]


@pytest.fixture(scope="module")
def page(sections):
    return render_page(RISKY, sections, lead=RISKY)


def test_plotly_stands_in_the_page_once(page):
    assert page.count(get_plotlyjs()) == 1


def test_nothing_is_fetched(page):
    markup = page.replace(get_plotlyjs(), "")
    assert not re.findall(r"<script[^>]*\bsrc=|<link|<img|@import|url\(", markup)


def test_a_page_that_loads_plotly_is_small(sections):
    page = render_page("t", sections, offline=False)
    assert page.count(f"https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js") == 1
    assert len(page) < 100_000


def data_of(page):
    """What the script of a page is given."""
    (text,) = re.findall(r'id="page-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_figures_stand_in_the_page_in_order(page):
    figures = data_of(page)["figures"].values()
    assert [trace["type"] for own in figures for trace in own["wide"]["data"]] == ["scatter", "bar"]


class Text(HTMLParser):
    """Text by the tag it stands in."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], {}

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and data.strip():
            self.found.setdefault(self.open[-1], []).append(data.strip())


VOID = {"meta", "link", "input", "path", "circle", "br", "rect"}


def texts(page):
    """Text by tag, of the page without its scripts."""
    reader = Text()
    reader.feed(page.replace(get_plotlyjs(), ""))
    return {tag: "".join(found) for tag, found in reader.found.items()}


def test_titles_and_sentences_are_text(page):
    assert "<script>alert" not in page.replace(get_plotlyjs(), "")
    found = texts(page)
    assert found["title"] == found["h1"] == RISKY
    assert found["h2"] == f"flow{RISKY}"
    assert found["p"].startswith(RISKY + "It flows.")
    assert found["p"].count(RISKY) == 2


def test_provenance_is_a_list(page):
    assert "<dt>seed</dt><dd>3</dd>" in page
    found = texts(page)
    assert found["dt"] == "seedname"  # what is undefined is left out
    assert found["dd"] == f"3{RISKY}"


def test_one_file_is_written_and_replaced(sections, tmp_path):
    path = write_page(tmp_path / "a" / "page.html", "first", sections, offline=False)
    again = write_page(path, "second", sections, offline=False)
    assert path == again == tmp_path / "a" / "page.html"
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    assert "<h1>second</h1>" in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_old_page_stays_when_writing_fails(sections, tmp_path, monkeypatch):
    path = write_page(tmp_path / "page.html", "first", sections, offline=False)
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with WORDS.raises(ResultError, "old_page_stays_when"):
        write_page(path, "second", sections, offline=False)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_page_somebody_wrote_or_edited_is_not_replaced(sections, tmp_path):
    path = write_page(tmp_path / "page.html", "first", sections, offline=False)
    for content in (path.read_text() + "remarks", path.read_text().replace("first", "my"), ""):
        path.write_text(content)
        with WORDS.raises(ResultError, "page_somebody_wrote_edited"):
            write_page(path, "second", sections, offline=False)
        assert path.read_text() == content
    write_page(path, "second", sections, offline=False, overwrite=True)
    assert "<h1>second</h1>" in path.read_text(encoding="utf-8")


def test_a_link_to_a_page_stays(sections, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "page.html").symlink_to("pages/one.html")
    for title in ("first", "second"):
        path = write_page(tmp_path / "page.html", title, sections, offline=False)
        assert f"<h1>{title}</h1>" in (tmp_path / "pages" / "one.html").read_text()
        assert path.is_symlink()


def test_a_page_below_a_file(sections, tmp_path):
    (tmp_path / "file").write_text("mine")
    with WORDS.raises(ResultError, "page_below_file"):
        write_page(tmp_path / "file" / "page.html", "t", sections, offline=False)
    assert (tmp_path / "file").read_text() == "mine"


def test_rendering_fails_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "html", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_page(tmp_path / "new" / "page.html", "t", [])
    assert list(tmp_path.iterdir()) == []


def test_the_head_of_a_page():
    findings = [
        Finding(f"claim {s}", s, f"It is 0.25 [0.09, 0.53], {s}.", "flow") for s in STATUSES
    ]
    origin = Origin(
        findings,
        [Fact("Model", "tiny", "2 layers"), Fact("Task", RISKY)],
        "icl-mech analyze",
        [RISKY],
    )
    section = Section("Where?", "**Yes.** 1.5 [−1, 2].", None, {}, key="flow", short="Flow")
    page = render_page(Page("Do they?", [section], "A study", "Yes.", origin), offline=True)
    found = texts(page)
    assert found["h1"] == "Do they?"
    assert get_plotlyjs() not in page  # there is no figure
    assert page.count('href="#flow">Section 1</a>') == len(STATUSES)
    symbols = re.findall(r'<svg class="symbol".*?</svg>', page, re.DOTALL)
    assert len(symbols) == len(set(symbols)) == len(STATUSES)
    for status in STATUSES:
        assert f'<b class="status-word">{status}</b>' in page
    assert '<b>Yes.</b> 1.5 <span class="ci">[−1, 2]</span>.' in page
    assert "icl-mech analyze" in found["code"]


def test_sections_of_one_key_have_places_of_their_own():
    sections = [Section(name, "", None, {}, key="flow") for name in ("a", "b", "c")]
    page = render_page("t", sections)
    assert re.findall(r'<section id="([\w-]+)">', page) == ["flow", "flow-2", "flow-3"]


def test_scores_are_symbols_in_sentences():
    assert str(text_html("S_wp above S_pq")) == "<i>S</i><sub>wp</sub> above <i>S</i><sub>pq</sub>"
    assert "<sub>" not in str(text_html("TESTS_wp, S_wpx"))


def test_names_of_options_are_code():
    shown = str(text_html("half (`threshold`: another share), `<b>` and `two words` stay"))
    assert "(<code>threshold</code>: another" in shown
    WORDS(shown, "names_options_code")


def test_bold_and_intervals_are_marked_and_nothing_else():
    shown = str(text_html("**a <b>** [0.1, 0.2] [see, this] **"))
    assert shown == '<b>a &lt;b&gt;</b> <span class="ci">[0.1, 0.2]</span> [see, this] **'


@pytest.mark.parametrize(
    "formula", [r"\frac{1}{|P|} \sum_p I_l[p, j]", "a < b", r"\text{<script>}"]
)
def test_formulas_are_mathml(formula):
    shown = str(mathml(formula))
    assert shown.startswith("<math")
    assert "<script>" not in shown


def test_a_formula_that_cannot_be_read_is_shown_as_it_is():
    assert str(mathml(r"\left( <")) == r"<code>\left( &lt;</code>"


def test_definitions_stand_in_the_fold():
    definition = Definition("loyalty", "a = b", "Share of **answers**.", "Wang et al., §2.2")
    page = render_page("t", [Section("a", "", None, {}, definitions=[definition])])
    assert re.search(r"<dt>loyalty</dt><dd><div class=.formula.[^>]*><math", page)
    assert "Share of <b>answers</b>." in page


def test_numbers_as_tables_and_files():
    frame = pd.DataFrame(
        {"name": [RISKY, "b"] * LONGEST, "value": 0.25, "low": -0.5, "high": 1.0, "count": 3}
    )
    page = render_page("t", [Section("a", "", None, {}, numbers=frame)])
    (link,) = re.findall(r'href="data:text/csv;charset=utf-8,(.*?)"', page)
    rows = list(csv.reader(io.StringIO(unquote(link))))
    assert len(rows) == 1 + 2 * LONGEST
    assert rows[1] == [RISKY, "0.25", "-0.5", "1.0", "3"]
    assert '<td class="num ">0.25 <span class="ci">[−0.50, 1.00]</span></td>' in page
    WORDS(page, "numbers_tables_files", LONGEST)
    table = frame_table(frame)
    assert table.columns == ("name", "value", "count")
    assert len(table.rows) == LONGEST
    body = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    assert [part.count("<tr>") for part in body] == [FIRST, LONGEST - FIRST]
    assert f"<summary>The next {LONGEST - FIRST} rows</summary>" in page


def test_all_rows_of_a_usual_table_are_in_the_page():
    frame = pd.DataFrame({"score": [s for s in ("wp", "pq", "ww") for _ in range(30)], "layer": [*range(30)] * 3, "value": 0.5})  # fmt: skip
    page = render_page("t", [Section("a", "", None, {}, numbers=frame)])
    first, rest = re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL)
    assert first.count("<tr>") == FIRST
    assert [(first + rest).count(f'<th scope="row">{s}</th>') for s in ("wp", "pq", "ww")] == [
        30,
        30,
        30,
    ]
    assert f"<summary>{90 - FIRST} more rows</summary>" in page
    WORDS.only_if(False, page, "numbers_tables_files", "")


def test_two_levels():
    numbers = pd.DataFrame({"x": [1], "y": [2.5]})
    origin = {"seed": 3, "model": {"name": "tiny"}}
    shared = {"numbers": numbers, "definitions": [Definition("a", "b", "c.")]}
    sections = [
        Section("Last?", "No.", Table("t", ("x",), (("1",),)), origin | {"own": "x"}, short="Final", key="last"),
        Section("A?", "Yes. And more.", Table("t", ("x",), (("1",),)), origin, "**Bold.** Rest.", key="a", first=True, **shared),
        Section("B?", "Yes.", Table("t", ("x",), (("1",),)), origin, key="a", **shared),
    ]  # fmt: skip
    told = Origin(
        [
            Finding("Does it?", "supported", "It does.", word="yes"),
            Finding("C: c", "mixed", "Long and longer.", brief="Short."),
        ],
        [Fact("Model", "tiny")], "run()", ["Brackets.", "Another limit."],
    )  # fmt: skip
    page = render_page(Page("t", sections, origin=told, about="tiny on t"))
    first, appendix = page.split('<h2 id="appendix">')
    assert re.findall(r'<section id="([\w-]+)"', first) == ["findings", "a"]
    assert re.findall(r'<section id="([\w-]+)"', appendix) == ["verdicts", "last", "a-2", "origin"]
    assert re.findall(r'<span class="no">(\d)</span> (?:<span class="brief">)?(\w+)', page) == [
        ("1", "A"),
        ("2", "Final"),
        ("3", "B"),
    ]
    assert '<span class="brief">Final</span><span class="whole">Last?</span>' in appendix
    body = first[first.index("<main") :]
    before = body.replace(body[body.index("<details") : body.index("</details>")], "")
    WORDS(before, "two_levels")
    assert '<b class="status-word">yes</b>' in before
    assert "Short." in before
    assert "Yes.</p>" in before
    assert "<b>Bold.</b>" in before
    for text in ("Long and longer", "And more", "Rest.", "run()", "Another limit", "<dt>"):
        assert text not in before
        assert text in page
    # What all results say of their origin is told once, as are numbers and definitions of one result.
    assert page.count("name: tiny") == 1
    assert page.count('<th scope="row">seed</th><td>3</td>') == 1
    assert page.count("<dt>own</dt><dd>x</dd>") == 1
    assert page.count("<h3>Numbers</h3>") == page.count("<h3>Definition</h3>") == 1
    assert 'origin: <a href="#a">section 1</a>' in appendix
    assert re.search(r"<details[^>]*\bopen", body + appendix) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"), (-3, "−3"), (0.25, "0.25"), (-0.05, "−0.050"), (float("nan"), "–"), (0.0, "0.00"),
        (1e-5, "1.0e−5"), (None, ""), (True, "yes"), (np.float32(0.5), "0.50"), (np.int64(4), "4"),
        (12345.6, "12346"), (float("inf"), "∞"), (2 / 3, "0.67"), (1e7, "1.0e7"), (3e-4, "3.0e−4"),
    ],
)  # fmt: skip
def test_values_in_tables(value, text):
    assert written(value) == text


def test_shapes_that_are_tables():
    counts = LabelMatrix(
        "",
        torch.tensor([[3.0, 0.0], [1.0, 2.0]]),
        ("a", "b"),
        ("a", "b"),
        "true",
        "predicted",
        "prompts",
        counts=True,
        diagonal=True,
    )
    (matrix,) = shape_tables(counts)
    assert [[cell.text for cell in row] for row in matrix.rows] == [
        ["a", "3", "0"],
        ["b", "1", "2"],
    ]
    assert [cell.framed for row in matrix.rows for cell in row[1:]] == [True, False, False, True]
    page = render_page(
        "t", [Section("a", "", counts, {}), Section("b", "", Table("t", ("x",), ((RISKY,),)), {})]
    )
    assert page.count("<table") == 2
    assert get_plotlyjs() not in page
    assert "alert" in texts(page)["th"]


def test_empty_matrices_are_tables_too():
    nothing = torch.full((1, 1), math.nan)
    (matrix,) = shape_tables(LabelMatrix("", nothing, ("a",), ("b",), "", "", ""))
    assert [(cell.text, cell.shade) for cell in matrix.rows[0]] == [("a", None), ("", None)]


def test_maps_are_kept_in_steps_of_a_log_scale():
    generator = torch.Generator().manual_seed(0)
    n = 9
    values = torch.rand(3, n, n, generator=generator).pow(6)
    roles = ("demo_text",) * 4 + ("label_word",) + ("format",) * 3 + ("target",)
    segments = (TokenSegment("text 1", "demo_text", 0, 4), TokenSegment("rest", "format", 4, n))
    means = torch.full((3, 2, 2), 0.25)
    shape = TokenMatrix(
        "t",
        values,
        (*tuple("abcdefgh"), RISKY),
        roles,
        "saliency",
        1,
        segments,
        means,
        ((1, "here"),),
    )
    page = render_page("t", [Section("map", "", shape, {}, key="map")])
    own = data_of(page)["maps"]["map"]
    (blob,) = re.findall(r'id="map-blob">(.*?)</script>', page)
    codes = np.frombuffer(gzip.decompress(base64.b64decode(blob)), dtype=np.uint8).reshape(3, -1)
    below = np.tril_indices(n, k=-1)
    exact = values.numpy()[:, below[0], below[1]]
    found = 10 ** (own["low"] + codes / 255 * (own["high"] - own["low"]))
    shown = exact > 10 ** own["low"]
    assert np.abs(found / exact - 1)[shown].max() < 0.02
    assert (codes[~shown] == 0).all()
    assert own["means"] == [[0.25] * 3] * 3
    assert (own["open"], own["telling"], own["names"][-1]) == (1, [[1, "here"]], f"“{RISKY}”")
    for layer, (row, label, text, rest) in zip(values.tril(-1), own["shares"], strict=True):
        target = layer[8, :8]
        assert row == pytest.approx(float(target.sum() / layer.sum()), abs=1e-4)
        assert label == pytest.approx(float(target[4] / target.sum()), abs=1e-4)
        assert text == pytest.approx(float(target[:4].sum() / target.sum()), abs=1e-4)
        assert row <= 1
        assert label + text + rest == pytest.approx(1, abs=1e-3)


def test_panels_go_one_below_the_other_on_a_phone():
    ones = torch.ones(2, 3)
    shape = LayerCurves(
        "t",
        ("a", "b"),
        ones,
        ones,
        ones,
        "share",
        panels=(Panel("first", (0,)), Panel("last", (1,))),
    )
    figure = data_of(render_page("t", [Section("a", "", shape, {}, key="x")]))["figures"]["x"]
    wide, narrow = (
        {tuple(own["layout"][axis]["domain"]) for axis in ("xaxis", "xaxis2")}
        for own in (figure["wide"], figure["narrow"])
    )
    assert len(wide) == 2
    assert narrow == {(0, 1)}


def test_a_figure_has_no_title_but_a_text_in_its_place():
    shape = LayerCurves("The title", ("rising",), *torch.tensor([[[0.0, 0.5, 1.0]]] * 3), "share")
    page = render_page("t", [Section("a", "", shape, {}, key="x")])
    assert "title" not in data_of(page)["figures"]["x"]["wide"]["layout"]
    (label,) = re.findall(r'id="x-plot" role="img" aria-label="(.*?)"', page)
    assert "rising: 0 0.00, 1 0.50, 2 1.00" in label


def test_data_holds_nothing_that_ends_a_script():
    prompt = PromptText("", ("</script>", "<!--", "\u2028", "🙂", ""), ("unknown",) * 5)
    page = render_page(Page("t", [], prompt=prompt))
    assert data_of(page)["prompts"]["prompt"]["names"] == [
        own.name for own in in_text(prompt.tokens)
    ]
    assert page.count("</script>") == 2


def test_every_role_has_a_name_and_a_colour():
    assert set(ROLE_NAMES) == set(ROLES) == set(colours()["roles"])


def contrast(one, other):
    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_can_be_read_on_page_and_panel(theme):
    written_in = [
        INK,
        QUIET,
        LINK,
        *(LOOKS[m] for m in ("text", "label", "other", "query", "target")),
    ]
    for look in written_in:
        for ground in (PAGE, PANEL):
            assert contrast(getattr(look, theme), getattr(ground, theme)) >= 4.5


def test_origins_are_names_and_values():
    origin = {
        "variants": {"loss": "label", "none": None, "nested": {"a_b": [1, 2]}}, "interventions": [],
        "model": {"name": "m", "d_model": 4, "processed_weights": False},
    }  # fmt: skip
    assert [(name, values.split("; ")) for name, values in origin_rows(origin)] == [
        ("variants", ["loss: label", "nested: (a b: 1, 2)"]),
        ("model", ["name: m", "processed weights: no"]),
    ]


HEADS, TOKENS, LARGEST = 12, 200, 1_000_000


def large_shapes():
    """Every kind of figure at the size of a small language model on a prompt of 200 tokens."""
    generator = torch.Generator().manual_seed(0)

    def random(*size):
        return torch.rand(*size, generator=generator)

    one = Grid(
        "map", random(HEADS, HEADS) - 0.5, "head", "layer", "score", signed=True,
        low=random(HEADS, HEADS), high=random(HEADS, HEADS), marked=((1, 2),), names=("2.1",),
    )  # fmt: skip
    names = tuple(f" word{i}" for i in range(TOKENS))
    segments = tuple(
        TokenSegment(f"text {i}", "demo_text", 10 * i, 10 * i + 10) for i in range(TOKENS // 10)
    )
    roles = (*("demo_text",) * (TOKENS - 1), "target")
    values = random(HEADS, TOKENS, TOKENS).tril()
    curves = [f"head {i}" for i in range(HEADS)]
    by_layer = [random(HEADS, HEADS) for _ in range(3)]
    points = HEADS * HEADS
    yield Grids("maps", (one, one))
    yield TokenMatrix("tokens", values, names, roles, "saliency", 3)
    yield TokenMatrix(
        "segments", values, names, roles, "saliency", 3, segments=segments,
        means=random(HEADS, len(segments), len(segments)).tril(),
    )  # fmt: skip
    yield TokenStrips(
        "text", tuple(curves), random(HEADS, TOKENS), names, ("",) * TOKENS, "attention"
    )
    yield LayerCurves("curves", tuple(curves), *by_layer, "share")
    yield Scatter(
        "points", random(points), random(points), tuple(map(str, range(points))),
        ("heads",) * points, "x", "y",
    )  # fmt: skip


@pytest.mark.parametrize("shape", list(large_shapes()), ids=lambda shape: shape.title)
def test_every_figure_of_a_small_language_model_is_small(shape):
    assert len(figure(shape).to_json()) < LARGEST
    page = render_page("t", [Section("a", "", shape, {})], offline=False)
    assert len(page) < LARGEST


def test_a_value_below_what_its_interval_tells_apart_reads_as_0():
    frame = pd.DataFrame(
        {"gain": [1.2e-49], "gain_low": [0.0], "gain_high": [0.32], "used": [False]}
    )
    ((number, used),) = frame_table(frame).rows
    assert (number.text, number.interval, used.text) == ("0.00", "[0.00, 0.32]", "no")
    assert said(Interval(1.2e-49, 0.0, 0.32)) == "0.00 [0.00, 0.32]"
    assert said(Interval(2e-7, 1e-7, 3e-7)) == "2.0e−7 [1.0e−7, 3.0e−7]"


def test_rows_that_are_folded_are_the_others():
    frame = pd.DataFrame({"layer": range(30), "value": [number + 0.5 for number in range(30)]})
    page = render_page(Page("t", [Section("a", "b", None, {}, numbers=frame)]))
    assert [page.count(f">{number}.50<") for number in range(30)] == [1] * 30
    assert f"<summary>{30 - FIRST} more rows</summary>" in page


def test_formulas_hold_no_command_that_was_left():
    assert "argmax" in mathml(r"\arg\max_{c} z_c")
    assert "\\" not in mathml(r"\arg\min_{c} z_c")
    assert mathml(r"\unheardof z") == r"<code>\unheardof z</code>"


def test_the_origin_has_the_numbers_of_the_page():
    assert origin_rows({"share": 2 / 3, "used": False, "lr": 0.01}) == [
        ("share", "0.67"), ("used", "no"), ("lr", "0.010"),
    ]  # fmt: skip
