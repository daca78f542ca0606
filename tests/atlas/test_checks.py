"""What is taken into an atlas, and what is refused although its checksums hold."""

import json

import pytest
import torch

import icl_mech as icl
from icl_mech.atlas import add, examined, load_atlas
from icl_mech.errors import ResultError
from tests.atlas import forged
from tests.said import Words
from tests.saved import as_earlier, contents

WORDS = Words(__file__)


@pytest.fixture(scope="module")
def model():
    return icl.planted_model()


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    forged.single(model).save(folder / "single")
    forged.single(model, seed=1).save(folder / "other")
    forged.pair(model).save(folder / "pair")
    return folder


@pytest.fixture
def run(saved, tmp_path):
    """A copy of a saved run, to be changed."""
    return lambda name: forged.copied(saved / name, tmp_path / f"{name}-copy")


@pytest.mark.slow
def test_what_was_measured_is_taken_under_a_name_of_its_content(saved, tmp_path):
    places = add([saved / "single", saved / "pair"], tmp_path / "atlas", label="planted, anchors")
    entries = load_atlas(tmp_path / "atlas")
    assert [entry.name for entry in entries] == sorted(place.name for place in places)
    assert {entry.item.model for entry in entries} == {"planted, anchors"}
    (own,) = (entry for entry in entries if "default" in entry.name)
    plain = icl.Analysis.load(saved / "single")
    assert torch.equal(own.run.flow.per_prompt, plain.flow.per_prompt)
    assert own.run.prompts[0].digest == plain.prompts[0].digest


# --- duplicates ---


def test_a_renamed_copy_is_refused(saved, run, tmp_path):
    (place,) = add([saved / "single"], tmp_path / "atlas")
    copy = forged.relisted(run("single"), title="another model on another task")
    forged.with_origin(copy, lambda own: own["model"].update(name="another"))
    with WORDS.raises(ResultError, "renamed_copy_refused", repr(place.name)):
        add([copy], tmp_path / "atlas")
    assert len(load_atlas(tmp_path / "atlas")) == 1


def test_one_run_given_twice_is_refused(saved, run, tmp_path):
    with WORDS.raises(ResultError, "run_given_twice_refused"):
        add([saved / "single", run("single")], tmp_path / "atlas")
    assert not (tmp_path / "atlas").exists()


def test_a_run_that_holds_all_of_one_that_is_there_is_refused_as_the_reverse_is(
    model, saved, tmp_path
):
    whole = icl.Analysis.load(saved / "single")
    name = next(own for own in whole if own != "flow")
    part = icl.Analysis({"flow": whole.flow}, whole.title, (), whole.prompts, whole.made)
    part.save(tmp_path / "part")
    assert name in whole
    for first, then, said in (
        (saved / "single", tmp_path / "part", "part_of_one"),
        (tmp_path / "part", saved / "single", "more_than_one"),
    ):
        (place,) = add([first], tmp_path / f"atlas of {first.name}")
        with WORDS.raises(ResultError, said) as error:
            add([then], place.parent)
        assert place.name in str(error.value)
        assert [own.name for own in place.parent.iterdir()] == [place.name]


def test_the_same_measurement_with_other_numbers_is_refused(saved, run, tmp_path):
    add([saved / "single"], tmp_path / "atlas")
    # Doubled saliency leaves all shares as they are, so that nothing in the run itself tells.
    copy = forged.with_values(run("single"), "flow", lambda own: own["per_prompt"].mul_(2))
    examined(copy)
    with WORDS.raises(ResultError, "same_measurement_other_numbers"):
        add([copy], tmp_path / "atlas")


# --- numbers ---

