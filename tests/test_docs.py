"""The examples of the documentation run, in a fresh folder, in the order they stand."""

import re
from pathlib import Path

import pytest

import icl_mech as icl

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [*sorted((DOCS / "add").glob("*.md")), DOCS / "saving.md"]
LONGEST = 30


def blocks(page):
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def offline():
    return icl.load_model()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_run(page, offline, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = icl.load_model
    loading = lambda *given, **options: own(*given, **options) if given else offline  # noqa: E731
    monkeypatch.setattr(icl, "load_model", loading)
    scope = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), scope)  # noqa: S102 - as a reader would


def test_a_measurement_of_ones_own_takes_few_lines():
    first = blocks(DOCS / "add" / "measurement.md")[0]
    code = [line for line in first.splitlines() if line.strip() and "import" not in line]
    assert len(code) <= LONGEST


def test_every_page_to_add_something_has_an_example():
    assert {page.stem for page in PAGES} >= {"measurement", "intervention", "model", "task"}
    assert all(blocks(page) for page in PAGES)
