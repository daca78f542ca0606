"""Saving under faults: the old content or the new, a user's files untouched, nothing left behind."""

import errno
import functools
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import torch

import icl_mech as icl
from icl_mech._typing import Float, Tensor
from icl_mech.errors import IclMechError, ResultError
from icl_mech.reports import write_page
from icl_mech.results import Folder, Result, jsonable, sealed_page, write_results
from tests.faults.processes import KILLED, REFUSED, ended, failing_at, forked, killed_after
from tests.patience import until
from tests.saved import as_earlier, contents, litter

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture(autouse=True)
def _hasty(monkeypatch):
    """A killed process loses nothing that the system has; only a power cut could."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


@dataclass(frozen=True, eq=False, kw_only=True)
class Marks(Result):
    """A small result."""

    mark: Float[Tensor, "batch layer"]
    many: tuple[Float[Tensor, "pos layer"], ...]
    words: tuple[str, ...]


def marks(seed: int) -> Marks:
    draw = torch.Generator().manual_seed(seed)
    many = tuple(torch.randn(size, 4, generator=draw) for size in (2, 3))
    words = (f"seed {seed}", "ä")
    return Marks(
        mark=torch.randn(5, 4, generator=draw), many=many, words=words, provenance={"seed": seed}
    )


OLD = icl.Analysis({"one": marks(1), "two": marks(2), "three": marks(3)}, "old", ("a note",))
NEW = icl.Analysis({"two": marks(4), "one": marks(1), "four": marks(5)}, "new")


def state(value: Result | icl.Analysis):
    """All that a value holds, bit by bit."""
    if isinstance(value, icl.Analysis):
        return value.title, value.notes, [(name, state(value[name])) for name in value]
    return type(value).__name__, [plain(getattr(value, item.name)) for item in fields(value)]


def plain(value):
    if isinstance(value, Tensor):
        return value.dtype, value.shape, value.numpy().tobytes()
    return [plain(one) for one in value] if isinstance(value, tuple) else jsonable(value)


def loaded(folder: Path):
    """What each kind of index gives, None where there is none."""
    return tuple(
        state(load(folder)) if (folder / index).exists() else None
        for index, load in (("analysis.json", icl.Analysis.load), ("result.json", Result.load))
    )


def save(analysis: icl.Analysis, folder: Path, overwrite: bool = True) -> None:
    """With a page, which is not drawn anew each time."""
    page = sealed_page(f"<h1>{analysis.title}</h1>")
    with Folder(folder, overwrite=overwrite) as place:
        write_results(place, analysis.results, analysis.about(), page)


def write_marks_page(folder: Path, text: str) -> None:
    write_page(folder / "page.html", text, [], offline=False)


@dataclass(frozen=True)
class Scene:
    """What is saved over what."""

    before: Callable[[Path], object]
    after: Callable[[Path], object]
    again: Callable[[Path], object] | None = None


SCENES = {
    "first": Scene(lambda f: None, lambda f: save(NEW, f, False), lambda f: save(NEW, f)),
    "analysis": Scene(lambda f: save(OLD, f), lambda f: save(NEW, f)),
    "result": Scene(lambda f: marks(1).save(f), lambda f: marks(2).save(f, overwrite=True)),
    "page": Scene(lambda f: write_marks_page(f, "old"), lambda f: write_marks_page(f, "new")),
}
MINE = {
    "notes.txt": b"mine",
    "one/notes.txt": b"mine",
    ".hidden": b"mine",
    "two.d/result.json": b"mine",
}


class Trial:
    """One scene in a folder, again and again."""

    def __init__(self, name: str, tmp_path: Path) -> None:
        self.scene = SCENES[name]
        self.mine = MINE if name != "first" else {}
        self.folder = tmp_path / "run"
        self.template, reference = tmp_path / "template", tmp_path / "reference"
        self.scene.before(self.template)
        if self.template.exists():
            self.bring(self.template)
            shutil.copytree(self.template, reference)
        self.scene.after(reference)
        self.old, self.new = (contents(f) for f in (self.template, reference))
        self.states = [loaded(self.template), loaded(reference)]

    def bring(self, folder: Path) -> None:
        for name, content in self.mine.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(content)

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.template.exists():
            shutil.copytree(self.template, self.folder)

    def failing(self, step: int, fail: Callable[[], object]) -> int:
        """Exit code of a process that saves and fails at a step."""
        self.reset()

        def work() -> None:
            failing_at(step, self.folder, fail)
            self.scene.after(self.folder)

        return ended(forked(work, ResultError))

    def check(self) -> str:
        """Whether old or new is there; both are seen while nothing was saved since."""
        found = contents(self.folder)
        assert {name: found.get(name) for name in self.mine} == self.mine
        for got, old, new in zip(loaded(self.folder), *self.states, strict=True):
            assert got in (old, new)
        for name in ("one", "two", "three", "four"):
            if (self.folder / name / "result.json").exists():
                assert state(Result.load(self.folder / name)) in [
                    state(a[name]) for a in (OLD, NEW) if name in a
                ]
        page = found.get("page.html")
        assert page in (self.old.get("page.html"), self.new.get("page.html"))
        return "new" if loaded(self.folder) == self.states[1] else "old"

    def settle(self) -> None:
        """The next save leaves just the new content, as if nothing had happened."""
        (self.scene.again or self.scene.after)(self.folder)
        assert contents(self.folder) == self.new
        assert not [p for p in litter(self.folder) if not p.endswith("/.hidden")]


each_scene = pytest.mark.parametrize(
    "name", [pytest.param(own, marks=[pytest.mark.slow] * (own == "first")) for own in SCENES]
)


@each_scene
def test_killed_at_every_step(name, tmp_path):
    trial, seen, code = Trial(name, tmp_path), [], KILLED
    while code == KILLED:
        code = trial.failing(len(seen) + 1, lambda: os._exit(KILLED))
        assert code in (KILLED, 0)
        seen.append(trial.check())
        trial.settle()
    assert seen[-1] == "new"
    assert len(seen) > 10
    if name != "page":
        assert seen[0] == "old"
        assert seen == sorted(seen, reverse=True), "there is one moment of change"


@each_scene
def test_a_disk_that_is_full_at_every_step(name, tmp_path):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    trial, seen, codes = Trial(name, tmp_path), [], []
    while len(seen) < 10 or codes[-3:] != [0, 0, 0]:
        codes.append(trial.failing(len(seen) + 1, full))
        assert codes[-1] in (REFUSED, 0)
        seen.append(trial.check())
        if codes[-1] == REFUSED:
            assert contents(trial.folder) == trial.old
        trial.settle()
    assert codes.count(REFUSED) > 5


@pytest.mark.slow
@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.exhaustive)])
def test_killed_at_random(tmp_path, times):
    """Two contents take turns in one folder, and the process that writes them is killed."""
    trial, moments = Trial("analysis", tmp_path), random.Random(0)
    trial.reset()
    (trial.folder / "index.html").unlink()
    allowed = [state(OLD), state(NEW)]
    kills = 0

    def work():
        while True:
            for analysis in (NEW, OLD):
                analysis.save(trial.folder, overwrite=True)

    while kills < times:
        kills += killed_after(forked(work), moments.uniform(0.0005, 0.012)) == -9
        assert state(icl.Analysis.load(trial.folder)) in allowed
        found = contents(trial.folder)
        assert {name: found.get(name) for name in MINE} == MINE
        if kills % 10 == 0:
            NEW.save(trial.folder, overwrite=True)
            assert not [p for p in litter(trial.folder) if not p.endswith("/.hidden")]
    NEW.save(trial.folder, overwrite=True)
    assert contents(trial.folder) == {**contents(NEW.save(tmp_path / "alone")), **MINE}


def test_two_processes_save_while_a_third_loads(tmp_path):
    folder = OLD.save(tmp_path / "run")
    (folder / "notes.txt").write_text("mine")
    enough = tmp_path / "enough"

    def saving(analysis):
        while not enough.exists():
            analysis.save(folder, overwrite=True)
            time.sleep(0.005)  # the other one has its turn

    children = [forked(lambda one=one: saving(one)) for one in (OLD, NEW)]
    allowed, seen = [state(OLD), state(NEW)], []

    def both():
        found = state(icl.Analysis.load(folder))
        assert found in allowed
        assert state(Result.load(folder / "two")) in (state(OLD["two"]), state(NEW["two"]))
        seen.append(found[0])
        return len(seen) >= 40 and {*seen} == {"old", "new"}

    try:
        until(both, 40, "both contents to be seen", lambda: f"{len(seen)} loads: {set(seen)}", 0)
    finally:
        enough.touch()
        codes = [ended(child) for child in children]
    assert codes == [0, 0]
    NEW.save(folder, overwrite=True)
    assert not litter(folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_two_first_savers_at_once(tmp_path):
    """One of them saves, the other is told; whole folders come and go."""
    for number in range(10):
        folder = tmp_path / str(number) / "run"
        savers = [functools.partial(one.save, folder) for one in (OLD, NEW)]
        work = [forked(saver, ResultError) for saver in savers]
        assert sorted(ended(child) for child in work) == [0, REFUSED]
        assert state(icl.Analysis.load(folder)) in (state(OLD), state(NEW))
        assert not litter(folder)


# --- damaged files ---


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Cut, with one bit flipped, or with a piece of zeros, as disks and copies do."""
    how, place = draw.randrange(4), draw.randrange(len(content))
    if how == 0:
        return content[:place]
    changed = bytearray(content)
    if how == 1:
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    else:
        changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def spoiled(folder: Path, count: int):
    """Damages one file after the other; each stays while the body runs."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    draw = random.Random(1)
    for number in range(count):
        file = files[number % len(files)]
        content = file.read_bytes()
        file.write_bytes(damaged(content, draw))
        if file.read_bytes() != content:
            yield file
        file.write_bytes(content)


def outcome(load: Callable[[], object], allowed: object) -> IclMechError | None:
    """The error of a load; without one the values must be as they were saved, if given."""
    try:
        found = state(load())
    except IclMechError as error:
        return error
    assert allowed in (None, found)
    return None


def test_every_damage_is_noticed_or_harmless(tmp_path):
    folder = OLD.save(tmp_path / "run")
    found = [
        (str(file.relative_to(folder)), outcome(lambda: icl.Analysis.load(folder), state(OLD)))
        for file in spoiled(folder, 200)
    ]
    noticed = [error for name, error in found if error and name in str(error)]
    assert len(noticed) == len([error for _, error in found if error]) > 160
    assert len(found) > 180


def test_damage_of_a_single_result(tmp_path):
    folder = marks(1).save(tmp_path / "run")
    found = [
        (file.name, outcome(lambda: Result.load(folder), state(marks(1))))
        for file in spoiled(folder, 200)
    ]
    noticed = [error for name, error in found if error and name in str(error)]
    assert len(noticed) == len([error for _, error in found if error]) > 160


def test_damage_of_the_layout_without_checksums_is_no_raw_error(tmp_path):
    folder = as_earlier(OLD.save(tmp_path / "run"))
    assert state(icl.Analysis.load(folder)) == state(OLD)
    found = [outcome(lambda: icl.Analysis.load(folder), None) for _ in spoiled(folder, 300)]
    assert sum(error is not None for error in found) > 50