EDITS = {
    "a mean": ("single", "flow", lambda own: own["values"][0].add_(0.1), "values of flow"),
    "an end": ("single", "flow", lambda own: own["low"].sub_(0.1), "low of flow"),
    "samples": ("single", "flow", lambda own: own["per_prompt"][:, 0].mul_(2), "flow"),
    "logits": ("single", "predictions", lambda own: own["label_logits"][:, 0].add_(5), "log_probs of predictions"),
    "classes": ("single", "predictions", lambda own: own["predicted"].fill_(0), "predicted of predictions"),
    "answers": ("single", "predictions", lambda own: own["answers"].copy_(own["predicted"]), "answers of predictions"),
    "nothing": ("single", "flow", lambda own: own["per_prompt"].fill_(torch.inf), "flow"),
    "scores": ("pair", "layer_accuracy", lambda own: own["scores"][0, 1].zero_(), "scores of layer_accuracy"),
    "too much": ("pair", "layer_accuracy", lambda own: own["scores"].mul_(3), "0 to 1"),
    "the exit": ("pair", "early_exit", lambda own: own["change"].fill_(0.9), "change of early_exit"),
    "changes": ("pair", "early_exit", lambda own: own["changes"].abs_(), "early_exit"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_number_is_refused_although_its_checksum_holds(edit, run, tmp_path):
    name, part, change, field = EDITS[edit]
    folder = forged.with_values(run(name), part, change)
    icl.Analysis.load(folder)  # no checksum tells
    with WORDS.raises(ResultError, edit, field) as refused:
        add([folder], tmp_path / "atlas")
    WORDS(str(refused.value), "edited_number_refused_although")
    assert not (tmp_path / "atlas").exists()


def test_a_damaged_file_is_refused(run):
    file = run("single") / "flow" / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with WORDS.raises(ResultError, "damaged_file_refused"):
        examined(file.parent.parent)


def test_made_up_samples_are_found_by_measuring_again(run, saved, model, tmp_path):
    folder = forged.with_values(run("single"), "flow", lambda own: own["per_prompt"].mul_(2))
    examined(folder)
    with WORDS.raises(ResultError, "made_up_samples_found"):
        add([folder], tmp_path / "atlas", models=[model])
    with WORDS.raises(ResultError, "made_up_samples_found_2"):
        add([folder], tmp_path / "atlas", models=[icl.planted_model(anchors=False)])
    assert len(add([saved / "single", saved / "pair"], tmp_path / "atlas", models=[model])) == 2


# --- where they come from ---


def without(*path):
    def change(origin):
        for part in path[:-1]:
            origin = origin[part]
        del origin[path[-1]]

    return change


def versions(**own):
    return lambda origin: origin["versions"].update({"icl-mech": "9.9.0", **own})


ORIGINS = {
    "other versions": (versions(), (), "9.9.0"),
    "a mixture": (lambda origin: origin["versions"].update(torch="1.0"), ("flow",), "versions"),
    "no weights": (without("model", "weights"), (), "model.weights"),
    "other weights": (lambda origin: origin["model"].update(weights="0" * 32), ("flow",), "model.weights"),
    "no digest": (without("prompts", "digest"), (), "prompts.digest"),
    "other prompts": (lambda origin: origin["prompts"].update(digest="0" * 32), ("flow",), "0000"),
    "no seed": (without("prompts", "seed"), (), "prompts.seed"),
    "no versions": (without("versions"), (), "versions.icl-mech"),
    "no origin": (lambda origin: origin.clear(), (), "measurement"),
}  # fmt: skip


@pytest.mark.parametrize("edit", ORIGINS)
def test_provenance_that_is_not_whole_is_refused(edit, run):
    change, parts, named = ORIGINS[edit]
    with WORDS.raises(ResultError, edit, named):
        examined(forged.with_origin(run("single"), change, parts))


def test_runs_without_prompts_or_checksums_are_refused(run):
    with WORDS.raises(ResultError, "runs_without_prompts_checksums"):
        examined(as_earlier(run("single")))


# --- all or nothing ---


def test_one_bad_run_keeps_all_others_out(saved, run, tmp_path):
    add([saved / "single"], tmp_path / "atlas")
    before = contents(tmp_path / "atlas")
    bad = forged.with_values(run("pair"), *EDITS["the exit"][1:3])
    with WORDS.raises(ResultError, "bad_run_keeps_all"):
        add([saved / "other", bad], tmp_path / "atlas")
    assert contents(tmp_path / "atlas") == before


def test_what_was_changed_inside_an_atlas_is_shown_no_longer(saved, tmp_path):
    (place,) = add([saved / "single"], tmp_path / "atlas")
    forged.with_values(place, "flow", lambda own: own["per_prompt"].mul_(2))
    with WORDS.raises(ResultError, "what_changed_inside_atlas"):
        load_atlas(tmp_path / "atlas")
    kept = json.loads((place / "analysis.json").read_text())["results"]
    assert kept == ["predictions", "gain", "flow"]
