"""Dark, printed, read aloud, and with texts that look like markup."""

import json
import re
import time
from dataclasses import replace

import pytest

from icl_mech.plots.pieces import visible
from icl_mech.plots.style import PAGE, dark_colours
from icl_mech.reports import render_page
from tests.browser import cases
from tests.browser.chromium import serious
from tests.browser.test_pages import STUDIES

pytestmark = pytest.mark.browser

LIMIT = 8_000_000
"""Bytes of the page of a study of 12 layers, 12 heads and 200 prompts."""


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5))})"


def hexes(figure):
    return {found.lower() for found in re.findall(r"#[0-9a-fA-F]{6}\b", json.dumps(figure))}


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_dark_mode_swaps_every_colour(opened, name):
    page = opened(name, color_scheme="dark")
    assert page.run("getComputedStyle(document.body).backgroundColor") == rgb(PAGE.dark)
    pairs = dark_colours()
    figures = {plot: page.figure(plot[:-5]) for plot in page.plots()}
    for plot, figure in figures.items():
        strange = hexes(figure) - set(pairs.values())
        assert strange == set(), f"{plot} has colours without a dark partner"
    page.page.emulate_media(color_scheme="light")
    page.rested()
    assert page.run("getComputedStyle(document.body).backgroundColor") == rgb(PAGE.light)
    for plot in figures:
        assert hexes(page.figure(plot[:-5])) <= set(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
@pytest.mark.parametrize(
    ("size", "scheme"), [("desk", "light"), ("desk", "dark"), ("phone", "light")]
)
def test_axe_finds_nothing_serious(opened, name, size, scheme):
    page = opened(name, size, color_scheme=scheme)
    page.run("document.querySelectorAll('details').forEach(own => { own.open = true; })")
    assert serious(page.page, dark=scheme == "dark") == []


def test_texts_are_shown_as_texts(opened):
    page = opened("risky")
    assert page.run("window.hacked") is None
    shown = page.run(
        "[...document.querySelectorAll('#prompt-text .t')].map(own => own.textContent)"
    )
    assert shown[: len(cases.RISKY)] == [visible(text) for text in cases.RISKY]
    notes = page.page.locator(".limits").first.inner_text()
    for text in cases.RISKY:
        assert text in notes
    page.page.locator("#prompt-text .t").first.hover()
    assert cases.RISKY[0] in page.status("#prompt-status")
    assert page.page.locator("main script").count() == 0
    page.page.locator("label", has_text="tokens").click()
    assert cases.RISKY[0] in page.hover_cell("saliency_maps", 1, 0)
    assert "49" not in page.status(".limits")
    assert page.page.locator(".limits b").all_inner_texts()[-1] == "bold"


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_printing_cuts_no_figure(opened, name):
    page = opened(name, color_scheme="dark")
    assert page.page.pdf(format="A4", print_background=True).startswith(b"%PDF")
    page.page.set_viewport_size({"width": 680, "height": 1000})
    page.page.emulate_media(media="print")
    page.rested()
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    boxes = page.run("""[...document.querySelectorAll('.plot')].map(own => {
        const box = own.querySelector('.main-svg').getBoundingClientRect();
        return [own.id, box.right, box.height, getComputedStyle(own).breakInside];
    })""")
    for plot, right, height, within in boxes:
        assert right <= 680, plot
        assert height <= 1000, plot
        assert within == "avoid"
        assert hexes(page.figure(plot[:-5])) <= set(dark_colours())
    assert page.run("getComputedStyle(document.querySelector('.contents')).display") == "none"


@pytest.mark.slow
def test_a_large_study_is_small_enough(browser, tmp_path, record_property, capsys):
    analysis = cases.label_words()
    results = {**analysis.results, "saliency_maps": cases.large()}
    page = replace(analysis, results=results, prompts=()).page()
    content = render_page(page).encode()
    (tmp_path / "large.html").write_bytes(content)
    context = browser.new_context(viewport={"width": 1200, "height": 900}, offline=True)
    own = context.new_page()
    start = time.perf_counter()
    own.goto((tmp_path / "large.html").as_uri())
    seconds = {}
    for mark, when in (("first", "first screen drawn"), ("ready", "all drawn")):
        own.wait_for_selector(f"html[data-{mark}]", state="attached")
        seconds[when] = round(time.perf_counter() - start, 2)
    context.close()
    record_property("bytes", len(content))
    record_property("seconds", seconds)
    with capsys.disabled():
        print(f"\nlarge page: {len(content) / 1e6:.2f} MB, seconds: {seconds}")  # noqa: T201
    assert len(content) < LIMIT
