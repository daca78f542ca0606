"""What should be rare does not grow: caps on the figures of `python -m tests.benchmarks.house`."""

import ast
from textwrap import dedent

import pytest

from tests.benchmarks import house

# The figures of today. A change that makes one smaller lowers its cap here.
CAPS = {
    "import circles": 0,
    "exempted arrows": 0,
    "public names": 45,
    "public names of metrics": 28,
    "names of a measurement": 30,
    "Any parameters": 107,
    "fmt: skip": 5,
    "type: ignore": 10,
    "duplicate pairs": 4,
}


@pytest.fixture(scope="module")
def figures():
    return house.figures()


def test_every_figure_is_explained(figures):
    assert list(figures) == list(house.ABOUT)
    assert set(CAPS) < set(figures)


@pytest.mark.parametrize("name", CAPS)
def test_no_figure_is_above_its_cap(figures, name):
    assert figures[name] <= CAPS[name], f"{name}: {figures[name]}, the cap is {CAPS[name]}"


# The counting itself, on a small package.

INIT = '''
"""Docstring
of two lines."""

from icl_mech import one  # a comment beside code

# A comment.
__all__ = ["a", "b"]
TABLE = (1,
    2)  # fmt: skip
"""What TABLE is."""


def f(a: Any, *args: Any, b: "Any", c: list[Any], d: Any = 1, **more: Any):
    """Docstring."""
    return {
        "text that is code": 1,
    }  # type: ignore[x]
'''
SAME = [f"value_{i} = other_{i}" for i in range(6)]


@pytest.fixture
def small(tmp_path):
    def write(**files):
        every = {"__init__": INIT, "one": "x = 1\n", "metrics/__init__": "__all__ = []\n", **files}
        for name, text in every.items():
            path = tmp_path / "icl_mech" / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text), encoding="utf-8")
        own = tmp_path / "tests" / "test_architecture.py"
        own.parent.mkdir(exist_ok=True)
        own.write_text('CIRCLES = {("one", "two")}\n', encoding="utf-8")
        return house.figures(tmp_path)

    return write


def test_a_small_package_is_counted_by_hand(small):
    assert small() == {
        "code lines": 10,
        "files": 3,
        "import circles": 0,
        "exempted arrows": 1,
        "public names": 2,
        "public names of metrics": 0,
        "names of a measurement": 0,
        "Any parameters": 2,
        "fmt: skip": 1,
        "type: ignore": 1,
        "duplicate pairs": 0,
    }


def test_a_circle_by_way_of_others_is_one_circle(small):
    found = small(
        one="import icl_mech.two\n",
        two="def f():\n    import icl_mech.three\n",
        three="from icl_mech import one\n",
    )
    assert found["import circles"] == 1


def test_names_that_a_measurement_imports_are_counted(small):
    made = "from icl_mech.results import Result, Samples\nfrom torch import Tensor\nf = door(F)\n"
    files = {"measurements/one": made, "measurements/helper": "from icl_mech import a, b, c\n"}
    assert small(**files)["names of a measurement"] == 2


@pytest.mark.parametrize(
    ("one", "two", "length"),
    [
        (SAME, SAME, 6),
        (["a = b", *SAME, "", "# why", "c = d"], ["e = f", *SAME, "c = d", "g = h"], 7),
        (SAME[:5], SAME[:5], None),
        ([*SAME[:3], "one = two", *SAME[3:]], SAME, None),
        (["("] * 6, ["("] * 6, None),
    ],
)
def test_duplicates_are_the_longest_runs_of_like_lines(one, two, length):
    code = {
        name: house.code_lines("\n".join(text), ast.Module([], []))
        for name, text in (("one", one), ("two", two))
    }
    assert [found[2] for found in house.duplicates(code)] == ([length] if length else [])


def test_a_run_that_overlaps_itself_is_no_duplicate():
    code = {"one": dict(enumerate(["a = b(c)"] * 9))}
    assert house.duplicates(code) == []
    twice = {"one": dict(enumerate([*SAME, "between = them", *SAME]))}
    assert [(one, other) for one, other, _ in house.duplicates(twice)] == [(("one", 0), ("one", 7))]
