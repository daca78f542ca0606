"""Functions made of measurements: what they take, what they say, what they give."""

import inspect
import pickle
from dataclasses import fields

import pytest

import icl_mech as icl
from icl_mech import measurements
from icl_mech.errors import RunError
from icl_mech.measurements import AnyMeasurement, Flow, Isolation, Options
from icl_mech.own import door
from tests.engine.cases import ragged
from tests.said import Words
from tests.tiny import tiny_model

WORDS = Words(__file__)

OPTIONS = [own.name for own in fields(Options)]
DOORS = [name for name in icl.__all__ if "__signature__" in vars(getattr(icl, name))]


def test_most_measurements_have_one():
    kinds = [getattr(measurements, name) for name in measurements.__all__]
    assert len(DOORS) >= 30
    assert (
        len([own for own in kinds if inspect.isclass(own) and issubclass(own, AnyMeasurement)]) > 30
    )


@pytest.mark.parametrize("name", DOORS)
def test_help_names_all_that_is_taken(name):
    function = getattr(icl, name)
    taken = list(inspect.signature(function).parameters)
    assert set(OPTIONS) <= set(taken)
    assert function.__name__ == function.__qualname__ == name
    help_of = function.__doc__
    assert [own for own in taken if f"\n    {own}: " not in help_of] == []
    assert help_of.index("Args:") < help_of.index("Raises:")


def test_a_door_a_called_measurement_and_measure_give_the_same():
    model, prompts = tiny_model("gpt2"), ragged()
    one = icl.flow_scores(model, prompts, loss="label", batch_size=2, progress=False)
    other = Flow(loss="label")(model, prompts, batch_size=2, progress=False)
    third = icl.measure(model, prompts, Flow(loss="label"), batch_size=2, progress=False)
    assert one.values.equal(other.values)
    assert one.values.equal(third["flow"].values)
    assert one.provenance["variants"] == other.provenance["variants"]


@pytest.mark.parametrize("name", DOORS)
def test_what_reads_the_source_finds_no_other_signature(name):
    # Documentation and editors take defaults from the function `__wrapped__` leads to.
    # (`wrapped` is what checks types in tests).
    assert inspect.unwrap(getattr(icl, name)).__code__.co_name in ("measure", "wrapped")


def test_doors_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(icl.isolation)) is icl.isolation  # noqa: S301 - made here


def test_words_that_are_not_taken():
    for error in (icl.IclMechError, TypeError):
        with WORDS.raises(error, "unexpected", "flow_scores", "'los'", "'loss'"):
            icl.flow_scores(None, None, los="label")
    with WORDS.raises(RunError, "words_taken", "'prompts'"):
        icl.isolation(None)
    with WORDS.raises(RunError, "words_taken_2"):
        icl.head_scores(None, None, None)
    with WORDS.raises(RunError, "unexpected", "steer", "'memry'", "'memory'"):
        icl.steer(None, None, None, memry="8GB")
    for function in (icl.analyze, icl.measure, icl.fit_reweighting):
        with WORDS.raises(RunError, "unexpected", function.__name__, "'memry'", "'memory'"):
            function(None, None, memry="8GB")


def test_fields_may_have_other_names_as_arguments():
    assert "steps" in inspect.signature(icl.attribution_patching).parameters
    WORDS(icl.attribution_patching.__doc__, "field_of_another_name", "steps: ")


def test_a_door_of_your_own():
    mine = door(Isolation, "mine", prompts="Any prompts with demonstrations.")
    found = mine(tiny_model("gpt2"), ragged(), depths=(1,), progress=False)
    assert found.depths == (1,)
    WORDS(mine.__doc__, "door_your_own")
