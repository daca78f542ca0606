"""The examples of the documentation run, in a fresh folder, in the order they stand."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import icl_mech as icl

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


@pytest.fixture(scope="module")
def small(offline):
    """As many tokens as the offline model, but narrow blocks of random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(offline.tokenizer),
        num_hidden_layers=30,  # pages ask for layer 25
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=32,
        intermediate_size=64,
        initializer_range=0.3,
    )
    return icl.load_model(LlamaForCausalLM(config).eval(), tokenizer=offline.tokenizer)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # the random model may give one class only
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, marks=[pytest.mark.exhaustive] if page.stem in LONG else [], id=page.stem
        )
        for page in WITH_STUDIES
    ],
)
def test_examples_with_studies_run_on_a_small_model(page, small, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(icl, "load_model", lambda: small)
    few = 2 * FEW if page.stem == "causal_heads" else FEW  # halves with two queries of each class
    for name in ("build_prompts", "build_prompt_pairs", "find_false_induction_heads"):
        own = getattr(icl, name)

        def with_few(*given, own=own, **options):
            fewer = {"n": min(few, options["n"])} if "n" in options else {}  # or chosen queries
            return own(*given, **options | fewer)

        monkeypatch.setattr(icl, name, with_few)
    scope = {"__name__": page.stem}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), scope)  # noqa: S102 - as a reader would


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
