"""Documents from outside, mutated at random: refused in our words, or accepted and then usable.

FUZZ_DOCUMENTS says how many (default 100); `FUZZ_DOCUMENTS=2000 pytest tests/fuzz/test_documents.py`.
"""

import copy
import json
import os
import random
import shutil

import pytest
import yaml

import icl_mech as icl
from icl_mech.cli.inputs import _interventions
from icl_mech.errors import IclMechError
from icl_mech.measurements import Extraction, Flow
from icl_mech.results import Result
from icl_mech.results.files import sealed
from icl_mech.sweeps import Sweep, sweep
from icl_mech.sweeps.config import read_config
from icl_mech.sweeps.plan import contents_of, grid_of, planned
from icl_mech.sweeps.running import _options
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

COUNT = int(os.environ.get("FUZZ_DOCUMENTS", "100"))
KINDS = ("study", "sweep.json", "analysis.json", "result.json", "interventions")

STUDY = {
    "models": ["smollm2-135m"],
    "tasks": {"reviews": "reviews", "titles": {"path": "headlines"}},
    "study": ["label_words", None],
    "measurements": ["flow", {"extraction": {"truth": "gold"}}],
    "seeds": "0-2",
    "n": [4],
    "shots": [1, 2],
    "labels": ["correct", "permuted"],
    "false_share": [None, 0.5],
    "formats": [None],
    "demonstrations": "shared",
    "balanced": True,
    "interventions": [{"intervention": "Isolate", "layers": [0]}],
    "workers": 2,
    "timeout": 60,
    "memory": "2GB",
}
INTERVENTIONS = [
    {"intervention": "ZeroHeads", "heads": [[0, 1]]},
    {"intervention": "Isolate", "layers": [0, 1], "mode": "mask"},
    {"intervention": "ZeroLayers", "start": 1},
]
STRANGE = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 1e308, float("inf"), float("nan"), 0.5, "", " ",
    "0-99999999999", "²-³", "-", "0-", "a", "\x00", "é" * 300, "../..", "=1+1", "\\input", [], [[]],
    [None], [[["a"]]], {}, {"a": {}}, {"": 1}, {"intervention": "Isolate"}, ["flow"], "flow", "Isolate",
    {"flow": {"loss": []}}, {"flow": None}, [5], 5, "null", "models", "reviews",
)  # fmt: skip
USUAL = (1, 2, 3, "1-3", [1], [2, 3], "shared", "per_prompt", "default", "mask", "zero", True, 0.25)


def places(value, at=()):
    """Everywhere in a document."""
    yield at
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, own in inside:
        yield from places(own, (*at, key))


def strange(chance):
    return copy.deepcopy(chance.choice((*STRANGE, *USUAL)))


def deep(depth, bottom):
    for _ in range(depth):
        bottom = [bottom]
    return bottom


