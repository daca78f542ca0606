"""Chromium, driven by Playwright; without it these tests are skipped, and the summary says so."""

import pytest

from tests.browser import cases
from tests.browser.chromium import MISSING, Opened, found
from tests.patience import milliseconds

SIZES = {"desk": 1200, "phone": 390, "wide": 1600}


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip(f"{MISSING} by Playwright, which is not installed: pip install playwright")
    path = found()
    if path is None:
        pytest.skip(f"{MISSING}: make browser, or ICL_MECH_CHROMIUM=/path/to/it")
    with sync_playwright() as driver:
        own = driver.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"],
            timeout=milliseconds(60),
        )
        yield patient(own)
        own.close()


def patient(browser):
    """The browser; whatever its pages wait for, they wait as long as this machine may need."""
    plain = browser.new_context

    def new_context(**options):
        context = plain(**options)
        context.set_default_timeout(milliseconds(30))
        return context

    browser.new_context = new_context
    return browser


class Pages(dict):
    """Paths of pages by name, each made when it is first asked for."""

    def __init__(self, folder):
        self.folder = folder

    def __missing__(self, name):
        self[name] = cases.written(self.folder, getattr(cases, name)(), name)
        return self[name]


@pytest.fixture(scope="session")
def pages(tmp_path_factory, browser):
    """Paths of the pages; the browser comes first, so that nothing is made in vain."""
    return Pages(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def opened(browser, pages):
    """Opens a page without network; at the end it must have asked for nothing and raised no error."""
    contexts, seen = [], []

    def open_page(name, size="desk", folded=False, place="", **options):
        context = browser.new_context(
            viewport={"width": SIZES[size], "height": 900}, offline=True, **options
        )
        contexts.append(context)
        path = pages[name] if isinstance(name, str) else name
        seen.append(Opened.of(context, path, folded=folded, place=place))
        return seen[-1]

    yield open_page
    for own in seen:
        assert own.errors == []
        assert own.requests == []
    for context in contexts:
        context.close()
