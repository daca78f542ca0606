"""Quick tests are there, and stand for every folder."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests import tiers
from tests.tiny import FAMILIES


def test_quick_files_are_there_once_in_order():
    assert list(tiers.QUICK) == sorted(set(tiers.QUICK))
    assert [own for own in tiers.QUICK if not (tiers.HERE / own).is_file()] == []


def test_every_folder_has_a_quick_file():
    folders = {path.parent.relative_to(tiers.HERE) for path in tiers.HERE.rglob("test_*.py")}
    has = {Path(own).parent for own in tiers.QUICK}
    assert {folder.as_posix() for folder in folders - has} == set(tiers.WITHOUT_QUICK)


def test_folders_of_both_families_are_there():
    assert [own for own in tiers.BOTH if not (tiers.HERE / own).is_dir()] == []


def marked(*tests):
    """Which of these (file, test, parameters) are marked."""
    found = []

    def item(number, file, test, params):
        return SimpleNamespace(
            path=tiers.HERE / file,
            originalname=test,
            name=test,
            callspec=SimpleNamespace(params=params),
            add_marker=lambda marker: found.append((number, marker.name)),
        )

    tiers.mark_second_families([item(i, *own) for i, own in enumerate(tests)])
    return found


def test_a_second_family_is_marked_where_the_code_goes_the_same_way(monkeypatch):
    monkeypatch.setattr(tiers, "FAMILIES", ("gpt2", "gemma3"))
    saliency, heads = "measurements/saliency/test_flow.py", "measurements/heads/test_scores.py"
    assert marked(
        (saliency, "test_a", {"family": "gpt2"}),
        (saliency, "test_a", {"family": "gemma3"}),
        (saliency, "test_b", {"family": "gemma3"}),  # no other family runs it
        (saliency, "test_a", {"family": "gptj"}),  # asked for by name
        (heads, "test_a", {"family": "gpt2"}),
        (heads, "test_a", {"family": "gemma3"}),
        (heads, "test_b", {"values": torch.zeros(2)}),
    ) == [(1, "second")]


def combinations(cases, marks=()):
    """Which cases of one test, by names of their parameters, are marked as one more combination."""
    found = []

    def item(names):
        return SimpleNamespace(
            path=tiers.HERE / "test_a.py",
            originalname="test_a",
            name="test_a",
            cls=None,
            callspec=SimpleNamespace(_idlist=names),
            get_closest_marker=lambda mark: (names, mark) in marks or None,
            add_marker=lambda marker: found.append((names, marker.name)),
        )

    tiers.mark_combinations([item(names) for names in cases])
    assert {mark for _, mark in found} <= {"combination"}
    return [names for names, _ in found]


def test_of_a_grid_as_many_cases_stay_as_hold_every_value():
    grid = [(a, b) for a in "xyz" for b in "12"]
    left = [case for case in grid if case not in combinations(grid)]
    assert {a for a, _ in left} == set("xyz")
    assert {b for _, b in left} == set("12")
    assert len(left) == 3
    assert combinations([(a,) for a in "xyz"]) == []


def test_a_slow_case_does_not_stand_for_a_quick_one():
    grid = [("x", "1"), ("x", "2"), ("y", "1"), ("y", "2")]
    slow = {(("x", "2"), "slow"), (("y", "2"), "slow")}
    assert combinations(grid, slow) == []


@pytest.mark.slow
@pytest.mark.skipif(len(FAMILIES) > 2, reason="once is enough")
def test_quick_leaves_out_the_other_files():
    command = [sys.executable, "-m", "pytest", "--quick", "--collect-only", "-q", "-p", "no:xdist"]
    folder = str(tiers.HERE / "tasks")
    done = subprocess.run([*command, folder], cwd=tiers.HERE.parent, text=True, capture_output=True)
    lines = [line for line in done.stdout.splitlines() if "::" in line]
    found = {line.split("::")[0].removeprefix("tests/") for line in lines}
    assert found == {own for own in tiers.QUICK if own.startswith("tasks/")}
