"""Results of untrained networks that are kept: the same numbers, and no network the second time."""

import json
import shutil
from dataclasses import dataclass

import pytest
import torch

import icl_mech as icl
from icl_mech.bars import Bar
from icl_mech.engine.progress import Overall
from icl_mech.interventions import ZeroHeads
from icl_mech.measurements import provenance
from icl_mech.measurements.base import Options
from icl_mech.measurements.predictions import Predict
from icl_mech.measurements.saliency.flow import Flow
from icl_mech.models.adapt import adapt
from icl_mech.studies import kept_nulls, nulls
from icl_mech.studies.kept_nulls import PACKAGE, KeptNull
from tests import shipped_nulls
from tests.tiny import tiny_model

OPTIONS = Options(progress=False)


@pytest.fixture(scope="module")
def model():
    return tiny_model("gpt2")


@pytest.fixture(scope="module")
def prompts(model):
    return icl.build_prompts("reviews", model, shots=1, n=4)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    """An empty cache, and a process that has measured nothing yet."""
    monkeypatch.setattr(nulls, "_KNOWN", {})
    monkeypatch.setattr(kept_nulls, "nulls_folder", lambda: tmp_path / "nulls")
    return tmp_path / "nulls"


@pytest.fixture
def networks(monkeypatch):
    """The networks that are made."""
    made, untrained = [], nulls.untrained

    def counting(*given, **options):
        made.append(untrained(*given, **options))
        return made[-1]

    monkeypatch.setattr(nulls, "untrained", counting)
    return made


def flows(model, prompts, options=OPTIONS, measurement=None):
    return nulls.untrained_results(
        adapt(model), {"flow": (measurement or Flow(), prompts)}, 2, options
    )["flow"]


def test_the_second_process_makes_no_network(model, prompts, folder, networks):
    first = flows(model, prompts)
    assert len(networks) == len(list(folder.iterdir())) == 2
    nulls._KNOWN.clear()  # as in a process that begins
    again = flows(model, prompts)
    assert len(networks) == 2
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.per_prompt, other.per_prompt)
        assert json.dumps(one.provenance) == json.dumps(other.provenance)


def test_other_weights_of_the_architecture_have_the_same_networks(model, prompts, folder, networks):
    flows(model, prompts)
    flows(tiny_model("gpt2", seed=5), prompts)
    assert len(networks) == 2


@dataclass(frozen=True)
class Mine(Predict):
    """A measurement of somebody else, whose code may change under the same name."""


def test_code_of_others_is_not_kept(model, prompts, folder, networks):
    for _ in range(2):
        flows(model, prompts, measurement=Mine())
        nulls._KNOWN.clear()
    assert len(networks) == 4
    assert not folder.exists()


def test_models_with_hooks_of_others_are_not_kept(folder, networks):
    model = tiny_model("gpt2", seed=7)
    prompts = icl.build_prompts("reviews", model, shots=1, n=4)
    model.original_model.transformer.h[0].register_forward_hook(lambda *given: None)
    assert not KeptNull(adapt(model), Flow(), prompts, (), 0).may_be_kept
    assert KeptNull(adapt(tiny_model("gpt2")), Flow(), prompts, (), 0).may_be_kept


def test_what_is_damaged_is_measured_again(model, prompts, folder, networks):
    first = flows(model, prompts)
    for path in folder.glob("*/*"):
        path.write_bytes(path.read_bytes()[:-7])
    nulls._KNOWN.clear()
    again = flows(model, prompts)
    assert len(networks) == 4
    assert torch.equal(first[1].per_prompt, again[1].per_prompt)
    nulls._KNOWN.clear()
    flows(model, prompts)
    assert len(networks) == 4  # what was damaged has been replaced


def test_a_folder_that_cannot_be_written_keeps_nothing(model, prompts, folder, networks):
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("a file where the folder belongs", encoding="utf-8")
    assert len(flows(model, prompts)) == 2


def test_old_ones_are_deleted(model, prompts, folder, monkeypatch):
    monkeypatch.setattr(kept_nulls, "MOST", 1)
    flows(model, prompts)
    assert len(list(folder.iterdir())) == 1


