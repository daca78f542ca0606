"""The page of two runs side by side in Chromium: a matrix that fits, sliders that move together, what is printed."""

import re

import pytest

from icl_mech.plots.style import dark_colours
from tests.browser import cases
from tests.browser.chromium import serious
from tests.browser.test_looks import hexes

pytestmark = pytest.mark.browser

WORDS = """() => {
    const own = document.querySelector("main").cloneNode(true);
    own.querySelectorAll("details:not([open]) > :not(summary), .plot, svg, script, .unseen, [hidden]").forEach(o => o.remove());
    return own.textContent.match(/[\\p{L}\\p{N}]\\S*/gu).length;
}"""


@pytest.mark.parametrize("size", ["desk", "phone", pytest.param("wide", marks=pytest.mark.slow)])
def test_the_matrix_scrolls_in_its_own_box(opened, size):
    page = opened("sides", size, folded=True)
    assert page.run("document.documentElement.scrollWidth - innerWidth") <= 0
    box = page.run("""() => {
        const own = document.querySelector(".claims").parentElement;
        own.scrollLeft = 1000;
        const name = own.querySelector("tbody th").getBoundingClientRect();
        return [own.scrollWidth - own.clientWidth, name.left - own.getBoundingClientRect().left];
    }""")
    assert (box[0] > 0) is (size == "phone")
    assert abs(box[1]) < 1  # names of claims stay where they are


def test_the_first_level_is_short_and_has_two_figures(opened):
    page = opened("sides", folded=True)
    assert page.run(WORDS) <= 600
    seen = page.run(
        "[...document.querySelectorAll('.plot')].filter(o => o.querySelector('.main-svg')).map(o => o.id)"
    )
    assert len(seen) == 2
    signs = page.run("[...document.querySelectorAll('.claims td .unseen')].map(o => o.textContent)")
    matrix = cases.sides().page().matrix
    assert signs == [sign.status for row in matrix.rows for sign in row.signs]
    shapes = page.run("""(() => {
        const found = {};
        for (const own of document.querySelectorAll(".signs li")) found[own.textContent.trim()] = own.querySelector("svg").innerHTML;
        return found;
    })()""")
    assert (
        len(set(shapes.values())) == len(shapes) == 6
    )  # signs differ in shape, not in colour alone


def test_sliders_over_layers_move_together(opened):
    page = opened("sides")
    sliders = page.page.locator("input.layer")
    assert sliders.count() >= 3
    sliders.first.focus()
    sliders.first.press("ArrowRight")
    sliders.first.press("ArrowRight")
    assert {sliders.nth(i).input_value() for i in range(sliders.count())} == {"2"}
    for name in ("flow", "layer_accuracy"):
        layout = page.figure(name)["layout"]
        lines = [(own["xref"], own["x0"]) for own in layout["shapes"] if own.get("name") == "layer"]
        assert lines == [("x", 2), ("x2", 2), ("x3", 2)]
    (shape,) = [own.figure for own in cases.sides().page().sections if own.key == "flow"]
    told = page.status("#flow-status")
    assert told.startswith("Layer 2. strong S_wp ")
    numbers = [float(own.replace("−", "-")) for own in re.findall(r"S_\w+ ([−\d.]+\d)", told)]
    assert numbers == pytest.approx(shape.values[:, 2].tolist(), abs=0.0051)


def test_only_the_first_level_is_printed(opened):
    page = opened("sides", folded=True, color_scheme="dark")
    page.page.emulate_media(media="print")
    page.rested()
    seen = page.run(
        "[...document.querySelectorAll('main > section')].filter(o => o.offsetHeight).map(o => o.id)"
    )
    assert len(seen) == 2
    page.page.set_viewport_size({"width": 680, "height": 1000})
    page.rested()
    assert page.run("document.querySelector('.claims').getBoundingClientRect().right") <= 680


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(opened, scheme):
    page = opened("sides", "phone", color_scheme=scheme)
    page.run("document.querySelectorAll('details').forEach(own => { own.open = true; })")
    if scheme == "dark":
        assert hexes(page.figure("flow")) <= {*dark_colours().values()}
    assert serious(page.page, dark=scheme == "dark") == []
