"""Still pictures: what they show of a figure, and that they are small and need nothing."""

import base64
import re
import struct
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
import torch

from icl_mech.plots import MIME, bundle, figure
from icl_mech.plots.still import ELSEWHERE, still
from icl_mech.shapes import Table
from tests.plots import test_figures as figures
from tests.plots import test_grids, test_lens, test_points

SVG = "{http://www.w3.org/2000/svg}"

SHAPES = {
    "curves": figures.CURVES,
    "panels": figures.PANELS,
    "windows": figures.WINDOWS,
    "labels": figures.LABELS,
    "tokens": figures.TOKENS,
    "strips": figures.STRIPS,
    "dots": figures.DOTS,
    "map": figures.MAP,
    "bars": test_points.DOTS,
    "points": test_points.points(),
    "lens": test_lens.table(),
    "grid": test_grids.head_map(12, 12, signed=True),
    "table": Table("a table", ("one", "two"), (("<s>", "0.5"), ("b", "−1")), "a note"),
}


def read(shape):
    return ElementTree.fromstring(still(figure(shape)))


def texts(root):
    return ["".join(own.itertext()) for own in root.iter(f"{SVG}text")]


def pixels(image):
    """Rows of a PNG as it is written here: one filter byte, then RGBA."""
    data = base64.b64decode(image.get("href").split(",")[1])
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">2I", data[16:24])
    start = data.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", data[start - 8 : start - 4])
    rows = np.frombuffer(zlib.decompress(data[start : start + length]), np.uint8)
    return rows.reshape(height, 1 + 4 * width)[:, 1:].reshape(height, width, 4)


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_a_still_that_is_small_and_asks_for_nothing(name):
    text = still(figure(SHAPES[name]))
    root = ElementTree.fromstring(text)
    said = texts(root)
    assert SHAPES[name].title in " ".join(said)
    assert said[-1] == ELSEWHERE
    assert len(text) < 20_000
    assert "script" not in text
    assert not [own for own in re.findall(r'href="([^"]*)"', text) if not own.startswith("data:")]
    assert "nan" not in re.sub(r"<text.*?</text>", "", text).replace("nant", "")
    width, height = float(root.get("width")), float(root.get("height"))
    for image in root.iter(f"{SVG}image"):  # nothing lies outside the picture
        assert float(image.get("x")) >= 0
        assert float(image.get("x")) + float(image.get("width")) <= width
        assert float(image.get("y")) + float(image.get("height")) <= height


def test_points_stand_where_their_values_say():
    root = read(figures.CURVES)
    marks = [own.get("transform") for own in root.iter(f"{SVG}path") if own.get("transform")]
    found = [tuple(map(float, re.search(r"\((.*?),(.*?)\)", own).groups())) for own in marks]
    values = figures.CURVES.values.flatten().tolist()
    assert len(found) == len(values)
    heights = [y for _, y in found]
    # Pixels fall as values rise, in proportion.
    slope, offset = np.polyfit(values, heights, 1)
    assert slope < 0
    assert np.allclose(np.array(values) * slope + offset, heights, atol=0.2)
    assert [x for x, _ in found[:3]] == sorted(x for x, _ in found[:3])


def test_names_numbers_and_units_are_written():
    said = texts(read(figures.PANELS))
    assert {"First k", "Last k", "layer", "0", "1", "2"} <= set(said)
    said = texts(read(test_points.DOTS))
    assert {*test_points.DOTS.groups, *test_points.DOTS.names} <= set(said)
    assert "0" in texts(read(figures.MAP))


def test_cells_have_the_colours_of_their_values_and_none_where_there_is_none():
    values = torch.tensor([[0.0, 1.0], [float("nan"), 0.5]])
    shape = replace(figures.MAP, values=values, marked=(), names=())
    cells = pixels(next(iter(read(shape).iter(f"{SVG}image"))))
    assert cells.shape == (2, 2, 4)
    assert cells[0, 0].tolist() == [0xF4, 0xF4, 0xF1, 255]
    assert cells[0, 1].tolist() == [0x0B, 0x1F, 0x47, 255]
    assert cells[1, 0, 3] == 0
    assert cells[0, 0, 0] > cells[1, 1, 0] > cells[0, 1, 0]


def test_texts_stay_texts():
    hostile = "</text><script>alert(1)</script>&\x00\ud800"
    text = still(figure(Table(hostile, ("a",), ((hostile,),))))
    root = ElementTree.fromstring(text)
    assert "<script" not in text
    assert not list(root.iter(f"{SVG}script"))
    text.encode()


def test_a_changed_figure_keeps_its_still_and_an_unknown_one_its_data():
    fig = figure(figures.CURVES)
    fig.update_layout(title_text="mine", height=300)
    fig.add_scatter(x=[0, 1], y=[0.2, 0.3], mode="lines", line={"color": "red"})
    assert ">mine<" in bundle(fig)["image/svg+xml"]
    pie = bundle(go.Figure(go.Pie(values=[1, 2])))
    assert MIME in pie


def test_a_figure_of_a_result_displays_both(monkeypatch):
    seen = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: seen.append(data))
    figure(figures.CURVES)._ipython_display_()
    assert [set(own) for own in seen] == [{MIME, "image/svg+xml", "text/plain"}]
    assert seen[0]["image/svg+xml"] == still(figure(figures.CURVES))
