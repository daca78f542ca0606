"""Figures in Chromium: no text on another, and files for papers that show what the screen does."""

import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
import torch
from plotly.offline import get_plotlyjs

from icl_mech.plots import figure
from icl_mech.plots.still import ELSEWHERE, still
from icl_mech.plots.vector import INCHES, SCALE, _asked
from icl_mech.shapes import Behind
from tests.plots import test_figures, test_grids, test_lens, test_points

pytestmark = pytest.mark.browser

FLAT = torch.tensor([[0.9, 0.7, 0.3], [0.95, 0.9, 0.9], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
CLAIM = replace(
    test_figures.CURVES, title="One claim", names=("label words, first k", "random tokens, first k",
    "label words, last k", "random tokens, last k"), values=FLAT, low=FLAT - 0.1, high=FLAT,
    meanings=("label", "label", "text", "text"), nulls=(1, 3), y_range=(-0.06, 1.1),
    levels=((0.25, "chance 0.25"), (0.3, "always “Sports”")), marks=((1.0, "critical layer"),),
    behind=(Behind("untrained", 0, (0.2, 0.3, 0.3), (0.4, 0.5, 0.6)),),
)  # fmt: skip
"""With all that figure 1 of a study may have."""

SHAPES = {
    "claim": CLAIM,
    "panels": test_figures.PANELS,
    "categories": replace(CLAIM, x_names=("early", "late", "all"), marks=(), behind=()),
    "windows": test_figures.WINDOWS,
    "dots": test_points.DOTS,
    "strips": test_figures.STRIPS,
    "heads": replace(test_figures.STRIPS, names=("layer 10, head 10", "layer 11, head 11")),
    "grid": test_grids.head_map(12, 12, signed=True),
    "lens": test_lens.table(),
}

DRAW = """([data, layout, width]) => {
    document.body.innerHTML = "<div id=own></div>";
    return Plotly.newPlot("own", data, {...layout, width}, {displayModeBar: false}).then(() => true);
}"""

TEXTS = """() => [...document.querySelectorAll("#own svg text")].filter(own => own.textContent.trim())
    .map(own => { const box = own.getBoundingClientRect();
                  return [own.textContent, box.left, box.right, box.top, box.bottom]; })"""

LINES = """() => [...document.querySelectorAll("#own .scatterlayer .js-line")].map(own => {
    const style = getComputedStyle(own);
    return [style.stroke, style.strokeDasharray.replace(/px|,/g, ""), style.strokeWidth];
}).filter(([stroke, dash, width]) => width !== "0px").map(([stroke, dash]) => [stroke, dash])"""


@pytest.fixture(scope="module")
def canvas(browser):
    context = browser.new_context(viewport={"width": 1000, "height": 900}, offline=True)
    page = context.new_page()
    page.set_content("<html><body></body></html>")
    page.add_script_tag(content=get_plotlyjs())
    yield page
    context.close()


def drawn(page, fig, width):
    """The texts of a figure with their boxes."""
    plain = json.loads(go.Figure(fig).to_json())
    page.evaluate(DRAW, [plain["data"], plain["layout"], width])
    return page.evaluate(TEXTS)


def piled(boxes):
    """Pairs of texts one of which covers more than the edge of the other."""
    found = []
    for i, (text, left, right, top, bottom) in enumerate(boxes):
        for other, start, stop, above, below in boxes[:i]:
            across = min(right, stop) - max(left, start)
            if across > 1.5 and min(bottom, below) - max(top, above) > 4:
                found.append((other, text))
    return found


@pytest.mark.parametrize("width", [1000, 760])
@pytest.mark.parametrize("name", SHAPES)
def test_no_text_covers_another_or_is_cut(canvas, name, width):
    boxes = drawn(canvas, figure(SHAPES[name]), width)
    assert piled(boxes) == []
    assert [text for text, left, right, *_ in boxes if left < 0 or right > width] == []


@pytest.mark.parametrize("name", ["claim", "panels", "categories"])
def test_no_name_covers_another_in_the_column_of_a_paper(canvas, name):
    column = figure(SHAPES[name])._forms[1]()
    plain, form = _asked(column, ".svg", "column", "serif")
    assert form["width"] == round(96 * INCHES["column"] / SCALE)
    boxes = drawn(canvas, plain, form["width"])
    assert piled(boxes) == []
    assert [text for text, left, right, *_ in boxes if left < 0 or right > form["width"]] == []
    axis = canvas.evaluate("document.getElementById('own')._fullLayout.xaxis._length")
    assert axis > 0.45 * form["width"]  # most of the column is not names


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


@pytest.mark.parametrize("name", ["claim", "panels", "categories"])
def test_a_picture_shows_what_the_screen_does(canvas, name):
    """Texts, colours and dashes of lines, in the file that notebooks keep and in that for papers."""
    fig = figure(SHAPES[name])
    said = sorted(text for text, *_ in drawn(canvas, fig, 850))
    lines = sorted(map(tuple, canvas.evaluate(LINES)))
    root = ElementTree.fromstring(still(fig))
    svg = "{http://www.w3.org/2000/svg}"
    texts = ["".join(own.itertext()) for own in root.iter(f"{svg}text")]
    texts.remove(ELSEWHERE)
    assert sorted(re.sub(r"\s", "", text) for text in texts) == sorted(
        re.sub(r"\s", "", text) for text in said
    )
    still_lines = {
        (rgb(own.get("stroke")), own.get("stroke-dasharray") or "none")
        for group in root.iter(f"{svg}g")
        for own in group.iter(f"{svg}path")
        if (own.get("stroke") or "none") != "none" and not own.get("transform")
    }
    assert set(lines) <= still_lines
    plain, _ = _asked(fig, ".svg", "page", "serif")
    assert sorted(text for text, *_ in drawn(canvas, plain, 850)) == sorted(
        text
        for text in said
        if text not in (fig.layout.title.text, *fig.layout.title.subtitle.text.split("<br>"))
    )
    assert sorted(map(tuple, canvas.evaluate(LINES))) == lines
