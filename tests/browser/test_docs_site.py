"""The documentation as a reader opens it from disk, without a network.

`make docs` builds it before; `make check` does so first.
"""

import re
from pathlib import Path

import pytest

from tests.browser.chromium import serious
from tests.patience import milliseconds

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SITE = Path(__file__).parents[2] / "site"
NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
KINDS = {
    "home": "index.html",
    "guide": "guides/label_words.html",
    "concepts": "concepts.html",
    "wide tables": "peers.html",
    "reference": "reference/methods/isolation.html",
    "list of notebooks": "notebooks/index.html",
    "gallery": "gallery.html",
    **{path.stem: f"notebooks/{path.stem}.html" for path in NOTEBOOKS[:2]},
}
DRAWN = (
    "[...document.querySelectorAll('.plotly-figure')].every(box => box.classList.contains('ready'))"
)


@pytest.fixture(scope="module")
def site():
    if not (SITE / "index.html").is_file():
        pytest.skip("THE DOCUMENTATION IS NOT BUILT: run `make docs` first, then these tests.")
    return SITE


@pytest.fixture
def visit(site, browser):
    """Opens pages of the site; afterwards nothing may have been asked for or complained about."""
    heard, contexts = [], []

    def open_page(path, width=1200, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        context.set_default_timeout(milliseconds(60))  # notebooks hold many figures
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: heard.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "request",
            lambda asked: (
                heard.append(asked.url)
                if not asked.url.startswith(("file:", "data:", "blob:"))
                else None
            ),
        )
        file, _, query = path.partition("?")
        page.goto((site / file).as_uri() + (f"?{query}" if query else ""))
        page.wait_for_function(DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not heard


@pytest.mark.parametrize("path", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("width", [390, 1600])
def test_a_page_fits_its_window(visit, path, width):
    page = visit(path, width)
    inside = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert inside[0] <= inside[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_figure_of_a_method_is_drawn_in_the_colours_of_the_theme(visit, scheme):
    from icl_mech.plots.style import LOOKS

    page = visit("reference/methods/flow_scores.html", scheme=scheme)
    assert page.locator(".plotly-figure .scatterlayer .trace").count() >= 3
    strokes = page.eval_on_selector_all(
        ".plotly-figure .scatterlayer path.js-line", "lines => lines.map(line => line.style.stroke)"
    )
    hexes = {"#" + "".join(f"{int(n):02x}" for n in re.findall(r"\d+", s)[:3]) for s in strokes}
    assert getattr(LOOKS["label"], scheme) in hexes


def test_pointing_at_a_figure_says_a_value(visit):
    page = visit("reference/methods/flow_scores.html")
    page.locator(".plotly-figure").scroll_into_view_if_needed()
    box = page.locator(".plotly-figure .nsewdrag").first.bounding_box()
    said = ""
    for step in range(2, 60):
        for height in (0.1, 0.3, 0.5, 0.7, 0.9):
            page.mouse.move(box["x"] + box["width"] * step / 60, box["y"] + box["height"] * height)
            said = " ".join(page.locator(".plotly-figure .hoverlayer").all_text_contents())
            if said:
                assert re.search(r"\d", said)
                return
    pytest.fail("no point of the figure answers")


def test_search_finds_isolation_and_leads_there(visit):
    page = visit("search.html?q=isolation")
    found = page.locator("#search-results li a", has_text=re.compile("isolation", re.IGNORECASE))
    found.first.click()  # they come one after the other
    page.wait_for_url(lambda address: "search.html" not in address)
    assert "isolat" in page.locator("article").inner_text().lower()


def test_a_function_that_shares_its_name_with_a_module_is_shown_as_a_function(visit):
    page = visit("reference/methods/isolation.html")
    signature = page.locator("[id='icl_mech.isolation']")
    assert signature.count() == 1
    assert "depths" in signature.inner_text()


def test_formulas_are_drawn_by_the_browser(visit):
    page = visit("concepts.html")
    sizes = page.eval_on_selector_all(
        "math", "found => found.map(each => each.getBoundingClientRect().height)"
    )
    assert len(sizes) >= 5
    assert min(sizes) > 5


def test_a_notebook_shows_what_was_stored(visit):
    if not NOTEBOOKS:
        pytest.fail("no notebook to show")
    page = visit(KINDS[NOTEBOOKS[0].stem])
    shown = page.locator(".cell_output .plotly-figure.ready, .cell_output img")
    assert shown.count() >= 1
    assert page.locator(".cell_output .traceback").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", KINDS.values(), ids=KINDS.keys())
def test_accessibility(visit, path, scheme):
    assert serious(visit(path, scheme=scheme), dark=scheme == "dark") == []
