"""Pages: one file that holds everything, titles as text, written all or nothing."""

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from icl_mech import reports
from icl_mech.errors import ResultError
from icl_mech.reports import Section, render_page, write_page

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


def test_figures_are_drawn_in_order(page):
    calls = re.findall(r"Plotly\.newPlot\(\s*\"[\w-]+\",\s*(\[.*?\]),\s*\{", page, re.DOTALL)
    assert [trace["type"] for call in calls for trace in json.loads(call)] == ["scatter", "bar"]


class Text(HTMLParser):
    """Text by the tag it stands in."""

    def __init__(self):
        super().__init__()
        self.open, self.found = [], {}

    def handle_starttag(self, tag, attributes):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and data.strip():
            self.found.setdefault(self.open[-1], []).append(data.strip())


def test_titles_and_sentences_are_text(page):
    markup = page.replace(get_plotlyjs(), "")
    assert "<script>alert" not in markup
    reader = Text()
    reader.feed(markup)
    found = {tag: "".join(texts) for tag, texts in reader.found.items()}
    assert found["title"] == found["h1"] == RISKY
    assert found["h2"] == "flow" + RISKY
    assert found["p"] == RISKY + "It flows." + RISKY


def test_provenance_is_json(page):
    first, second = re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)
    assert json.loads(unescape(first)) == {"seed": 3}
    assert json.loads(unescape(second)) == {"name": RISKY, "nan": None}


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
    with pytest.raises(ResultError, match=r"Cannot write to .*disk full"):
        write_page(path, "second", sections, offline=False)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_page_somebody_wrote_or_edited_is_not_replaced(sections, tmp_path):
    path = write_page(tmp_path / "page.html", "first", sections, offline=False)
    for content in (path.read_text() + "remarks", path.read_text().replace("first", "my"), ""):
        path.write_text(content)
        with pytest.raises(ResultError, match=r"page\.html was not written by icl_mech, or was ch"):
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
    with pytest.raises(
        ResultError, match="choose a folder on a disk with space that you may write to"
    ):
        write_page(tmp_path / "file" / "page.html", "t", sections, offline=False)
    assert (tmp_path / "file").read_text() == "mine"


def test_rendering_fails_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(reports, "render_page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_page(tmp_path / "new" / "page.html", "t", [])
    assert list(tmp_path.iterdir()) == []
