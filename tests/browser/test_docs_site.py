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


WIDER = """() => {
    const whole = document.documentElement, figures = [...document.querySelectorAll(".plotly-figure")];
    const inner = box => Math.max(...[...box.querySelectorAll(".drawn, .main-svg")]
        .map(own => own.getBoundingClientRect().right - box.getBoundingClientRect().right));
    return [
        ...[whole, ...figures, ...document.querySelectorAll(".cell_output pre")]
            .filter(box => box.scrollWidth !== box.clientWidth),
        ...figures.filter(box => inner(box) > 1),
    ].map(box => `${box.tagName}.${box.className}: ${box.scrollWidth} in ${box.clientWidth}`);
}"""
"""What is wider than its cell: the page, figures, printed lines."""


@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_is_wider_than_its_cell_on_any_page(site, visit, width):
    page = visit("index.html", width)
    faults = {}
    for path in sorted(site.rglob("*.html")):
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        if found := page.evaluate(WIDER):
            faults[path.relative_to(site).as_posix()] = found
    assert not faults


OVERLAPPING = """() => {
    const found = [];
    for (const ticks of document.querySelectorAll(".xaxislayer-above, .yaxislayer-above")) {
        const across = ticks.classList.contains("xaxislayer-above");
        const texts = [...ticks.querySelectorAll("text")].filter(own => own.getBoundingClientRect().width);
        const boxes = texts.map(own => own.getBoundingClientRect());
        for (let i = 1; i < texts.length; i++) {
            const [one, other] = [boxes[i - 1], boxes[i]];
            const turned = /rotate\\((?!0,)/.test(texts[i].getAttribute("transform") || "");
            // Turned names may overlap as boxes, not as lines.
            const apart = across ? Math.abs(other.x + other.width / 2 - one.x - one.width / 2) : 0;
            const clash = turned && across ? apart < 10
                : one.x < other.right - 1 && other.x < one.right - 1 && one.y < other.bottom - 2 && other.y < one.bottom - 2;
            if (clash) found.push(`${texts[i - 1].textContent} | ${texts[i].textContent}`);
        }
    }
    return found;
}"""
"""Names of ticks that lie on each other."""


@pytest.mark.parametrize("width", [1440, 390])
def test_names_of_ticks_do_not_overlap(visit, width):
    for path in ("gallery.html", "guides/label_words.html", "guides/overthinking.html"):
        assert visit(path, width).evaluate(OVERLAPPING) == [], path


@pytest.mark.parametrize("width", [1440, 390])
def test_panels_are_wide_enough_to_be_read(visit, width):
    widths = """() => [...document.querySelectorAll(".plotly-figure:not(:has(button)) .drawn")]
        .map(own => Object.entries(own._fullLayout).filter(([key]) => /^xaxis/.test(key)))
        .filter(axes => axes.length > 1).flat().map(([, axis]) => Math.round(axis._length))"""
    found = visit("gallery.html", width).evaluate(widths)
    assert len(found) > 30
    assert min(found) >= {1440: 240, 390: 150}[width], sorted(found)


def test_a_figure_of_words_can_be_seen_at_its_own_size(visit):
    page = visit("guides/lenses.html", 390)
    figure = page.locator(".plotly-figure", has=page.locator("button")).first
    drawn = figure.locator(".main-svg").first
    small = drawn.bounding_box()["width"]
    assert small <= 358
    figure.get_by_role("button").click()
    assert drawn.bounding_box()["width"] > 2 * small
    inside = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert inside[0] == inside[1]
    figure.get_by_role("button").click()
    assert drawn.bounding_box()["width"] == small


def found_by(page, site, words):
    """Addresses that the search lists for some words, the first first."""
    page.goto((site / "search.html").as_uri() + "?q=" + words.replace(" ", "+"))
    page.wait_for_function(
        "/found|did not match/.test(document.querySelector('.search-summary')?.textContent)"
    )
    return page.eval_on_selector_all(
        "#search-results li a", "all => all.map(own => own.getAttribute('href'))"
    )


def test_search_finds_isolation_and_leads_there(site, visit):
    page = visit("search.html")
    found_by(page, site, "isolation")
    found = page.locator("#search-results li a", has_text=re.compile("isolation", re.IGNORECASE))
    found.first.click()
    page.wait_for_url(lambda address: "search.html" not in address)
    assert "isolat" in page.locator("article").inner_text().lower()


TERMS = (
    "attention knockout", "activation patching", "causal tracing", "logit lens", "tuned lens", "induction heads",
    "function vectors", "task vectors", "path patching", "direct logit attribution", "saliency", "attention flow",
    "information flow", "in-context learning", "few-shot", "few-shot calibration", "early exiting", "head ablation",
    "zero ablation", "mean ablation", "residual stream", "multiple-choice", "verbalizer", "majority-class baseline",
    "random-label baseline", "resample ablation", "attribution patching", "faithfulness", "causal mediation",
    "interchange intervention", "prefix matching", "steering vector", "null model",
)  # fmt: skip
"""Of the field; the first page that the search gives says what a term means here and leads on."""


def test_search_finds_the_terms_of_the_field(site, visit):
    page = visit("search.html")
    first = {term: (found_by(page, site, term) or [""])[0] for term in TERMS}
    elsewhere = {term: place for term, place in first.items() if "glossary.html#term-" not in place}
    assert not elsewhere
    for name in {place.partition("#")[2] for place in first.values()}:
        page.goto(f"{(site / 'glossary.html').as_uri()}#{name}")
        said = page.locator(f"dt[id='{name}'] ~ dd").first
        assert said.locator("a").count(), name


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
