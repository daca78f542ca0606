"""The examples of the documentation run, in a fresh folder, in the order they stand."""

import json
import re
from pathlib import Path

import pytest

import icl_mech as icl
from tests.small import small_model

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [
    *sorted((DOCS / "add").glob("*.md")),
    *(
        DOCS / name
        for name in (
            "explorer.md",
            "saving.md",
            "guides/atlas.md",
            "guides/planted.md",
            "guides/prompts.md",
            "guides/reproduce.md",
        )
    ),
]
WITH_STUDIES = [
    DOCS / name
    for name in (
        "index.md",
        "getting_started.md",
        "untrained.md",
        "guides/label_words.md",
        "guides/overthinking.md",
        "guides/causal_heads.md",
        "guides/anchors.md",
        "guides/cost.md",
        "guides/cuts.md",
        "guides/lenses.md",
        "guides/baselines.md",
        "guides/generation.md",
        "guides/many_shots.md",
        "guides/open_answers.md",
        "guides/transplant.md",
    )
]
LONG = ("label_words", "overthinking", "lenses", "anchors", "causal_heads", "transplant")
"""Guides that take minutes."""
FEW = 8
ITS_OWN = ("intervention",)
"""Pages whose examples are of the offline model itself."""
LONGEST = 30
FEWER = {
    "layer=20": "layer=4",
    "(6, 30, 9)": "(6, 6, 4)",
    "layer=25": "layer=5",
    "range(20, 30)": "range(4, 6)",
    "zero_head(23, 8)": "zero_head(4, 3)",
    "heads=[(5, 1), (7, 3)]": "heads=[(4, 1), (5, 3)]",
}
"""Blocks and heads of the offline model that pages name, and those of a small model."""


def blocks(page):
    return re.findall(
        r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.fixture(scope="module")
def offline():
    return icl.load_model()


def run_examples(page, instead=()):
    scope = {"__name__": page.stem}
    for block in blocks(page):
        for written in instead:
            block = block.replace(written, instead[written])
        exec(compile(block, page.name, "exec"), scope)  # noqa: S102 - as a reader would


def loading(monkeypatch, model):
    """`load_model()` gives a model that is there."""
    own = icl.load_model
    given_or = lambda *given, **options: own(*given, **options) if given else model  # noqa: E731
    monkeypatch.setattr(icl, "load_model", given_or)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[] if page.stem in ITS_OWN else [pytest.mark.exhaustive], id=page.stem
        )
        for page in PAGES
    ],
)
def test_examples_run(page, offline, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    loading(monkeypatch, offline)
    run_examples(page)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the random model may give one class only
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[pytest.mark.exhaustive] if page.stem in LONG else [], id=page.stem
        )
        for page in [*PAGES, *WITH_STUDIES]
        if page.stem not in ITS_OWN
    ],
)
def test_examples_run_on_a_small_model(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    loading(monkeypatch, small_model())
    few = 2 * FEW if page.stem == "causal_heads" else FEW  # halves with two queries of each class
    for name in ("build_prompts", "build_prompt_pairs", "find_false_induction_heads"):
        own = getattr(icl, name)

        def with_few(*given, own=own, **options):
            fewer = {"n": min(few, options["n"])} if "n" in options else {}  # or chosen queries
            return own(*given, **options | fewer)

        monkeypatch.setattr(icl, name, with_few)
    run_examples(page, FEWER)


def test_the_pages_are_filled_from_runs():
    numbers = json.loads((DOCS / "numbers.json").read_text(encoding="utf-8"))
    wanted = {
        name
        for page in DOCS.rglob("*.md")
        for name in re.findall(r"\{\{ ([\w.]+) \}\}", page.read_text(encoding="utf-8"))
    }
    assert len(wanted) > 40
    for name in wanted:
        found = numbers
        for part in name.split("."):
            found = found[part]
        assert found
        assert "TODO" not in found


def test_a_measurement_of_ones_own_takes_few_lines():
    first = blocks(DOCS / "add" / "measurement.md")[0]
    code = [line for line in first.splitlines() if line.strip() and "import" not in line]
    assert len(code) <= LONGEST


def test_every_page_to_add_something_has_an_example():
    assert {page.stem for page in PAGES} >= {"measurement", "intervention", "model", "task"}
    assert all(blocks(page) for page in PAGES)
