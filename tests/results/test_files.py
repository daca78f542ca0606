"""Saving and loading: equal values come back, and nothing is ever half-written."""

import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch

import icl_mech as icl
from icl_mech import _files
from icl_mech.errors import ResultError
from icl_mech.measurements.predictions import Predictions
from icl_mech.measurements.saliency.flow import FlowScores
from icl_mech.measurements.saliency.saliency_maps import SaliencyMapsResult
from icl_mech.prompts import PromptBatch
from icl_mech.results import FORMAT, Folder, Result, folders, jsonable
from tests.engine.cases import Edge, ragged
from tests.patience import until
from tests.said import Words
from tests.saved import as_earlier, contents, reseal, with_tensors
from tests.tiny import tiny_model

WORDS = Words(__file__)

KINDS = ("flow", "saliency", "predictions", "unlabelled")


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def results(model):
    prompts = PromptBatch(tuple(ragged()), {"task": {"name": "colours"}, "seed": 3})
    edits = [Edge(0, 2, 1, factor=0.5)]
    return {
        "flow": icl.flow_scores(model, prompts, interventions=edits),
        "saliency": icl.saliency_maps(model, prompts, loss="vocab"),
        "predictions": icl.predict(model, prompts),
        "unlabelled": icl.predict(model, ragged(answers=False)),
    }


def assert_same(found: Result, expected: Result):
    assert type(found) is type(expected)
    for item in fields(expected):
        one, other = getattr(found, item.name), getattr(expected, item.name)
        if item.name == "provenance":
            assert one == jsonable(other)
        elif isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        elif item.name == "values" and isinstance(other, tuple):
            assert len(one) == len(other)
            for a, b in zip(one, other, strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=0)
        else:
            assert one == other


# --- round trips ---


@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(results, kind, tmp_path):
    result = results[kind]
    folder = result.save(tmp_path / "a" / "b")
    assert sorted(contents(folder)) == ["result.json", "tensors.safetensors"]
    assert_same(Result.load(folder), result)
    assert_same(type(result).load(folder), result)
    assert Result.load(folder).summary() == result.summary()


def test_more_maps_than_ten_come_back_in_order(tmp_path):
    values = tuple(torch.full((1, 2, 2), float(i)) for i in range(12))
    tokens = tuple((str(i), "x") for i in range(12))
    maps = SaliencyMapsResult(values=values, tokens=tokens, roles=tokens, provenance={"a": [1, 2]})
    found = SaliencyMapsResult.load(maps.save(tmp_path / "maps"))
    assert_same(found, maps)
    assert [float(v[0, 0, 0]) for v in found.values] == list(range(12))


def test_saving_again_replaces_if_told_so(results, tmp_path):
    folder = tmp_path / "result"
    results["flow"].save(folder)
    before = contents(folder)
    with WORDS.raises(ResultError, "saving_again_replaces_if"):
        results["predictions"].save(folder)
    assert contents(folder) == before
    results["predictions"].save(folder, overwrite=True)
    assert sorted(contents(folder)) == ["result.json", "tensors.safetensors"]
    assert_same(Result.load(folder), results["predictions"])
    assert [path.name for path in tmp_path.iterdir()] == ["result"]


