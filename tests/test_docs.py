"""The examples of the documentation run, in a fresh folder, in the order they stand."""

import importlib
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

import icl_mech as icl
from icl_mech.planted import NULLS
from icl_mech.results.judging import OPENINGS
from icl_mech.studies import ANCHORS, CAUSAL, CONTEXTUALISE, LABEL_WORDS, OVERTHINKING
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
        "guides/function_vector_by_demonstration.md",
        "guides/circuits.md",
        "guides/demonstration_steering.md",
        "guides/guaranteed_exit.md",
        "guides/one_false_demonstration.md",
        "guides/open_answers.md",
        "guides/published_lenses.md",
        "guides/rationales.md",
        "guides/stability.md",
        "guides/task_heads.md",
        "guides/transplant.md",
    )
]
LONG = ("label_words", "overthinking", "lenses", "anchors", "causal_heads", "transplant")
"""Guides that take minutes."""
QUICK = ("index", "study", "measurement")
"""Pages whose examples take seconds, and stand for the others in `make check`."""
FEW = 8
MORE = {"causal_heads": 2, "transplant": 2, "task_heads": 3, "function_vector_by_demonstration": 3}
"""Guides that need more prompts, such as two queries of each class in either half: how many times more."""
ITS_OWN = ("intervention",)
"""Pages whose examples are of the offline model itself."""
LONGEST = 30
FEWER = {
    "layer=20": "layer=4",
    "layers=[20]": "layers=[4]",
    "head=(17, 5)": "head=(0, 1)",
    "layers=[9, 24]": "layers=[2, 4]",
    "(6, 30, 9)": "(6, 6, 4)",
    "layer=25": "layer=5",
    '"to": 20': '"to": 4',
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


@pytest.mark.filterwarnings("ignore::UserWarning")  # the random model may give one class only
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            marks=[pytest.mark.exhaustive] * (page.stem in LONG)
            + [pytest.mark.slow] * (page.stem not in QUICK),
            id=page.stem,
        )
        for page in [*PAGES, *WITH_STUDIES]
        if page.stem not in ITS_OWN
    ],
)
def test_examples_run_on_a_small_model(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    loading(monkeypatch, small_model())
    few = FEW * MORE.get(page.stem, 1)
    for name in ("build_prompts", "build_prompt_pairs", "find_false_induction_heads"):
        own = getattr(icl, name)

        def with_few(*given, own=own, **options):
            fewer = {"n": min(few, options["n"])} if "n" in options else {}  # or chosen queries
            return own(*given, **options | fewer)

        monkeypatch.setattr(icl, name, with_few)
    run_examples(page, FEWER)


@pytest.mark.parametrize("page", ["index.md", "../README.md"])
def test_the_first_page_shows_the_explorer_and_the_page_of_a_study(page):
    shown = re.findall(
        r"!\[[^]]+\]\((?:docs/)?(images/[^)]+)\)", (DOCS / page).read_text(encoding="utf-8")
    )
    assert any(own.startswith("images/explorer/") for own in shown)
    assert "images/demo.png" in shown
    assert all((DOCS / own).is_file() for own in shown)


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


def test_no_row_of_the_overview_is_repeated():
    rows = [line.partition(" |")[0] for line in (DOCS / "overview.md").read_text().splitlines()]
    names = [row for row in rows if re.match(r"\| \w", row)]
    assert len(names) > 10
    assert len(names) == len(set(names))


def test_a_measurement_of_ones_own_takes_few_lines():
    first = blocks(DOCS / "add" / "measurement.md")[0]
    code = [line for line in first.splitlines() if line.strip() and "import" not in line]
    assert len(code) <= LONGEST


def test_every_page_to_add_something_has_an_example():
    assert {page.stem for page in PAGES} >= {"measurement", "intervention", "model", "task"}
    assert all(blocks(page) for page in PAGES)


NEEDS = {
    "accuracy above a constant answer": "task",
    "gain over zero-shot, nats": "G₀",
    "gain over shuffled labels, nats": "G₁",
    "final gap": "harm",
    "gap between true and false demonstrations": "harm",
    "harm of false demonstrations, logits": "harm",
    "function vector gain, logits": "*Function vector*",
    "matching of the chosen heads": "heads that match prefixes",
    "promoting of the chosen heads, logits": "and promote the false label",
}
"""How the page of claims writes what they need."""
ENOUGH = {
    "gain over zero-shot, nats": "fraction of the zero-shot loss that demonstrations remove",
    "gain over shuffled labels, nats": "fraction of the loss with shuffled labels that demonstrations remove",
}
"""What stands behind each gain: that it is enough."""


def rows_of(page, heading):
    """Cells of the first table below a heading."""
    _, _, below = page.partition(f"\n## {heading}\n")
    rows = [line for line in below.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows[1:]]


def test_the_page_of_claims_says_what_each_requires():
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    studies = (LABEL_WORDS, OVERTHINKING, CAUSAL, CONTEXTUALISE, ANCHORS)
    claims = [(study, claim) for study in studies for claim in study.claims]
    rows = rows_of(page, "What each claim requires")
    assert len(rows) == len(claims)
    for (study, claim), (of, name, needs, effects, share, _) in zip(claims, rows, strict=True):
        assert of == study.name.replace("_", " ")
        assert claim.text.startswith(name.removesuffix("these heads"))
        needed = [own.name for own in claim.needed]
        for gain, enough in ENOUGH.items():
            assert (gain in needed) is (enough in needed), name
        needed = [own for own in needed if own not in ENOUGH.values()]
        assert needs == (", ".join(map(NEEDS.__getitem__, needed)) or "–"), name
        assert share.startswith(f"{claim.least:g} of" if claim.share else "–"), name
        assert ("*unless*" in effects) == (claim.unless is not None), name


def test_every_status_and_null_is_on_the_page_of_claims():
    page = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert [tuple(row[:2]) for row in rows_of(page, "Why a claim needs nulls")] == [
        *OPENINGS.items()
    ]
    drawn = re.findall(r":file: images/nulls/(\w+)\.svg", page)
    assert drawn == ["untrained", *NULLS, "shuffled", "nonsense", "moved"]


def test_pictures_of_nulls_are_those_that_are_drawn(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    own = importlib.import_module("make_null_pictures")
    kept = {path.stem: path.read_text(encoding="utf-8") for path in own.PLACE.glob("*.svg")}
    assert kept == {name: own.svg(picture) for name, picture in own.PICTURES.items()}
    for text in kept.values():
        ElementTree.fromstring(text)
