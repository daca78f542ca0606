"""Every family against plain Hugging Face: same numbers, or a refusal with a reason."""

import re

import pytest
import torch

from tests.families.__main__ import PAGE
from tests.families.compare import COMPARISONS, Both, outcome
from tests.families.configs import BOTH_LINES, BY_NAME, FAMILIES, HALF

ALLOWED = {"float32": 2e-5, "float64": 1e-5, "float16": 1e-2, "bfloat16": 3e-2}
"""Largest relative difference; saliency sums many products: five times that.

In float64 it is Hugging Face that computes norms and softmax in float32.
"""

USUAL = {
    "GPT-2", "GPT-Neo", "GPT-J", "GPT-NeoX", "OPT", "XGLM", "BLOOM", "Falcon", "Llama", "Mistral", "Qwen 2",
    "Gemma 3", "Granite", "DeepSeek V3", "BERT as a decoder", "Mamba", "GPT-BigCode, multi-head",
}  # fmt: skip
"""One of each kind of attention, positions and refusal; the others are slow."""


def marks(name):
    found = [] if name in USUAL else [pytest.mark.slow]
    return [*found, pytest.mark.tl3] if name in BOTH_LINES else found


def check(name, dtype=torch.float32):
    family = BY_NAME[name]
    found = outcome(Both(family, dtype))
    assert bool(found.refused) == bool(family.refused), found.refused
    assert family.refused in found.refused
    if family.refused:
        return
    assert found.refusals.keys() == family.refuses.keys(), found.refusals
    for comparison, words in family.refuses.items():
        assert words in found.refusals[comparison]
    assert found.gaps.keys() == COMPARISONS.keys() - family.refuses.keys() - family.untried.keys()
    allowed = ALLOWED[str(dtype).removeprefix("torch.")]
    for comparison, gap in found.gaps.items():
        assert gap <= allowed * (5 if comparison == "flow" else 1), (comparison, gap)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in BY_NAME])
def test_a_family_gives_hugging_faces_numbers_or_says_why_not(name):
    check(name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in USUAL else pytest.mark.slow) for name in HALF]
)
def test_other_precisions(name, dtype):
    check(name, dtype)


def test_the_page_lists_exactly_these_families():
    rows = re.findall(r"^\| ([^|]+) \| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == [family.name for family in FAMILIES]


def test_the_usual_ones_are_among_them():
    assert set(BY_NAME) >= USUAL


def test_there_are_many_families():
    assert sum(not family.refused for family in FAMILIES) >= 55
