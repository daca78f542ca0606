"""The index of an atlas in Chromium: drawn at once, filtered, drilled down, exported, on a phone and in the dark."""

import time

import pytest

import icl_mech as icl
from icl_mech.atlas import add, build
from icl_mech.results.wording import told
from tests.atlas import forged
from tests.browser import cases
from tests.patience import slowness
from tests.said import Words

WORDS = Words(__file__)

pytestmark = pytest.mark.browser

FIRST = 3.0
"""Seconds to the first figure, on a quiet machine."""


@pytest.fixture(scope="module")
def site(browser, tmp_path_factory):
    """Two studies with many claims, a pair of seeds, and a control of the same name."""
    folder = tmp_path_factory.mktemp("atlas")
    model, control = icl.planted_model(), icl.planted_model(anchors=False)
    runs = [cases.label_words(), forged.pair(model), forged.pair(model, 1), forged.single(control)]
    for number, run in enumerate(runs):
        run.save(folder / "runs" / str(number))
    add(sorted((folder / "runs").iterdir()), folder / "atlas", label="planted <b>")
    return build(folder / "atlas", folder / "site")


@pytest.fixture
def index(opened, site):
    return lambda size="desk", **options: opened(site, size, **options)


def test_the_first_figure_is_there_at_once(index):
    start, slow = time.monotonic(), slowness()
    page = index()
    taken = time.monotonic() - start
    slow = max(slow, slowness())  # in this very moment
    assert taken < (FIRST + 2) * slow  # a new context, too
    shown = page.run("performance.getEntriesByType('navigation')[0].domComplete")
    assert shown < 1000 * FIRST * slow
    assert page.run("document.querySelectorAll('table.claims .forest .dot').length") > 5
    assert page.run("document.querySelectorAll('#chart .line').length") > 1
    assert page.run(
        "document.querySelectorAll('b').length > 0 && !document.querySelector('table b b')"
    )


def test_a_cell_tells_its_finding_and_leads_to_the_page_of_the_run(index):
    page = index()
    cell = page.page.locator("tr.run button.cell[aria-label^='Harm']").first
    assert "final gap" in cell.get_attribute("aria-label")
    cell.click()
    WORDS(page.status(".detail-box"), "finding")
    page.page.locator(".detail-box a").first.click()
    page.page.wait_for_selector("a[href='../index.html']", state="attached")  # the other page
    page.page.wait_for_selector("html[data-ready]", state="attached")
    assert page.page.locator("a[href='../index.html']").count() == 1
    assert page.run("document.querySelectorAll('.plot .main-svg').length") > 0
    page.requests.clear()  # its own page and the script beside it


def test_means_over_seeds_stand_above_their_runs(index):
    page = index()
    group = page.page.locator("tr.mean button.group")
    WORDS(page.status("tr.mean th"), "means_over_runs", "2")
    before = page.page.locator("tr.run").count()
    group.click()
    assert page.page.locator("tr.run").count() == before - 2


def test_numbers_read_as_those_of_the_texts(index):
    page = index()
    values = [0.003, -0.003, 0.996, -0.9999, 0.625, 0.38, 0.0, 1.0, -1.0, 0.66, 0.00004, 1e-7]
    assert page.run(f"{values}.map(own => said(own))") == [told(own, sign=True) for own in values]
    assert page.run(f"{values}.map(own => said(own, false))") == [told(own) for own in values]


def test_curves_of_two_seeds_have_two_names_and_cells_of_the_list_stay_cells(index):
    page = index()
    names = page.run(
        "[...document.querySelectorAll('#lines button:not(.outside)')].map(own => own.textContent)"
    )
    assert len(set(names)) == len(names) > 1
    kinds = (
        "[...document.querySelectorAll('table.list td')].map(own => getComputedStyle(own).display)"
    )
    assert set(page.run(kinds)) == {"table-cell"}


def test_the_last_column_is_whole_where_numbers_are_shown(index):
    page = index()
    page.page.check("#numbers")
    assert page.run(
        "[...document.querySelectorAll('#matrices .scroll')].every(own => own.scrollWidth <= own.clientWidth + 1)"
    )


def test_filters_and_what_is_published(index):
    page = index()
    assert page.status("#count") == "4 of 4 runs"
    assert page.page.locator("tr.published").count() > 0
    page.page.select_option("[name=study]", "label_words")
    assert page.status("#count") == "1 of 4 runs"
    page.page.fill("[name=text]", "no such run")
    assert page.status("#count") == "0 of 4 runs"
    assert page.page.locator("tr.run").count() == 0
    page.page.click("button[type=reset]")
    page.page.wait_for_function("document.getElementById('count').textContent === '4 of 4 runs'")
    page.page.uncheck("#with-published")
    assert page.page.locator("tr.published").count() == 0
    assert page.run("document.querySelectorAll('#chart .outside').length") == 0


def test_tables_hold_what_is_shown(index):
    page = index()
    text = page.run("csv(tables().claims)")
    rows = text.strip().splitlines()
    assert rows[0].startswith("kind,run,task,model")
    assert sum(row.startswith("run,") for row in rows) == page.run(
        "DATA.claims.filter(row => row.kind === 'run').length"
    )
    assert any(row.startswith("published,") for row in rows)
    page.page.select_option("[name=study]", "default")
    assert page.run("tables().claims.filter(row => row.kind === 'run').length") == 0
    curves = page.run("tables().curves")
    assert {own["quantity"] for own in curves} == {"mean flow"}
    assert max(own["depth"] for own in curves) == pytest.approx(5 / 6)


def test_texts_stay_texts_and_models_of_one_name_are_told_apart(index):
    page = index()
    names = page.run("[...new Set(DATA.runs.map(run => run.model))]")
    assert len(names) >= 2
    assert all(name.startswith("planted <b> (") for name in names)
    assert "planted <b> (" in page.status("table.list")


@pytest.mark.parametrize("size", ["phone", "wide"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_runs_over_the_side(index, size, scheme):
    page = index(size, color_scheme=scheme)
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    ground = page.run("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(253, 253, 252)", "dark": "rgb(20, 23, 27)"}[scheme]
