"""Checks that were passed before are found again by what decides them, and by nothing less."""

import json
import os
import subprocess
import sys
from functools import wraps

import pytest
import torch
from transformers.models.llama import modeling_llama

import icl_mech as icl
from icl_mech.errors import ModelError
from icl_mech.models import adapt, checks
from tests.said import Words
from tests.tiny import tiny_hf, tiny_tokenizer

WORDS = Words(__file__)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder of records, which tests otherwise go without."""
    folder = tmp_path / "cache" / "checks"
    monkeypatch.setattr(checks, "checks_folder", lambda: folder)
    return folder


@pytest.fixture
def made(monkeypatch):
    """Each entry stands for one run of all checks."""
    found = []
    whole = checks._Probe

    def counted(model):
        found.append(model)
        return whole(model)

    monkeypatch.setattr(checks, "_Probe", counted)
    return found


def loaded(inner=None, **options):
    inner = tiny_hf("llama") if inner is None else inner
    return icl.load_model(inner, tokenizer=tiny_tokenizer("sentencepiece"), **options)


def test_what_passed_is_not_checked_again_and_gives_the_same(place, made):
    first, second = loaded(), loaded()
    assert len(made) == 1
    assert adapt(first).info == adapt(second).info
    prompts = icl.build_prompts("reviews", first, shots=1, n=4)
    one, other = (icl.predict(model, prompts) for model in (first, second))
    assert torch.equal(one.label_logits, other.label_logits)
    assert one.provenance["model"] == other.provenance["model"]
    loaded(check=True)
    assert len(made) == 2


@pytest.mark.slow
def test_few_passes_serve_all_checks(place, monkeypatch):
    passes = []
    forward = modeling_llama.LlamaModel.forward

    @wraps(forward)
    def counted(*args, **kwargs):
        passes.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(modeling_llama.LlamaModel, "forward", counted)
    loaded()
    assert len(passes) == 9
    passes.clear()
    loaded()
    assert len(passes) == 1


def of_a_weight(inner, monkeypatch):
    with torch.no_grad():
        inner.model.layers[1].mlp.up_proj.weight[3, 5] += 1


def behind_the_counter(inner, monkeypatch):
    inner.model.layers[1].mlp.up_proj.weight.detach().numpy()[3, 5] += 1


def of_the_format(inner, monkeypatch):
    inner.double()


def of_a_setting(inner, monkeypatch):
    inner.model.layers[0].self_attn.scaling *= 2


def of_a_version(inner, monkeypatch):
    monkeypatch.setattr(checks, "version", lambda name: f"other {name}")


def of_our_code(inner, monkeypatch):
    monkeypatch.setattr(checks, "_own_code", lambda: "other")


def around_a_function(inner, monkeypatch):
    forward = modeling_llama.LlamaMLP.forward

    @wraps(forward)
    def around(self, x):
        return forward(self, x)

    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", around)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        *(of_a_weight, behind_the_counter, of_the_format, of_a_setting),
        *(of_a_version, of_our_code, around_a_function),
    ],
)
def test_a_change_is_checked(change, place, made, monkeypatch):
    loaded()
    inner = tiny_hf("llama")
    change(inner, monkeypatch)
    loaded(inner)
    assert len(made) == 2
    assert len(list(place.glob("*"))) == 2


@pytest.mark.slow
def test_a_model_with_hooks_of_the_caller_is_always_checked(place, made):
    loaded()
    for _ in range(2):
        inner = tiny_hf("llama")
        inner.model.layers[1].register_forward_hook(lambda module, given, out: None)
        loaded(inner)
    assert len(made) == 3


def test_a_failed_check_is_not_kept(place):
    for _ in range(2):
        inner = tiny_hf("llama")
        inner.model.layers[1].mlp.up_proj.weight.data[0, 0] = float("nan")
        with WORDS.raises(ModelError, "failed_check_kept"):
            loaded(inner)
    assert not place.exists()


def test_weights_that_give_no_gradients_are_refused_though_their_numbers_passed(place):
    loaded()
    with torch.inference_mode():
        inner = tiny_hf("llama")
    with pytest.raises(ModelError, match="inference_mode"):
        loaded(inner)


def test_notes_are_kept(place, monkeypatch):
    patterns = checks._Probe.patterns

    def smaller(self):
        self.seen = {layer: [0.9 * own[0]] for layer, own in self.seen.items()}
        patterns(self)

    monkeypatch.setattr(checks._Probe, "patterns", smaller)
    noted = adapt(loaded()).info.notes
    WORDS.exactly(noted, "rows_below_one", "1")
    monkeypatch.undo()
    monkeypatch.setattr(checks, "checks_folder", lambda: place)
    assert adapt(loaded()).info.notes == noted
    assert adapt(loaded(check=True)).info.notes == ()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"passed": 1}', "other", "notes", b"\xff"]
)
def test_a_damaged_record_is_none(content, place, made):
    loaded()
    (file,) = place.glob("*")
    whole = json.loads(file.read_text())
    if content in ("other", "notes"):
        content = json.dumps({**whole, ("passed" if content == "other" else "notes"): ["x"]})
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    loaded()
    assert len(made) == 2
    assert json.loads(file.read_text()) == whole
    loaded()
    assert len(made) == 2


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path, made, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(checks, "checks_folder", lambda: tmp_path / "file" / "checks")
    for _ in range(2):
        loaded()
    assert len(made) == 2


def test_only_the_newest_records_stay(place, monkeypatch):
    monkeypatch.setattr(checks, "KEPT", 3)
    for number in range(5):
        found = checks.Checks()
        found.key = str(number)
        found.keep(())
    assert len(list(place.glob("*"))) == 3


@pytest.mark.slow
def test_records_lie_in_the_cache_folder(tmp_path):
    code = "from icl_mech.models import checks; print(checks.checks_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ICL_MECH_CACHE": str(tmp_path)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(tmp_path / "checks")
