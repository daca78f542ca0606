"""The seeded faults of `python -m tests.benchmarks.mutations` can be put into the package."""

import ast

import pytest

from tests.benchmarks import mutations
from tests.benchmarks.faults import FAULTS, Fault
from tests.said import Words

WORDS = Words(__file__)

PACKAGE = mutations.ROOT / "icl_mech"


def test_there_are_forty():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 40


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_one_place_and_leaves_the_code_readable(fault):
    path, text = mutations.place(fault, PACKAGE)
    plain = path.read_text(encoding="utf-8")
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(plain))
    for tests in fault.tests:
        assert (mutations.ROOT / tests).exists()


def test_words_are_found_wherever_they_stand(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.py").write_text("x = f(\n    a,\n    b,\n)\n")
    fault = Fault("", "f( a, b, )", "g()", ())
    assert mutations.place(fault, tmp_path) == (tmp_path / "deep" / "a.py", "x = g()\n")
    (tmp_path / "b.py").write_text("f( a, b, )")
    with WORDS.raises(LookupError, "words_found_wherever_they", "2"):
        mutations.place(fault, tmp_path)
    with WORDS.raises(LookupError, "words_found_wherever_they_2", "0"):
        mutations.place(fault._replace(old="f(c)"), tmp_path)