def test_a_key_holds_what_determines_the_numbers(model, prompts):
    def key(**other):
        given = {
            "model": adapt(model),
            "measurement": Flow(),
            "data": prompts,
            "interventions": (),
            "seed": 0,
            **other,
        }
        return KeptNull(*given.values()).identity

    fewer = icl.build_prompts("reviews", model, shots=1, n=3)
    half = icl.untrained(model)
    others = [
        key(seed=1),
        key(measurement=Flow(draws=3)),
        key(data=fewer),
        key(data=(prompts, prompts)),
        key(interventions=[ZeroHeads([(0, 1)])]),
        key(model=adapt(tiny_model("gemma3"))),
    ]
    assert key() == key(model=adapt(half))
    assert len({key(), *others}) == 1 + len(others)


def test_versions_are_part_of_it(model, prompts, monkeypatch):
    before = KeptNull(adapt(model), Flow(), prompts, (), 0).identity
    monkeypatch.setattr(provenance, "_version", lambda name: "another")
    assert KeptNull(adapt(model), Flow(), prompts, (), 0).identity != before


def test_a_rehearsal_writes_nothing(model, prompts, folder, networks):
    icl.analyze(model, prompts, plan=True, nulls=2, progress=False)
    assert not folder.exists()
    assert not nulls._KNOWN


@pytest.fixture(scope="module")
def shipped():
    """What a documented command asks of untrained networks of the offline model."""
    return shipped_nulls.needed("--task headlines --study label_words --n 12")


def test_a_documented_command_makes_no_network(shipped, networks, monkeypatch):
    monkeypatch.setattr(nulls, "_KNOWN", {})
    results = nulls.untrained_results(*shipped)
    assert {name: len(of_seeds) for name, of_seeds in results.items()} == {
        "flow": 3,
        "isolation": 3,
        "extraction": 3,
    }
    assert not networks


@pytest.mark.parametrize(
    "name",
    [
        "extraction",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("flow", "isolation", "layer_accuracy")
        ),
    ],
)
def test_a_shipped_result_is_what_its_network_gives(name, shipped, monkeypatch):
    if name == "layer_accuracy":
        shipped = shipped_nulls.needed("--task headlines --study overthinking --shots 2 --n 12")
    model, wanted, _, options = shipped
    measurement, data = wanted[name]
    known = KeptNull(model, measurement, data, options.interventions, 0).load()
    monkeypatch.setattr(nulls, "_KNOWN", {})
    monkeypatch.setattr(kept_nulls, "SHIPPED", PACKAGE / "nowhere")
    ((measured,),) = nulls.untrained_results(
        model, {name: (measurement, data)}, 1, options
    ).values()
    held = {key: value for key, value in vars(known).items() if isinstance(value, torch.Tensor)}
    assert held
    for key, value in held.items():
        torch.testing.assert_close(
            getattr(measured, key), value, rtol=1e-3, atol=1e-5, equal_nan=True
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", shipped_nulls.COMMANDS)
def test_every_documented_command_is_covered(command):
    assert all(one.shipped.is_dir() for one in shipped_nulls.kept(command))


class Shares(Bar):
    """The fractions that a bar shows."""

    def __init__(self):
        self.seen = []

    def show(self, title, share, words):
        self.seen.append(share)


def test_networks_that_a_stopped_run_measured_are_not_counted(
    model, prompts, folder, networks, monkeypatch, tmp_path
):
    icl.analyze(model, prompts, nulls=3, progress=False, out=tmp_path / "run")
    for kept in folder.iterdir():
        shutil.rmtree(kept)
    monkeypatch.setattr(nulls, "_KNOWN", {})
    whole = Overall("a study again", True, Shares())
    with whole:
        icl.analyze(model, prompts, nulls=3, progress=True, out=tmp_path / "run")
        assert len(networks) == 3
        assert whole._total == pytest.approx(whole._done)


def test_progress_counts_networks_from_the_start(model, prompts, folder, networks):
    bar = Shares()
    with Overall("two studies", True, bar):
        icl.analyze(model, prompts, nulls=3, progress=True)
    assert len(networks) == 3
    assert bar.seen == sorted(bar.seen)
    assert bar.seen[-1] == pytest.approx(1)
    assert 0.1 < bar.seen[len(bar.seen) // 2] < 0.9
    again = Shares()
    nulls._KNOWN.clear()
    with Overall("again", True, again):
        icl.analyze(model, prompts, nulls=3, progress=True)
    assert again.seen == sorted(again.seen)
    assert again.seen[-1] == pytest.approx(1)