def test_files_of_the_user_stay_beside_and_inside(results, tmp_path):
    folder = results["flow"].save(tmp_path / "result")
    for name in ("notes.txt", "figures/one.txt", ".hidden"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("mine")
    results["predictions"].save(folder, overwrite=True)
    assert_same(Result.load(folder), results["predictions"])
    assert [name for name, content in contents(folder).items() if content == b"mine"] == [
        *(".hidden", "figures/one.txt", "notes.txt")
    ]


def test_a_file_of_ours_that_somebody_edited_is_not_removed(results, tmp_path):
    parts = {name: results[name] for name in ("flow", "predictions")}
    folder = icl.Analysis(parts, "both").save(tmp_path / "run")
    edited = folder / "flow" / "result.json"
    edited.write_text("mine now")
    icl.Analysis({"predictions": parts["predictions"]}, "one").save(folder, overwrite=True)
    assert edited.read_text() == "mine now"
    assert not (folder / "flow" / "tensors.safetensors").exists()


def test_any_result_json_makes_no_folder_ours(results, tmp_path):
    for name in ("result.json", "thesis.txt", "data/result.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("three years")
    before = contents(tmp_path)
    for overwrite, said in ((False, "other_files"), (True, "not_ours")):
        with WORDS.raises(ResultError, said):
            results["flow"].save(tmp_path, overwrite=overwrite)
    assert contents(tmp_path) == before


def test_a_link_in_place_of_a_file_is_not_ours(results, tmp_path):
    """What it leads to may be somebody's only copy."""
    folder = results["flow"].save(tmp_path / "run")
    file = folder / "tensors.safetensors"
    elsewhere = file.rename(tmp_path / "kept")
    file.symlink_to(elsewhere)
    with WORDS.raises(ResultError, "link_place_file_ours"):
        results["predictions"].save(folder, overwrite=True)
    assert elsewhere.is_file()
    assert file.is_symlink()


def test_a_link_is_followed_and_stays(results, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "ahead").symlink_to("not-yet")
    for link in ("link", "ahead"):
        for overwrite in (False, True):
            results["flow"].save(tmp_path / link, overwrite=overwrite)
            assert (tmp_path / link).is_symlink()
            assert_same(Result.load(tmp_path / link), results["flow"])
    names = {entry.name for entry in tmp_path.iterdir()}
    assert names == {"elsewhere", "link", "ahead", "not-yet"}


def test_the_folder_one_works_in(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for overwrite in (False, True):
        results["flow"].save(".", overwrite=overwrite)
        assert_same(Result.load("."), results["flow"])
        assert sorted(contents(tmp_path)) == ["result.json", "tensors.safetensors"]
    (tmp_path / "thesis.txt").write_text("three years")
    results["predictions"].save(".", overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "three years"


def test_the_layout_without_checksums_is_read_and_replaced(results, tmp_path):
    folder = as_earlier(results["flow"].save(tmp_path / "r"))
    assert "sha256" not in (folder / "result.json").read_text()
    assert_same(Result.load(folder), results["flow"])
    with WORDS.raises(ResultError, "layout_without_checksums_read"):
        results["predictions"].save(folder)
    results["predictions"].save(folder, overwrite=True)
    assert_same(Result.load(folder), results["predictions"])


def test_fields_that_share_memory_are_saved(tmp_path):
    values = torch.rand(2, 3, 3)
    maps = SaliencyMapsResult(values=(values[:1], values[:1]), tokens=((), ()), roles=((), ()))
    assert_same(Result.load(maps.save(tmp_path / "maps")), maps)


def test_an_empty_folder_and_a_home_are_understood(results, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "empty").mkdir()
    results["predictions"].save("~/empty")
    assert_same(Result.load(tmp_path / "empty"), results["predictions"])
    assert_same(Result.load("~/empty"), results["predictions"])


def test_nan_is_stored_as_nothing_and_the_file_is_plain_json(results, tmp_path):
    result = replace(
        results["predictions"], provenance={"a": float("nan"), "b": float("inf"), "c": {1: (2,)}}
    )
    text = (result.save(tmp_path / "r") / "result.json").read_text()
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["values"]["provenance"] == {"a": None, "b": "inf", "c": {"1": [2]}}
    assert document["format"] == FORMAT


def test_files_are_readable_by_others_and_hold_no_pickle(results, tmp_path):
    folder = results["flow"].save(tmp_path / "r")
    assert folder.stat().st_mode & 0o777 == 0o755
    for content in contents(folder).values():
        assert not content.startswith((b"\x80", b"PK"))  # pickle, and torch.save's archive


# --- provenance ---


def test_provenance(results):
    found = results["flow"].provenance
    assert found["model"]["name"] == "tiny-gpt2"
    assert found["model"]["n_layers"] == 3
    assert found["prompts"] == {
        "task": {"name": "colours"},
        "seed": 3,
        "count": 5,
        "digest": ragged().digest,
    }
    assert found["variants"] == {
        "loss": "label", "reduction": "sum_then_abs", "draws": 20, "seed": 0,
    }  # fmt: skip
    assert found["interventions"] == [Edge(0, 2, 1, factor=0.5).to_dict()]
    assert results["saliency"].provenance["variants"]["loss"] == "vocab"
    assert set(found["versions"]) == {"icl-mech", "torch", "transformers", "transformer-lens"}
    assert found["versions"]["torch"] == version("torch")


def test_no_path_of_the_machine_is_stored(tmp_path):
    golden = Path(__file__).parent.parent / "golden" / "label_words" / "tiny_gpt2"
    folder = tmp_path / "somewhere" / "a-model"
    folder.mkdir(parents=True)
    for file in golden.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    table = tmp_path / "rows.csv"
    lines = [f"{label[0]} {i},{label}" for i in range(6) for label in ("Negative", "Positive")]
    table.write_text("\n".join(["text,label", *lines]))
    model = icl.load_model(str(folder))
    task = icl.load_task(table, template="reviews")
    analysis = icl.analyze(model, icl.build_prompts(task, model, n=2))
    assert analysis.flow.provenance["model"]["name"] == "a-model"
    analysis.save(tmp_path / "out")
    for content in contents(tmp_path / "out").values():
        assert str(tmp_path).encode() not in content
        assert str(Path.home()).encode() not in content or str(Path.home()) == "/"


# --- nothing half-written ---


@pytest.fixture
def failing(monkeypatch):
    def fail(file, content):
        file.write_bytes(content[: len(content) // 2])
        raise OSError("disk full")

    monkeypatch.setattr(folders, "write_synced", fail)


def test_a_new_folder_does_not_appear_when_writing_fails(results, tmp_path, failing):
    with WORDS.raises(ResultError, "new_folder_appear_when"):
        results["flow"].save(tmp_path / "new")
    assert list(tmp_path.iterdir()) == []


def test_old_content_stays_when_writing_fails(results, tmp_path, monkeypatch):
    folder = results["flow"].save(tmp_path / "old")
    before = contents(folder)

    monkeypatch.setattr(safetensors.torch, "save", lambda tensors: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        results["predictions"].save(folder, overwrite=True)
    assert contents(folder) == before

    def fail(file, content):
        raise OSError("disk full")

    monkeypatch.undo()
    monkeypatch.setattr(folders, "write_synced", fail)
    with WORDS.raises(ResultError, "old_content_stays_when"):
        results["predictions"].save(folder, overwrite=True)
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_an_analysis_is_written_all_or_nothing(model, tmp_path, monkeypatch):
    analysis = icl.analyze(model, ragged())
    write, calls = folders.write_synced, []

    def fail_at_the_last(file, content):
        calls.append(file)
        if len(calls) == 8:  # a try, three results of two files, the list
            raise OSError("disk full")
        write(file, content)

    monkeypatch.setattr(folders, "write_synced", fail_at_the_last)
    with WORDS.raises(ResultError, "analysis_written_all_nothing"):
        analysis.save(tmp_path / "analysis")
    assert len(calls) == 8
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_cannot_be_written(results, tmp_path):
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with WORDS.raises(ResultError, "folder_below_file_cannot"):
            results["flow"].save(target)
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_with_other_files_is_not_replaced(results, tmp_path):
    (tmp_path / "thesis.txt").write_text("three years")
    with WORDS.raises(ResultError, "folder_other_files_replaced"):
        results["flow"].save(tmp_path)
    assert contents(tmp_path) == {"thesis.txt": b"three years"}


def test_the_disk_has_everything_before_the_index_is_replaced(results, tmp_path, monkeypatch):
    synced, late = set(), []
    replace_file = Path.replace

    def replaced(staged, target):
        if target.name == "analysis.json":
            waiting = {path.stat().st_ino for path in [target.parent, *target.parent.glob(".icl*")]}
            late.append(waiting - synced)
        synced.discard(target.parent.stat().st_ino)
        return replace_file(staged, target)

    monkeypatch.setattr(Path, "replace", replaced)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.add(os.fstat(handle).st_ino))
    icl.Analysis(results, "all").save(tmp_path / "run")
    assert late == [set()]
    assert (tmp_path / "run").stat().st_ino in synced


def test_an_interrupted_block_leaves_nothing(tmp_path):
    def interrupted():
        with Folder(tmp_path / "x" / "y") as place:
            place.put("index.html", b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("system", ["without fcntl", "without locks"])
def test_systems_that_lock_no_folders(results, tmp_path, monkeypatch, system):
    def unlocked(handle, how):
        raise OSError(errno.ENOLCK, "No locks available")

    if system == "without fcntl":
        monkeypatch.setattr(_files, "fcntl", None)
    else:
        monkeypatch.setattr(_files.fcntl, "flock", unlocked)
    folder = results["flow"].save(tmp_path / "x")
    results["predictions"].save(folder, overwrite=True)
    assert_same(Result.load(folder), results["predictions"])


@pytest.fixture
def refused(monkeypatch):
    """Set as soon as a writer finds that another has the folder, so that it waits."""
    event, free = threading.Event(), _files.FolderLock._free

    def tried(lock):
        found = free(lock)
        if not found:
            event.set()
        return found

    monkeypatch.setattr(_files.FolderLock, "_free", tried)
    return event


def test_a_second_writer_waits_for_the_first(results, tmp_path, refused):
    with ThreadPoolExecutor(1) as pool:
        with Folder(tmp_path / "x") as place:
            saving = pool.submit(results["flow"].save, tmp_path / "x")
            until(lambda: refused.is_set() or saving.done(), 20, "the second writer")
            assert not saving.done()
            assert list(place.path.iterdir()) == []
        saving.result()
    assert_same(Result.load(tmp_path / "x"), results["flow"])


def test_a_folder_that_goes_while_one_waits_is_made_again(results, tmp_path, refused):
    """The first writer made it, fails, and removes it."""
    with ThreadPoolExecutor(1) as pool:
        with Folder(tmp_path / "a" / "x"):
            saving = pool.submit(results["flow"].save, tmp_path / "a" / "x")
            until(refused.is_set, 20, "the second writer")
        saving.result()
    assert_same(Result.load(tmp_path / "a" / "x"), results["flow"])


# --- what cannot be loaded ---


@pytest.fixture
def saved(results, tmp_path):
    return results["flow"].save(tmp_path / "saved")


def edit(folder, **changes):
    reseal(folder / "result.json", **changes)


def test_nothing_saved_there(tmp_path):
    with WORDS.raises(ResultError, "nothing_saved_there", "No"):
        Result.load(tmp_path / "nowhere")


def test_an_index_without_its_checksums(saved):
    reseal(saved / "result.json", files={})
    with WORDS.raises(ResultError, "index_without_checksums"):
        Result.load(saved)


def test_missing_tensors(saved):
    (saved / "tensors.safetensors").unlink()
    with WORDS.raises(ResultError, "missing_tensors"):
        Result.load(saved)


def test_damaged_tensors(saved):
    file = saved / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:40])
    with WORDS.raises(ResultError, "damaged_tensors"):
        Result.load(saved)


@pytest.mark.parametrize(
    "content",
    [b'{"format": 1, "ki', b"", b"\xff\xfe\x00", b"[1, 2]", b'{"format": 1}', b'{"format": "x"}'],
    ids=["cut", "empty", "binary", "a list", "no kind", "odd format"],
)
def test_damaged_json(saved, content):
    (saved / "result.json").write_bytes(content)
    with WORDS.raises(ResultError, "damaged_json"):
        Result.load(saved)


def test_missing_values(saved):
    """A field without default is gone."""
    with_tensors(saved, lambda tensors: tensors.pop("per_prompt"))
    with WORDS.raises(ResultError, "missing_values"):
        Result.load(saved)


def test_a_newer_layout(saved):
    edit(saved, format=FORMAT + 1)
    with pytest.raises(ResultError, match=rf"newer icl_mech \(layout {FORMAT + 1}.*update"):
        Result.load(saved)


def test_an_unknown_kind(saved):
    edit(saved, kind="FlowScore")
    with WORDS.raises(ResultError, "unknown_kind", "'FlowScore'", "'FlowScores'"):
        Result.load(saved)


def test_another_kind_than_expected(saved):
    with WORDS.raises(ResultError, "another_kind_than_expected"):
        Predictions.load(saved)


def test_fields_of_a_later_version_are_ignored(saved, results):
    values = json.loads((saved / "result.json").read_text())["values"]
    edit(saved, values={**values, "added_later": 1})
    assert_same(FlowScores.load(saved), results["flow"])


def test_tensors_inside_of_other_values_are_refused(tmp_path):
    from icl_mech.results import jsonable

    with WORDS.raises(ResultError, "tensors_inside_other_values", "[2]"):
        jsonable({"maps": {"first": torch.zeros(2)}})


@dataclass(frozen=True, eq=False, kw_only=True)
class Loose(Result):
    """Fields of many types."""

    number: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    anything: object = None


@pytest.mark.usefixtures("unchecked")
def test_numbers_of_numpy_are_saved_as_plain_ones(tmp_path):
    made = Loose(
        number=np.float32(0.5), counts={"a": np.int64(2)}, anything=[np.bool_(True)],
        provenance={"seed": np.int64(3)},
    )  # fmt: skip
    made.save(tmp_path)
    loaded = Loose.load(tmp_path)
    assert (loaded.number, loaded.counts, loaded.anything) == (0.5, {"a": 2}, (True,))
    assert loaded.provenance == {"seed": 3}


@pytest.mark.parametrize("value", [{1, 2}, {"a": [date(2000, 1, 1)]}])
def test_what_would_come_back_as_text_is_refused(value, tmp_path):
    with WORDS.raises(ResultError, "what_would_come_back"):
        Loose(anything=value).save(tmp_path / "new")
    assert not list(tmp_path.iterdir())