def mutated(document, chance):
    """No change to three: a value exchanged, removed, doubled, a key renamed or added."""
    document = json.loads(json.dumps(document))
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        at = chance.choice([own for own in places(document) if own] or [()])
        if not at:
            return strange(chance)
        holder = document
        for key in at[:-1]:
            holder = holder[key]
        how, key = chance.randrange(6), at[-1]
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[str(strange(chance))] = holder.pop(key)
        elif how == 2 and isinstance(holder, list):
            holder.append(holder[key])
        elif how == 3:
            holder[key] = deep(chance.choice([3, 80, 300]), strange(chance))
        else:
            holder[key] = strange(chance)
        if not document:
            return document
    return document


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A sweep and an analysis on the disk."""
    place = tmp_path_factory.mktemp("fuzz")
    model = tiny_model("gpt2")
    sweep(model, "reviews", [Flow()], seeds=[0, 1], n=4, out=place / "sweep", progress=False)
    prompts = icl.build_prompts("reviews", model, shots=1, n=3)
    icl.measure(model, prompts, Flow(), Extraction(), out=place / "run", progress=False)
    return place


def damaged(saved, tmp_path, chance, folder, file):
    """A copy of a saved folder with one file mutated and, mostly, sealed again."""
    place = tmp_path / "copy"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(saved / folder, place)
    document = json.loads((place / file).read_text())
    document.pop("sha256", None)
    found = mutated(document, chance)
    if isinstance(found, dict) and chance.random() < 0.9:
        try:
            (place / file).write_bytes(sealed(found))
        except (IclMechError, ValueError, RecursionError):
            return None
    else:
        try:
            (place / file).write_text(json.dumps(found))
        except RecursionError:
            return None
    return place


def used(kind, saved, tmp_path, chance):
    """Take in one document, and use what was accepted."""
    if kind == "study":
        file = tmp_path / "study.yaml"
        found = mutated(STUDY, chance)
        try:
            file.write_text(yaml.safe_dump(found))
        except RecursionError:
            return
        given = read_config(file)
        assert plan_of(given)
    elif kind == "sweep.json":
        place = damaged(saved, tmp_path, chance, "sweep", "sweep.json")
        if place is not None:
            read = Sweep.load(place)
            assert read.summary()
            assert len(read.items) == len(read.plan)
            assert [item.key for item in read.plan]
            for _, analysis in read:
                assert analysis.summary()
    elif kind in ("analysis.json", "result.json"):
        file = (
            kind if kind == "analysis.json" else f"{chance.choice(['flow', 'extraction'])}/{kind}"
        )
        place = damaged(saved, tmp_path, chance, "run", file)
        if place is not None:
            if kind == "result.json":
                assert Result.load(place / file.split("/")[0]).summary()
            report = icl.Analysis.load(place)
            assert report.summary()
    else:
        file = tmp_path / "edits.json"
        try:
            file.write_text(json.dumps(mutated(INTERVENTIONS, chance)))
        except RecursionError:
            return
        for edit in _interventions(file):
            assert repr(edit)
            edit.to_dict()


def plan_of(given):
    """The plan of a sweep, as `sweep` makes it before anything runs."""
    own = dict(given)
    grid = {
        name: own.pop(name, default)
        for name, default in {
            "labels": None, "false_share": (None,), "shots": (1,), "n": 50, "seeds": range(5),
            "demonstrations": None, "balanced": True,
        }.items()
    }  # fmt: skip
    models, tasks = own.pop("models"), own.pop("tasks")
    study, measured = own.pop("study", None), own.pop("measurements", ())
    formats = own.pop("formats", (None,))
    for name in ("device", "dtype", "workers", "devices", "timeout"):
        own.pop(name, None)
    of_studies, _, plain = _options(own)
    plan = planned(
        models, tasks, formats, grid_of(**grid), contents_of(study, measured, of_studies, plain)
    )
    return [item.key for item in plan.items]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("count", [COUNT, pytest.param(300, marks=pytest.mark.exhaustive)])
def test_documents_are_refused_in_our_words_or_usable(saved, tmp_path, count):
    outcomes = {kind: [0, 0] for kind in KINDS}
    raw = []
    for number in range(count):
        kind, chance = KINDS[number % len(KINDS)], random.Random(number)
        try:
            used(kind, saved, tmp_path, chance)
            outcomes[kind][0] += 1
        except IclMechError as error:
            assert str(error)  # noqa: PT017
            outcomes[kind][1] += 1
        except Exception as error:  # noqa: BLE001 - what is looked for
            raw.append(f"{kind}, case {number}: {type(error).__name__}: {error}"[:300])
    print({kind: f"{good} accepted, {bad} refused" for kind, (good, bad) in outcomes.items()})  # noqa: T201
    assert not raw, f"{len(raw)} raw errors:\n" + "\n".join(raw[:20])


@pytest.mark.usefixtures("unchecked")
def test_pipes_and_folders_in_the_place_of_files_are_refused_at_once(saved, tmp_path):
    for file in ("flow/result.json", "analysis.json"):
        place = tmp_path / file.replace("/", "_")
        shutil.copytree(saved / "run", place)
        (place / file).unlink()
        os.mkfifo(place / file)
        with WORDS.raises(IclMechError, file):
            icl.Analysis.load(place)
    pipe = tmp_path / "study.yaml"
    os.mkfifo(pipe)
    with pytest.raises(IclMechError, match="pipe"):
        read_config(pipe)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "- " * 50_000 + "a", "&a [*a]"])
def test_nesting_without_end_is_refused(saved, tmp_path, text):
    shutil.copytree(saved / "run", tmp_path / "run")
    (tmp_path / "run" / "analysis.json").write_text(text)
    (tmp_path / "study.yaml").write_text(text)
    for read in (
        lambda: icl.Analysis.load(tmp_path / "run"),
        lambda: read_config(tmp_path / "study.yaml"),
    ):
        with pytest.raises(IclMechError):
            read()


def test_files_beyond_any_size_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("icl_mech.documents", fromlist=["x"]).LARGEST, ".yaml", 10)
    (tmp_path / "s.yaml").write_text("models: smollm2-135m")
    with WORDS.raises(IclMechError, "files_beyond_any_size"):
        read_config(tmp_path / "s.yaml")
